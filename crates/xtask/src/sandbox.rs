//! `cargo xtask sandbox`: runs the demo and measurements with as few rights as in a container.
//!
//!
//! The sandbox is a user namespace without any capability, a root file system that cannot be written, and a
//! filter that refuses the system calls that the usual filter of containers refuses.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::process::{self, End};

/// Time limit of one program.
const LIMIT: Duration = Duration::from_secs(180);

/// Shell script that makes the root file system read-only, except for the daemon's directory `$1` and an empty
/// `/tmp`, drops every capability, and runs the other arguments as a command.
const RESTRICT: &str = r#"set -e; shared=$1; shift
root=$(mktemp -d); mount -t tmpfs none "$root"; mkdir "$root/new"; root=$root/new
mount --rbind / "$root"
awk '{print $5}' /proc/self/mountinfo | grep "^$root" | sort | while read -r at; do
  mount -o remount,bind,ro "$at" 2>/dev/null || true
done
mount --bind "$shared" "$root$shared"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t proc none "$root/proc"
cd /
exec chroot "$root" setpriv --no-new-privs --inh-caps=-all --bounding-set=-all "$@""#;

/// Options of `unshare`: namespaces of users, mounts, processes, IPC and host name for the sandbox.
const UNSHARE: [&str; 7] = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts"];

/// Reason why there is no sandbox here.
pub(crate) fn obstacle() -> Option<String> {
    for tool in ["setpriv", "unshare"] {
        if let Err(error) = Command::new(tool).arg("--version").output() {
            return Some(format!("no {tool}: {error}"));
        }
    }
    let probe = Command::new("unshare").args(UNSHARE).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    match probe {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(format!("no user namespaces: {}", String::from_utf8_lossy(&out.stderr).trim())),
        Err(error) => Some(format!("no user namespaces: {error}")),
    }
}

/// A daemon outside of the sandbox. It is ended when this value is dropped.
struct Outside {
    child: Child,
    folder: PathBuf,
}

impl Outside {
    fn start(program: &Path, folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let config = folder.join("utipcd.toml");
        std::fs::write(&config, "[node]\naddress = \"1.1.1\"\n[log]\nlevel = \"warn\"\n")
            .context("write a configuration")?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&config).arg("--socket").arg(folder.join("sock")).stdin(Stdio::null());
        let mut outside = Self { child: command.spawn().context("start utipcd")?, folder };
        let begun = Instant::now();
        while !outside.socket().exists() {
            ensure!(begun.elapsed() < LIMIT, "the daemon is not ready after {LIMIT:?}");
            ensure!(outside.child.try_wait()?.is_none(), "the daemon has ended at once");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(outside)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Builds the tools and runs them in the sandbox.
pub(crate) fn run(root: &Path) -> Result<()> {
    if let Some(why) = obstacle() {
        bail!("{why}");
    }
    let own = std::env::current_exe().context("find this program")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--message-format=json"]);
    // `utipc bench` starts the program of the second package.
    build.args(["--package", "utipc-tools", "--package", "utipc-lab"]);
    build.args(["--bin", "utipc", "--bin", "utipcd", "--bin", "utipc-lab"]);
    let messages = process::output(build.current_dir(root))?;
    let program = |name: &str| {
        let artifacts = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let mut named = artifacts.filter_map(|a| a["executable"].as_str().map(PathBuf::from));
        named.find(|path| path.ends_with(name)).with_context(|| format!("cargo has built no {name}"))
    };
    let (utipc, utipcd) = (program("utipc")?, program("utipcd")?);
    let outside = Outside::start(&utipcd, root.join("target/sandbox"))?;
    let quick = ["--engine", "daemon", "--scope", "intra", "--transport", "utipc,tcp,uds", "--rounds", "2"];
    let quick = [&quick[..], &["--seconds", "0.2", "--json"]].concat();
    let inside = |what: &str, socket: Option<&Path>, args: &[&str], last: &str| -> Result<()> {
        let mut command = Command::new("unshare");
        command.args(UNSHARE).args(["sh", "-c", RESTRICT, "sh"]).arg(&outside.folder);
        command.arg(&own).args(["sandboxed", "--"]).arg(&utipc).args(args);
        command.env_remove("UTIPC_ENGINE").env_remove("XDG_RUNTIME_DIR").env("TMPDIR", "/tmp");
        match socket {
            Some(socket) => command.env("UTIPC_SOCKET", socket),
            None => command.env_remove("UTIPC_SOCKET"),
        };
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("run unshare")?;
        let mut out = child.stdout.take().context("a program without output")?;
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut out, &mut text)
                .map(|_| String::from_utf8_lossy(&text).into_owned())
        });
        let end = process::wait(&mut child, LIMIT)?;
        let text = reader.join().ok().context("read what a program says")??;
        let good = matches!(&end, End::Exit(status) if status.success())
            && text.lines().last().is_some_and(|line| line.contains(last));
        ensure!(good, "{what}: {end:?}, the last line is not as expected:\n{text}");
        println!("{what}: ok, {} lines", text.lines().count());
        Ok(())
    };
    inside("demo", None, &["demo"], "demo: ok")?;
    for test in ["latency", "throughput"] {
        let args = [&["bench", test][..], &quick].concat();
        inside(&format!("bench {test}, daemon inside"), None, &args, "\"test\"")?;
        let socket = outside.socket();
        inside(&format!("bench {test}, daemon outside"), Some(&socket), &args, "\"test\"")?;
    }
    println!("sandbox: ok");
    Ok(())
}

/// Checks that this process is inside the sandbox, installs the filter of system calls, and executes the
/// program.
pub(crate) fn enter(command: &[String]) -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").context("look at this process")?;
    for (name, value) in [("CapEff:", 0), ("CapPrm:", 0), ("CapBnd:", 0), ("NoNewPrivs:", 1)] {
        let found =
            status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok());
        ensure!(found == Some(value), "{name} is {found:?} and not {value}: this is no sandbox");
    }
    for place in ["/written", "/etc/written", "/usr/written"] {
        let written = std::fs::write(place, "");
        let refused = written.as_ref().is_err_and(|e| e.kind() == ErrorKind::ReadOnlyFilesystem);
        ensure!(refused, "{place} can be written ({written:?}): this is no sandbox");
    }
    for filter in filters()? {
        seccompiler::apply_filter(&filter).context("put a filter of system calls in force")?;
    }
    // Check the filter: without it, an unprivileged user may do this.
    let refused = Command::new("unshare").args(["--user", "true"]).stderr(Stdio::null()).status();
    ensure!(refused.is_ok_and(|status| !status.success()), "the filter lets a user namespace be made");
    let (program, args) = command.split_first().context("no program")?;
    Err(Command::new(program).args(args).exec()).with_context(|| format!("run {program}"))
}

/// Calls that the default profile of container engines refuses to a process without capabilities. Source: the table
/// "Significant syscalls blocked by the default profile" of the Docker manual, and io_uring since 2023.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// System calls that the filter answers with ENOSYS, as container engines do that are older than the call.
const UNKNOWN: &[libc::c_long] = &[libc::SYS_clone3, libc::SYS_futex_waitv];

fn filters() -> Result<[BpfProgram; 2]> {
    let always = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = always(REFUSED);
    // New namespaces, by any of their flags.
    let spaces = [libc::CLONE_NEWNS, libc::CLONE_NEWUTS, libc::CLONE_NEWIPC, libc::CLONE_NEWUSER];
    let spaces = spaces.into_iter().chain([libc::CLONE_NEWPID, libc::CLONE_NEWNET, libc::CLONE_NEWCGROUP]);
    let rule = |argument, operator, value| -> Result<SeccompRule> {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    let clone = spaces.map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        rule(0, SeccompCmpOp::MaskedEq(flag), flag)
    });
    refused.insert(libc::SYS_clone, clone.collect::<Result<_>>()?);
    let vsock = u64::from(libc::AF_VSOCK.cast_unsigned());
    refused.insert(libc::SYS_socket, vec![rule(0, SeccompCmpOp::Eq, vsock)?]);
    let build = |rules, errno: i32| -> Result<BpfProgram> {
        let action = SeccompAction::Errno(errno.cast_unsigned());
        let arch = std::env::consts::ARCH.try_into()?;
        Ok(SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()?)
    };
    Ok([build(always(UNKNOWN), libc::ENOSYS)?, build(refused, libc::EPERM)?])
}
