//! Programs under the shim whose daemon dies.
#![cfg(feature = "stock-tipc")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A listener that two threads wait for, in `accept` and in `poll`; then it accepts again and again.
const LISTENER: &str = r#"
import errno, select, socket, threading
server = socket.socket(socket.AF_TIPC, socket.SOCK_STREAM)
server.bind((socket.TIPC_ADDR_NAMESEQ, 9400, 1, 1))
server.listen()
def told(code):
    print(errno.errorcode[code], flush=True)
def accept():
    try:
        server.accept()
    except OSError as error:
        told(error.errno)
waits = threading.Thread(target=accept)
waits.start()
print("ready", flush=True)
waits.join()
assert select.select([server], [], [], 30)[0]
for blocking in (True, False, True):
    server.setblocking(blocking)
    accept()
try:
    server.listen()
except OSError as error:
    told(error.errno)
"#;

/// Calls while the daemon, whose pid is the argument, is stopped. Each call has a bound that is far above its time
/// limit.
const STOPPED: &str = r#"
import errno, os, select, signal, socket, struct, sys, threading, time
signal.alarm(100)
daemon = int(sys.argv[1])
def code(call, *arguments):
    begun = time.monotonic()
    try:
        call(*arguments)
        name = "ok"
    except OSError as error:
        name = errno.errorcode[error.errno]
    assert time.monotonic() - begun < 30, call
    return name
def rdm():
    return socket.socket(socket.AF_TIPC, socket.SOCK_RDM)
def is_stopped():
    tasks = "/proc/%d/task" % daemon
    # Each thread stops by itself: the one that answers may run for a while after the first has stopped.
    return all(open("%s/%s/stat" % (tasks, task)).read().rsplit(") ", 1)[1][0] == "T" for task in os.listdir(tasks))
name = (socket.TIPC_ADDR_NAME, 9410, 1, 0)
bound, idle, early, late, closed = rdm(), rdm(), rdm(), rdm(), rdm()
waits = rdm()
bound.bind((socket.TIPC_ADDR_NAMESEQ, 9410, 1, 1))
waits.bind((socket.TIPC_ADDR_NAMESEQ, 9411, 1, 1))
early.sendto(b"early", name)
assert bound.recv(10) == b"early"
listener = socket.socket(socket.AF_TIPC, socket.SOCK_STREAM)
listener.bind((socket.TIPC_ADDR_NAMESEQ, 9412, 1, 1))
listener.listen()
listener.setblocking(False)
received = []
thread = threading.Thread(target=lambda: received.append(waits.recv(10)))
def member(instance):
    s = rdm()
    s.setsockopt(271, 135, struct.pack("=4I", 9414, instance, 2, 0))
    return s
def is_readable(s, seconds):
    return s in select.select([s], [], [], seconds)[0]
# A binding of the group's type that never joins keeps messages at the node.
stranger = rdm()
stranger.bind((socket.TIPC_ADDR_NAMESEQ, 9414, 3, 3))
reader, writer = member(1), member(2)
assert not is_readable(reader, 0)
while code(writer.sendto, b"unread", socket.MSG_DONTWAIT, (socket.TIPC_ADDR_NAME, 9414, 1, 0)) != "ok":
    time.sleep(0.01)
assert is_readable(reader, 30)

os.kill(daemon, signal.SIGSTOP)
while not is_stopped():
    time.sleep(0.001)
thread.start()
print("recv", code(idle.recv, 1, socket.MSG_DONTWAIT), flush=True)
print("again", code(idle.recv, 1, socket.MSG_DONTWAIT), flush=True)
print("member", code(reader.recv, 10, socket.MSG_DONTWAIT), flush=True)
print("send", code(late.sendto, b"late", socket.MSG_DONTWAIT, name), flush=True)
print("accept", code(listener.accept), flush=True)
print("bind", code(idle.bind, (socket.TIPC_ADDR_NAMESEQ, 9413, 1, 1)), flush=True)
print("socket", code(rdm), flush=True)
print("close", code(closed.close), flush=True)
begun = time.monotonic()
child = os.fork()
if child == 0:
    os._exit(0 if code(bound.recv, 1) == "EIO" else 1)
assert time.monotonic() - begun < 30
print("fork", os.waitpid(child, 0)[1], flush=True)

if not is_stopped():
    print("another process has continued the daemon", flush=True)
    os._exit(0)
os.kill(daemon, signal.SIGCONT)
idle.bind((socket.TIPC_ADDR_NAMESEQ, 9413, 1, 1))
late.sendto(b"second", name)
print("received", bound.recv(10).decode(), code(bound.recv, 10, socket.MSG_DONTWAIT), flush=True)
early.sendto(b"waits", (socket.TIPC_ADDR_NAME, 9411, 1, 0))
thread.join()
print("waited", received[0].decode(), flush=True)
print("member", is_readable(reader, 30), reader.recv(10, socket.MSG_DONTWAIT).decode(), flush=True)
child = os.fork()
if child == 0:
    os._exit(0 if code(bound.sendto, b"child", name) == "ok" else 1)
print("fork", os.waitpid(child, 0)[1], bound.recv(10).decode(), flush=True)
"#;

fn build_shim() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "-p", "utipc-preload"]).status().unwrap();
    assert!(built.success());
}

fn daemon(socket: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
    command.arg("--socket").arg(socket).env_remove("NOTIFY_SOCKET").stderr(Stdio::null());
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < LIMIT, "the daemon does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn named_daemon_that_does_not_answer_is_an_error_of_utipc_run() {
    build_shim();
    let run = |words: &[&str], socket: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
        command.arg("run").args(words).args(["--", "echo", "ran"]);
        command.env_remove("UTIPC_SOCKET").env_remove("UTIPC_INSTANCE");
        // A place without a daemon, also for root.
        command.envs(socket.map(|socket| ("UTIPC_SOCKET", socket)));
        let output = command.output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let missing = "/nonexistent/utipcd.sock";
    let [said, error] = run(&[], Some(missing));
    assert!(said.is_empty() && error.contains(missing) && error.contains("--private"), "{said}{error}");
    assert_eq!(run(&["--private"], Some(missing)), ["ran\n", ""]);
}

/// libzmq, for one, aborts on ECONNRESET; the errnos that it tolerates are those of pending connections.
#[test]
fn accept_fails_with_a_tolerated_errno_after_the_daemons_death() {
    build_shim();
    let socket = std::env::temp_dir().join(format!("utipc-shim-{}.sock", std::process::id()));
    let mut daemon = daemon(&socket);
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(["run", "--", "python3", "-c", LISTENER]).env("UTIPC_SOCKET", &socket);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let said: Vec<String> = lines.collect();
    assert!(program.wait().unwrap().success());
    assert_eq!(said, ["ECONNABORTED", "ECONNABORTED", "ECONNABORTED", "ECONNABORTED", "ECONNRESET"]);
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
}

/// Runs [`STOPPED`]; returns its output and its errors.
fn run_with_a_stopped_daemon() -> [String; 2] {
    let socket = std::env::temp_dir().join(format!("utipc-stopped-{}.sock", std::process::id()));
    let mut daemon = daemon(&socket);
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(["run", "--", "python3", "-c", STOPPED]).arg(daemon.id().to_string());
    command.env("UTIPC_SOCKET", &socket).env("UTIPC_LOG", "info");
    let output = command.output().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn stopped_daemon_blocks_no_call_for_long() {
    build_shim();
    let [mut said, mut error] = run_with_a_stopped_daemon();
    // That run says nothing about a stopped daemon.
    for _ in 0..2 {
        if said.contains("another process has continued the daemon") {
            eprintln!("repeated: {said}");
            [said, error] = run_with_a_stopped_daemon();
        }
    }
    let lines: Vec<&str> = said.lines().collect();
    let during = ["recv EAGAIN", "again EAGAIN", "member EAGAIN", "send EAGAIN", "accept EAGAIN"];
    let also = ["bind ETIMEDOUT", "socket ETIMEDOUT", "close ok", "fork 0"];
    let after = ["received second EAGAIN", "waited waits", "member True unread", "fork 0 child"];
    assert_eq!(lines, [&during[..], &also, &after].concat(), "{error}");
    assert!(error.contains("does not answer (is utipcd stopped?"), "{error}");
}

/// An RDM server that sleeps in `epoll_wait`, and prints messages and errors.
const RESUMING: &str = r#"
import errno, select, socket
server = socket.socket(socket.AF_TIPC, socket.SOCK_RDM)
server.bind((socket.TIPC_ADDR_NAMESEQ, 9401, 1, 1))
number, port = server.fileno(), server.getsockname()
events = select.epoll()
events.register(server, select.EPOLLIN)
print("ready", flush=True)
while True:
    assert events.poll(60)
    try:
        data = server.recv(100, socket.MSG_DONTWAIT)
    except BlockingIOError:
        continue
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
        continue
    print(data.decode(), server.fileno() == number, server.getsockname() == port, flush=True)
    if data == b"stop":
        break
"#;

/// Sends until the service exists.
fn send_to_service(socket: &Path, data: &str) {
    let begun = Instant::now();
    let sent = || {
        let node = utipc::Node::builder().engine(utipc::Engine::Daemon).daemon_at(socket).start()?;
        let service = utipc::ServiceAddress::new(9401, 1);
        node.wait_for_service(service, LIMIT)?;
        node.rdm()?.send_to(data.as_bytes(), service)
    };
    while let Err(error) = sent() {
        assert!(begun.elapsed() < LIMIT, "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn rdm_socket_goes_on_with_the_next_daemon_if_the_environment_asks_for_it() {
    build_shim();
    let socket = std::env::temp_dir().join(format!("utipc-shim-resume-{}.sock", std::process::id()));
    let mut running = daemon(&socket);
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command
        .args(["run", "--", "python3", "-c", RESUMING])
        .env("UTIPC_SOCKET", &socket)
        .env("UTIPC_RESUME", "1");
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    send_to_service(&socket, "one");
    assert_eq!(lines.next().as_deref(), Some("one True True"));
    for data in ["two", "three"] {
        running.kill().unwrap();
        running.wait().unwrap();
        running = daemon(&socket);
        assert_eq!(lines.next().as_deref(), Some("ENETRESET"));
        send_to_service(&socket, data);
        assert_eq!(lines.next(), Some(format!("{data} True False")));
    }
    send_to_service(&socket, "stop");
    assert_eq!(lines.collect::<Vec<_>>(), ["stop True False"]);
    assert!(program.wait().unwrap().success());
    running.kill().unwrap();
    running.wait().unwrap();
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
}

/// Two listeners, one whose descriptor is in an epoll set before it listens, and one whose thread waits in `accept`.
/// Each answers what it receives; unexpected errors are printed.
const RESUMING_LISTENERS: &str = r#"
import errno, select, socket, sys, threading
def listener(instance, before):
    server = socket.socket(socket.AF_TIPC, socket.SOCK_STREAM)
    server.bind((socket.TIPC_ADDR_NAMESEQ, 9402, instance, instance))
    before(server)
    server.listen()
    return server
def serve(server, wait):
    while True:
        wait()
        try:
            end, _ = server.accept()
        except BlockingIOError:
            continue
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
            continue
        try:
            end.send(end.recv(100))
        except OSError:
            pass
        end.close()
events = select.epoll()
polled = listener(1, lambda server: events.register(server, select.EPOLLIN))
polled.setblocking(False)
blocking = listener(2, lambda server: None)
for server, wait in (polled, lambda: events.poll(60)), (blocking, lambda: None):
    threading.Thread(target=serve, args=(server, wait), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"#;

/// Connects until the listener answers.
fn ask_listener(socket: &Path, instance: u32) {
    let begun = Instant::now();
    let answer = || {
        let node = utipc::Node::builder().engine(utipc::Engine::Daemon).daemon_at(socket).start()?;
        let service = utipc::ServiceAddress::new(9402, instance);
        node.wait_for_service(service, LIMIT)?;
        let connection = node.connect(utipc::SocketKind::Stream, service)?;
        connection.socket().set_receive_timeout(Some(Duration::from_secs(1)));
        connection.send(b"question")?;
        connection.receive()
    };
    while !answer().is_ok_and(|answer| answer.data == b"question") {
        assert!(begun.elapsed() < LIMIT, "listener {instance} does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn listeners_go_on_with_the_next_daemon_if_the_environment_asks_for_it() {
    build_shim();
    let socket = std::env::temp_dir().join(format!("utipc-shim-listen-{}.sock", std::process::id()));
    let mut running = daemon(&socket);
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(["run", "--", "python3", "-c", RESUMING_LISTENERS]);
    command.env("UTIPC_SOCKET", &socket).env("UTIPC_RESUME", "1");
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    for _ in 0..3 {
        ask_listener(&socket, 1);
        ask_listener(&socket, 2);
        running.kill().unwrap();
        running.wait().unwrap();
        running = daemon(&socket);
    }
    drop(program.stdin.take());
    assert_eq!(lines.collect::<Vec<_>>(), Vec::<String>::new(), "no accept fails");
    program.wait().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
}
