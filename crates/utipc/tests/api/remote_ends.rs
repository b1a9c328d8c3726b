//! The end of connections between two nodes, 1,000 times for each engine and kind of socket: the peer reads all data
//! first, and then the end that it was told.

use std::thread;

use crate::common::{Engine, LIMIT, TestNode, ethernet_pair, on_each_engine, pair};
use utipc::{Connection, Listener, Node, ServiceAddress, SocketKind};

const ROUNDS: usize = 1000;
const BOTH: [SocketKind; 2] = [SocketKind::SeqPacket, SocketKind::Stream];

/// Messages that an end of a connection sends before it leaves: none, one (no lane yet), some, and more than the
/// window of the connection and the queue of the link take at once.
const SIZES: [&[usize]; 5] = [&[], &[100], &[10; 20], &[3000, 1, 66_000, 1], &[60_000; 12]];

/// What the end of a connection does after its last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// Shuts it down and closes.
    Shutdown,
    /// Closes only.
    Close,
}

/// The bytes that a round sends in a message of this size.
fn body(round: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (round + at % 251) as u8).collect()
}

/// Sends the messages of a round and leaves; returns the bytes that were sent. With `waits` false it sends as much as
/// its own end of the connection takes at once.
fn send_and_leave(end: Connection, round: usize, leave: Leave, waits: bool) -> usize {
    end.socket().set_nonblocking(!waits);
    let mut all = 0;
    'messages: for size in SIZES[round % SIZES.len()] {
        let body = body(round, *size);
        let mut sent = 0;
        while sent < *size {
            match end.socket().send(&body[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if !waits && error.errno() == 11 => break 'messages,
                Err(error) => panic!("round {round}, after {} bytes: {error}", all + sent),
            }
        }
        all += sent;
    }
    if leave == Leave::Shutdown {
        end.shutdown().unwrap();
    }
    all
}

/// Reads to the end of the connection, and once more; returns what was read and how the connection ended.
fn read_to_the_end(end: &Connection, round: usize) -> (Vec<Vec<u8>>, Result<(), i32>) {
    let mut got = Vec::new();
    let last = loop {
        match end.receive() {
            Ok(message) if message.data.is_empty() => break Ok(()),
            Ok(message) => got.push(message.data),
            Err(error) => break Err(error.errno()),
        }
    };
    let again = end.receive().map(drop).map_err(|error| error.errno());
    assert_eq!(again, last, "round {round}");
    (got, last)
}

/// Checks that everything was read that was sent, in its messages.
fn check(got: &[Vec<u8>], sent: usize, round: usize, kind: SocketKind) {
    let messages: Vec<Vec<u8>> = SIZES[round % SIZES.len()].iter().map(|size| body(round, *size)).collect();
    let bytes = got.concat();
    assert!(messages.concat().starts_with(&bytes), "round {round}: other data");
    if kind == SocketKind::SeqPacket {
        assert!(messages.starts_with(got), "round {round}: other messages");
    }
    assert!(bytes.len() >= sent, "round {round}: {} of {sent} bytes", bytes.len());
}

/// A connection: the client's end and the server's.
fn connect(client: &Node, listener: &Listener, kind: SocketKind, service: ServiceAddress) -> [Connection; 2] {
    let ends = thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        [client.connect(kind, service).unwrap(), server.join().unwrap()]
    });
    for end in &ends {
        end.socket().set_receive_timeout(Some(LIMIT));
        end.socket().set_send_timeout(Some(LIMIT));
    }
    ends
}

/// Many connections, which the client ends, or the server. Every second reader reads from the start; the others begin
/// when the writer has left, with data that still waits for the window, in the lane and on the link.
fn end([red, blue]: &[TestNode; 2], kind: SocketKind, leave: Leave) {
    let service = ServiceAddress::new(7300, 1);
    let listener = blue.listen(kind, service).unwrap();
    red.wait_for_service(service, LIMIT).unwrap();
    let wanted = if leave == Leave::Shutdown { Ok(()) } else { Err(104) };
    for round in 0..ROUNDS {
        let [client, server] = connect(red, &listener, kind, service);
        let (writer, reader) = if round / 2 % 2 == 0 { (client, server) } else { (server, client) };
        let (got, last, sent) = if round % 2 == 1 {
            let sent = send_and_leave(writer, round, leave, false);
            let (got, last) = read_to_the_end(&reader, round);
            (got, last, sent)
        } else {
            thread::scope(|scope| {
                let sends = scope.spawn(move || send_and_leave(writer, round, leave, true));
                let (got, last) = read_to_the_end(&reader, round);
                (got, last, sends.join().unwrap())
            })
        };
        assert_eq!(last, wanted, "round {round}");
        check(&got, sent, round, kind);
    }
}

fn peer_reads_everything_and_then_0_after_a_shutdown(engine: Engine) {
    for kind in BOTH {
        end(&pair(engine), kind, Leave::Shutdown);
    }
}

fn peer_reads_everything_and_then_a_reset_after_a_close(engine: Engine) {
    for kind in BOTH {
        end(&pair(engine), kind, Leave::Close);
    }
}

/// As the two above, over Ethernet.
fn peer_reads_everything_over_ethernet(engine: Engine) {
    // In a thread of its own, which enters a network namespace.
    let body = move || match ethernet_pair(engine) {
        Ok(nodes) => {
            for kind in BOTH {
                end(&nodes, kind, Leave::Shutdown);
                end(&nodes, kind, Leave::Close);
            }
        }
        Err(why) => eprintln!("skipped: Ethernet: {why}"),
    };
    if let Err(panic) = thread::spawn(body).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Both ends send, read some and leave at the same time: each reads data, or that the other has shut down.
fn ends_that_shut_down_at_once_are_not_reset(engine: Engine) {
    let [red, blue] = pair(engine);
    for kind in BOTH {
        let service = ServiceAddress::new(7301, kind as u32);
        let listener = blue.listen(kind, service).unwrap();
        red.wait_for_service(service, LIMIT).unwrap();
        for round in 0..ROUNDS {
            let ends = connect(&red, &listener, kind, service);
            thread::scope(|scope| {
                for (number, end) in ends.into_iter().enumerate() {
                    scope.spawn(move || {
                        for _ in 0..round % 5 {
                            if let Err(error) = end.send(&[7; 1000]) {
                                assert_eq!(error.errno(), 32, "round {round}: sending");
                            }
                        }
                        end.socket().set_nonblocking(true);
                        for _ in 0..(round + number) % 3 {
                            let got = end.receive().map_err(|error| error.errno());
                            assert!(matches!(got, Ok(_) | Err(11)), "round {round}: {got:?}");
                        }
                        end.shutdown().unwrap();
                    });
                }
            });
        }
    }
}

on_each_engine!(
    peer_reads_everything_and_then_0_after_a_shutdown,
    peer_reads_everything_and_then_a_reset_after_a_close,
    peer_reads_everything_over_ethernet,
    ends_that_shut_down_at_once_are_not_reset,
);
