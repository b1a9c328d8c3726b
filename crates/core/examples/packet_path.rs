//! Measures the cost of a message in the core: two nodes in memory, one of which sends messages to the other at full
//! speed.
//!
//! The example reads no clock; count instructions, which do not depend on other work on the machine:
//!
//! ```text
//! cargo build --release --example packet_path -p utipc-core
//! for n in 5000 10000; do
//!   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/packet_path $n 64 2>&1 |
//!     grep Collected
//! done
//! ```
//!
//! The difference, divided by 5000, is the cost of one message from `send` on one node to `recv` on the other,
//! including its share of acknowledgements. A third argument opens that many additional sockets; a fourth makes each of
//! them bind that many ranges.

use utipc_core::{
    BearerConfig, Destination, MediaAddr, NodeId, RecvOptions, Scope, ServiceRange, SocketKind, Stack,
    StackConfig, Target, Time, socket::SendError,
};

/// Messages in flight: fewer than would overflow the receiver's queue.
const IN_FLIGHT: usize = 1000;

fn media(node: u8) -> MediaAddr {
    MediaAddr::Udp(([127, 0, 0, node + 1], 6118).into())
}

fn node(now: Time, number: u8) -> Stack {
    let identity = Some(NodeId::from_text(&format!("node{number}")));
    let mut stack =
        Stack::new(now, StackConfig { identity, seed: u64::from(number) + 1, ..StackConfig::default() });
    let bearer = BearerConfig::new("udp:bench", media(number), 14_000);
    stack.enable_bearer(now, bearer).expect("the bearer is within the limits");
    stack
}

/// Carries frames between the nodes until none is left.
fn exchange(now: Time, nodes: &mut [Stack; 2]) {
    loop {
        let mut moved = false;
        for from in 0..2 {
            let mut batch = core::mem::take(nodes[from].frames());
            for frame in batch.frames() {
                moved = true;
                if frame.to == Target::Broadcast || frame.to == Target::Unicast(media(1 - from as u8)) {
                    nodes[1 - from].receive(now, frame.bearer, &batch.frame(frame));
                }
            }
            batch.clear();
            if nodes[from].frames().is_empty() {
                *nodes[from].frames() = batch; // reuse the memory
            }
            while nodes[from].poll_event().is_some() {}
            while nodes[from].poll_ready().is_some() {}
        }
        if !moved {
            return;
        }
    }
}

fn run(now: &mut Time, nodes: &mut [Stack; 2], millis: u64) {
    let end = now.plus_millis(millis);
    loop {
        exchange(*now, nodes);
        let Some(next) = nodes.iter().filter_map(Stack::deadline).min().filter(|at| *at <= end) else {
            break;
        };
        *now = next.max(*now);
        nodes.iter_mut().for_each(|n| n.handle_timeout(*now));
    }
    *now = end;
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<usize>().expect("a number"));
    let mut arg = |default| args.next().unwrap_or(default);
    let (messages, size, sockets, bindings) = (arg(20_000), arg(64), arg(0), arg(0));
    let mut now = Time::from_millis(1);
    let mut nodes = [node(now, 0), node(now, 1)];
    let range = ServiceRange::new(18_888, 17, 17);
    let server = nodes[0].open(now, SocketKind::Rdm).expect("a socket");
    nodes[0].bind(now, server, range, Scope::Cluster).expect("a binding");
    let idle: Vec<u32> =
        (0..sockets).map(|_| nodes[0].open(now, SocketKind::Rdm).expect("a socket")).collect();
    for n in 0..bindings as u32 {
        let port = idle.get(n as usize % idle.len().max(1)).copied().unwrap_or(server);
        nodes[0].bind(now, port, ServiceRange::new(1000, n, n), Scope::Cluster).expect("a binding");
    }
    run(&mut now, &mut nodes, 5000);
    let client = nodes[1].open(now, SocketKind::Rdm).expect("a socket");
    let data = vec![7; size];
    let mut buffer = vec![0; size.max(1)];
    let (mut sent, mut received) = (0, 0);
    while received < messages {
        while sent < messages && sent - received < IN_FLIGHT {
            match nodes[1].send(now, client, &data, Some(Destination::service(18_888, 17))) {
                Ok(_) => sent += 1,
                Err(SendError::WouldBlock) => break,
                Err(e) => panic!("{e}"),
            }
        }
        exchange(now, &mut nodes);
        while nodes[0].recv(now, server, &mut buffer, RecvOptions::default()).is_ok() {
            received += 1;
        }
    }
    let wire: u64 = nodes[1].links().iter().map(|l| l.stats.tx_packets).sum();
    println!("{received} messages of {size} bytes in {wire} packets");
}
