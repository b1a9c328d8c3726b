//! The models. Steps before threads start cost nothing, so each model first brings its lanes near their limits.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use utipc_lanes::{
    Arena, Incoming, Kind, LARGEST_CLASS, LaneError, Outgoing, Peek, Reader, Side, Wakeup, Writer,
};

use crate::memory::{Broken, Modelled, SHAPE};

struct Pair {
    arena: Arena<Modelled>,
    outgoing: Outgoing<Modelled>,
    incoming: Incoming<Modelled>,
}

impl Pair {
    fn new(broken: Broken) -> Pair {
        let arena = Arena::format(Modelled::new(broken), SHAPE).unwrap();
        for slot in 0..SHAPE.slots {
            arena.open_slot(Side::Zero, slot).unwrap();
        }
        Pair { outgoing: arena.outgoing(Side::Zero), incoming: arena.incoming(Side::One), arena }
    }

    fn ends(&self, slot: u32) -> (Writer<Modelled>, Reader<Modelled>) {
        (self.outgoing.writer(slot).unwrap(), self.incoming.reader(slot).unwrap())
    }
}

/// A message that takes one line of the ring.
fn message(n: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes[8..].copy_from_slice(&(!n).to_le_bytes());
    bytes
}

fn send(writer: &mut Writer<Modelled>, n: u64) -> Result<Wakeup, LaneError> {
    writer.send(&message(n), &[], 1)
}

/// The number of the next message, if there is one; the message must be whole.
fn try_receive(reader: &mut Reader<Modelled>) -> Option<u64> {
    let record = match reader.peek().unwrap() {
        Peek::Record(record) => record,
        Peek::Empty => return None,
        Peek::Ended => panic!("ended"),
    };
    let mut bytes = [0; 16];
    assert_eq!(reader.copy_payload(&record, 0, &mut bytes), 16);
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, message(n), "torn");
    reader.consume(record, 1);
    Some(n)
}

fn receive(reader: &mut Reader<Modelled>) -> u64 {
    loop {
        match try_receive(reader) {
            Some(n) => return n,
            None => thread::yield_now(),
        }
    }
}

/// A lane that passes the end of its ring and overwrites an earlier lap.
pub(crate) fn polled(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    for n in 0..6 {
        let _ = send(&mut writer, n).unwrap();
        assert_eq!(receive(&mut reader), n);
    }
    let sender = thread::spawn(move || {
        for n in 6..8 {
            let _ = send(&mut writer, n).unwrap();
        }
    });
    for n in 6..8 {
        assert_eq!(receive(&mut reader), n);
    }
    sender.join().unwrap();
}

/// A JUMP between two messages, and back into the first ring.
pub(crate) fn grow(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    let _ = send(&mut writer, 0).unwrap();
    assert_eq!(receive(&mut reader), 0);
    let sender = thread::spawn(move || {
        writer.push(&message(1), &[], 1).unwrap();
        writer.grow(1).unwrap();
        writer.push(&message(2), &[], 1).unwrap();
        // Back into the first ring, if the reader has left it.
        match writer.grow(0) {
            Ok(()) | Err(LaneError::NoRing) => {}
            Err(error) => panic!("{error}"),
        }
        writer.push(&message(3), &[], 1).unwrap();
    });
    for n in 1..4 {
        assert_eq!(receive(&mut reader), n);
    }
    sender.join().unwrap();
}

/// A reader that arms its lane, parks and is woken. A lost wake-up is a deadlock, which loom reports.
pub(crate) fn arm(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    let bell = pair.arena.doorbell(Side::One);
    let _ = send(&mut writer, 0).unwrap();
    assert_eq!(receive(&mut reader), 0);
    let sender = thread::spawn(move || {
        let _ = send(&mut writer, 1).unwrap();
    });
    let got = loop {
        let seen = bell.seq();
        if reader.arm().unwrap() {
            break receive(&mut reader);
        }
        let parked = bell.park();
        if !pair.incoming.has_ready() {
            parked.wait(seen, None);
        }
        drop(parked);
        let mut ready = false;
        pair.incoming.take_ready(|slot| ready |= slot == 0);
        if ready {
            break try_receive(&mut reader).expect("woken for nothing");
        }
    };
    assert_eq!(got, 1);
    sender.join().unwrap();
}

/// Two writers that share a word of the bitmap.
pub(crate) fn bitmap(broken: Broken) {
    let pair = Pair::new(broken);
    let mut readers = Vec::new();
    let mut senders = Vec::new();
    for slot in 0..2 {
        let (mut writer, mut reader) = pair.ends(slot);
        assert!(!reader.arm().unwrap());
        readers.push(reader);
        senders.push(thread::spawn(move || {
            let _ = send(&mut writer, 1).unwrap();
        }));
    }
    let mut told = 0;
    while told < 2 {
        let before = told;
        pair.incoming.take_ready(|slot| {
            assert_eq!(try_receive(&mut readers[slot as usize]), Some(1));
            told += 1;
        });
        if told == before {
            thread::yield_now();
        }
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

/// If the reader found nothing at its last check, the writer tells the daemon.
pub(crate) fn descriptor(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    reader.tell_daemon(true);
    let sender = thread::spawn(move || send(&mut writer, 1).unwrap());
    let found = reader.arm().unwrap();
    let ring = sender.join().unwrap();
    assert!(found || ring == Wakeup::TellDaemon, "the message was neither found nor reported");
    assert_eq!(receive(&mut reader), 1);
}

/// The daemon waits by its eventfd; the writer of a node lane clears the bell's bit and tells it.
pub(crate) fn knock(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    assert!(!reader.arm().unwrap());
    let sender = thread::spawn(move || send(&mut writer, 1).unwrap());
    pair.arena.doorbell(Side::One).tell_daemon(true);
    let found = pair.incoming.has_ready();
    let ring = sender.join().unwrap();
    assert!(found || ring == Wakeup::TellDaemon, "the message was neither found nor reported");
    assert_eq!(receive(&mut reader), 1);
}

/// [`descriptor`] for the writer of a full lane.
pub(crate) fn writable(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    let mut sent = 0;
    while send(&mut writer, sent).is_ok() {
        sent += 1;
    }
    writer.tell_daemon(true);
    let taker = thread::spawn(move || {
        receive(&mut reader);
        reader.release();
        reader.take_wakeup()
    });
    writer.want_room().unwrap();
    let room = writer.has_room(1).unwrap();
    let ring = taker.join().unwrap();
    assert!(room || ring == Wakeup::TellDaemon, "room was neither found nor reported");
}

/// The ring is full; the writer parks until the reader has made room.
pub(crate) fn room(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    for n in 0..3 {
        let _ = send(&mut writer, n).unwrap();
    }
    let outgoing = pair.outgoing.clone();
    let bell = pair.arena.doorbell(Side::Zero);
    let sender = thread::spawn(move || {
        loop {
            let seen = bell.seq();
            writer.want_room().unwrap();
            match send(&mut writer, 3) {
                Ok(_) => break,
                Err(LaneError::Full) => {}
                Err(other) => panic!("{other}"),
            }
            let parked = bell.park();
            if !outgoing.has_room() {
                parked.wait(seen, None);
            }
            drop(parked);
            outgoing.take_room(|_| ());
        }
    });
    for n in 0..3 {
        assert_eq!(receive(&mut reader), n);
    }
    // An empty lane releases everything; after that the writer must succeed by itself.
    reader.release();
    sender.join().unwrap();
    assert_eq!(receive(&mut reader), 3);
}

/// The reader ends while the writer sends: either it or the daemon has the message, or the sender knows that neither
/// has.
pub(crate) fn gone(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    // Recovery starts with nothing to consume, because releasing space has its own fence.
    let _ = send(&mut writer, 0).unwrap();
    assert_eq!(receive(&mut reader), 0);
    let sender = thread::spawn(move || match send(&mut writer, 1) {
        Ok(_) => 1,
        Err(LaneError::Gone { .. }) => 0,
        Err(other) => panic!("{other}"),
    });
    let mut taken = u64::from(try_receive(&mut reader).is_some());
    drop(reader);
    let _ = pair.arena.mark_gone(Side::Zero, 0).unwrap();
    let mut left = pair.arena.recover(Side::Zero, 0, LARGEST_CLASS).unwrap();
    let mut body = Vec::new();
    while let Some(kind) = left.next_into(&mut body).unwrap() {
        assert_eq!((kind, &body[..]), (Kind::Data, &message(taken + 1)[..]));
        taken += 1;
    }
    assert_eq!(sender.join().unwrap(), taken);
}

/// The writer dies after sending; the daemon notices it and freezes the lane while the reader polls.
pub(crate) fn freeze(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    let daemon = pair.arena.clone();
    let sender = thread::spawn(move || {
        let _ = send(&mut writer, 0).unwrap();
        drop(writer);
        let _ = daemon.freeze(Side::Zero, 0).unwrap();
    });
    let mut got = 0;
    loop {
        match reader.peek().unwrap() {
            Peek::Record(record) => {
                reader.consume(record, 1);
                got += 1;
            }
            Peek::Empty => thread::yield_now(),
            Peek::Ended => break,
        }
    }
    assert_eq!(got, 1);
    sender.join().unwrap();
}

/// [`freeze`] while the reader arms the lane and sleeps: it is woken, and reads to the end.
pub(crate) fn freeze_armed(broken: Broken) {
    let pair = Pair::new(broken);
    let (mut writer, mut reader) = pair.ends(0);
    let bell = pair.arena.doorbell(Side::One);
    let daemon = pair.arena.clone();
    let sender = thread::spawn(move || {
        let _ = send(&mut writer, 0).unwrap();
        drop(writer);
        let _ = daemon.freeze(Side::Zero, 0).unwrap();
    });
    let mut got = 0;
    loop {
        let seen = bell.seq();
        match reader.peek().unwrap() {
            Peek::Record(record) => {
                reader.consume(record, 1);
                got += 1;
                continue;
            }
            Peek::Ended => break,
            Peek::Empty => {}
        }
        if reader.arm().unwrap() {
            continue;
        }
        let parked = bell.park();
        if !pair.incoming.has_ready() {
            parked.wait(seen, None);
        }
        drop(parked);
        pair.incoming.take_ready(|_| ());
    }
    assert_eq!(got, 1);
    sender.join().unwrap();
}

/// Blocks a thread that found nothing until another has made progress: three spinning threads could starve one.
#[derive(Default)]
struct Tick(Mutex<u32>, Condvar);

impl Tick {
    fn now(&self) -> u32 {
        *self.0.lock().unwrap()
    }

    fn tick(&self) {
        *self.0.lock().unwrap() += 1;
        self.1.notify_all();
    }

    fn wait_beyond(&self, seen: u32) {
        let mut now = self.0.lock().unwrap();
        while *now == seen {
            now = self.1.wait(now).unwrap();
        }
    }
}

/// One message goes through the node, the next by the sender's own lane: the node's OPEN keeps their order.
pub(crate) fn order(broken: Broken) {
    let pair = Pair::new(broken);
    let tick = Arc::new(Tick::default());
    let (mut to_node, mut node_in) = pair.ends(0);
    let (mut node_out, mut from_node) = pair.ends(1);
    let (mut direct, mut directly) = pair.ends(2);
    // Make the first rings in advance: they are not part of this model.
    for (writer, reader) in
        [(&mut to_node, &mut node_in), (&mut node_out, &mut from_node), (&mut direct, &mut directly)]
    {
        writer.push(&message(0), &[], 1).unwrap();
        assert_eq!(receive(reader), 0);
    }
    let ticks = tick.clone();
    let sender = thread::spawn(move || {
        to_node.push(&message(1), &[], 1).unwrap();
        let _ = to_node.mark(Kind::Switch, &[2]).unwrap();
        direct.push(&message(2), &[], 1).unwrap();
        ticks.tick();
    });
    let ticks = tick.clone();
    let node = thread::spawn(move || {
        let mut switched = false;
        while !switched {
            let seen = ticks.now();
            let Peek::Record(record) = node_in.peek().unwrap() else {
                ticks.wait_beyond(seen);
                continue;
            };
            if record.kind() == Kind::Switch {
                let _ = node_out.mark(Kind::Open, &node_in.words(&record)[..1]).unwrap();
                node_in.consume(record, 0);
                switched = true;
            } else {
                let n = try_receive(&mut node_in).unwrap();
                node_out.push(&message(n), &[], 1).unwrap();
            }
        }
        ticks.tick();
    });
    let mut next = 1;
    let mut open = broken == Broken::Open;
    while next < 3 {
        let seen = tick.now();
        if let Peek::Record(record) = from_node.peek().unwrap() {
            if record.kind() == Kind::Open {
                open = from_node.words(&record)[0] == 2;
                from_node.consume(record, 0);
            } else {
                assert_eq!(try_receive(&mut from_node), Some(next));
                next += 1;
            }
        } else if open && let Some(n) = try_receive(&mut directly) {
            assert_eq!(n, next, "out of order");
            next += 1;
        } else {
            tick.wait_beyond(seen);
        }
    }
    sender.join().unwrap();
    node.join().unwrap();
}
