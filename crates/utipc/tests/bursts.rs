//! A burst of multicasts reaches every receiver that reads, however fast the sender is; a receiver that does not read
//! costs the others nothing but a bounded wait.
//!
//! Senders wait for a receiver for tens of milliseconds. A busy host may keep it from running for longer, so a burst
//! that lost something is repeated. Without the waits no burst arrives whole.

mod common;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::{Engine, LIMIT, alone, on_each_engine, pair};
use rustix::event::{PollFd, PollFlags};
use utipc::{Node, Scope, ServiceAddress, ServiceRange, Socket};

const TYPE: u32 = 7600;
const MESSAGES: u32 = 200;
const SIZE: usize = 66_000;

/// Bursts until one has to arrive whole.
const ATTEMPTS: u32 = 5;

/// A receiver that gets nothing for so long has lost the rest.
const SILENCE: Duration = Duration::from_secs(5);

on_each_engine!(
    two_readers_on_one_node_lose_nothing,
    eight_readers_on_one_node_lose_nothing,
    two_readers_on_another_node_lose_nothing,
    eight_readers_on_another_node_lose_nothing,
    receiver_that_never_reads_costs_the_others_no_message,
    receiver_on_another_node_that_never_reads_costs_the_others_no_message,
    blocking_sender_of_datagrams_loses_nothing,
    blocking_sender_of_datagrams_to_another_node_loses_nothing,
    polled_sender_waits_for_a_reader_and_not_for_ever,
);

fn two_readers_on_one_node_lose_nothing(engine: Engine) {
    let node = alone(engine);
    burst(&node, &(0..2).map(|_| node.again()).collect::<Vec<_>>(), 0);
}

fn eight_readers_on_one_node_lose_nothing(engine: Engine) {
    let node = alone(engine);
    burst(&node, &(0..8).map(|_| node.again()).collect::<Vec<_>>(), 0);
}

fn two_readers_on_another_node_lose_nothing(engine: Engine) {
    let [red, blue] = pair(engine);
    burst(&red, &(0..2).map(|_| blue.again()).collect::<Vec<_>>(), 0);
}

fn eight_readers_on_another_node_lose_nothing(engine: Engine) {
    let [red, blue] = pair(engine);
    burst(&red, &(0..8).map(|_| blue.again()).collect::<Vec<_>>(), 0);
}

fn receiver_that_never_reads_costs_the_others_no_message(engine: Engine) {
    let node = alone(engine);
    burst(&node, &(0..4).map(|_| node.again()).collect::<Vec<_>>(), 1);
}

fn receiver_on_another_node_that_never_reads_costs_the_others_no_message(engine: Engine) {
    let [red, blue] = pair(engine);
    burst(&red, &(0..4).map(|_| blue.again()).collect::<Vec<_>>(), 1);
}

fn blocking_sender_of_datagrams_loses_nothing(engine: Engine) {
    let node = alone(engine);
    datagrams(&node, &node.again());
}

fn blocking_sender_of_datagrams_to_another_node_loses_nothing(engine: Engine) {
    let [red, blue] = pair(engine);
    datagrams(&red, &blue.again());
}

fn bound(node: &Node, instance: u32) -> Socket {
    let socket = node.rdm().unwrap();
    socket.bind(ServiceAddress::new(TYPE, instance), Scope::Cluster).unwrap();
    socket.set_receive_timeout(Some(SILENCE));
    socket
}

fn body(number: u32) -> Vec<u8> {
    let mut body = vec![number as u8; SIZE];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body
}

/// Reads until all messages have arrived, or none for [`SILENCE`]; returns their number.
fn count(socket: &Socket) -> u32 {
    let mut next = 0;
    let mut got = 0;
    let mut buffer = vec![0; SIZE];
    while next < MESSAGES {
        let received = match socket.receive_into(&mut buffer) {
            Ok(received) => received,
            Err(error) => {
                eprintln!("after {got} messages: {error}");
                break;
            }
        };
        let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
        assert!(received.len == SIZE && buffer[SIZE - 1] == number as u8, "message {number} is damaged");
        assert!(number >= next, "message {number} after {next}");
        next = number + 1;
        got += 1;
    }
    got
}

/// Repeats `attempt` until every reader has got all messages; it returns how many each has got.
fn until_whole(mut attempt: impl FnMut() -> Vec<u32>) {
    let got: Vec<_> = std::iter::repeat_with(&mut attempt)
        .take(ATTEMPTS as usize)
        .scan(false, |done, got| {
            let goes_on = !*done;
            *done = got.iter().all(|got| *got == MESSAGES);
            goes_on.then_some(got)
        })
        .collect();
    assert!(got.last().is_some_and(|got| got.iter().all(|got| *got == MESSAGES)), "{got:?}");
}

/// Sends bursts of multicasts from `sender` to one socket of each of `receivers`, of which the last `silent` do not
/// read, and checks that the others get all of one.
fn burst(sender: &Node, receivers: &[Node], silent: usize) {
    until_whole(|| burst_once(sender, receivers, silent));
}

fn burst_once(sender: &Node, receivers: &[Node], silent: usize) -> Vec<u32> {
    let sockets: Vec<Socket> = (1..).zip(receivers).map(|(instance, node)| bound(node, instance)).collect();
    let all = ServiceRange::new(TYPE, 0, u32::MAX);
    for instance in 1..=receivers.len() as u32 {
        sender.wait_for_service(ServiceAddress::new(TYPE, instance), LIMIT).unwrap();
    }
    let socket = sender.rdm().unwrap();
    let readers = &sockets[..sockets.len() - silent];
    let start = Barrier::new(readers.len() + 1);
    let read = |socket| {
        start.wait();
        count(socket)
    };
    let read = &read;
    thread::scope(|scope| {
        let threads: Vec<_> = readers.iter().map(|socket| scope.spawn(move || read(socket))).collect();
        start.wait();
        for number in 0..MESSAGES {
            socket.send_to(&body(number), all).unwrap();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Sends bursts of messages to one socket, which reads.
fn datagrams(sender: &Node, receiver: &Node) {
    let receiving = bound(receiver, 1);
    let to = ServiceAddress::new(TYPE, 1);
    sender.wait_for_service(to, LIMIT).unwrap();
    until_whole(|| {
        let socket = sender.rdm().unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| count(&receiving));
            for number in 0..MESSAGES {
                socket.send_to(&body(number), to).unwrap();
            }
            vec![reader.join().unwrap()]
        })
    });
}

fn polled_sender_waits_for_a_reader_and_not_for_ever(engine: Engine) {
    until_whole(|| polled_burst(engine));
}

fn polled_burst(engine: Engine) -> Vec<u32> {
    let node = alone(engine);
    let other = node.again();
    let (reader, silent) = (bound(&other, 1), bound(&other, 2));
    let socket = node.rdm().unwrap();
    socket.set_nonblocking(true);
    let descriptor = socket.descriptor().unwrap();
    let send = |number, to: ServiceRange| {
        let mut refusals = 0;
        while let Err(error) = socket.send_to(&body(number), to) {
            assert_eq!(error.errno(), 11, "{error}");
            refusals += 1;
            let mut polled = [PollFd::new(&descriptor, PollFlags::OUT)];
            let limit = rustix::event::Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut polled, Some(&limit)).unwrap(), 1, "the sender is stuck");
        }
        refusals
    };
    let [first, all] = [1, u32::MAX].map(|upper| ServiceRange::new(TYPE, 1, upper));
    let got = thread::scope(|scope| {
        let count = scope.spawn(|| count(&reader));
        for number in 0..MESSAGES / 2 {
            send(number, first);
        }
        let refusals: u32 = (MESSAGES / 2..MESSAGES).map(|number| send(number, all)).sum();
        assert!(refusals > 0, "nothing was ever full");
        count.join().unwrap()
    });
    // What the other one had room for is there.
    assert_eq!(silent.receive().unwrap().data, body(MESSAGES / 2));
    vec![got]
}
