//! Work on lanes in steps: its size is counted, not timed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use utipc_core::NodeAddr;
use utipc_core::addr::PortId;
use utipc_core::quota::UserId;
use utipc_core::socket::{Address, Destination, RecvOptions, SendOptions, SocketKind, SocketOption, header};
use utipc_core::stack::Stack;
use utipc_core::{StackConfig, Time};
use utipc_os::reactor::Waker;
use utipc_os::shm::Memory;

use super::work::{STEP_LANES, STEP_RECORDS};
use super::*;
use crate::{Arena, Writer};

/// Accepts every descriptor and watches none.
#[derive(Debug)]
struct Blind;

impl Watch for Blind {
    fn watch(&mut self, _: ProcessId, _: &Waker, _: u64) -> Option<UserId> {
        Some(UserId(1))
    }

    fn unwatch(&mut self, _: UserId, _: &Waker) {}
}

/// A daemon's lanes, a stack, and processes with a socket each.
struct Bench {
    lanes: Lanes,
    stack: Stack,
    effects: Vec<Effect>,
}

impl Bench {
    fn new() -> Self {
        let stack = Stack::new(Time::ZERO, StackConfig::default());
        Self { lanes: Lanes::new(0), stack, effects: Vec::new() }
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Lanes, &mut Context<'_>) -> T) -> T {
        let Self { lanes, stack, effects } = self;
        call(lanes, &mut Context { now: Time::ZERO, stack, watch: &mut Blind, effects })
    }

    fn step(&mut self, work: &mut Work) -> bool {
        self.with(|lanes, context| lanes.step(context, work))
    }

    /// Does all of some work; returns the number of steps.
    fn run(&mut self, mut work: Work) -> (usize, Work) {
        let mut steps = 1;
        while self.step(&mut work) {
            steps += 1;
            assert!(steps < 100_000, "{work:?} never ends");
        }
        (steps, work)
    }

    fn socket(&mut self, process: ProcessId) -> u32 {
        let port = self.stack.open(Time::ZERO, SocketKind::Rdm).unwrap();
        self.lanes.add_socket(port, process);
        port
    }

    fn process(&mut self, process: ProcessId) -> u32 {
        self.lanes.add_process(process, true);
        self.socket(process)
    }

    /// Lets `from` write a lane to `to`; as a process it has the whole arena.
    fn lane(&mut self, process: ProcessId, from: u32, to: u32) -> (LaneId, Writer, Arena) {
        let wanted = self.with(|lanes, context| lanes.want(context, process, from, to));
        assert_eq!(wanted, Ok(utipc_attach::Reply::Done));
        let id = self.lanes.lanes.between(from, to).unwrap();
        self.writer(id)
    }

    /// Lets `from` write a lane to the node.
    fn node_lane(&mut self, process: ProcessId, from: u32) -> (LaneId, Writer, Arena) {
        let wanted = self.with(|lanes, context| lanes.want(context, process, from, 0));
        assert_eq!(wanted, Ok(utipc_attach::Reply::Done));
        let id = self.lanes.outbound.get(&from).unwrap().lane;
        self.writer(id)
    }

    fn writer(&self, id: LaneId) -> (LaneId, Writer, Arena) {
        let arena = self.lanes.pairs.get(id.pair).unwrap().arena.clone();
        let writer = arena.outgoing(pairs::side(id.writer)).writer(id.slot.into()).unwrap();
        (id, writer, arena)
    }

    fn grow(&mut self, process: ProcessId, id: LaneId, writer: &mut Writer, class: u8) {
        let granted =
            self.lanes.grow(&mut self.stack, process, id, crate::RING_SHIFTS[usize::from(class)], 0);
        assert_eq!(granted, Ok(utipc_attach::Reply::Done));
        writer.grow(class).unwrap();
    }

    fn queued(&self, port: u32) -> usize {
        self.stack
            .endpoint(port)
            .map_or(0, |endpoint| endpoint.option(SocketOption::ReceiveQueueDepth).unwrap()) as usize
    }

    /// Numbers of the messages in a socket's queue.
    fn numbers(&mut self, port: u32) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut data = [0; 8];
        while let Ok(received) = self.stack.recv(Time::ZERO, port, &mut data, RecvOptions::default()) {
            assert!(received.returned.is_none());
            numbers.push(u32::from_le_bytes(data[..4].try_into().unwrap()));
        }
        numbers
    }
}

/// Writes message `number` from one socket to another.
fn push(writer: &mut Writer, from: u32, to: u32, number: u32) -> bool {
    push_to(writer, from, PortId { port: to, node: NodeAddr::NONE }, number)
}

fn push_to(writer: &mut Writer, from: u32, to: PortId, number: u32) -> bool {
    let data = number.to_le_bytes();
    let from = PortId { port: from, node: NodeAddr::NONE };
    let options = SendOptions { dest_droppable: false, ..SendOptions::new(SocketKind::Rdm) };
    let built = header(options, from, to, Address::Direct, data.len());
    writer.push(built.header(), &[&data], 1).is_ok()
}

fn send(bench: &mut Bench, from: u32, to: u32, number: u32) -> bool {
    let port = PortId { port: to, node: NodeAddr::NONE };
    let sent = bench.stack.send(Time::ZERO, from, &number.to_le_bytes(), Some(Destination::Port(port)));
    let diverted = bench.stack.take_diverted();
    assert!(sent.is_ok());
    diverted.is_empty()
}

#[test]
fn memory_of_dead_processes_is_left_to_the_caller() {
    let mut bench = Bench::new();
    let ports = [1, 2].map(|process| bench.process(process));
    let (_, writer, arena) = bench.lane(1, ports[0], ports[1]);
    let memory = Arc::downgrade(&arena.memory);
    drop((writer, arena));
    for (process, port) in [1, 2].into_iter().zip(ports) {
        bench.lanes.remove_process(process);
        bench.run(Work::end(port, EndCause::Dead));
        assert!(bench.lanes.remove_socket(port).is_none());
        bench.run(Work::forget(process));
    }
    assert_eq!(bench.lanes.counts().pairs, 0);
    assert!(memory.upgrade().is_some(), "the daemon's thread has unmapped it");
    bench.effects.clear();
    assert!(memory.upgrade().is_none());
}

/// Sockets of one process have filled rings of the largest class, without a grant, with small messages.
#[test]
fn rings_that_were_not_granted_are_not_read() {
    const SENDERS: u32 = 40;
    let mut bench = Bench::new();
    let (to, from) = (bench.process(1), bench.process(2));
    let mut senders = vec![from];
    senders.extend((1..SENDERS).map(|_| bench.socket(2)));
    for from in senders {
        let (_, mut writer, _) = bench.lane(2, from, to);
        let first = push(&mut writer, from, to, 0);
        writer.grow(3).unwrap();
        assert!(first && (1..1000).all(|n| push(&mut writer, from, to, n)));
    }
    bench.run(Work::end(to, EndCause::Hosted(None)));
    assert_eq!((bench.queued(to), bench.lanes.counts().corrupt), (SENDERS as usize, SENDERS.into()));
}

#[test]
fn each_step_of_reading_out_has_a_bounded_size() {
    let mut bench = Bench::new();
    let (to, from) = (bench.process(1), bench.process(2));
    let (id, mut writer, _) = bench.lane(2, from, to);
    bench.grow(2, id, &mut writer, 2);
    let written = (0..).take_while(|n| push(&mut writer, from, to, *n)).count();
    assert!(written > 3000, "{written}");
    let more: Vec<u32> = (0..100).map(|_| bench.socket(2)).collect();
    for from in more {
        let (_, mut writer, _) = bench.lane(2, from, to);
        assert!(push(&mut writer, from, to, 0));
    }
    let mut work = Work::end(to, EndCause::Hosted(None));
    let (mut steps, mut before) = (0, (bench.queued(to), bench.lanes.lanes.in_use()));
    assert_eq!(before, (0, 101));
    loop {
        let more = bench.step(&mut work);
        steps += 1;
        let now = (bench.queued(to), bench.lanes.lanes.in_use());
        assert!(now.0 - before.0 <= STEP_RECORDS as usize, "{} messages in one step", now.0 - before.0);
        assert!(before.1 - now.1 <= STEP_LANES, "{} lanes in one step", before.1 - now.1);
        before = now;
        if !more {
            break;
        }
    }
    assert_eq!(before, (written + 100, 0));
    assert!(steps > written / STEP_RECORDS as usize);
}

/// While the daemon reads a lane out, its writer goes on: by the lane, and by the node once the lane has ended.
#[test]
fn messages_stay_in_order_while_their_lane_is_read_out() {
    let mut bench = Bench::new();
    let (to, from) = (bench.process(1), bench.process(2));
    let (id, mut writer, _) = bench.lane(2, from, to);
    bench.grow(2, id, &mut writer, 2);
    let mut number = 0;
    while number < 500 {
        assert!(push(&mut writer, from, to, number));
        number += 1;
    }
    let mut work = Work::end(to, EndCause::Hosted(None));
    let mut by_node = 0;
    while bench.step(&mut work) {
        for _ in 0..40 {
            if push(&mut writer, from, to, number) || send(&mut bench, from, to, number) {
                number += 1;
            }
        }
        by_node += u32::from(bench.lanes.lanes.in_use() == 0);
    }
    assert!(send(&mut bench, from, to, number));
    number += 1;
    assert!(number > 600 && by_node < 1000, "{number}");
    assert_eq!(bench.numbers(to), (0..number).collect::<Vec<_>>());
}

/// A request waits for what its process had written before it, however fast the process fills the lane again.
#[test]
fn lane_that_is_refilled_between_steps_delays_no_request() {
    let mut bench = Bench::new();
    let from = bench.process(1);
    let (id, mut writer, _) = bench.node_lane(1, from);
    bench.grow(1, id, &mut writer, 1);
    // Sends to no node: the socket accepts it at once.
    let elsewhere = PortId { port: 32, node: NodeAddr(0x3003) };
    let fill = |writer: &mut Writer| (0..).take_while(|n| push_to(writer, from, elsewhere, *n)).count();
    let written = fill(&mut writer);
    assert!(written > 5 * STEP_RECORDS as usize, "{written}");
    // A correct writer has no more than this unread, in records of 64 bytes.
    let unread = bench.lanes.outbound.get(&from).unwrap().reader.unread_max() as usize / 64;
    let (mut work, mut steps, mut refilled) = (Work::carry(from), 1, 0);
    while bench.step(&mut work) {
        refilled += fill(&mut writer);
        steps += 1;
        assert!(steps <= unread / STEP_RECORDS as usize + 2, "{steps} steps for {unread} messages");
    }
    assert!(steps > written / STEP_RECORDS as usize && refilled > written / 2, "{steps} {refilled}");
}

/// Each unopened lane of a socket is counted, in steps, except lanes that lead into the ring of another one.
#[test]
fn messages_in_unopened_lanes_are_counted_in_steps() {
    const SENDERS: u32 = 50;
    let mut bench = Bench::new();
    let (to, from) = (bench.process(1), bench.process(2));
    assert!(send(&mut bench, from, to, 9), "the lanes are unopened until it is received");
    let mut starts = Vec::new();
    for n in 0..SENDERS {
        let from = bench.socket(2);
        let (id, mut writer, arena) = bench.lane(2, from, to);
        let at =
            arena.layout.slot(pairs::side(id.writer), id.slot.into()).unwrap() + crate::layout::slot::START;
        starts.push((arena, at));
        // The first lane is as full as it can be without a grant.
        let count = if n == 0 { u32::MAX } else { 3 };
        let written = (0..count).take_while(|number| push(&mut writer, from, to, *number)).count();
        assert!(written == 3 || n == 0 && written > 50);
    }
    let count = |bench: &mut Bench| {
        let (steps, work) = bench.run(Work::count(to, SocketOption::ReceiveQueueDepth));
        (steps as u32, work.counted())
    };
    let (steps, counted) = count(&mut bench);
    assert!(counted > 150 + 50 && counted < 150 + 64, "{counted}");
    assert!(steps > SENDERS * 4 / STEP_RECORDS, "{steps}");
    let start = starts[0].0.memory.load64(starts[0].1, Relaxed);
    for (arena, at) in &starts {
        arena.memory.store64(*at, start, Relaxed);
    }
    assert_eq!(count(&mut bench).1, counted - 3 * (SENDERS - 1));
    assert_eq!(bench.run(Work::count(to, SocketOption::Importance)).1.counted(), 0);
}

#[test]
fn lanes_of_a_process_end_and_come_back_in_steps() {
    const SOCKETS: usize = 100;
    let mut bench = Bench::new();
    let (to, from) = (bench.process(1), bench.process(2));
    let others: Vec<u32> = (0..SOCKETS).map(|_| bench.socket(1)).collect();
    for to in &others {
        drop(bench.lane(2, from, *to));
    }
    drop(bench.lane(2, from, to));
    let fewest = SOCKETS / STEP_LANES;
    let (steps, _) = bench.run(Work::share(from));
    assert!(steps > fewest && bench.lanes.lanes.in_use() == 0, "{steps}");
    for port in others.iter().chain([&to]) {
        // Each reader confirms that it has read its lane to the end.
        let id = bench.lanes.sockets.get(port).unwrap().lanes.first().unwrap();
        for (process, end) in [(1, LaneEnd::Reader), (2, LaneEnd::Writer)] {
            bench.with(|lanes, context| lanes.done(context, process, id, end)).unwrap();
        }
    }
    assert_eq!(bench.lanes.take_drained().len(), SOCKETS + 1);
    let (steps, _) = bench.run(Work::lend(from, 2));
    assert!(steps > fewest, "{steps}");
    assert_eq!(bench.lanes.lanes.in_use(), SOCKETS + 1);
    // The process dies without a word.
    bench.lanes.remove_process(2);
    let before = bench.lanes.counts().lanes;
    let (steps, _) = bench.run(Work::forget(2));
    assert!(steps > fewest, "{steps}");
    assert_eq!(bench.lanes.counts().lanes, before, "their readers still have them");
    assert!(!bench.lanes.lanes.written_by(2, None).is_empty());
}

#[test]
fn messages_of_a_closed_socket_go_back_to_their_sender() {
    let mut bench = Bench::new();
    let (to, from) = (bench.process(1), bench.process(2));
    let (_, mut writer, _) = bench.lane(2, from, to);
    assert!((0..40).all(|n| push(&mut writer, from, to, n)));
    bench.run(Work::end(to, EndCause::Closed));
    assert!(bench.lanes.remove_socket(to).is_none());
    bench.with(|lanes, context| lanes.end_socket(context, to, SocketEnd::Close));
    let mut data = [0; 8];
    let mut returned = 0;
    while let Ok(received) = bench.stack.recv(Time::ZERO, from, &mut data, RecvOptions::default()) {
        assert!(received.returned.is_some());
        returned += 1;
    }
    assert_eq!(returned, 40);
}
