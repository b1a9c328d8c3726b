//! Sockets that resume: a daemon is killed with -9 under programs that use RDM sockets with `Builder::resume`. Messages
//! flow again with the next daemon, after exactly one notice per socket; listeners accept again, without a notice.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use utipc::daemon::{Daemon, DaemonConfig, NodeConfig, StackConfig};
use utipc::{
    Engine, Error, Importance, Listener, Node, NodeAddr, Scope, ServiceAddress, Socket, SocketKind, State,
};

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause before a message that may have been lost is sent again.
const AGAIN: Duration = Duration::from_millis(200);
const SERVICE: ServiceAddress = ServiceAddress::new(9700, 1);
const STOP: &[u8] = b"stop";

/// Set for the process that is the daemon: the path of its socket.
const DAEMON: &str = "UTIPC_TEST_RESUME";

/// Not a test: the daemon.
#[test]
fn daemon() {
    let Some(socket) = std::env::var_os(DAEMON) else { return };
    let stack = StackConfig { address: Some(NodeAddr(0x0100_1001)), ..StackConfig::default() };
    let mut node = NodeConfig { stack, ..NodeConfig::default() };
    node.complete(None).unwrap();
    let _daemon =
        Daemon::start(DaemonConfig { node, socket: socket.into(), ..DaemonConfig::default() }).unwrap();
    // Until it is killed, or the test ends.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A directory that is removed after the test, and the daemon in it.
struct Home {
    path: PathBuf,
    daemon: Option<Child>,
}

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("utipc-resume-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut home = Self { path, daemon: None };
        home.start();
        let begun = Instant::now();
        while home.try_node(false).is_err() {
            assert!(begun.elapsed() < LIMIT, "the daemon does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        home
    }

    fn socket(&self) -> PathBuf {
        self.path.join("sock")
    }

    fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "daemon", "--nocapture"]).env(DAEMON, self.socket());
        self.daemon = Some(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    fn try_node(&self, resume: bool) -> Result<Node, Error> {
        Node::builder().engine(Engine::Daemon).daemon_at(self.socket()).resume(resume).start()
    }

    fn node(&self, resume: bool) -> Node {
        self.try_node(resume).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Sends `data` until the answer is there; returns the number of notices.
fn ask(client: &Socket, data: &[u8]) -> usize {
    let begun = Instant::now();
    let mut notices = 0;
    client.set_receive_timeout(Some(AGAIN));
    loop {
        assert!(begun.elapsed() < LIMIT, "no answer to {data:?}");
        match client.send_to(data, SERVICE).and_then(|_| client.receive()) {
            Ok(answer) if answer.data == data => return notices,
            // An earlier answer, or a message that was returned.
            Ok(_) => {}
            Err(error) if error.is_resumed() => {
                assert_eq!(error.errno(), 102, "ENETRESET");
                notices += 1;
            }
            Err(Error::DaemonDied { .. }) => panic!("the socket does not resume"),
            // The service may not be there again yet, or the message is lost.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Answers until it is told to stop; counts notices.
fn serve(server: &Socket, notices: &AtomicUsize) {
    loop {
        let result = match server.receive() {
            Ok(message) if message.data == STOP => return,
            // Without the daemon, messages still arrive by lanes; then this call reports the notice.
            Ok(message) => server.send_to(&message.data, message.source).map(drop),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.is_resumed() => drop(notices.fetch_add(1, Relaxed)),
            // The client may have resumed since, and has another port.
            Ok(()) | Err(Error::Send { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn server_and_client_go_on_with_the_next_daemon() {
    let mut home = Home::new("blocking");
    let (server, client) = (home.node(true).rdm().unwrap(), home.node(true).rdm().unwrap());
    server.bind(SERVICE, Scope::Node).unwrap();
    server.set_importance(Importance::High).unwrap();
    let first = server.port();
    let notices = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| serve(&server, &notices));
        assert_eq!(ask(&client, b"0"), 0);
        for restarts in 1..=3_u8 {
            home.kill();
            home.start();
            let begun = Instant::now();
            let mut told = 0;
            // Until both have noticed, messages flow by lanes.
            while told == 0 || notices.load(Relaxed) < usize::from(restarts) {
                told += ask(&client, &[restarts]);
                assert!(begun.elapsed() < LIMIT, "{told} notices at the client");
            }
            assert_eq!(told, 1, "one notice for each restart");
            assert_eq!(ask(&client, &[restarts, 0]), 0, "and no other");
            assert_eq!(notices.load(Relaxed), usize::from(restarts));
        }
        client.send_to(STOP, SERVICE).unwrap();
    });
    assert_eq!(server.importance().unwrap(), Importance::High);
    assert_ne!(server.port(), first, "the new node has other ports");
    let bindings = home.node(false).bindings();
    let own: Vec<_> = bindings.iter().filter(|binding| binding.range.service == 9700).collect();
    assert_eq!(own.len(), 1, "{own:?}");
}

#[test]
fn nonblocking_calls_do_not_wait_for_the_next_daemon() {
    let mut home = Home::new("nonblocking");
    let socket = home.node(true).rdm().unwrap();
    socket.set_nonblocking(true);
    home.kill();
    for _ in 0..100 {
        assert!(socket.receive().unwrap_err().is_temporary());
        assert!(socket.send_to(b"lost", SERVICE).unwrap_err().is_temporary());
    }
    home.start();
    let begun = Instant::now();
    let error = loop {
        match socket.receive() {
            Err(error) if error.is_temporary() => assert!(begun.elapsed() < LIMIT),
            other => break other.unwrap_err(),
        }
    };
    assert!(error.is_resumed(), "{error}");
    assert!(socket.receive().unwrap_err().is_temporary());
}

#[test]
fn descriptor_stays_and_becomes_readable_for_the_notice() {
    let mut home = Home::new("epoll");
    let (server, client) = (home.node(true).rdm().unwrap(), home.node(true).rdm().unwrap());
    server.bind(SERVICE, Scope::Node).unwrap();
    server.set_nonblocking(true);
    let number = server.descriptor().unwrap().as_raw_fd();
    let edges = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    epoll::add(&edges, server.descriptor().unwrap(), epoll::EventData::new_u64(0), flags).unwrap();
    let limit = Timespec { tv_sec: LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
    // What one wait and a read of all there is finds.
    let wait = || {
        let mut events = Vec::with_capacity(4);
        assert_eq!(epoll::wait(&edges, spare_capacity(&mut events), Some(&limit)).unwrap(), 1);
        let flags = events[0].flags;
        assert!(flags.contains(epoll::EventFlags::IN) && !flags.contains(epoll::EventFlags::HUP));
        let mut found = Vec::new();
        loop {
            match server.receive() {
                Ok(message) => found.push(Ok(message.data)),
                Err(error) if error.is_temporary() => return found,
                Err(error) => found.push(Err(error)),
            }
        }
    };
    for restart in 0..3_u8 {
        let data = [restart];
        let begun = Instant::now();
        while let Err(error) = client.send_to(&data, SERVICE) {
            assert!(begun.elapsed() < LIMIT, "{error}");
        }
        let found = std::iter::repeat_with(wait).find(|found| !found.is_empty()).unwrap();
        assert!(matches!(&found[..], [Ok(message)] if *message == data), "{found:?}");
        home.kill();
        home.start();
        let found = std::iter::repeat_with(wait).find(|found| !found.is_empty()).unwrap();
        assert!(matches!(&found[..], [Err(error)] if error.is_resumed()), "{found:?}");
        assert_eq!(server.descriptor().unwrap().as_raw_fd(), number);
    }
}

#[test]
fn sockets_without_the_option_report_the_death() {
    let mut home = Home::new("without");
    let plain = home.node(false);
    let listener = plain.listen(utipc::SocketKind::SeqPacket, SERVICE).unwrap();
    let socket = plain.rdm().unwrap();
    home.kill();
    home.start();
    for _ in 0..3 {
        assert!(matches!(listener.accept().unwrap_err(), Error::DaemonDied { .. }));
        assert!(matches!(socket.receive().unwrap_err(), Error::DaemonDied { .. }));
    }
}

/// Connects and exchanges a message; repeated until the next daemon serves the listener.
fn exchange(home: &Home, kind: SocketKind) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < LIMIT, "the listener does not accept");
        let once = || {
            let client = home.try_node(false)?.connect(kind, SERVICE)?;
            client.socket().set_receive_timeout(Some(AGAIN));
            client.send(b"question")?;
            client.receive()
        };
        match once() {
            Ok(answer) if answer.data == b"question" => return,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Accepts and answers `connections` times; every error is one.
fn accept_and_answer(listener: &Listener, connections: usize) {
    let mut served = 0;
    while served < connections {
        let server = listener.accept().unwrap();
        server.socket().set_receive_timeout(Some(LIMIT));
        // A client may have given up.
        if let Ok(question) = server.receive()
            && !question.data.is_empty()
            && server.send(&question.data).is_ok()
        {
            served += 1;
        }
    }
}

#[test]
fn listener_accepts_again_with_the_next_daemon() {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let mut home = Home::new(&format!("listener-{kind:?}"));
        let listener = home.node(true).listen(kind, SERVICE).unwrap();
        let first = listener.socket().port();
        std::thread::scope(|threads| {
            // It waits in the call when the daemon dies.
            threads.spawn(|| accept_and_answer(&listener, 3));
            exchange(&home, kind);
            for _ in 0..2 {
                home.kill();
                home.start();
                exchange(&home, kind);
            }
        });
        assert_ne!(listener.socket().port(), first, "{kind:?}");
        assert_eq!(listener.socket().state(), State::Listen);
    }
}

#[test]
fn polled_listener_keeps_its_descriptor() {
    let mut home = Home::new("polled-listener");
    // The descriptor is there before the socket listens in the first case, and after it in the second.
    for polled_before in [true, false] {
        let socket = home.node(true).seqpacket().unwrap();
        socket.set_nonblocking(true);
        socket.bind(SERVICE, Scope::Node).unwrap();
        let early = polled_before.then(|| socket.descriptor().unwrap().as_raw_fd());
        socket.listen().unwrap();
        let number = socket.descriptor().unwrap().as_raw_fd();
        assert!(early.is_none_or(|early| early == number));
        home.kill();
        // No daemon: it is silent.
        assert!(socket.accept().unwrap_err().is_would_block());
        let mut poll = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
        let quiet = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        assert_eq!(rustix::event::poll(&mut poll, Some(&quiet)).unwrap(), 0, "{:?}", poll[0].revents());
        home.start();
        std::thread::scope(|threads| {
            threads.spawn(|| exchange(&home, SocketKind::SeqPacket));
            let begun = Instant::now();
            let mut served = false;
            while !served {
                assert!(begun.elapsed() < LIMIT, "the descriptor is never readable");
                let mut poll = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
                let slice = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                rustix::event::poll(&mut poll, Some(&slice)).unwrap();
                match socket.accept() {
                    Ok((server, _)) => {
                        server.set_receive_timeout(Some(LIMIT));
                        let question = server.receive();
                        served = question.is_ok_and(|q| !q.data.is_empty() && server.send(&q.data).is_ok());
                    }
                    Err(error) => assert!(error.is_would_block(), "{error}"),
                }
            }
        });
        assert_eq!(socket.descriptor().unwrap().as_raw_fd(), number);
    }
}

#[test]
fn socket_that_does_not_listen_breaks_with_its_daemon() {
    let mut home = Home::new("breaks");
    let node = home.node(true);
    let listener = node.listen(SocketKind::SeqPacket, SERVICE).unwrap();
    let (client, server) = std::thread::scope(|threads| {
        let accepting = threads.spawn(|| listener.accept().unwrap());
        (node.connect(SocketKind::SeqPacket, SERVICE).unwrap(), accepting.join().unwrap())
    });
    let open = node.stream().unwrap();
    home.kill();
    for end in [&client, &server] {
        assert!(matches!(end.receive(), Err(Error::DaemonDied { .. } | Error::Receive(_))));
    }
    assert!(matches!(open.connect(SERVICE), Err(Error::DaemonDied { .. })));
}
