use utipc_core::socket::{ConnectError, Readiness, RecvError, SendError, SocketOption, State, WaitReason};
use utipc_core::{Destination, RecvOptions, SocketKind};

use crate::lan::{Faults, LOSSY, Lan, PERFECT, Sock, pattern};

/// One direction of a stream: bytes sent and received so far.
struct Flow {
    from: Sock,
    to: Sock,
    sent: usize,
    received: usize,
}

impl Flow {
    fn new(from: Sock, to: Sock) -> Self {
        Self { from, to, sent: 0, received: 0 }
    }

    /// Sends as much as possible, in writes of `chunk`, up to `total`.
    fn push(&mut self, lan: &mut Lan, chunk: usize, total: usize) {
        while self.sent < total {
            let data = pattern(self.sent, chunk.min(total - self.sent));
            match lan.send(self.from, &data) {
                Ok(n) => self.sent += n,
                Err(SendError::WouldBlock) => return,
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Receives at most `most` bytes and checks them.
    fn pull(&mut self, lan: &mut Lan, most: usize) {
        let mut left = most;
        while left > 0 {
            let Some(data) = lan.recv(self.to, left.min(66_000)) else { return };
            assert!(!data.is_empty(), "the stream ended after {} of {} bytes", self.received, self.sent);
            assert!(data == pattern(self.received, data.len()), "wrong bytes after {}", self.received);
            self.received += data.len();
            left -= data.len();
        }
    }
}

#[test]
fn stream_works_both_ways_over_a_lossy_network() {
    for seed in 1..4 {
        let mut lan = Lan::new(2, LOSSY, seed);
        let (client, server) = lan.pair(SocketKind::Stream);
        let total = 1_000_000;
        let mut flows = [Flow::new(client, server), Flow::new(server, client)];
        lan.until(300_000, |lan| {
            for flow in &mut flows {
                flow.push(lan, 30_000, total);
                flow.pull(lan, usize::MAX);
            }
            flows.iter().all(|f| f.received == total)
        });
        lan.assert_stable();
    }
}

#[test]
fn small_writes_of_a_stream_arrive_with_and_without_nagle() {
    let mut lan = Lan::new(2, LOSSY, 7);
    let (client, server) = lan.pair(SocketKind::Stream);
    let mut flow = Flow::new(client, server);
    let total = 60_000;
    lan.until(100_000, |lan| {
        let goal = (flow.sent + 400).min(total);
        flow.push(lan, 37, goal);
        flow.pull(lan, usize::MAX);
        flow.received == total
    });
    let stats = lan.nodes[1].endpoint(client.port).unwrap().stats();
    assert!(stats.sent_messages < total as u64 / 37 / 2, "collected: {stats:?}");
    lan.assert_stable();
}

#[test]
fn seqpacket_keeps_boundaries_and_order_over_a_lossy_network() {
    let mut lan = Lan::new(2, LOSSY, 11);
    let (client, server) = lan.pair(SocketKind::SeqPacket);
    let sizes: Vec<usize> = (0..300).map(|i| [1, 1400, 1500, 20_000, 66_000, 3][i % 6]).collect();
    let (mut sent, mut received) = (0, 0);
    lan.until(300_000, |lan| {
        while sent < sizes.len() && lan.send(client, &pattern(sent, sizes[sent])).is_ok() {
            sent += 1;
        }
        while let Some(data) = lan.recv(server, 66_000) {
            assert!(data == pattern(received, sizes[received]), "message {received}");
            received += 1;
        }
        received == sizes.len()
    });
    lan.assert_stable();
}

#[test]
fn slow_reader_blocks_the_writer_without_loss() {
    let mut lan = Lan::new(2, Faults { loss: 10, ..LOSSY }, 13);
    let (client, server) = lan.pair(SocketKind::Stream);
    let mut flow = Flow::new(client, server);
    let total = 2_000_000;
    flow.push(&mut lan, 50_000, total);
    lan.run(5000);
    flow.push(&mut lan, 50_000, total);
    assert!(flow.sent < 700_000, "{} bytes accepted although nothing was read", flow.sent);
    let endpoint = lan.nodes[1].endpoint(client.port).unwrap();
    assert!(!endpoint.readiness().writable);
    assert!(
        matches!(endpoint.wait_reason(), Some(WaitReason::PeerWindow { peer, .. }) if peer == lan.id(server))
    );
    let mut most = 0;
    lan.until(300_000, |lan| {
        flow.pull(lan, 3000);
        flow.push(lan, 50_000, total);
        let queued =
            lan.nodes[0].endpoint(server.port).unwrap().option(SocketOption::ReceiveQueueUsed).unwrap();
        most = most.max(queued);
        flow.received == total
    });
    assert!(most < 2 << 20, "{most} bytes queued");
    lan.assert_stable();
}

#[test]
fn all_data_arrives_before_the_end() {
    for kind in [SocketKind::Stream, SocketKind::SeqPacket] {
        let mut lan = Lan::new(2, LOSSY, 17);
        let listener = lan.listener(0, kind, 4000);
        let client = lan.open(1, kind);
        let first = pattern(0, 5000);
        lan.send_to(client, &first, Destination::service(4000, 1)).unwrap();
        let mut server = None;
        lan.until(8000, |lan| {
            server = server.or_else(|| lan.accept(listener));
            lan.state(client) == State::Established
        });
        let mut flow = Flow { sent: 5000, ..Flow::new(client, server.unwrap()) };
        flow.push(&mut lan, 20_000, 100_000);
        lan.nodes[1].shutdown(lan.now, client.port).unwrap();
        let sent = flow.sent;
        lan.until(60_000, |lan| {
            flow.pull(lan, sent - flow.received);
            flow.received == sent
        });
        lan.until(60_000, |lan| lan.recv(flow.to, 100).is_some_and(|d| d.is_empty()));
        assert_eq!(lan.send(flow.to, b"x"), Err(SendError::Broken));
        lan.close(flow.to);
        lan.close(client);
        lan.run(100);
        assert!(lan.nodes[1].endpoint(client.port).is_none());
    }
}

#[test]
fn lost_contact_breaks_both_ends_after_an_exact_prefix() {
    for seed in 0..5 {
        let mut lan = Lan::new(2, LOSSY, 100 + seed);
        let (client, server) = lan.pair(SocketKind::Stream);
        let mut flows = [Flow::new(client, server), Flow::new(server, client)];
        let cut_after = 20 + seed * 7;
        for millis in 0..10_000u64 {
            if millis == cut_after {
                lan.cut.push(0);
            }
            for flow in &mut flows {
                if lan.state(flow.from) == State::Established {
                    flow.push(&mut lan, 10_000, usize::MAX);
                }
                flow.pull(&mut lan, 50_000);
            }
            lan.run(1);
        }
        for (end, flow) in [(client, &flows[1]), (server, &flows[0])] {
            assert_eq!(lan.state(end), State::Disconnecting);
            assert!(lan.nodes[end.node].endpoint(end.port).unwrap().readiness().hung_up);
            let mut buffer = [0; 10];
            let got = lan.nodes[end.node].recv(lan.now, end.port, &mut buffer, RecvOptions::default());
            assert_eq!(got, Err(RecvError::ConnectionReset));
            assert!(flow.received <= flow.sent);
        }
        assert!(flows[0].received > 0);
        // once contact is back, bindings are restored and connections possible
        lan.cut.clear();
        lan.until(20_000, |lan| lan.peers_up(0) == 1 && lan.peers_up(1) == 1);
        let (client, server) = {
            let listener = lan.listener(0, SocketKind::Stream, 4001);
            let client = lan.open(1, SocketKind::Stream);
            lan.until(8000, |lan| {
                lan.nodes[1].connect(lan.now, client.port, Some(Destination::service(4001, 1))).is_ok()
            });
            let mut server = None;
            lan.until(8000, |lan| {
                server = server.or_else(|| lan.accept(listener));
                lan.state(client) == State::Established
            });
            (client, server.unwrap())
        };
        let mut flow = Flow::new(client, server);
        lan.until(60_000, |lan| {
            flow.push(lan, 10_000, 100_000);
            flow.pull(lan, usize::MAX);
            flow.received == 100_000
        });
    }
}

#[test]
fn stream_completes_or_breaks_at_both_ends_with_20_percent_loss() {
    for seed in 0..4 {
        let mut lan = Lan::new(2, Faults { loss: 200, ..LOSSY }, 200 + seed);
        let (client, server) = {
            lan.faults = LOSSY;
            let pair = lan.pair(SocketKind::SeqPacket);
            lan.faults = Faults { loss: 200, ..LOSSY };
            pair
        };
        let mut flow = Flow::new(client, server);
        let total = 300_000;
        let over = |lan: &Lan, at| lan.state(at) == State::Disconnecting;
        lan.until(600_000, |lan| {
            if !over(lan, client) {
                flow.push(lan, 9999, total);
            }
            flow.pull(lan, usize::MAX);
            flow.received == total || over(lan, client) && over(lan, server)
        });
        assert!(flow.received == total || over(&lan, client) && over(&lan, server));
    }
}

#[test]
fn close_returns_the_first_unread_message() {
    let mut lan = Lan::new(2, LOSSY, 23);
    let (client, server) = lan.pair(SocketKind::SeqPacket);
    lan.send(client, &pattern(1, 3000)).unwrap();
    lan.send(client, b"second").unwrap();
    lan.until(2000, |lan| {
        lan.nodes[0].endpoint(server.port).unwrap().option(SocketOption::ReceiveQueueDepth) == Ok(2)
    });
    lan.close(server);
    lan.until(2000, |lan| lan.state(client) == State::Disconnecting);
    let mut buffer = [0; 10];
    let control = RecvOptions { control: true, ..RecvOptions::default() };
    let got = lan.nodes[1].recv(lan.now, client.port, &mut buffer, control).unwrap();
    assert_eq!(got.returned.unwrap().data, pattern(1, 1024));
}

#[test]
fn request_without_accept_times_out() {
    let mut lan = Lan::new(2, PERFECT, 29);
    lan.listener(0, SocketKind::SeqPacket, 4000);
    let client = lan.open(1, SocketKind::SeqPacket);
    lan.nodes[1].connect(lan.now, client.port, Some(Destination::service(4000, 1))).unwrap();
    lan.run(7900);
    assert_eq!(lan.state(client), State::Connecting);
    lan.run(200);
    assert_eq!(lan.nodes[1].take_error(client.port), Some(ConnectError::TimedOut));
    let ready = lan.nodes[1].endpoint(client.port).unwrap().readiness();
    assert_eq!(ready, Readiness { readable: true, hung_up: true, ..Readiness::default() });
}

#[test]
fn many_connections_at_once() {
    let mut lan = Lan::new(2, LOSSY, 31);
    let listener = lan.listener(0, SocketKind::Stream, 4000);
    let clients: Vec<Sock> = (0..100u32)
        .map(|i| {
            let client = lan.open(1, SocketKind::Stream);
            lan.send_to(client, &i.to_be_bytes(), Destination::service(4000, 1)).unwrap();
            client
        })
        .collect();
    let mut served = 0;
    lan.until(8000, |lan| {
        while let Some(server) = lan.accept(listener) {
            let data = lan.recv(server, 10).expect("the data arrived with the request");
            lan.send(server, &data).unwrap();
            served += 1;
        }
        served == 100
    });
    lan.run(2000);
    for (i, client) in (0u32..).zip(&clients) {
        assert_eq!(lan.recv(*client, 10).as_deref(), Some(&i.to_be_bytes()[..]));
    }
    lan.assert_stable();
}

#[test]
fn same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut lan = Lan::new(2, LOSSY, seed);
        let (client, server) = lan.pair(SocketKind::Stream);
        let mut flow = Flow::new(client, server);
        lan.until(60_000, |lan| {
            flow.push(lan, 5000, 100_000);
            flow.pull(lan, usize::MAX);
            flow.received == 100_000
        });
        (lan.trace, lan.now)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
