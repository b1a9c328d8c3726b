//! `utipc-pipe` and `utipc proxy` as a user runs them: processes, files, pipes and sockets, on embedded nodes and on a
//! daemon.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Embedded,
    Daemon,
}

/// Processes that are killed at the latest at the end of a test.
struct Running(Child);

impl Running {
    fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }

    /// Waits until the process succeeds; returns its standard error and output.
    fn done(mut self) -> String {
        let status = self.end();
        let text = self.said();
        assert!(status.success(), "{status}: {text}");
        text
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut text).unwrap();
        }
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    fn write(&mut self, data: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(data).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A runtime directory of the test, with a daemon if the engine needs one.
struct Place {
    home: PathBuf,
    daemon: Option<Running>,
}

impl Place {
    fn new(engine: Engine) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("utipc-pipe-{}-{number}", std::process::id()));
        let mut private = fs::DirBuilder::new();
        private.mode(0o700).recursive(true).create(home.join("utipc")).unwrap();
        let daemon = (engine == Engine::Daemon).then(|| {
            let socket = home.join("utipc/default.sock");
            let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
            command.arg("--socket").arg(&socket).env("XDG_RUNTIME_DIR", &home);
            let daemon = Running(command.stderr(Stdio::null()).spawn().unwrap());
            let start = Instant::now();
            while !socket.exists() {
                assert!(start.elapsed() < LIMIT, "the daemon does not start");
                std::thread::sleep(Duration::from_millis(5));
            }
            daemon
        });
        Self { home, daemon }
    }

    fn command(&self, arguments: &str) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_utipc-pipe"), arguments)
    }

    fn command_of(&self, program: &str, arguments: &str) -> Command {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).env("XDG_RUNTIME_DIR", &self.home);
        command.env("UTIPC_ENGINE", if self.daemon.is_some() { "daemon" } else { "embedded" });
        command.env_remove("UTIPC_SOCKET").stderr(Stdio::piped());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn start(&self, arguments: &str) -> Running {
        Running(self.command(arguments).spawn().unwrap())
    }

    /// With an input that the test writes.
    fn fed(&self, arguments: &str) -> Running {
        Running(self.command(arguments).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// From one file to another.
    fn between(&self, arguments: &str, input: Option<&Path>, output: Option<&Path>) -> Running {
        let mut command = self.command(arguments);
        if let Some(input) = input {
            command.stdin(File::open(input).unwrap());
        }
        if let Some(output) = output {
            command.stdout(File::create(output).unwrap());
        }
        Running(command.spawn().unwrap())
    }

    /// Waits until `count` sockets are bound to an instance.
    fn wait_for(&self, services: &str, count: u32) {
        self.start(&format!("--top -n {count} {services}")).done();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.daemon = None;
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Bytes of every value, with a long period.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(len.div_ceil(8)).flatten().take(len).collect()
}

macro_rules! on_each_engine {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $name() { super::$name(super::Engine::Embedded); })+
        }
        mod daemon {
            $(#[test] fn $name() { super::$name(super::Engine::Daemon); })+
        }
    };
}

#[path = "pipe/proxy.rs"]
mod proxy;

on_each_engine!(
    hundred_megabytes_arrive_unchanged,
    messages_and_datagrams_arrive_unchanged,
    multicast_reaches_all,
    many_clients_are_served,
    numbered_lines_are_checked,
    both_directions_work,
    signal_ends_the_connection_in_order,
    closed_output_ends_the_program,
    errors_are_one_line,
);

fn hundred_megabytes_arrive_unchanged(engine: Engine) {
    let place = Place::new(engine);
    let (input, output) = (place.file("in"), place.file("out"));
    let data = noise(100 << 20);
    fs::write(&input, &data).unwrap();
    let server = place.between("-s", None, Some(&output));
    place.between("-w -1", Some(&input), None).done();
    server.done();
    assert!(fs::read(&output).unwrap() == data, "what arrived is not what was sent");
}

fn messages_and_datagrams_arrive_unchanged(engine: Engine) {
    let place = Place::new(engine);
    let (input, output) = (place.file("in"), place.file("out"));
    // Few datagrams of the last kind: they may be dropped under load.
    for (kind, size, piece, end) in
        [("--sqp", 5_000_000, 60_000, ""), ("--rdm", 600_000, 60_000, "-n 10"), ("--dgm", 3000, 1000, "-n 3")]
    {
        let data = noise(size);
        fs::write(&input, &data).unwrap();
        let server = place.between(&format!("{kind} -s {end} 5"), None, Some(&output));
        place.between(&format!("{kind} -w -1 --buf_size {piece} 5"), Some(&input), None).done();
        server.done();
        assert!(fs::read(&output).unwrap() == data, "{kind}: what arrived is not what was sent");
    }
}

fn multicast_reaches_all(engine: Engine) {
    let place = Place::new(engine);
    let mut servers = [3, 7, 30].map(|instance| place.start(&format!("--rdm -s -n 1 {instance}")));
    place.wait_for("0 99", 3);
    let mut client = place.fed("--rdm --mc -w -1 0 99");
    client.write(b"to all\n");
    if engine == Engine::Embedded {
        // The client's node may know one server's node before the others.
        let start = Instant::now();
        while !servers.iter_mut().all(|server| server.0.try_wait().unwrap().is_some()) {
            assert!(start.elapsed() < LIMIT, "a server has not received it");
            std::thread::sleep(Duration::from_millis(20));
            if client.0.stdin.as_mut().is_none_or(|input| input.write_all(b"to all\n").is_err()) {
                // The other servers had received it already; or the next client knows their nodes.
                client = place.fed("--rdm --mc -w -1 0 99");
            }
        }
    } else {
        client.0.stdin = None;
        client.done();
    }
    for server in servers {
        let text = server.done();
        assert!(text.starts_with("to all\n"), "{text}");
    }
}

fn many_clients_are_served(engine: Engine) {
    let place = Place::new(engine);
    let output = place.file("out");
    let mut server = place.between("-l --data_check 9", None, Some(&output));
    place.wait_for("9 9", 1);
    let clients: Vec<_> = (0..5).map(|_| place.start("-w -1 --data_num 2000 --data_size 100 9")).collect();
    for client in clients {
        client.done();
    }
    let start = Instant::now();
    // Clients that have left do not learn when their last data was written.
    while fs::metadata(&output).unwrap().len() < 5 * 2000 * 100 && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().code(), Some(128 + 15), "{}", server.said());
    let text = fs::read_to_string(&output).unwrap();
    assert_eq!(text.len(), 5 * 2000 * 100);
    assert_eq!(text.lines().filter(|line| line.starts_with("message 1999 ")).count(), 5);
}

fn numbered_lines_are_checked(engine: Engine) {
    let place = Place::new(engine);
    let server = place.start("--rdm -s --data_check -n 300");
    place.start("--rdm -w -1 --data_num 300 --rate 10000").done();
    let text = server.done();
    assert_eq!(text.lines().count(), 300);
    // A line that is missing.
    let mut server = place.start("-s --data_check 8");
    let mut client = place.fed("-w -1 8");
    client.write(b"message 0 x\nmessage 2 x\n");
    client.0.stdin = None;
    client.done();
    assert_eq!(server.end().code(), Some(1));
    let text = server.said();
    assert!(text.contains("message 2 in place of 1") && text.contains("1 messages are missing"), "{text}");
}

fn both_directions_work(engine: Engine) {
    let place = Place::new(engine);
    // A server without connections answers the last sender.
    let mut server = place.fed("--rdm --replay -s 11");
    server.write(b"the answer");
    let mut client = place.fed("--rdm -w -1 -n 1 11");
    client.write(b"the question");
    assert_eq!(client.done(), "the answer");
    server.signal(Signal::SIGTERM);
    assert_eq!((server.end().code(), server.said().as_str()), (Some(128 + 15), "the question"));
    // On a connection; -q makes the client stay for data after the end of its input.
    let mut server = place.fed("--sqp -s 12");
    let mut client = place.fed("--sqp -w -1 -q 60000 -n 1 12");
    client.write(b"the question");
    client.0.stdin = None;
    let mut got = [0; 12];
    server.0.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    server.write(b"the answer");
    assert_eq!(client.done(), "the answer");
    assert_eq!((&got, server.done()), (b"the question", String::new()));
}

fn signal_ends_the_connection_in_order(engine: Engine) {
    let place = Place::new(engine);
    let mut server = place.start("-s");
    let mut client = place.fed("-w -1");
    client.write(b"said before");
    let mut got = [0; 11];
    server.0.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    client.signal(Signal::SIGINT);
    assert_eq!(client.end().code(), Some(128 + 2), "{}", client.said());
    // The peer sees the end, not an error.
    assert_eq!((&got, server.done()), (b"said before", String::new()));
    // A waiting process ends, too.
    let mut waiting = place.start("-w -1 77");
    let mut listening = place.start("-s 78");
    place.wait_for("78", 1);
    listening.signal(Signal::SIGTERM);
    waiting.signal(Signal::SIGINT);
    assert_eq!((listening.end().code(), waiting.end().code()), (Some(128 + 15), Some(128 + 2)));
}

fn closed_output_ends_the_program(engine: Engine) {
    let place = Place::new(engine);
    let mut server = place.start("-s");
    drop(server.0.stdout.take());
    let mut client = place.between("-w -1 --data_num 1000000", None, None);
    assert_eq!(server.end().code(), Some(128 + 13), "{}", server.said());
    // Its client can no longer send.
    assert_eq!(client.end().code(), Some(1));
    let error = client.said();
    assert!(error.starts_with("utipc-pipe: ") && error.lines().count() == 1, "{error}");
}

fn errors_are_one_line(engine: Engine) {
    let place = Place::new(engine);
    for (arguments, code, words) in [
        ("4711", 1, "start it, or wait for it: -w"),
        ("-w 50 4711", 1, "{1000,4711,4711} has no binding after 50 ms"),
        ("--rdm --data_num 1 4711", 1, "not all of the input was sent"),
        ("--id 0x123 5", 1, "cannot connect"),
        ("--mc 1 2", 2, "not to a range"),
        ("-s -t 5", 1, "reserved"),
    ] {
        let mut pipe = place.start(arguments);
        let status = pipe.end();
        let error = pipe.said();
        assert_eq!(status.code(), Some(code), "{arguments}: {error}");
        assert!(error.starts_with("utipc-pipe: ") && error.contains(words), "{arguments}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert_eq!(place.start("--no-such-option").end().code(), Some(2));
}
