//! The program `utipcd`: it starts without a configuration, refuses a wrong one, reloads, and ends in order.

#[path = "daemon/encryption.rs"]
mod encryption;
mod metrics_port;
#[path = "daemon/operate.rs"]
mod operate;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A directory that is removed after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("utipcd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon of a test; the test has the service manager's socket.
struct Running {
    child: Child,
    manager: UnixDatagram,
    log: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start(scratch: &Scratch, config: Option<&Path>) -> Self {
        Self::start_with(scratch, config, &[])
    }

    fn start_with(scratch: &Scratch, config: Option<&Path>, options: &[&str]) -> Self {
        let at = scratch.0.join("notify");
        let manager = UnixDatagram::bind(&at).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Like systemd's, for a daemon that has become another user.
        std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.args(options).arg("--socket").arg(scratch.0.join("sock"));
        command.env("NOTIFY_SOCKET", &at).env_remove("UTIPC_LOG");
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, manager, log }
    }

    fn told(&self) -> String {
        let mut buffer = [0; 256];
        let n = self.manager.recv(&mut buffer).expect("the daemon tells the service manager");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn logged(&mut self, what: &str) -> String {
        self.log.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect(what)
    }

    fn end(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn daemon_starts_without_configuration_and_ends_on_sigterm() {
    let scratch = Scratch::new("plain");
    let daemon = Running::start(&scratch, None);
    assert!(daemon.told().contains("READY=1"));
    assert!(scratch.0.join("sock").exists(), "ready means that programs can attach");
    let status = {
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.told().contains("STOPPING=1"));
        let mut daemon = daemon;
        daemon.child.wait().unwrap()
    };
    assert!(status.success(), "{status}");
    assert!(!scratch.0.join("sock").exists(), "the socket goes with the daemon");
}

#[test]
fn passed_socket_is_served_and_stays() {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    let scratch = Scratch::new("passed");
    let path = scratch.0.join("passed.sock");
    let open = |kind| {
        let listener = socket(AddressFamily::Unix, kind, SockFlag::empty(), None).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&listener);
        let _ = std::fs::remove_file(&path);
        bind(number, &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(8).unwrap()).unwrap();
        (listener, number)
    };
    // Acts as a service manager: the socket is descriptor 3, and LISTEN_PID the process itself.
    let activate = |number: i32, count: u32| {
        let script = format!("exec 3<&{number} 4<&{number}; LISTEN_FDS={count} LISTEN_PID=$$ exec \"$0\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_utipcd")]).env_remove("UTIPC_SOCKET");
        command.env("XDG_RUNTIME_DIR", &scratch.0).env_remove("UTIPC_LOG").stderr(Stdio::piped());
        Activated(command.spawn().unwrap())
    };
    let (_listener, number) = open(SockType::SeqPacket);
    for _ in 0..2 {
        let mut daemon = activate(number, 1);
        let log = BufReader::new(daemon.0.stderr.take().unwrap());
        let line = log.lines().map(Result::unwrap).find(|line| line.contains("programs may attach"));
        assert!(line.as_ref().is_some_and(|line| line.contains("passed.sock")), "{line:?}");
        utipc::Node::builder().daemon_at(&path).start().unwrap();
        kill(Pid::from_raw(i32::try_from(daemon.0.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert!(daemon.0.wait().unwrap().success());
        assert!(path.exists(), "the socket belongs to the service manager");
    }
    let (_stream, number) = open(SockType::Stream);
    for (count, why) in [(1, "ListenSequentialPacket="), (2, "several sockets were passed")] {
        let mut daemon = activate(number, count);
        let mut error = String::new();
        std::io::Read::read_to_string(&mut daemon.0.stderr.take().unwrap(), &mut error).unwrap();
        assert!(!daemon.0.wait().unwrap().success() && error.contains(why), "{error}");
    }
}

/// A daemon that is killed at the latest at the end of a test.
struct Activated(Child);

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn event_loop_feeds_the_watchdog() {
    let scratch = Scratch::new("watchdog");
    let at = scratch.0.join("notify");
    let manager = UnixDatagram::bind(&at).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The service manager names the process that it watches.
    let mut child = Command::new("sh")
        .args(["-c", "WATCHDOG_PID=$$ exec \"$0\" --socket \"$1\"", env!("CARGO_BIN_EXE_utipcd")])
        .arg(scratch.0.join("sock"))
        .env("NOTIFY_SOCKET", &at)
        .env("WATCHDOG_USEC", "30000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let told = || {
        let mut buffer = [0; 256];
        let n = manager.recv(&mut buffer);
        n.map(|n| String::from_utf8_lossy(&buffer[..n]).trim().to_owned()).unwrap_or_default()
    };
    let told = [(); 4].map(|()| told());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
}

#[test]
fn second_daemon_of_the_same_name_is_refused_and_the_first_continues() {
    let scratch = Scratch::new("twice");
    let daemon = Running::start(&scratch, None);
    daemon.told();
    let second = Command::new(env!("CARGO_BIN_EXE_utipcd"))
        .arg("--socket")
        .arg(scratch.0.join("sock"))
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(error.lines().any(|line| line.starts_with("utipcd: ")), "{error}");
    assert!(scratch.0.join("sock").exists());
    assert!(daemon.end().success());
}

#[test]
fn error_names_the_unknown_key_and_the_file() {
    let scratch = Scratch::new("wrong");
    let config = scratch.file("utipcd.toml", "[node]\nclutser = 3\n");
    let output = Command::new(env!("CARGO_BIN_EXE_utipcd")).arg("--config").arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("clutser") && error.contains("utipcd.toml"), "{error}");
}

#[test]
fn quotas_of_users_are_shown_with_the_configured_limits() {
    let scratch = Scratch::new("quotas");
    let config = scratch.file("utipcd.toml", "[limits]\nlanes = 100\nmemory_mib = 5000\n");
    let daemon = Running::start(&scratch, Some(&config));
    daemon.told();
    let shown = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
        command.args(words).env("UTIPC_SOCKET", scratch.0.join("sock")).env("UTIPC_ENGINE", "daemon");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = shown(&["node", "quotas"]);
    let line = |words: &str| text.lines().any(|line| line.split_whitespace().eq(words.split(' ')));
    let user = nix::unistd::geteuid();
    assert!(line("all lanes 0 100 0") && line("all memory 16384 5242880000 0"), "{text}");
    // The daemon's own user has no limit.
    assert!(line(&format!("{user} processes 1 - 0")), "{text}");
    let json = shown(&["-j", "node", "quotas"]);
    let lanes = r#"{"resource":"lanes","used":0,"limit":100,"refused":0}"#;
    let own = format!(
        r#"{{"user":{user},"quotas":[{{"resource":"processes","used":1,"refused":0}},{{"resource":"memory","used":16384,"refused":0}}]}}"#
    );
    assert!(json.starts_with(r#"[{"user":"all","quotas":["#) && json.contains(lanes), "{json}");
    assert!(json.contains(&own), "{json}");
    // A message that waits takes 16 KiB, because `utipcd` keeps it in memory of its user; without that, some 200 bytes.
    // The lane that may open takes 5 KiB.
    let memory = || -> u64 {
        let text = shown(&["node", "quotas"]);
        let used =
            text.lines().find_map(|line| line.trim().strip_prefix("all")?.trim().strip_prefix("memory"));
        used.and_then(|used| used.split_whitespace().next()?.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let node = utipc::Node::builder().engine(utipc::Engine::Daemon).daemon_at(scratch.0.join("sock"));
    let node = node.start().unwrap();
    let socket = node.rdm().unwrap();
    let before = memory();
    socket.send_to(&[1], socket.port()).unwrap();
    assert!(memory() - before >= 16 << 10);
    assert!(daemon.end().success());
}

#[test]
fn reload_applies_changes_and_an_invalid_file_applies_none() {
    let scratch = Scratch::new("reload");
    let config = scratch.file("utipcd.toml", "[limits]\nprocesses = 10\n");
    let mut daemon = Running::start(&scratch, Some(&config));
    daemon.told();
    scratch.file("utipcd.toml", "[limits]\nprocesses = 20\n");
    daemon.signal(Signal::SIGHUP);
    daemon.logged("configuration reloaded");
    scratch.file("utipcd.toml", "[node]\ncluster = 7\n");
    daemon.signal(Signal::SIGHUP);
    let line = daemon.logged("not reloaded");
    assert!(line.contains("node.cluster") && line.contains("restart"), "{line}");
    scratch.file("utipcd.toml", "nonsense");
    daemon.signal(Signal::SIGHUP);
    daemon.logged("not reloaded");
    assert!(daemon.end().success());
}

#[test]
fn counters_name_the_longest_turn_and_its_cause() {
    let scratch = Scratch::new("counters");
    let daemon = Running::start(&scratch, None);
    assert!(daemon.told().contains("READY=1"));
    let ask = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
        command.args(words).env("UTIPC_SOCKET", scratch.0.join("sock")).env("UTIPC_ENGINE", "daemon");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = ask(&["node", "counters"]);
    assert!(text.lines().any(|line| line.starts_with("daemon.turns.longest.handler ")), "{text}");
    let json: serde_json::Value = serde_json::from_str(&ask(&["--json", "node", "counters"])).unwrap();
    let turns = &json["daemon"]["turns"];
    assert!(turns["turns"].as_u64() > Some(0) && turns["longest"]["micros"].as_u64() > Some(0), "{turns}");
    assert!(turns["longest"]["handler"].as_str().is_some_and(|name| !name.is_empty()), "{turns}");
    assert!(daemon.end().success());
}

/// Root starts the daemon, which becomes another user before it listens; that user may manage it.
#[test]
fn own_user_of_a_daemon_is_the_user_that_it_becomes() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let user = nix::unistd::User::from_name("nobody").ok().flatten();
    let Some(user) = user.filter(|_| nix::unistd::geteuid().is_root()) else {
        eprintln!("skipped: only root can start a daemon that becomes another user");
        return;
    };
    let scratch = Scratch::new("own-user");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&scratch.0, open.clone()).unwrap();
    // The daemon makes its socket as this user.
    nix::unistd::chown(&scratch.0, Some(user.uid), None).unwrap();
    // Another user must be able to run it, wherever it was built.
    let program = scratch.0.join("utipc");
    std::fs::copy(env!("CARGO_BIN_EXE_utipc"), &program).unwrap();
    std::fs::set_permissions(&program, open).unwrap();
    let config = scratch
        .file("config", "[node]\nuser = \"nobody\"\n[policy]\nsocket_mode = \"0666\"\nmanage = [\"root\"]\n");
    let daemon = Running::start(&scratch, Some(&config));
    assert!(daemon.told().contains("READY=1"));
    let set = |uid: u32| {
        let mut command = Command::new(&program);
        command.args(["node", "set", "clusterid", "5"]).uid(uid).gid(uid);
        command.env("UTIPC_SOCKET", scratch.0.join("sock")).env("UTIPC_ENGINE", "daemon");
        command.output().unwrap()
    };
    let own = set(user.uid.as_raw());
    assert!(own.status.success(), "{own:?}");
    let other = set(user.uid.as_raw() - 1);
    assert!(!other.status.success(), "{other:?}");
    assert!(daemon.end().success());
}

/// The daemon's command line with an address of this process alone, for a node of a cluster.
fn node(scratch: &Scratch, options: &[&str]) -> Child {
    let own = std::net::Ipv4Addr::from(0x7f28_0000 | std::process::id() & 0xffff);
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
    command.args(["--udp", &own.to_string(), "--cluster", "4999", "--socket"]).arg(scratch.0.join("sock"));
    command
        .args(options)
        .env_remove("UTIPC_LOG")
        .env_remove("NOTIFY_SOCKET")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The log of a daemon that is ended once it has started.
fn log_of(mut child: Child) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut log = String::new();
    for line in lines.by_ref() {
        log += &format!("{line}\n");
        if line.contains("programs may attach") {
            break;
        }
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    log.extend(lines.map(|line| line + "\n"));
    assert!(child.wait().unwrap().success(), "{log}");
    log
}

#[test]
fn one_option_makes_a_cluster_node_with_the_name_of_its_host() {
    let scratch = Scratch::new("udp");
    let begun = |options: &[&str]| {
        let log = log_of(node(&scratch, options));
        let line = log.lines().find(|line| line.contains("programs may attach")).unwrap().to_owned();
        assert!(line.contains("of cluster 4999, udp:UDP at 127.") && !log.contains('\u{1b}'), "{log}");
        let end = log.lines().last().unwrap();
        assert!(end.contains("stopping after 0 h 0 min") && end.contains("served 0 processes"), "{log}");
        line.split('"').nth(1).unwrap().to_owned()
    };
    let [first, again] = [begun(&[]), begun(&[])];
    assert_eq!(first, again, "a restart does not make a new node");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let label = host.split('.').next().unwrap();
    if label != "localhost" {
        assert!(
            first.starts_with(&label.chars().take(7).collect::<String>()) && first.len() <= 16,
            "{first}"
        );
    }
    assert_eq!(begun(&["--identity", "alpha"]), "alpha");
}

#[test]
fn two_nodes_with_one_identity_are_reported() {
    let scratch = Scratch::new("namesakes");
    let own = std::net::Ipv4Addr::from(0x7f29_0000 | std::process::id() & 0xfffe);
    let other = std::net::Ipv4Addr::from(u32::from(own) + 1);
    let start = |local: std::net::Ipv4Addr, remote: std::net::Ipv4Addr| {
        let bearer = format!("[[bearer]]\nmedia = \"udp\"\nlocal = \"{local}\"\nremotes = [\"{remote}\"]\n");
        let config = scratch.file(&format!("{local}.toml"), &bearer);
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.args(["--identity", "same", "--socket"]).arg(scratch.0.join(local.to_string()));
        command.arg("--config").arg(config).env_remove("UTIPC_LOG").env_remove("NOTIFY_SOCKET");
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut first = start(own, other);
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines().map(Result::unwrap);
    // Its address is final, so that the second one gets another.
    lines.find(|line| line.contains("own address is")).unwrap();
    let mut both = [first, start(other, own)];
    let line = lines.find(|line| line.contains("has the identity of this node too")).unwrap();
    assert!(
        line.contains("ERROR") && line.contains("\"same\"") && line.contains("--identity NAME"),
        "{line}"
    );
    for child in &mut both {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn lines_for_the_journal_begin_with_their_level() {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    let scratch = Scratch::new("journal");
    let (reader, writer) = std::io::pipe().unwrap();
    let found = std::fs::File::from(writer.as_fd().try_clone_to_owned().unwrap()).metadata().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
    command.arg("--socket").arg(scratch.0.join("sock")).env_remove("UTIPC_LOG").env_remove("NOTIFY_SOCKET");
    command.env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino())).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("programs may attach")).unwrap();
    assert!(line.starts_with("<6>utipc_tools::daemon: programs may attach: "), "{line}");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(lines.last().unwrap().starts_with("<6>"));
    assert!(child.wait().unwrap().success());
}
