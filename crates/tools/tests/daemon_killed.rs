//! `utipcd` is killed with -9 while processes use it in every way: each call reports the death of the daemon at once
//! and from then on, and the next daemon at the same path is found.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use utipc::{
    Connection, Engine, Error, Listener, Node, Scope, ServiceAddress, ServiceRange, Socket, SocketKind, Spin,
};

/// Set for the processes that use the daemon: their role, and the daemon's socket.
const ROLE: &str = "UTIPC_TEST_ROLE";
const DAEMON: &str = "UTIPC_TEST_DAEMON";

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(30);
/// Time limit for a socket to report the death. The goal, on an idle machine, is a tenth of it.
const TELLS: Duration = Duration::from_secs(1);
/// Longer than the longest pause between two attempts to find the next daemon.
const FINDS: Duration = Duration::from_secs(5);

const fn service(instance: u32) -> ServiceAddress {
    ServiceAddress::new(9300, instance)
}

/// Connections whose server does not read, reads, or echoes; datagrams.
const FULL: ServiceAddress = service(1);
const READ: ServiceAddress = service(2);
const ECHO: ServiceAddress = service(3);
const DATAGRAMS: ServiceAddress = service(4);

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Prints a line for the test; the harness may have begun one.
fn tell(what: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n@{what}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The calls of one process that the daemon's death ends.
#[derive(Default)]
struct Calls(Vec<JoinHandle<()>>);

impl Calls {
    /// Repeats a call: its first error and each error after it have to be the daemon's death.
    fn add<T>(
        mut self,
        what: &'static str,
        mut call: impl FnMut() -> Result<T, Error> + Send + 'static,
    ) -> Self {
        self.0.push(std::thread::spawn(move || {
            let error = loop {
                if let Err(error) = call() {
                    break error;
                }
            };
            let at = now_ns();
            assert!(matches!(error, Error::DaemonDied { .. }), "{what}: {error}");
            tell(&format!("died {at} {what}"));
            for _ in 0..3 {
                let again = call().err();
                assert!(matches!(again, Some(Error::DaemonDied { .. })), "{what} works again: {again:?}");
            }
        }));
        self
    }

    /// All calls are active; all end; then the next daemon is found.
    fn end(self, node: &Node) {
        tell("ready");
        for call in self.0 {
            call.join().unwrap();
        }
        let begun = Instant::now();
        let socket = loop {
            match node.rdm() {
                Ok(socket) => break socket,
                // Without a daemon, an attempt must fail within the limit.
                Err(Error::Daemon(why)) => assert!(begun.elapsed() < LIMIT, "{why}"),
                Err(error) => panic!("{error}"),
            }
        };
        tell(&format!("found {} by process {}", now_ns(), std::process::id()));
        socket.set_receive_timeout(Some(LIMIT));
        socket.send_to(b"again", socket.port()).unwrap();
        assert_eq!(socket.receive().unwrap().data, b"again");
    }
}

fn accept(listener: &Listener) -> Connection {
    listener.accept().unwrap()
}

fn connect(node: &Node, to: ServiceAddress) -> Connection {
    node.wait_for_service(to, LIMIT).unwrap();
    let begun = Instant::now();
    loop {
        match node.connect(SocketKind::SeqPacket, to) {
            Ok(connection) => return connection,
            // The server has bound and does not listen yet.
            Err(Error::Connect(_)) if begun.elapsed() < LIMIT => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn server(node: &Node) {
    let [full, read, echo] =
        [FULL, READ, ECHO].map(|service| node.listen(SocketKind::SeqPacket, service).unwrap());
    let datagrams = node.rdm().unwrap();
    datagrams.bind(DATAGRAMS, Scope::Node).unwrap();
    let (unread, busy, idle, other) = (accept(&full), accept(&echo), accept(&read), accept(&read));
    busy.socket().set_spin(Spin::Busy);
    Calls::default()
        .add("accept", move || full.accept())
        .add("receive on an idle connection", move || idle.receive())
        .add("receive on another", move || other.receive())
        .add("echo", move || busy.send(&busy.receive()?.data))
        .add("receive datagrams by a lane", move || datagrams.receive())
        .end(node);
    // No call was active on this connection. Messages that are left may be read; then it reports the death too.
    while let Ok(message) = unread.receive() {
        assert!(!message.data.is_empty(), "it ended in good order");
    }
    assert!(matches!(unread.receive(), Err(Error::DaemonDied { .. })));
}

fn client(node: &Node) {
    // In the order in which they are accepted.
    let (full, echo, idle) = (connect(node, FULL), connect(node, ECHO), connect(node, READ));
    echo.socket().set_spin(Spin::Busy);
    node.wait_for_service(DATAGRAMS, LIMIT).unwrap();
    let to_lane = node.rdm().unwrap();
    Calls::default()
        .add("send to one that does not read", move || full.send(&[1; 1000]))
        .add("receive on a connection", move || idle.receive())
        .add("round trips, busy", move || {
            echo.send(b"ping")?;
            echo.receive()
        })
        .add("send datagrams by a lane", move || to_lane.send_to(&[2; 100], DATAGRAMS))
        .end(node);
}

/// Calls that the daemon answers.
fn asker(node: &Node) {
    let (hosted, names) = (node.rdm().unwrap(), node.rdm().unwrap());
    Calls::default()
        .add("receive on a socket that the daemon hosts", move || hosted.receive())
        .add("bind and unbind", move || {
            names.bind(service(20), Scope::Node)?;
            names.unbind(service(20), Scope::Node)
        })
        .end(node);
}

/// A loop that sleeps on a descriptor, as an event loop does, and then receives without waiting.
fn polled<T: Send>(holder: T, socket: fn(&T) -> &Socket) -> impl FnMut() -> Result<(), Error> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    let descriptor = socket(&holder).descriptor().unwrap();
    epoll::add(&poll, descriptor, epoll::EventData::new_u64(0), flags).unwrap();
    socket(&holder).set_nonblocking(true);
    move || {
        // Edge-triggered: receive everything before the next sleep.
        loop {
            match socket(&holder).receive() {
                Ok(_) => {}
                Err(error) if error.is_temporary() => break,
                Err(error) => return Err(error),
            }
        }
        let mut events = Vec::with_capacity(4);
        epoll::wait(&poll, spare_capacity(&mut events), None).unwrap();
        Ok(())
    }
}

/// Sleeps on descriptors and on subscriptions.
fn watcher(node: &Node) {
    let (mut names, mut nodes) = (node.topology().unwrap(), node.topology().unwrap());
    names.services(ServiceRange::new(9300, 10, 20)).unwrap();
    nodes.nodes().unwrap();
    let (idle, datagrams) = (connect(node, READ), node.rdm().unwrap());
    datagrams.bind(service(10), Scope::Node).unwrap();
    Calls::default()
        .add("wait for names", move || names.next(LIMIT))
        .add("wait for nodes", move || nodes.next(LIMIT))
        .add("poll a connection", polled(idle, Connection::socket))
        .add("poll a socket without one", polled(datagrams, |socket| socket))
        .end(node);
}

/// A running `utipcd`.
struct Daemon(Child);

impl Daemon {
    fn start(home: &Home) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.arg("--config").arg(home.config()).arg("--socket").arg(home.socket());
        let daemon = Self(command.stderr(Stdio::null()).spawn().unwrap());
        let begun = Instant::now();
        while let Err(error) = Node::builder().engine(Engine::Daemon).daemon_at(home.socket()).start() {
            assert!(begun.elapsed() < LIMIT, "the daemon does not start: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    /// Returns when that was done.
    fn kill(mut self) -> u64 {
        self.0.kill().unwrap();
        let killed = now_ns();
        self.0.wait().unwrap();
        killed
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed after the test.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("utipcd-killed-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        // The explicit address makes the node usable at once.
        std::fs::write(path.join("toml"), "[node]\naddress = \"1.1.1\"\n").unwrap();
        Self(path)
    }

    fn config(&self) -> PathBuf {
        self.0.join("toml")
    }

    fn socket(&self) -> PathBuf {
        self.0.join("sock")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that uses the daemon, and its output.
struct User {
    role: &'static str,
    child: Child,
    said: Receiver<String>,
}

impl User {
    fn start(home: &Home, role: &'static str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "user", "--nocapture"]).env(ROLE, role).env(DAEMON, home.socket());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (say, said) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix('@') {
                    let _ = say.send(line.to_owned());
                }
            }
        });
        Self { role, child, said }
    }

    /// The rest of its next line, which must begin with `word`.
    fn hear(&self, word: &str) -> String {
        let said = self.said.recv_timeout(LIMIT);
        let said = said.unwrap_or_else(|_| panic!("{} does not say {word:?}", self.role));
        said.strip_prefix(word)
            .unwrap_or_else(|| panic!("{} says {said:?}, not {word:?}", self.role))
            .to_owned()
    }

    /// Waits for an event, and returns its time and name.
    fn hear_when(&self, word: &str) -> (u64, String) {
        let said = self.hear(word);
        let (at, what) = said.trim_start().split_once(' ').unwrap();
        (at.parse().unwrap(), what.to_owned())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: one of the processes.
#[test]
fn user() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var_os(DAEMON).unwrap();
    let node = Node::builder().engine(Engine::Daemon).daemon_at(path).start().unwrap();
    match role.as_str() {
        "server" => server(&node),
        "client" => client(&node),
        "asker" => asker(&node),
        "watcher" => watcher(&node),
        other => panic!("no role {other}"),
    }
}

#[test]
fn killed_daemon_ends_every_call_and_the_next_daemon_is_found() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    // Processes, each with the number of its calls.
    let users = [("server", 5), ("client", 4), ("asker", 2), ("watcher", 4)];
    let users = users.map(|(role, calls)| (User::start(&home, role), calls));
    for (user, _) in &users {
        user.hear("ready");
    }
    // Gives calls time to wait; a late call finds the daemon dead and reports the same.
    std::thread::sleep(Duration::from_millis(200));
    let killed = daemon.kill();
    let mut slowest = (Duration::ZERO, String::new());
    for (user, calls) in &users {
        for _ in 0..*calls {
            let (at, what) = user.hear_when("died");
            let after = Duration::from_nanos(at.saturating_sub(killed));
            eprintln!("{after:>12.1?}  {what}");
            assert!(after < TELLS, "{}: {what} took {after:?} to report that the daemon has died", user.role);
            if after > slowest.0 {
                slowest = (after, what);
            }
        }
    }
    eprintln!("the last of 15 calls reported the daemon's death after {:.1?}: {}", slowest.0, slowest.1);
    // They are looking for the next daemon already.
    let daemon = Daemon::start(&home);
    let started = now_ns();
    for (user, _) in &users {
        let (at, _) = user.hear_when("found");
        let after = Duration::from_nanos(at.saturating_sub(started));
        assert!(after < FINDS, "{} took {after:?} to find the next daemon", user.role);
    }
    for (mut user, _) in users {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = user.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < LIMIT, "{} does not end", user.role);
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{}: {status}", user.role);
    }
    drop(daemon);
}
