//! Facts about the machine and about the memory of processes.

use anyhow::{Context, Result};

/// Cores, processor, kernel and load in one line.
#[must_use]
pub fn description() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model =
        cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|pair| pair.1));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let (release, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    format!(
        "{cores} cores, {}, Linux {}, load before {}",
        model.unwrap_or("model unknown"),
        release.trim(),
        load.split_whitespace().next().unwrap_or("unknown")
    )
}

/// Whether software emulates this processor, as in the interop lab: then only ratios are meaningful.
#[must_use]
pub fn is_emulated() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("QEMU TCG CPU"))
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

/// Resident memory of a process, by id or "self", KiB.
///
/// # Errors
/// There is no such process.
pub fn resident_kib(process: &str) -> Result<u64> {
    kib(&format!("/proc/{process}/status"), "VmRSS:")
}

/// Memory of a process that no other shares plus its part of shared memory, KiB.
///
/// # Errors
/// There is no such process.
pub fn proportional_kib(process: u32) -> Result<u64> {
    kib(&format!("/proc/{process}/smaps_rollup"), "Pss:")
}

fn kib(path: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("find {name} in {path}"))?;
    line.trim().trim_end_matches("kB").trim().parse().with_context(|| format!("read {name} in {path}"))
}
