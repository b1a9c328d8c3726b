//! Causes of isolation: each ends in a connection, or in a message that names the cause and what helps.
//!
//! The programs are processes of this test's own binary. Cases with other users or network namespaces need root.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Home;
use utipc::daemon::{Daemon, DaemonConfig};
use utipc::{Node, Scope, ServiceAddress};

/// What a process of this binary does.
const ROLE: &str = "UTIPC_TEST_ROLE";
const PROGRAM: &str = "program";
const SERVICE: ServiceAddress = ServiceAddress::new(9500, 1);
/// Users without a login on this machine.
const ALICE: u32 = 64_001;
const BOB: u32 = 64_002;

/// The network namespace of a program.
#[derive(Clone, Copy)]
enum Namespace {
    /// That of the test.
    Same,
    /// A new one, whose loopback interface is down.
    New,
    /// That of the process with this number.
    Of(u32),
}

/// Where a program runs.
#[derive(Clone, Copy)]
struct Place<'a> {
    user: u32,
    /// XDG_RUNTIME_DIR, if it is set.
    runtime: Option<&'a Path>,
    /// Directory for temporary files.
    temporary: &'a Path,
    namespace: Namespace,
    /// UTIPC_SOCKET.
    socket: Option<&'a Path>,
}

impl<'a> Place<'a> {
    fn of(user: u32, temporary: &'a Path) -> Self {
        Self { user, runtime: None, temporary, namespace: Namespace::Same, socket: None }
    }

    /// Starts a process with this role.
    fn start(self, role: &str) -> Program {
        let test = self.temporary.join(PROGRAM);
        let rights = [format!("--reuid={}", self.user), format!("--regid={}", self.user)];
        let drop_rights = ["setpriv", &rights[0], &rights[1], "--clear-groups", "--"];
        let mut command = match self.namespace {
            Namespace::Same => Command::new("env"),
            Namespace::New => Command::new("unshare"),
            Namespace::Of(_) => Command::new("nsenter"),
        };
        match self.namespace {
            Namespace::Same => {}
            Namespace::New => _ = command.arg("--net"),
            Namespace::Of(process) => _ = command.arg(format!("--net=/proc/{process}/ns/net")),
        }
        command.args(drop_rights).arg(test).args(["--exact", "program", "--nocapture"]);
        for name in ["XDG_RUNTIME_DIR", "UTIPC_SOCKET", "UTIPC_INSTANCE", "UTIPC_ENGINE", "UTIPC_LOG"] {
            command.env_remove(name);
        }
        command.env(ROLE, role).env("TMPDIR", self.temporary).current_dir("/");
        command.envs(self.runtime.map(|folder| ("XDG_RUNTIME_DIR", folder)));
        command.envs(self.socket.map(|path| ("UTIPC_SOCKET", path)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Program { child, output }
    }

    /// What a program says that looks for the service, all in one text.
    fn look(self) -> String {
        self.start("look").rest()
    }
}

struct Program {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Program {
    /// Reads until a line contains this text.
    fn until(mut self, text: &str) -> Self {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.contains(text)) {
            let mut line = String::new();
            let len = self.output.read_line(&mut line).unwrap();
            said.push_str(&line);
            assert!(len > 0, "{said}{}", self.rest());
        }
        self
    }

    /// Ends the program's input, and waits for it.
    fn rest(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.child.wait().unwrap();
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its input ends with this value; a process that hangs is ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a process; nothing in the test run itself.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let node = match Node::start() {
        Ok(node) => node,
        Err(error) => return println!("cannot start: {error}"),
    };
    println!("is {}", node.describe());
    let socket = node.rdm().unwrap();
    if role == "serve" {
        socket.bind(SERVICE, Scope::Cluster).unwrap();
        println!("serves");
    }
    if role != "look" {
        // Until the test ends its input.
        let _ = std::io::stdin().read_to_string(&mut String::new());
    }
    if role != "serve" {
        let limit = if role == "late" { Duration::from_millis(200) } else { Duration::from_secs(2) };
        match node.wait_for_service(SERVICE, limit) {
            Ok(_) => println!("found; is {}", node.describe()),
            Err(error) => println!("error: {error}"),
        }
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: other users and network namespaces need root");
    }
    root
}

/// A directory of a user, with mode 0700.
fn folder(home: &Home, name: &str, user: u32) -> PathBuf {
    let path = home.0.join(name);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    chown(&path, Some(user), Some(user)).unwrap();
    path
}

/// The directory for temporary files of all users, with a copy of this binary: they may not enter the tree.
fn everybodys(home: &Home) -> &Path {
    std::fs::copy(std::env::current_exe().unwrap(), home.0.join(PROGRAM)).unwrap();
    std::fs::set_permissions(&home.0, PermissionsExt::from_mode(0o1777)).unwrap();
    &home.0
}

/// A daemon of root with the socket at `path`.
fn daemon(path: &Path, owner: u32, socket_mode: u32) -> Daemon {
    let mut config = DaemonConfig { socket: path.to_owned(), socket_mode, ..DaemonConfig::default() };
    config.node.complete(None).unwrap();
    let daemon = Daemon::start(config).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    daemon
}

fn assert_says(said: &str, texts: &[&str]) {
    for text in texts {
        assert!(said.contains(text), "no {text:?} in:\n{said}");
    }
}

#[test]
fn two_users_meet_at_a_daemon_and_are_told_so_without_one() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let temporary = everybodys(&home);
    let server = Place::of(ALICE, temporary).start("serve").until("serves");
    let said = Place::of(BOB, temporary).look();
    assert_says(
        &said,
        &[
            "utipc: this program is a node of its own",
            "0 neighbours: no utipcd answers at ",
            "programs of other users",
            "error: the wait for a service timed out; this program is",
        ],
    );
    server.rest();

    let socket = home.0.join("all.sock");
    let daemon = daemon(&socket, 0, 0o666);
    let place = |user| Place { socket: Some(&socket), ..Place::of(user, temporary) };
    let server = place(ALICE).start("serve").until("serves");
    let said = place(BOB).look();
    assert_says(&said, &["is node ", "of utipcd", "found"]);
    assert!(!said.contains("this program is"), "{said}");
    server.rest();
    daemon.stop();
}

#[test]
fn programs_in_other_network_namespaces_are_counted_and_meet_at_a_daemon() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let temporary = everybodys(&home);
    let place = Place { namespace: Namespace::New, ..Place::of(ALICE, temporary) };
    let server = place.start("serve").until("serves");
    let said = place.look();
    assert_says(&said, &["nodes of this user in other network namespaces: 1", "error: "]);
    server.rest();

    let socket = home.0.join("all.sock");
    let daemon = daemon(&socket, ALICE, 0o600);
    let place = Place { socket: Some(&socket), ..place };
    let server = place.start("serve").until("serves");
    assert_says(&place.look(), &["of utipcd", "found"]);
    server.rest();
    daemon.stop();
}

#[test]
fn program_that_started_before_utipcd_is_told_to_start_again() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let temporary = everybodys(&home);
    let runtime = folder(&home, "run", ALICE);
    let inner = folder(&home, "run/utipc", ALICE);
    let place = Place { runtime: Some(&runtime), ..Place::of(ALICE, temporary) };
    let early = place.start("late").until("is a node of its own");
    let path = inner.join("default.sock");
    let daemon = daemon(&path, ALICE, 0o600);
    let server = place.start("serve").until("serves");
    let said = early.rest();
    let answers = format!("utipcd answers at {} now, but this program started before it", path.display());
    assert_says(&said, &["error: ", &answers, "(start this program again)"]);
    assert_says(&place.look(), &["found"]);
    server.rest();
    daemon.stop();
}

#[test]
fn logins_with_and_without_runtime_directory_meet_at_a_daemon() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let temporary = everybodys(&home);
    // Where the daemon of a login without XDG_RUNTIME_DIR has its socket.
    let usual = folder(&home, &format!("utipc-{ALICE}"), ALICE);
    let runtime = folder(&home, "run", ALICE);
    let (without, with) =
        (Place::of(ALICE, temporary), Place { runtime: Some(&runtime), ..Place::of(ALICE, temporary) });
    let server = without.start("serve").until("serves");
    assert_says(&with.look(), &["0 neighbours", "with another XDG_RUNTIME_DIR", "error: "]);
    server.rest();
    let daemon = daemon(&usual.join("default.sock"), ALICE, 0o600);
    let server = without.start("serve").until("serves");
    assert_says(&with.look(), &["of utipcd", "found"]);
    server.rest();
    daemon.stop();
}

#[test]
fn programs_meet_while_the_loopback_interface_is_down() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let place = Place { namespace: Namespace::New, ..Place::of(ALICE, everybodys(&home)) };
    let server = place.start("serve").until("serves");
    let place = Place { namespace: Namespace::Of(server.child.id()), ..place };
    let said = place.look();
    let (_, after) = said.split_once("found; ").unwrap_or_else(|| panic!("not found:\n{said}"));
    assert_says(after, &["1 neighbour"]);
    server.rest();
}

#[test]
fn daemon_that_this_user_may_not_use_is_named() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let temporary = everybodys(&home);
    let runtime = folder(&home, "run", ALICE);
    let inner = folder(&home, "run/utipc", ALICE);
    let path = inner.join("default.sock");
    let daemon = daemon(&path, 0, 0o600);
    let place = Place { runtime: Some(&runtime), ..Place::of(ALICE, temporary) };
    let cause = format!("utipcd's socket is at {}, but this user may not open it", path.display());
    assert_says(&place.look(), &["a node of its own", "0 neighbours", &cause, "socket_mode", "error: "]);
    // Named, it is not replaced.
    let said = Place { socket: Some(&path), ..place }.look();
    assert_says(&said, &["cannot start: ", &cause, "socket_mode"]);
    daemon.stop();
}

#[test]
fn named_daemon_that_does_not_answer_is_an_error() {
    let home = Home::new();
    let user = rustix::process::geteuid().as_raw();
    let path = home.0.join("missing.sock");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program", "--nocapture"]).env(ROLE, "look").env_remove("UTIPC_ENGINE");
    let said = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let missing = said(command.env("UTIPC_SOCKET", &path));
    assert_says(&missing, &["cannot start: no daemon answers at ", path.to_str().unwrap(), "utipcd"]);
    command.env_remove("UTIPC_SOCKET").env("UTIPC_INSTANCE", format!("missing-{user}"));
    assert_says(&said(&mut command), &["cannot start: no daemon answers at ", "missing-"]);
}
