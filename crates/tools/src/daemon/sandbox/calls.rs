//! The filter of system calls: those that the daemon makes, and their relatives that a C library may use in their
//! place. All others fail with EPERM.

use std::collections::BTreeMap;

use anyhow::Result;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Allowed with all arguments. No `execve`, `fork`, `kill`, `ptrace`, `mount`, `bpf`, `setuid` and their kind.
const ALLOWED: &[c_long] = &[
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // Files: the socket, its lock, the state, the configuration, captures.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mlock,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Waiting and time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Threads, signals and the process itself.
    libc::SYS_capget,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_get_robust_list,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_times,
    libc::SYS_uname,
];

/// Older forms of allowed calls, present only on some machines.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Families of sockets: attachments, bearers and their interfaces.
const FAMILIES: [libc::c_int; 5] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// The filters, in the order in which they are installed.
pub(super) fn filters() -> Result<[BpfProgram; 2]> {
    let arch = std::env::consts::ARCH.try_into()?;
    let refuse = |errno: i32| SeccompAction::Errno(errno.cast_unsigned());
    // Its flags are in memory, where a filter cannot see them; the C library then uses `clone`.
    let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let older = SeccompFilter::new(no_clone3, SeccompAction::Allow, refuse(libc::ENOSYS), arch)?;
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    rules.extend(limited()?);
    // The first filter decides about it.
    rules.insert(libc::SYS_clone3, Vec::new());
    let allowed = SeccompFilter::new(rules, refuse(libc::EPERM), SeccompAction::Allow, arch)?;
    Ok([older.try_into()?, allowed.try_into()?])
}

/// Calls that are allowed with some arguments only.
fn limited() -> Result<Vec<(c_long, Vec<SeccompRule>)>> {
    let condition = |argument, operator, value: libc::c_int| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))
    };
    let has = |flag: libc::c_int| SeccompCmpOp::MaskedEq(u64::from(flag.cast_unsigned()));
    let rule = |condition| SeccompRule::new(vec![condition]);
    let mut families = Vec::new();
    for family in FAMILIES {
        families.push(rule(condition(0, SeccompCmpOp::Eq, family)?)?);
    }
    Ok(vec![
        (libc::SYS_socket, families),
        // Threads, not processes.
        (libc::SYS_clone, vec![rule(condition(0, has(libc::CLONE_THREAD), libc::CLONE_THREAD)?)?]),
        // No memory that is written and executed.
        (
            libc::SYS_mmap,
            vec![
                rule(condition(2, has(libc::PROT_EXEC), 0)?)?,
                rule(condition(2, has(libc::PROT_WRITE), 0)?)?,
            ],
        ),
        (libc::SYS_mprotect, vec![rule(condition(2, has(libc::PROT_EXEC), 0)?)?]),
    ])
}
