//! Memory of the daemon, in a separate process: the memory of messages is charged and returned, and the daemon refuses
//! messages when the system refuses it memory.

// AddressSanitizer has its own allocator, which keeps freed memory and needs addresses for its shadows. Its suite sets
// `asan`.
#![allow(unexpected_cfgs, reason = "no other crate has it")]
#![cfg(not(asan))]

#[allow(dead_code, reason = "the other tests use all of it")]
#[path = "daemon/client.rs"]
mod client;

use std::io::{BufRead, BufReader, IoSlice, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use utipc_attach::{Reply, SocketCall, encode};
use utipc_core::addr::{Importance, NodeAddr, ServiceRange};
use utipc_core::socket::{Destination, OptionValue, SocketKind, SocketOption};
use utipc_core::{PortId, StackConfig};
use utipc_node::NodeConfig;
use utipc_node::daemon::{Daemon, DaemonConfig};
use utipc_os::fdpass::Put;
use utipc_os::heap::Heap;

use client::Client;

#[global_allocator]
static HEAP: Heap = Heap;

/// Set for the process of the daemon: its socket, and the maximum memory or addresses that it may have, bytes.
const SOCKET: &str = "UTIPC_TEST_SOCKET";
const MEMORY: &str = "UTIPC_TEST_MEMORY";
const ADDRESSES: &str = "UTIPC_TEST_ADDRESSES";

const MIB: u64 = 1 << 20;
/// Resident memory that may stay when a user has left, bytes.
const TOLERANCE: u64 = 4 * MIB;
/// Begins a line that says what is charged.
const CHARGED: &str = "charged ";
/// Requests that are sent before their replies are read.
const AHEAD: usize = 64;

/// The daemon of the other tests; does nothing in their process.
#[test]
fn daemon_in_a_separate_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    for (name, resource) in [(MEMORY, Resource::Data), (ADDRESSES, Resource::As)] {
        if let Some(most) = std::env::var(name).ok().and_then(|most| most.parse().ok()) {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
        }
    }
    let stack = StackConfig { address: Some(NodeAddr(0x1001)), seed: 1, ..StackConfig::default() };
    let node = NodeConfig { stack, ..NodeConfig::default() };
    let config = DaemonConfig { node, socket: socket.into(), ..DaemonConfig::default() };
    let daemon = Daemon::start(config).unwrap();
    // Until the test ends, it asks what is charged.
    for _ in std::io::stdin().lines() {
        let quotas = daemon.counters().quotas;
        let memory = quotas.iter().find(|quota| quota.resource == "memory").unwrap();
        println!("{CHARGED}{}", memory.used);
    }
}

struct Host {
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
    path: PathBuf,
}

impl Host {
    fn start() -> Self {
        Self::with_limit(None)
    }

    fn with_limit(most: Option<(&str, u64)>) -> Self {
        let path = client::path();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "daemon_in_a_separate_process", "--nocapture"]);
        command.env(SOCKET, &path).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((name, most)) = most {
            command.env(name, most.to_string());
        }
        let mut process = command.spawn().unwrap();
        let says = BufReader::new(process.stdout.take().unwrap()).lines();
        let begun = Instant::now();
        while !path.exists() {
            assert!(begun.elapsed() < client::LIMIT, "the daemon does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, says, path }
    }

    fn client(&self) -> Client {
        Client::attach(&self.path, false)
    }

    /// Resident memory, bytes.
    fn resident(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.process.id())).unwrap();
        let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    /// Bytes of memory that users are charged for.
    fn charged(&mut self) -> u64 {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut said = self.says.by_ref().map(Result::unwrap);
        said.find_map(|line| line.strip_prefix(CHARGED).map(|bytes| bytes.parse().unwrap())).unwrap()
    }

    /// Checks that what is resident since the start is charged.
    fn is_charged(&mut self, start: u64, what: &str) {
        let (more, charged) = (self.resident().saturating_sub(start) / MIB, self.charged() / MIB);
        println!("{what}: {more} MiB more resident, {charged} MiB charged");
        assert!(
            more <= charged + charged / 4 + 16,
            "{what}: {more} MiB more resident, {charged} MiB charged"
        );
    }

    /// Waits until no more memory is resident than at the start.
    fn returns_to(&self, start: u64) {
        let begun = Instant::now();
        while self.resident() > start + TOLERANCE {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
            let now: Vec<&str> = status.lines().filter(|line| line.starts_with("Rss")).collect();
            let start = start / 1024;
            assert!(begun.elapsed() < client::LIMIT, "{now:?} stay resident, {start} KiB at the start");
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("{} KiB resident at the start, {} KiB afterwards", start / 1024, self.resident() / 1024);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(format!("{}.lock", self.path.display()));
    }
}

/// A sender whose messages are not returned and fit a queue in great number: 16 MiB.
fn sender(client: &mut Client) -> u32 {
    let port = client.open(SocketKind::Dgram);
    let value = OptionValue::Number(Importance::Critical as u32);
    let set = SocketCall::SetOption { option: SocketOption::Importance, value }.on(port);
    assert_eq!(client.call(&set).unwrap(), Reply::Done);
    port
}

fn receivers(client: &mut Client, count: usize) -> Vec<u32> {
    (0..count).map(|_| client.open(SocketKind::Rdm)).collect()
}

/// Sends `rounds` messages of `size` bytes to each receiver, one after the other; returns how many the node took.
fn fill(client: &mut Client, from: u32, to: &[u32], size: usize, rounds: usize) -> usize {
    let (data, mut taken, mut waiting) = (vec![7; size], 0, 0);
    for port in (0..rounds).flat_map(|_| to) {
        let to = Some(Destination::Port(PortId { port: *port, node: NodeAddr::NONE }));
        let mut bytes = Vec::new();
        encode(&SocketCall::Send { to }.on(from), &data, &mut bytes);
        assert_eq!(
            client.channel.send(&[IoSlice::new(&bytes)], &[], true).unwrap(),
            Put::Sent,
            "the daemon lives"
        );
        waiting += 1;
        if waiting == AHEAD {
            taken += usize::from(matches!(client.receive_reply(), Reply::Sent { .. }));
            waiting -= 1;
        }
    }
    for _ in 0..waiting {
        taken += usize::from(matches!(client.receive_reply(), Reply::Sent { .. }));
    }
    taken
}

/// Whether a message arrives, and the one before it if there is one.
fn exchange(client: &mut Client, from: u32, to: u32) -> bool {
    fill(client, from, &[to], 100, 1) == 1 && client.receive(to).is_ok()
}

#[test]
fn memory_of_messages_returns_when_their_user_has_left() {
    let mut host = Host::start();
    let mut bystander = host.client();
    let (from, to) = (sender(&mut bystander), bystander.open(SocketKind::Rdm));
    let mut user = host.client();
    let (own, queues) = (sender(&mut user), receivers(&mut user, 4));
    assert!(exchange(&mut bystander, from, to));
    let start = host.resident();
    for _ in 0..20 {
        assert_eq!(fill(&mut user, own, &queues, 600, 1000), 4000);
        // These stay, between those that go.
        assert_eq!(fill(&mut bystander, from, &[to], 600, 40), 40);
    }
    assert!(host.resident() > start + 40 * MIB, "the messages wait in the daemon");
    host.is_charged(start, "messages");
    drop(user);
    host.returns_to(start);
    assert!((0..800).all(|_| bystander.receive(to).is_ok()), "the bystander's messages are all there");
}

/// Users with as many sockets as two processes may have.
fn users_with_sockets(host: &Host) -> Vec<(Client, Vec<u32>)> {
    let open = |mut user: Client| {
        let ports = receivers(&mut user, 16_000);
        (user, ports)
    };
    (0..2).map(|_| open(host.client())).collect()
}

#[test]
fn sockets_and_connections_are_charged_for_their_memory_and_leave_none() {
    let mut host = Host::start();
    let mut bystander = host.client();
    let (from, to) = (sender(&mut bystander), bystander.open(SocketKind::Rdm));
    assert!(exchange(&mut bystander, from, to));
    let start = host.resident();
    let users = users_with_sockets(&host);
    host.is_charged(start, "sockets");
    drop(users);
    host.returns_to(start);
    let mut user = host.client();
    let listener = user.server(SocketKind::SeqPacket, ServiceRange::new(19_000, 1, 1));
    let to = Some(Destination::service(19_000, 1));
    for _ in 0..7000 {
        let port = user.open(SocketKind::SeqPacket);
        user.call(&SocketCall::Connect { to }.on(port)).unwrap();
        user.call(&SocketCall::Accept.on(listener)).unwrap();
    }
    host.is_charged(start, "connections");
    drop(user);
    host.returns_to(start);
}

/// The binding table keeps its size, which `limits.bindings` bounds, and its memory serves the next bindings.
#[test]
fn bindings_are_charged_for_their_memory() {
    let mut host = Host::start();
    let start = host.resident();
    let mut before = None;
    for _ in 0..3 {
        let mut users = users_with_sockets(&host);
        for (user, ports) in &mut users {
            for (port, instance) in ports.iter().zip(0..) {
                user.bind(*port, ServiceRange::new(18_000 + instance / 64, instance, instance));
            }
        }
        host.is_charged(start, "bindings");
        drop(users);
        match before {
            Some(before) => host.returns_to(before),
            None => {
                std::thread::sleep(Duration::from_secs(3));
                before = Some(host.resident());
            }
        }
    }
}

#[test]
fn queues_that_were_drained_keep_no_memory() {
    let host = Host::start();
    let mut user = host.client();
    let (from, queues) = (sender(&mut user), receivers(&mut user, 8));
    assert!(exchange(&mut user, from, queues[0]));
    let start = host.resident();
    for size in [40, 700, 5000] {
        let rounds = 2_000_000 / (size + 200);
        assert_eq!(fill(&mut user, from, &queues, size, rounds), 8 * rounds);
        let read = |user: &mut Client, port: u32| (0..rounds).all(|_| user.receive(port).is_ok());
        assert!(queues.iter().all(|port| read(&mut user, *port)));
        host.returns_to(start);
    }
}

/// Queues fill with messages of one size after another, and one of eight queues is kept each time.
fn refuses_messages_and_lives(limit: (&str, u64), phases: &[(usize, usize)]) {
    let host = Host::with_limit(Some(limit));
    let mut bystander = host.client();
    let (from, to) = (sender(&mut bystander), bystander.open(SocketKind::Rdm));
    let start = host.resident();
    let mut user = host.client();
    let own = sender(&mut user);
    for (size, rounds) in phases.iter().copied() {
        let queues = receivers(&mut user, 8);
        fill(&mut user, own, &queues, size, rounds);
        assert!(host.resident() < limit.1, "more than the limit is resident");
        for port in &queues[1..] {
            user.call(&SocketCall::Close.on(*port)).unwrap();
        }
    }
    let mut read = 0;
    drop(user);
    host.returns_to(start);
    for _ in 0..100 {
        read += usize::from(exchange(&mut bystander, from, to));
    }
    assert_eq!(read, 100, "the next user is served");
}

#[test]
fn daemon_without_memory_refuses_messages_and_lives() {
    let phases = [(300, 25_000), (2600, 3200), (19_000, 400), (60_000, 200), (300, 2000)];
    refuses_messages_and_lives((MEMORY, 64 * MIB), &phases);
}

#[test]
fn daemon_without_addresses_refuses_messages_and_lives() {
    let phases = [(60_000, 700), (19_000, 1000), (300, 2000), (60_000, 100)];
    refuses_messages_and_lives((ADDRESSES, 400 * MIB), &phases);
}
