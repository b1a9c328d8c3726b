//! `cargo xtask sandbox`: runs the demo and measurements with as few rights as in a container.
//!
//! The sandbox is a user namespace without any capability, a root file system that cannot be written, and a
//! filter that refuses the system calls that the usual filter of containers refuses.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::judge::Judge::{LastLine, LastLineHas};
use crate::needs::Skip;
use crate::running::Running;
use crate::step::{Plan, Site, Step};
use crate::workspace::{built, empty_folder, target};

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

/// A new sandbox, in which `utipc` runs below the filter of system calls.
macro_rules! inside {
    ($words:literal) => {
        concat!(
            "unshare --user --map-root-user --mount --pid --fork --ipc --uts sh -c {restrict} sh {outside} \
             {xtask} sandboxed -- {built}/utipc ",
            $words
        )
    };
}

/// On a daemon inside of the sandbox, which the program starts.
const INSIDE: &[(&str, &str)] =
    &[("UTIPC_ENGINE", ""), ("XDG_RUNTIME_DIR", ""), ("UTIPC_SOCKET", ""), ("TMPDIR", "/tmp")];

/// On the daemon outside of it.
const OUTSIDE: &[(&str, &str)] =
    &[("UTIPC_ENGINE", ""), ("XDG_RUNTIME_DIR", ""), ("UTIPC_SOCKET", "{outside}/sock"), ("TMPDIR", "/tmp")];

const LATENCY: &str = inside!(
    "bench latency --engine daemon --scope intra --transport utipc,tcp,uds --rounds 2 --seconds 0.2 --json"
);
const THROUGHPUT: &str = inside!(
    "bench throughput --engine daemon --scope intra --transport utipc,tcp,uds --rounds 2 --seconds 0.2 --json"
);

const PLAN: Plan = Plan {
    name: "sandbox",
    builds: &[
        // `utipc bench` starts the program of the second package.
        "--package utipc-tools --package utipc-lab --bin utipc --bin utipcd --bin utipc-lab",
    ],
    steps: &[
        Step::new("demo", 3, LastLine("demo: ok"), inside!("demo")).with(INSIDE),
        Step::new("bench latency, daemon inside", 3, LastLineHas("\"test\""), LATENCY).with(INSIDE),
        Step::new("bench latency, daemon outside", 3, LastLineHas("\"test\""), LATENCY).with(OUTSIDE),
        Step::new("bench throughput, daemon inside", 3, LastLineHas("\"test\""), THROUGHPUT).with(INSIDE),
        Step::new("bench throughput, daemon outside", 3, LastLineHas("\"test\""), THROUGHPUT).with(OUTSIDE),
    ],
};

/// Reason why there is no sandbox here, and what would help.
pub(crate) fn obstacle() -> Option<Skip> {
    let tools = ["setpriv", "unshare"].into_iter().find_map(|tool| {
        let error = Command::new(tool).arg("--version").output().err()?;
        Some(format!("no {tool}: {error}"))
    });
    let reason = tools.or_else(|| {
        let mut probe = Command::new("unshare");
        probe.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts"]);
        let why = match probe.args(["mount", "-t", "tmpfs", "none", "/mnt"]).output() {
            Ok(out) if out.status.success() => return None,
            Ok(out) => String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("no user namespaces: {why}"))
    })?;
    let remedy = "sudo sysctl user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0";
    Some(Skip::new(reason, remedy))
}

/// Builds the tools and runs them in the sandbox. Returns whether all succeeded.
pub(crate) fn run() -> Result<bool> {
    if let Some(skip) = obstacle() {
        return Err(skip.error());
    }
    PLAN.build()?;
    let outside = target().join("sandbox");
    empty_folder(&outside)?;
    let config = outside.join("utipcd.toml");
    std::fs::write(&config, "[node]\naddress = \"1.1.1\"\n").context("write a configuration")?;
    let mut daemon = Command::new(built("utipcd"));
    let _daemon =
        Running::daemon(daemon.arg("--config").arg(&config).arg("--socket").arg(outside.join("sock")))?;
    let site = Site::new()?.with("{restrict}", RESTRICT).with("{outside}", &outside);
    let good = PLAN.run_steps(&site)?.end();
    println!("sandbox: {}", if good { "ok" } else { "FAILED" });
    Ok(good)
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
#[rustfmt::skip]
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct, libc::SYS_add_key, libc::SYS_bpf, libc::SYS_clock_adjtime, libc::SYS_clock_settime,
    libc::SYS_delete_module, libc::SYS_fanotify_init, libc::SYS_finit_module, libc::SYS_fsconfig,
    libc::SYS_fsmount, libc::SYS_fsopen, libc::SYS_get_mempolicy, libc::SYS_init_module,
    libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_io_uring_setup, libc::SYS_kcmp,
    libc::SYS_kexec_load, libc::SYS_keyctl, libc::SYS_lookup_dcookie, libc::SYS_mbind, libc::SYS_mount,
    libc::SYS_move_mount, libc::SYS_move_pages, libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
    libc::SYS_open_tree, libc::SYS_perf_event_open, libc::SYS_personality, libc::SYS_pivot_root,
    libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_ptrace, libc::SYS_quotactl,
    libc::SYS_reboot, libc::SYS_request_key, libc::SYS_set_mempolicy, libc::SYS_setns, libc::SYS_settimeofday,
    libc::SYS_swapoff, libc::SYS_swapon, libc::SYS_syslog, libc::SYS_umount2, libc::SYS_unshare,
    libc::SYS_userfaultfd, libc::SYS_vhangup,
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
