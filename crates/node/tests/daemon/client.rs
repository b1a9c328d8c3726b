//! A minimal client: it sends and receives packets of the protocol.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use utipc_attach::{
    Envelope, Failure, Greeting, Hello, Notice, ProcessCall, Refusal, Reply, Request, SocketCall, Welcome,
    decode, encode,
};
use utipc_core::StackConfig;
use utipc_core::addr::{NodeAddr, Scope, ServiceRange};
use utipc_core::socket::{Destination, Received, RecvOptions, SocketKind};
use utipc_node::NodeConfig;
use utipc_node::daemon::{Daemon, DaemonConfig, DaemonCounters};
use utipc_os::fdpass::{Channel, Got, Put};
use utipc_os::shm::{Access, Memory, Segment};

/// Longer than any step takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Waits until something is no longer so.
#[track_caller]
pub(crate) fn wait_while(mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while is_so() {
        assert!(begun.elapsed() < LIMIT, "it does not change within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// A path for a socket that no other test uses.
pub(crate) fn path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("utipc-daemon-{}-{number}.sock", std::process::id()))
}

/// A daemon with its own node.
pub(crate) struct Host {
    pub(crate) daemon: Option<Daemon>,
    pub(crate) path: PathBuf,
}

impl Host {
    pub(crate) fn new() -> Host {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut DaemonConfig)) -> Host {
        let path = path();
        let stack = StackConfig { address: Some(NodeAddr(0x1001)), seed: 1, ..StackConfig::default() };
        let node = NodeConfig { stack, ..NodeConfig::default() };
        let mut config = DaemonConfig { node, socket: path.clone(), ..DaemonConfig::default() };
        change(&mut config);
        Host { daemon: Some(Daemon::start(config).unwrap()), path }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// A client without lanes: requests carry its data.
    pub(crate) fn client(&self) -> Client {
        Client::attach(&self.path, false)
    }

    /// A client with lanes.
    pub(crate) fn direct_client(&self) -> Client {
        Client::attach(&self.path, true)
    }

    /// A client without lanes that belongs to another user; none if this test does not run as root.
    pub(crate) fn client_of(&self, uid: u32) -> Option<Client> {
        as_user(uid, || Client::attach(&self.path, false))
    }

    /// A client with lanes that belongs to another user.
    pub(crate) fn direct_client_of(&self, uid: u32) -> Option<Client> {
        as_user(uid, || Client::attach(&self.path, true))
    }

    /// Waits until the counters are as expected.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&DaemonCounters) -> bool) -> DaemonCounters {
        let begun = Instant::now();
        loop {
            let counters = self.daemon().counters();
            if is_so(&counters) {
                return counters;
            }
            assert!(begun.elapsed() < LIMIT, "{what}: {counters:?}");
        }
    }

    /// Number of attachments that ended for a reason.
    pub(crate) fn ended(&self, reason: &str) -> u64 {
        self.daemon().counters().ended.get(reason).copied().unwrap_or(0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.daemon.take());
        let _ = std::fs::remove_file(format!("{}.lock", self.path.display()));
    }
}

/// An attached client.
pub(crate) struct Client {
    pub(crate) channel: Channel,
    pub(crate) welcome: Welcome,
    pub(crate) bell: Segment,
    pub(crate) notices: VecDeque<Notice>,
    buffer: Vec<u8>,
}

/// The daemon's part of the handshake: its versions, the answer, descriptors.
pub(crate) type Answered = (Greeting, Result<Welcome, Refusal>, Vec<OwnedFd>);

/// Connects and performs the handshake; `None` if the daemon hangs up.
pub(crate) fn shake_hands(path: &Path, greeting: Greeting, takes_lanes: bool) -> (Channel, Option<Answered>) {
    let channel = Channel::connect(path).unwrap();
    let answered = shake_hands_on(&channel, greeting, takes_lanes);
    (channel, answered)
}

/// Runs `connect` on a thread with the credentials of another user, which the daemon sees; `None` without root.
pub(crate) fn as_user<T: Send>(uid: u32, connect: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: other users need root");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let user = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            connect()
        });
        Some(thread.join().unwrap())
    })
}

/// Performs the handshake on an open connection; `None` if the daemon hangs up.
pub(crate) fn shake_hands_on(channel: &Channel, greeting: Greeting, takes_lanes: bool) -> Option<Answered> {
    let mut bytes = greeting.to_bytes().to_vec();
    encode(&Hello { program: "a test".to_owned(), takes_lanes }, &[], &mut bytes);
    if channel.send(&[IoSlice::new(&bytes)], &[], true).unwrap() != Put::Sent {
        return None;
    }
    let (mut buffer, mut fds) = (vec![0; 1000], Vec::new());
    match channel.receive(&mut buffer, &mut fds, 8, true).unwrap() {
        Got::Packet(len) => {
            let (own, rest) = Greeting::from_bytes(&buffer[..len]).unwrap();
            let (answer, _) = decode(rest).unwrap();
            Some((own, answer, fds))
        }
        _ => None,
    }
}

fn succeeded(reply: Reply) -> Result<Reply, Failure> {
    match reply {
        Reply::Failed(failure) => Err(failure),
        reply => Ok(reply),
    }
}

impl Client {
    pub(crate) fn attach(path: &Path, takes_lanes: bool) -> Client {
        let (channel, answer) = shake_hands(path, Greeting::OWN, takes_lanes);
        Self::attached(channel, answer.unwrap())
    }

    /// Attaches; `None` if the daemon is gone.
    pub(crate) fn try_attach(path: &Path) -> Option<Client> {
        let channel = Channel::connect(path).ok()?;
        let answered = shake_hands_on(&channel, Greeting::OWN, true)?;
        Some(Self::attached(channel, answered))
    }

    /// Attaches, and tries again while the daemon hangs up.
    pub(crate) fn attach_with_retries(path: &Path) -> Client {
        let begun = std::time::Instant::now();
        loop {
            if let (channel, Some(answered)) = shake_hands(path, Greeting::OWN, false) {
                return Self::attached(channel, answered);
            }
            assert!(begun.elapsed() < LIMIT, "the daemon always hangs up");
        }
    }

    fn attached(channel: Channel, (_, welcome, fds): Answered) -> Client {
        let bell = Segment::open(fds[0].as_fd(), Access::ReadWrite, 4096).unwrap();
        let buffer = vec![0; utipc_attach::MAX_PACKET];
        Client { channel, welcome: welcome.unwrap(), bell, notices: VecDeque::new(), buffer }
    }

    /// One round trip with data and descriptors in both directions; `None` if the daemon has ended the attachment.
    fn exchange(
        &mut self,
        request: &Request,
        payload: &[u8],
        passed: &[BorrowedFd<'_>],
    ) -> Option<(Reply, Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = Vec::new();
        encode(request, payload, &mut bytes);
        if self.channel.send(&[IoSlice::new(&bytes)], passed, true).unwrap() != Put::Sent {
            return None;
        }
        self.take_reply()
    }

    fn take_reply(&mut self) -> Option<(Reply, Vec<u8>, Vec<OwnedFd>)> {
        let mut fds = Vec::new();
        let got = self.channel.receive(&mut self.buffer, &mut fds, 8, true).unwrap();
        let Got::Packet(len) = got else { return None };
        let (envelope, payload) = decode::<Envelope>(&self.buffer[..len]).unwrap();
        self.notices.extend(envelope.notices);
        Some((envelope.reply, payload.to_vec(), fds))
    }

    /// One round trip; `None` if the daemon has ended the attachment.
    pub(crate) fn try_call(&mut self, request: &Request, payload: &[u8]) -> Option<(Reply, Vec<u8>)> {
        self.exchange(request, payload, &[]).map(|(reply, payload, _)| (reply, payload))
    }

    /// One round trip with descriptors in both directions; `None` if the daemon has ended the attachment.
    pub(crate) fn try_call_with_fds(
        &mut self,
        request: &Request,
        passed: &[BorrowedFd<'_>],
    ) -> Option<(Reply, Vec<OwnedFd>)> {
        self.exchange(request, &[], passed).map(|(reply, _, fds)| (reply, fds))
    }

    /// The reply to a request that was sent before.
    pub(crate) fn receive_reply(&mut self) -> Reply {
        self.take_reply().unwrap().0
    }

    /// Forks, as far as the daemon notices: the number of the inheritance, and its descriptor.
    pub(crate) fn fork(&mut self) -> (u32, OwnedFd) {
        let (reply, mut fds) = self.try_call_with_fds(&Request::Process(ProcessCall::Fork), &[]).unwrap();
        let Reply::Number(number) = reply else { panic!("{reply:?}") };
        (number, fds.pop().unwrap())
    }

    /// The descriptor of a socket, unless it is refused.
    pub(crate) fn descriptor(&mut self, port: u32) -> Option<OwnedFd> {
        let (reply, mut fds) = self.try_call_with_fds(&SocketCall::Descriptor.on(port), &[]).unwrap();
        fds.pop().filter(|_| reply == Reply::Done)
    }

    pub(crate) fn call(&mut self, request: &Request) -> Result<Reply, Failure> {
        succeeded(self.try_call(request, &[]).unwrap().0)
    }

    /// A request whose reply carries descriptors.
    pub(crate) fn call_for_fd(&mut self, request: &Request) -> Vec<OwnedFd> {
        let (reply, fds) = self.try_call_with_fds(request, &[]).unwrap();
        assert_eq!(reply, Reply::Done);
        fds
    }

    /// A request that carries a descriptor.
    pub(crate) fn call_with_fd(&mut self, request: &Request, fd: impl AsFd) -> Result<Reply, Failure> {
        succeeded(self.try_call_with_fds(request, &[fd.as_fd()]).unwrap().0)
    }

    pub(crate) fn open(&mut self, kind: SocketKind) -> u32 {
        match self.call(&Request::Process(ProcessCall::Open { kind })).unwrap() {
            Reply::Opened { port } => port,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn bind(&mut self, port: u32, range: ServiceRange) {
        let bind = SocketCall::Bind { range, scope: Scope::Cluster }.on(port);
        assert_eq!(self.call(&bind).unwrap(), Reply::Done);
    }

    pub(crate) fn server(&mut self, kind: SocketKind, range: ServiceRange) -> u32 {
        let port = self.open(kind);
        // Before the binding: a client that finds it may connect at once.
        if kind.is_connection_oriented() {
            assert_eq!(self.call(&SocketCall::Listen.on(port)).unwrap(), Reply::Done);
        }
        self.bind(port, range);
        port
    }

    pub(crate) fn send(&mut self, port: u32, to: Option<Destination>, data: &[u8]) -> Result<u32, Failure> {
        match self.try_call(&SocketCall::Send { to }.on(port), data).unwrap().0 {
            Reply::Sent { bytes, .. } => Ok(bytes),
            Reply::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn receive(&mut self, port: u32) -> Result<(Received, Vec<u8>), Failure> {
        let options = RecvOptions { control: true, ..RecvOptions::default() };
        let request = SocketCall::Receive { room: 66_000, options }.on(port);
        match self.try_call(&request, &[]).unwrap() {
            (Reply::Received(received), data) => Ok((received, data)),
            (Reply::Failed(failure), _) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sequence(&self) -> u32 {
        self.bell.load32(0, Ordering::Acquire)
    }

    /// Repeats `attempt` until it returns something, and sleeps on the doorbell in between.
    pub(crate) fn wait<T>(&mut self, mut attempt: impl FnMut(&mut Client) -> Option<T>) -> T {
        let start = std::time::Instant::now();
        loop {
            let seen = self.sequence();
            self.bell.add32(4, 1);
            let result = attempt(self);
            if result.is_none() {
                self.bell.wait32(0, seen, Some(LIMIT));
            }
            self.bell.add32(4, u32::MAX);
            if let Some(result) = result {
                return result;
            }
            assert!(start.elapsed() < LIMIT, "nothing within {LIMIT:?}; notices: {:?}", self.notices);
        }
    }

    pub(crate) fn receive_soon(&mut self, port: u32) -> (Received, Vec<u8>) {
        self.wait(|client| match client.receive(port) {
            Ok(received) => Some(received),
            Err(Failure::Receive(utipc_core::socket::RecvError::WouldBlock)) => None,
            Err(other) => panic!("{other:?}"),
        })
    }
}
