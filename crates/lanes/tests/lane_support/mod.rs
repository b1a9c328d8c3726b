//! The two ends of a lane, which check every byte and wait only by sleeping.

// Each test uses a part of it.
#![allow(dead_code)]

pub(crate) mod process;

use std::time::{Duration, Instant};

use utipc_lanes::{
    Arena, Corrupt, Doorbell, Incoming, Kind, LaneError, Outgoing, Parked, Peek, Reader, Record, Side,
    Wakeup, Writer,
};

#[cfg(feature = "schedule")]
use utipc_lanes::schedule::point;

#[cfg(not(feature = "schedule"))]
fn point(_label: &str) {}

/// Longest sleep: a longer one means that a wake-up was lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Sleeps until the doorbell is rung.
fn sleep(parked: &Parked<'_>, seen: u32) {
    let start = Instant::now();
    parked.wait(seen, Some(PATIENCE));
    assert!(start.elapsed() < PATIENCE, "a wake-up was lost, or the peer is gone");
}

/// splitmix64: the same numbers for the same seed.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Bytes before the payload: sequence number, length, sum.
const HEAD: usize = 24;

fn sum(bytes: &[u8], mut sum: u64) -> u64 {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
    sum
}

/// The writing end, with random sizes and choices.
pub(crate) struct Sender {
    writer: Writer,
    outgoing: Outgoing,
    bell: Doorbell,
    random: Random,
    payload: Vec<u8>,
    number: u64,
    /// Largest payload, bytes.
    largest: u64,
}

impl Sender {
    pub(crate) fn new(arena: &Arena, outgoing: &Outgoing, me: Side, slot: u32, largest: u64) -> Sender {
        let mut random = Random(u64::from(slot) << 1 | me.index() as u64);
        let payload = (0..largest).map(|_| random.next() as u8).collect();
        Sender {
            writer: outgoing.writer(slot).unwrap(),
            outgoing: outgoing.clone(),
            bell: arena.doorbell(me),
            random,
            payload,
            number: 0,
            largest,
        }
    }

    /// Sends the next message, sometimes after a random change of the ring; sleeps while there is no room.
    pub(crate) fn send(&mut self) -> Result<(), LaneError> {
        // Mostly small, sometimes of any size.
        let most = if self.random.below(8) == 0 { self.largest } else { self.largest.min(200) };
        let len = self.random.below(most + 1) as usize;
        let start = self.random.below(self.largest + 1 - len as u64) as usize;
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&self.number.to_le_bytes());
        head[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        let check = sum(&self.payload[start..start + len], self.number);
        head[16..].copy_from_slice(&check.to_le_bytes());
        let cut = start + self.random.below(len as u64 + 1) as usize;
        let quietly = self.random.below(4) == 0;
        loop {
            if self.random.below(500) == 0 {
                let class = self.random.below(4) as u8;
                match self.writer.grow(class) {
                    Ok(()) | Err(LaneError::NoRing) => {}
                    Err(other) => return Err(other),
                }
            }
            let seen = self.bell.seq();
            let parts = [&self.payload[start..cut], &self.payload[cut..start + len]];
            let sent = if quietly {
                self.writer.push(&head, &parts, 1).map(|()| Wakeup::Quiet)
            } else {
                self.writer.send(&head, &parts, 1)
            };
            match sent {
                Ok(ring) => {
                    assert_ne!(ring, Wakeup::TellDaemon);
                    self.number += 1;
                    return Ok(());
                }
                Err(LaneError::NeedsRing(class)) => match self.writer.grow(class) {
                    Ok(()) => {}
                    // The reader is several rings behind: wait as for a full ring.
                    Err(LaneError::NoRing) => self.wait_for_room(seen, HEAD + len, Some(class))?,
                    Err(other) => return Err(other),
                },
                Err(LaneError::Full) => self.wait_for_room(seen, HEAD + len, None)?,
                Err(other) => return Err(other),
            }
        }
    }

    /// Tries to send the next message, without waiting.
    pub(crate) fn try_send(&mut self) -> Result<(), LaneError> {
        let len = self.random.below(self.largest + 1) as usize;
        match self.writer.send(&[0; HEAD], &[&self.payload[..len]], 1) {
            Err(LaneError::NeedsRing(class)) => self.writer.grow(class),
            result => result.map(drop),
        }
    }

    /// Waits until the ring has room for `len` bytes, or the lane can move to one of `class`.
    ///
    /// Like a socket, it asks and checks after announcing its sleep, and checks its own lane: another sender of this
    /// side may take the report of room in between.
    fn wait_for_room(&mut self, seen: u32, len: usize, class: Option<u8>) -> Result<(), LaneError> {
        let _ = self.writer.flush()?;
        let parked = self.bell.park();
        self.writer.want_room()?;
        let found = match class.map(|class| self.writer.grow(class)) {
            None => self.writer.has_room(len)?,
            Some(Err(LaneError::NoRing)) => false,
            Some(grown) => grown.map(|()| true)?,
        };
        if found {
            self.writer.ignore_room();
        } else {
            point("support: before sleeping");
            sleep(&parked, seen);
        }
        drop(parked);
        point("support: before taking reports");
        self.outgoing.take_room(|_| ());
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), LaneError> {
        self.writer.flush().map(|ring| assert_ne!(ring, Wakeup::TellDaemon))
    }

    pub(crate) fn end(&mut self) -> Result<(), LaneError> {
        self.writer.mark(Kind::End, &[self.number]).map(drop)
    }

    /// Gives an idle lane's large ring back.
    pub(crate) fn shrink(&mut self) -> Result<(), LaneError> {
        self.writer.shrink_if_idle().map(drop)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.number
    }

    pub(crate) fn into_writer(self) -> Writer {
        self.writer
    }
}

/// The reading end.
pub(crate) struct Receiver {
    pub(crate) reader: Reader,
    buffer: Vec<u8>,
    number: u64,
    /// Its end was found. A report may follow, which a sender began while the reader found the lane filled.
    ended: bool,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Message,
    Nothing,
    End,
}

impl Receiver {
    pub(crate) fn new(incoming: &Incoming, slot: u32) -> Receiver {
        Receiver { reader: incoming.reader(slot).unwrap(), buffer: Vec::new(), number: 0, ended: false }
    }

    /// Takes the next message and checks it.
    pub(crate) fn take(&mut self) -> Result<Taken, Corrupt> {
        let record = match self.reader.peek()? {
            Peek::Record(record) => record,
            Peek::Empty => return Ok(Taken::Nothing),
            Peek::Ended => return Ok(Taken::End),
        };
        if record.kind() == Kind::End {
            assert_eq!(self.reader.words(&record)[0], self.number, "messages missing at the end");
            self.reader.consume(record, 0);
            return Ok(Taken::End);
        }
        self.check(record);
        self.reader.consume(record, 1);
        assert_ne!(self.reader.take_wakeup(), Wakeup::TellDaemon);
        Ok(Taken::Message)
    }

    /// Takes the next message without checking it.
    pub(crate) fn skim(&mut self) -> Result<Taken, Corrupt> {
        let Peek::Record(record) = self.reader.peek()? else { return Ok(Taken::Nothing) };
        self.buffer.resize(record.len(), 0);
        self.reader.copy_payload(&record, 0, &mut self.buffer);
        self.reader.words(&record);
        self.reader.consume(record, 1);
        let _ = self.reader.take_wakeup();
        Ok(Taken::Message)
    }

    fn check(&mut self, record: Record) {
        self.buffer.resize(record.len(), 0);
        self.reader.copy_payload(&record, 0, &mut self.buffer);
        check_message(&self.buffer, self.number);
        self.number += 1;
    }

    pub(crate) fn received(&self) -> u64 {
        self.number
    }
}

/// Checks that `bytes` are the message `number`.
pub(crate) fn check_message(bytes: &[u8], number: u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), number, "lost, repeated or out of order");
    assert_eq!(word(8), (bytes.len() - HEAD) as u64, "cut");
    assert_eq!(word(16), sum(&bytes[HEAD..], number), "damaged");
}

/// Reads all lanes until each has ended, checking only those that were reported. `pause`: how often to pause.
pub(crate) fn receive_all(arena: &Arena, me: Side, receivers: &mut [Receiver]) -> Result<(), Corrupt> {
    let incoming = arena.incoming(me);
    let bell = arena.doorbell(me);
    let mut live = receivers.len();
    let mut ready: Vec<usize> = (0..receivers.len()).collect();
    while live > 0 {
        let seen = bell.seq();
        for index in std::mem::take(&mut ready) {
            let receiver = &mut receivers[index];
            // A bounded share for each lane, as in a fair reader.
            let mut taken = Taken::Message;
            for _ in 0..100 {
                taken = receiver.take()?;
                if taken != Taken::Message {
                    break;
                }
            }
            match taken {
                Taken::End => {
                    receiver.ended = true;
                    live -= 1;
                }
                Taken::Message => ready.push(index),
                Taken::Nothing if receiver.reader.arm()? => ready.push(index),
                Taken::Nothing => {}
            }
        }
        if ready.is_empty() && live > 0 {
            let parked = bell.park();
            if !incoming.has_ready() {
                sleep(&parked, seen);
            }
        }
        incoming.take_ready(|slot| {
            // As in a socket, which leaves a lane at its end: a late report concerns no lane.
            let index = receivers.iter().position(|lane| lane.reader.slot() == slot && !lane.ended);
            ready.extend(index.filter(|index| !ready.contains(index)));
        });
    }
    Ok(())
}
