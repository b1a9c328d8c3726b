//! One boot of the lab's virtual machine, in which one script runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::{Lab, joined};
use crate::process::{self, End, follow, path};
use crate::workspace::{make_folder, root};

/// The resources of one boot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time after which the machine is killed.
    pub(crate) time: Duration,
    /// Memory of the machine, MiB.
    pub(crate) memory: u32,
    pub(crate) cpus: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(120), memory: 2048, cpus: 2 }
    }
}

/// Exit code of a run that hit its time limit.
const TIMED_OUT: i32 = 124;

/// Boots the machine, runs `script` with `args` in it as root, and returns the script's exit code.
///
/// The script can use this machine's files (read-only, below an overlay that is discarded), the folder `out` as
/// `$OUT`, and no network. `line` gets each line that it prints, as it prints it.
pub(crate) fn run(
    lab: &Lab,
    script: &Path,
    args: &[String],
    out: &Path,
    limits: Limits,
    line: &mut dyn FnMut(&str),
) -> Result<i32> {
    let script = script.canonicalize().with_context(|| format!("no script {}", script.display()))?;
    make_folder(out)?;
    let out = out.canonicalize().context("resolve the output folder")?;
    let control = lab.dir.join(format!("run-{}", std::process::id()));
    make_folder(&control)?;
    fs::write(control.join("cmd"), command_file(lab, &script, args)).context("write the guest's command")?;
    let mut qemu = qemu(lab, &control, &out, limits)?;
    let code = match follow(&mut qemu, limits.time, &mut |text| line(text.trim_end()))?.end {
        End::TimedOut(_) => Ok(TIMED_OUT),
        end if end.is_good() => script_code(&control),
        end => Err(anyhow!("qemu ended with {end}; its console:\n{}", tail(&control))),
    };
    // If this fails, files are left in target/, which does no harm.
    let _ = fs::remove_dir_all(&control);
    code
}

fn script_code(control: &Path) -> Result<i32> {
    let text = fs::read_to_string(control.join("rc")).unwrap_or_default();
    match text.trim().parse() {
        Ok(code) => Ok(code),
        Err(_) => bail!("the machine stopped before its script ended; its console:\n{}", tail(control)),
    }
}

fn tail(control: &Path) -> String {
    let text = fs::read(control.join("console")).unwrap_or_default();
    process::tail(&String::from_utf8_lossy(&text), 30).join("\n")
}

/// The shell text that the guest runs.
fn command_file(lab: &Lab, script: &Path, args: &[String]) -> String {
    let here = std::env::current_dir().unwrap_or_else(|_| root());
    // Leave out the wrappers ("shims") of version managers, which take seconds for each call in the guest.
    // python3 is then the machine's own, which has AF_TIPC.
    let own = path().into_iter().filter(|folder| !folder.ends_with("shims") && folder.is_dir());
    let path = joined(own.chain(lab.folders()).collect::<Vec<_>>().iter());
    let mut text = format!("export PATH={} LANG=C.UTF-8 OUT=/lab/out LAB_VM=1 HOME=/run\n", quoted(&path));
    let libraries = lab.libraries();
    if !libraries.is_empty() {
        text.push_str(&format!("export LD_LIBRARY_PATH={}\n", quoted(&libraries)));
    }
    let runner = match script.extension().and_then(|e| e.to_str()) {
        Some("py") => "python3 -u ",
        Some("sh") => "bash ",
        _ => "",
    };
    let (here, script) = (here.display().to_string(), script.display().to_string());
    let words = std::iter::once(&script).chain(args).map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    text.push_str(&format!("cd {} || exit 125\nexec {runner}{words}\n", quoted(&here)));
    text
}

/// `text` as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn qemu(lab: &Lab, control: &Path, out: &Path, limits: Limits) -> Result<Command> {
    let program = lab.program("qemu-system-x86_64").context("the package qemu-system-x86 has no qemu")?;
    // setpriv ends the machine when this process ends for any reason.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(&program);
    if program.starts_with(lab.tools()) {
        command.env("LD_LIBRARY_PATH", lab.libraries());
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(lab.tools().join(data));
        }
    }
    // The CPU is always emulated: KVM is often missing inside virtual machines, and time limits must hold without it.
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
    command.args(["-smp", &limits.cpus.to_string(), "-m", &limits.memory.to_string()]);
    command.args(["-nodefaults", "-no-reboot", "-display", "none", "-nic", "none"]);
    command.arg("-kernel").arg(lab.kernel()).arg("-initrd").arg(lab.initrd());
    command.args(["-append", "console=ttyS0 panic=-1 loglevel=5 mitigations=off random.trust_cpu=on"]);
    let console = format!("file,id=con,path={}", control.join("console").display());
    command.args(["-chardev", &console, "-serial", "chardev:con"]);
    command.args(["-chardev", "file,id=port,path=/proc/self/fd/1", "-device", "virtio-serial-pci"]);
    command.args(["-device", "virtserialport,chardev=port,name=lab"]);
    let shares = [("host", Path::new("/"), ",readonly=on"), ("ctl", control, ""), ("out", out, "")];
    for (name, path, access) in shares {
        let share =
            format!("local,id={name},path={}{access},security_model=none,multidevs=remap", path.display());
        command.args(["-fsdev", &share, "-device", &format!("virtio-9p-pci,fsdev={name},mount_tag={name}")]);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_the_shell() {
        let text = "it's $HOME `x` \"y\" \\";
        let out =
            std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quoted(text))]).output();
        assert_eq!(out.expect("run sh").stdout, text.as_bytes());
    }
}
