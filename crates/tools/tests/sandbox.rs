//! `utipcd --sandbox` serves programs and links with the rights of an ordinary user: own user, no new privileges, a
//! filter of system calls, limits, and CAP_NET_RAW only. These tests need root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use utipc::{Engine, Node, Scope, ServiceAddress, SocketKind};
use utipc_netns::{Cable, Namespace};

/// Set for the program: the daemon's socket.
const DAEMON: &str = "UTIPC_TEST_DAEMON";
/// The daemon's user, which every system has, and its number.
const DAEMON_USER: &str = "nobody";
const DAEMON_UID: u32 = 65_534;
/// A user without a login on this machine.
const ALICE: u32 = 64_001;
/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
const CABLE: Cable =
    Cable { interface: "cable", addresses: [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)] };

/// A directory of the daemon's user, removed after the test.
struct Home(PathBuf);

impl Home {
    fn new(name: &str, owner: u32) -> Self {
        let path = std::env::temp_dir().join(format!("utipcd-sandbox-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("sock")
    }

    fn config(&self, text: &str) -> PathBuf {
        let path = self.0.join("utipcd.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// A copy of a program that every user can execute.
    fn copy(&self, program: &Path) -> PathBuf {
        let copy = self.0.join(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        copy
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Daemon {
    child: Child,
    log: std::io::Lines<BufReader<ChildStderr>>,
}

impl Daemon {
    /// Starts a command that becomes `utipcd`; returns when programs may attach.
    fn start(mut command: Command) -> Self {
        let mut child = command.env_remove("UTIPC_LOG").stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut daemon = Self { child, log };
        daemon.logged("programs may attach");
        daemon
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn logged(&mut self, what: &str) -> String {
        let mut before = Vec::new();
        for line in self.log.by_ref().map_while(Result::ok) {
            if line.contains(what) {
                return line;
            }
            before.push(line);
        }
        panic!("no line with {what:?} in {before:#?}");
    }

    /// The value of a field, equal in all threads. A thread that ends between the listing and the reading has none.
    fn status(&self, field: &str) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let mut values: Vec<_> = tasks
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
            .map(|status| {
                let value = status.lines().find_map(|line| line.strip_prefix(field)).expect(field);
                value.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert!(values.len() > 1, "the event loop has its own thread");
        values.sort();
        values.dedup();
        values
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// `utipc bearer ...` as root.
fn bearer(namespace: &Namespace, home: &Home, args: &[&str]) -> Output {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_utipc"));
    command.arg("bearer").args(args).env("UTIPC_SOCKET", home.socket()).output().unwrap()
}

/// Not a test: a program that uses datagrams and a connection, both with lanes.
#[test]
fn program() {
    let Some(path) = std::env::var_os(DAEMON) else { return };
    let node = Node::builder().engine(Engine::Daemon).daemon_at(path).start().unwrap();
    let (datagrams, stream) = (ServiceAddress::new(9600, 1), ServiceAddress::new(9600, 2));
    let (receiver, sender) = (node.rdm().unwrap(), node.rdm().unwrap());
    receiver.set_receive_timeout(Some(LIMIT));
    receiver.bind(datagrams, Scope::Node).unwrap();
    for i in 0..100_u32 {
        sender.send_to(&i.to_le_bytes(), datagrams).unwrap();
        assert_eq!(receiver.receive().unwrap().data, i.to_le_bytes());
    }
    let listener = node.listen(SocketKind::SeqPacket, stream).unwrap();
    let (near, far) = std::thread::scope(|threads| {
        let accepted = threads.spawn(|| listener.accept().unwrap());
        (node.connect(SocketKind::SeqPacket, stream).unwrap(), accepted.join().unwrap())
    });
    for i in 0..100_u32 {
        near.send(&i.to_le_bytes()).unwrap();
        assert_eq!(far.receive().unwrap().data, i.to_le_bytes());
    }
    // A descriptor to poll comes from the daemon.
    receiver.descriptor().unwrap();
    println!("\n@done");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn sandboxed_daemon_serves_programs_and_bearers_with_few_rights() {
    if !is_root() {
        return;
    }
    let home = Home::new("root", DAEMON_UID);
    let [namespace, other] = CABLE.join().unwrap();
    let config = home.config(&format!(
        "[node]\nuser = \"{DAEMON_USER}\"\n[policy]\nsocket_mode = \"0666\"\n\
         [[bearer]]\nmedia = \"ethernet\"\nname = \"{}\"\n",
        CABLE.interface
    ));
    let mut command = namespace.command(env!("CARGO_BIN_EXE_utipcd"));
    command.arg("--sandbox").arg("--config").arg(&config).arg("--socket").arg(home.socket());
    let mut daemon = Daemon::start(command);
    assert_eq!(fs::metadata(home.socket()).unwrap().uid(), DAEMON_UID);
    check_rights(&daemon);
    for (resource, most) in [("Max open files", 1 << 20), ("Max data size", u64::MAX / 2)] {
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.child.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix(resource)).unwrap();
        let hard = line.split_whitespace().nth(1).unwrap();
        assert!(hard.parse().is_ok_and(|hard: u64| hard <= most), "{resource}: {line}");
    }

    // Another user attaches and uses lanes.
    let mut user = Command::new(home.copy(&std::env::current_exe().unwrap()));
    user.args(["--exact", "program", "--nocapture"]).env(DAEMON, home.socket());
    let mut user = user.uid(ALICE).gid(ALICE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(user.stdout.take().unwrap()).lines().map_while(Result::ok);
    let done = lines.any(|line| line == "@done");
    kill(daemon.pid(), Signal::SIGUSR1).unwrap();
    let counters = daemon.logged("counters");
    drop(user.stdin.take());
    assert!(done, "the program has failed");
    assert!(!counters.contains("\"pairs\":0"), "the program has lanes: {counters}");
    // The harness prints its result.
    lines.for_each(drop);
    assert!(user.wait().unwrap().success());

    // Bearers at run time, with and without a raw socket.
    let [first, _] = CABLE.addresses.map(|address| address.to_string());
    let lan = ["enable", "media", "udp", "name", "lan", "localip", &first];
    let enabled = bearer(&namespace, &home, &lan);
    assert!(enabled.status.success(), "{}", text(&enabled));
    let ethernet = ["media", "eth", "device", CABLE.interface];
    let disabled = bearer(&namespace, &home, &[&["disable"], &ethernet[..]].concat());
    assert!(disabled.status.success(), "{}", text(&disabled));
    let enabled = bearer(&namespace, &home, &[&["enable"], &ethernet[..]].concat());
    assert!(enabled.status.success(), "CAP_NET_RAW is kept: {}", text(&enabled));
    let list = text(&bearer(&namespace, &home, &["list"]));
    assert!(list.contains("udp:lan") && list.contains("eth:cable"), "{list}");
    check_rights(&daemon);
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    forbidden::check(daemon.pid());

    // It ends in good order, and removes its files.
    kill(daemon.pid(), Signal::SIGTERM).unwrap();
    assert!(daemon.child.wait().unwrap().success());
    assert!(!home.socket().exists());
    drop(other);
}

/// Every thread is an ordinary user under the filter, with CAP_NET_RAW (bit 13) alone.
fn check_rights(daemon: &Daemon) {
    let id = DAEMON_UID;
    for (field, value) in [
        ("Uid", format!("{id} {id} {id} {id}")),
        ("NoNewPrivs", "1".to_owned()),
        ("Seccomp", "2".to_owned()),
        ("CapEff", "0000000000002000".to_owned()),
        ("CapPrm", "0000000000002000".to_owned()),
        ("CapInh", "0000000000000000".to_owned()),
        ("CapBnd", "0000000000002000".to_owned()),
    ] {
        assert_eq!(daemon.status(field), [value], "{field}");
    }
}

#[test]
fn user_without_privileges_gets_the_sandbox_and_a_clear_error_for_a_raw_socket() {
    if !is_root() {
        return;
    }
    let home = Home::new("user", ALICE);
    let [namespace, _other] = CABLE.join().unwrap();
    let program = home.copy(Path::new(env!("CARGO_BIN_EXE_utipcd")));
    let mut command = namespace.command("setpriv");
    let user = [format!("--reuid={ALICE}"), format!("--regid={ALICE}")];
    command.args(user).args(["--clear-groups", "--"]).arg(program);
    command.arg("--sandbox").arg("--socket").arg(home.socket()).env_remove("XDG_RUNTIME_DIR");
    let daemon = Daemon::start(command);
    assert_eq!(daemon.status("CapEff"), ["0000000000000000"]);
    assert_eq!(daemon.status("Seccomp"), ["2"]);
    let refused = bearer(&namespace, &home, &["enable", "media", "eth", "device", CABLE.interface]);
    let why = text(&refused);
    assert!(!refused.status.success() && why.to_lowercase().contains("permitted"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
}

#[test]
fn sandbox_without_its_user_or_its_directory_names_the_remedy() {
    if !is_root() {
        return;
    }
    let home = Home::new("wrong", 0);
    for (user, remedy) in [("no-such-user-here", "create it"), (DAEMON_USER, "--socket")] {
        let config = home.config(&format!("[node]\nuser = \"{user}\"\n"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.arg("--sandbox").arg("--config").arg(&config).arg("--socket").arg(home.socket());
        let output = command.output().unwrap();
        let error = text(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.lines().count() == 1 && error.contains(user) || error.contains(remedy), "{error}");
    }
}

/// Makes the daemon's main thread, which waits for signals, do a system call of the test's choice.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod forbidden {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;
    use rustix::io::Errno;

    const GETPID: u64 = 39;
    const KILL: u64 = 62;
    const UNSHARE: u64 = 272;

    /// Length of the instruction `syscall`, bytes.
    const SYSCALL: u64 = 2;

    pub(super) fn check(daemon: Pid) {
        ptrace::attach(daemon).unwrap();
        assert!(matches!(waitpid(daemon, None), Ok(WaitStatus::Stopped(..))));
        let own = i64::from(daemon.as_raw());
        assert_eq!(result_of(daemon, GETPID, [0, 0]), own, "an allowed call");
        // Without the filter both would succeed: no flags, and signal 0 to itself.
        let refused = -i64::from(Errno::PERM.raw_os_error());
        assert_eq!(result_of(daemon, UNSHARE, [0, 0]), refused, "unshare()");
        assert_eq!(result_of(daemon, KILL, [own.cast_unsigned(), 0]), refused, "kill()");
        ptrace::detach(daemon, None).unwrap();
    }

    /// The call replaces the one in which the thread waits, which is then repeated.
    fn result_of(thread: Pid, number: u64, arguments: [u64; 2]) -> i64 {
        let to_next_stop = || {
            ptrace::syscall(thread, None).unwrap();
            assert!(matches!(waitpid(thread, None), Ok(WaitStatus::Stopped(..))));
        };
        to_next_stop();
        let before = ptrace::getregs(thread).unwrap();
        let mut entry = before;
        entry.orig_rax = number;
        [entry.rdi, entry.rsi] = arguments;
        ptrace::setregs(thread, entry).unwrap();
        to_next_stop();
        let result = ptrace::getregs(thread).unwrap().rax;
        let mut again = before;
        again.rax = before.orig_rax;
        again.rip -= SYSCALL;
        ptrace::setregs(thread, again).unwrap();
        result.cast_signed()
    }
}
