//! Facts about the machine and about the memory of processes.

use anyhow::{Context, Result};
use procfs::Current as _;
use procfs::process::Process;

fn processor() -> Option<String> {
    Some(procfs::CpuInfo::current().ok()?.model_name(0)?.to_owned())
}

/// Cores, processor, kernel and load in one line.
#[must_use]
pub fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!(
        "{cores} cores, {}, Linux {}, load before {}",
        processor().unwrap_or("model unknown".into()),
        rustix::system::uname().release().to_string_lossy(),
        procfs::LoadAverage::current().map_or("unknown".into(), |load| format!("{:.2}", load.one))
    )
}

/// Machine, version and commit, for the captions of plots: two lines.
#[must_use]
pub fn caption() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let commit = commit().map_or(String::new(), |commit| format!(", commit {commit}"));
    format!(
        "{cores} cores, {}, Linux {}\nutipc {}{commit}",
        processor().unwrap_or("model unknown".into()),
        rustix::system::uname().release().to_string_lossy(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// The commit of the sources that this program was built from, with a mark if they were changed; `None` if they are not
/// here.
fn commit() -> Option<String> {
    let sources = env!("CARGO_MANIFEST_DIR");
    let mut git = std::process::Command::new("git");
    git.args(["-C", sources, "describe", "--always", "--dirty", "--exclude=*"]);
    let output = git.stderr(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

/// Whether software emulates this processor, as in the interop lab: then only ratios are meaningful.
#[must_use]
pub fn is_emulated() -> bool {
    processor().is_some_and(|model| model.contains("QEMU TCG CPU"))
}

/// A core for each of two roles; none where this process may use fewer than two.
#[must_use]
pub fn two_cores() -> [Option<usize>; 2] {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return [None, None] };
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => [Some(first), Some(second)],
        _ => [None, None],
    }
}

/// Resident memory of a process, KiB.
///
/// # Errors
/// There is no such process.
pub fn resident_kib(process: u32) -> Result<u64> {
    let status = Process::new(i32::try_from(process)?).and_then(|process| process.status());
    let status = status.with_context(|| format!("read the memory of process {process}"))?;
    status.vmrss.with_context(|| format!("process {process} has no memory"))
}

/// Memory of a process that no other shares plus its part of shared memory, KiB.
///
/// # Errors
/// There is no such process.
pub fn proportional_kib(process: u32) -> Result<u64> {
    let rollup = Process::new(i32::try_from(process)?).and_then(|process| process.smaps_rollup());
    let rollup = rollup.with_context(|| format!("read the memory of process {process}"))?;
    let bytes: Option<u64> =
        rollup.memory_map_rollup.iter().map(|map| map.extension.map.get("Pss").copied()).sum();
    Ok(bytes.with_context(|| format!("process {process} has no Pss"))? / 1024)
}
