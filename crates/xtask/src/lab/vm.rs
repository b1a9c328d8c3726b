//! One boot of the lab's virtual machine, in which one script runs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Lab, system_path};
use crate::process::{self, End};

/// The resources of one boot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time after which the machine is killed.
    pub(crate) time: Duration,
    /// Memory of the machine, MiB.
    pub(crate) memory: u32,
    pub(crate) cpus: u32,
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
    std::fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    let out = out.canonicalize().context("resolve the output folder")?;
    let control = lab.dir.join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&control).context("make the control folder")?;
    std::fs::write(control.join("cmd"), command_file(lab, &script, args))
        .context("write the guest's command")?;

    let mut child = qemu(lab, &control, &out, limits)?.spawn().context("start qemu")?;
    let printed = child.stdout.take().context("qemu has no output")?;
    let code = std::thread::scope(|threads| -> Result<i32> {
        let (sender, lines) = std::sync::mpsc::channel();
        threads.spawn(move || {
            for text in BufReader::new(printed).split(b'\n').map_while(Result::ok) {
                // Cannot fail: the receiver lives until the last line.
                let _ = sender.send(String::from_utf8_lossy(&text).trim_end().to_owned());
            }
        });
        let waiter = threads.spawn(move || process::wait(&mut child, limits.time));
        for text in lines {
            line(&text);
        }
        match waiter.join() {
            Ok(Ok(End::TimedOut)) => Ok(TIMED_OUT),
            Ok(Ok(End::Exit(status))) if status.success() => script_code(&control),
            Ok(Ok(End::Exit(status))) => bail!("qemu ended with {status}; its console:\n{}", tail(&control)),
            Ok(Err(error)) => Err(error),
            Err(_) => bail!("the thread that waits for qemu panicked"),
        }
    });
    // If this fails, files are left in target/, which does no harm.
    let _ = std::fs::remove_dir_all(&control);
    code
}

fn script_code(control: &Path) -> Result<i32> {
    let text = std::fs::read_to_string(control.join("rc")).unwrap_or_default();
    match text.trim().parse() {
        Ok(code) => Ok(code),
        Err(_) => bail!("the machine stopped before its script ended; its console:\n{}", tail(control)),
    }
}

fn tail(control: &Path) -> String {
    let text = std::fs::read(control.join("console")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
}

/// The shell text that the guest runs.
fn command_file(lab: &Lab, script: &Path, args: &[String]) -> String {
    let here = std::env::current_dir().unwrap_or_else(|_| lab.root.clone());
    // Leave out the wrappers ("shims") of version managers, which take seconds for each call in the guest.
    // python3 is then the machine's own, which has AF_TIPC.
    let mut path: Vec<PathBuf> =
        system_path().into_iter().filter(|d| !d.ends_with("shims") && d.is_dir()).collect();
    path.extend(
        ["usr/bin", "usr/sbin", "bin", "sbin"]
            .map(|d| lab.tools().join(d))
            .into_iter()
            .filter(|d| d.is_dir()),
    );
    let path = path.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(":");
    let mut text = format!("export PATH={} LANG=C.UTF-8 OUT=/lab/out LAB_VM=1 HOME=/run\n", quoted(&path));
    let libraries = lab.libraries();
    if !libraries.is_empty() {
        text.push_str(&format!("export LD_LIBRARY_PATH={}\n", quoted(&libraries)));
    }
    text.push_str(&format!("cd {} || exit 125\n", quoted(&here.display().to_string())));
    let runner = match script.extension().and_then(|e| e.to_str()) {
        Some("py") => "python3 -u ",
        Some("sh") => "bash ",
        _ => "",
    };
    text.push_str(&format!("exec {runner}{}", quoted(&script.display().to_string())));
    for arg in args {
        text.push(' ');
        text.push_str(&quoted(arg));
    }
    text.push('\n');
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
    command.stdin(Stdio::null()).stdout(Stdio::piped());
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
