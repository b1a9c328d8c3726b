//! The requests of the attach protocol as a grammar, written from docs/spec/attach.md and not with the project's own
//! encoder: what it makes is valid, or nearly so.

use crate::message::Random;

/// A field of a request, encoded as `postcard` does: numbers of more than 8 bits in groups of 7 bits.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// A socket of the process.
    Port,
    Byte,
    Number,
    Long,
    Flag,
    /// A variant of an enum without fields, of which there are so many.
    Variant(u64),
    /// Service type, lower and upper instance.
    Range,
    Destination,
    Lane,
    Pair,
    /// A service address, or a socket address.
    Two,
    Text,
    /// One of these with one number: an option's value, or a property of a link.
    OneOf(u64),
    /// What happens to a slow member of a group.
    Slow,
    /// There, or not.
    Maybe(&'static [Field]),
}

use Field::{
    Byte, Destination, Flag, Lane, Long, Maybe, Number, OneOf, Pair, Port, Range, Slow, Text, Two, Variant,
};

/// Options of sockets, scopes of bindings, ends of lanes.
const OPTION: Field = Variant(16);
const SCOPE: Field = Variant(3);
const END: Field = Variant(2);

/// The fields of each request, by its number.
const REQUESTS: [&[Field]; 53] = [
    &[Variant(4)],                               // Open
    &[Port],                                     // Close
    &[Port, Range, SCOPE],                       // Bind
    &[Port, Maybe(&[Range, SCOPE])],             // Unbind
    &[Port],                                     // Listen
    &[Port, Maybe(&[Destination])],              // Connect
    &[Port],                                     // Accept
    &[Port],                                     // Shutdown
    &[Port, OPTION, OneOf(2)],                   // SetOption
    &[Port, OPTION],                             // GetOption
    &[Port, Maybe(&[Destination])],              // Send
    &[Port, Number, Flag, Flag, Flag, Flag],     // Receive
    &[Port],                                     // Look
    &[Port],                                     // TakeError
    &[Port],                                     // Descriptor
    &[Port],                                     // Rearm
    &[Long, Long],                               // Claim
    &[Port, Maybe(&[Lane, Number])],             // MakeHosted
    &[Port],                                     // Lend
    &[Pair],                                     // FetchPair
    &[Port, Port],                               // WantLane
    &[Lane, Byte, Byte],                         // Grow
    &[Lane, END],                                // LaneDone
    &[Lane],                                     // Report
    &[Lane],                                     // Wake
    &[Two, Number],                              // Lookup
    &[],                                         // Node
    &[Number],                                   // Peers
    &[Number],                                   // Links
    &[Number],                                   // Bindings
    &[],                                         // FetchTable
    &[Number],                                   // Sockets
    &[Two],                                      // IsLocal
    &[Text, OneOf(3)],                           // SetLink
    &[],                                         // Counters
    &[],                                         // Notices
    &[Port, Destination, Two],                   // SendFound
    &[],                                         // Fork
    &[Number, Long],                             // Inherit
    &[Port, Flag],                               // Drained
    &[Long],                                     // Manage
    &[Port],                                     // Keep
    &[Port, Maybe(&[Lane])],                     // FarEnd
    &[Port, Byte],                               // AwaitRoom
    &[Port, Flag],                               // Adopt
    &[Port, Two, SCOPE, Flag, Flag],             // Join
    &[Port],                                     // Leave
    &[Maybe(&[Number]), Flag],                   // Barrier
    &[Port, Two, SCOPE, Flag, Flag, Slow, Flag], // JoinWith
    &[Port, Maybe(&[Destination]), Long],        // SendKeyed
    &[Port, Maybe(&[Port, Number])],             // GroupMembers
    &[Port, Number, Flag, Flag, Flag, Flag],     // ReceivePolled
    &[Port],                                     // GroupLanes
];

/// Requests of the protocol.
pub(super) const KINDS: u64 = REQUESTS.len() as u64;

/// Numbers of requests that the attacks make on purpose.
pub(super) const OPEN: u64 = 0;
pub(super) const CLOSE: u64 = 1;
pub(super) const BIND: u64 = 2;
pub(super) const LISTEN: u64 = 4;
pub(super) const CONNECT: u64 = 5;
pub(super) const GET_OPTION: u64 = 9;
pub(super) const SEND: u64 = 10;
pub(super) const CLAIM: u64 = 16;
pub(super) const MAKE_HOSTED: u64 = 17;
pub(super) const FETCH_PAIR: u64 = 19;
pub(super) const WANT_LANE: u64 = 20;
pub(super) const GROW: u64 = 21;
pub(super) const FETCH_TABLE: u64 = 30;
const SEND_FOUND: u64 = 36;
pub(super) const FORK: u64 = 37;
const MANAGE: u64 = 40;
pub(super) const KEEP: u64 = 41;
pub(super) const ADOPT: u64 = 44;
pub(super) const JOIN: u64 = 45;
const SEND_KEYED: u64 = 49;

/// Most bytes of a payload.
const PAYLOAD_MAX: u64 = 66_000;

/// What a process knows of its state at the daemon.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) ports: Vec<u64>,
    /// Pair, writing side, slot.
    pub(super) lanes: Vec<[u64; 3]>,
    /// Types of services that are worth an attack.
    pub(super) services: Vec<u64>,
}

impl Known {
    /// Mostly one of these, sometimes another number.
    fn port(&self, random: &mut Random) -> u64 {
        pick(random, &self.ports).unwrap_or_else(|| number(random))
    }

    fn lane(&self, random: &mut Random) -> [u64; 3] {
        pick(random, &self.lanes).unwrap_or_else(|| [random.below(1000), random.below(3), random.below(300)])
    }

    fn service(&self, random: &mut Random) -> u64 {
        pick(random, &self.services).unwrap_or_else(|| number(random))
    }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> Option<T> {
    let one = from.get(random.below(from.len() as u64) as usize).copied();
    one.filter(|_| random.below(12) > 0)
}

/// A number of 32 bits: small, at the edge of a type, or any.
fn number(random: &mut Random) -> u64 {
    const EDGES: [u64; 10] =
        [0, 1, 127, 128, 255, 65_535, 65_536, i32::MAX as u64, 0x8000_0000, u32::MAX as u64];
    match random.below(3) {
        0 => random.below(64),
        1 => EDGES[random.below(EDGES.len() as u64) as usize],
        _ => random.next() & u64::from(u32::MAX),
    }
}

/// Appends a number in groups of 7 bits.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| put(out, *number));
}

fn field(out: &mut Vec<u8>, random: &mut Random, known: &Known, field: Field) {
    match field {
        Port => put(out, known.port(random)),
        Byte => out.push(random.next() as u8),
        Number => put(out, number(random)),
        Long => put(out, if random.below(2) == 0 { number(random) } else { random.next() }),
        Flag => out.push(random.below(2) as u8),
        Variant(count) => put(out, random.below(count)),
        Range => {
            let lower = number(random);
            put_all(out, &[known.service(random), lower, lower.max(number(random))]);
        }
        Destination => match random.below(3) {
            0 => put_all(out, &[0, known.service(random), random.below(4), 0]),
            1 => put_all(out, &[1, known.service(random), 0, number(random)]),
            _ => put_all(out, &[2, known.port(random), number(random)]),
        },
        Lane => {
            let [pair, writer, slot] = known.lane(random);
            put(out, pair);
            out.push(writer as u8);
            put(out, slot);
        }
        Pair => put(out, known.lane(random)[0]),
        Two => put_all(out, &[known.service(random), number(random)]),
        Text => {
            let bytes: Vec<u8> = (0..random.below(80)).map(|_| b'a' + random.below(26) as u8).collect();
            put(out, bytes.len() as u64);
            out.extend(bytes);
        }
        Slow => match random.below(4) {
            2 => put_all(out, &[2, number(random), number(random)]),
            3 => put_all(out, &[3, number(random)]),
            without => put(out, without),
        },
        OneOf(count) => put_all(out, &[random.below(count), number(random)]),
        Maybe(fields) => {
            let is_there = random.below(3) > 0;
            out.push(u8::from(is_there));
            fields.iter().filter(|_| is_there).for_each(|part| self::field(out, random, known, *part));
        }
    }
}

/// A valid request of this kind, with a payload if it may have one.
pub(super) fn request(random: &mut Random, known: &Known, kind: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind);
    for part in REQUESTS.get(kind as usize).copied().unwrap_or_default() {
        field(&mut out, random, known, *part);
    }
    if has_payload(kind) {
        let most = if random.below(8) == 0 { PAYLOAD_MAX } else { 300 };
        out.extend((0..random.below(most + 1)).map(|n| n as u8));
    }
    out
}

/// The request of this kind whose fields are these numbers.
pub(super) fn of(kind: u64, numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind);
    put_all(&mut out, numbers);
    out
}

/// Whether a request of this kind may have a payload.
pub(super) fn has_payload(kind: u64) -> bool {
    matches!(kind, SEND | SEND_FOUND | SEND_KEYED | MANAGE)
}

/// Closes a socket.
pub(super) fn close(port: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_all(&mut out, &[CLOSE, port]);
    out
}

/// Binds a socket to the first instances of a service.
pub(super) fn bind(random: &mut Random, known: &Known, service: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_all(&mut out, &[BIND, known.port(random), service, random.below(4), 4, 1]);
    out
}

/// A multicast to all sockets of a service.
pub(super) fn multicast(random: &mut Random, known: &Known, service: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_all(&mut out, &[SEND, known.port(random), 1, 1, service, 0, u64::from(u32::MAX)]);
    out
}

/// A valid request of any kind.
pub(super) fn any(random: &mut Random, known: &Known) -> Vec<u8> {
    let kind = random.below(REQUESTS.len() as u64);
    request(random, known, kind)
}

/// The first packet of a process: versions and name.
pub(super) fn greeting(random: &mut Random, takes_lanes: bool) -> Vec<u8> {
    let mut out = b"utipc\0".to_vec();
    out.extend([9 - random.below(9) as u8, 0, 1, 0]);
    put(&mut out, 7);
    out.extend(b"hostile");
    out.push(u8::from(takes_lanes));
    out
}

/// Damages a packet: bits, lengths, order, or something behind it.
pub(super) fn damage(random: &mut Random, packet: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(packet.len() as u64 + 1) as usize;
    match random.below(6) {
        0 => packet.truncate(at),
        1 => packet.extend_from_slice(other),
        2 => packet.splice(..0, other.iter().copied()).for_each(drop),
        3 => packet.extend(std::iter::repeat_n(0xff, random.below(200_000) as usize)),
        4 => packet.insert(at, random.next() as u8),
        _ => {
            if let Some(byte) = packet.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

/// Reads numbers of a reply.
pub(super) struct Reading<'a>(pub(super) &'a [u8]);

impl Reading<'_> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn lane(&mut self) -> Option<[u64; 3]> {
        Some([self.number()?, self.byte()?.into(), self.number()?])
    }
}

/// Adds what a reply says about sockets and lanes, of which the last 64 are kept; `None` if it says something else, or
/// is no reply.
pub(super) fn learn(known: &mut Known, reply: &[u8]) -> Option<()> {
    learn_all(known, reply, 64)
}

/// [`learn`], for a process that keeps this many.
pub(super) fn learn_all(known: &mut Known, reply: &[u8], most: usize) -> Option<()> {
    let mut reading = Reading(reply);
    for _ in 0..reading.number()? {
        match reading.number()? {
            0 | 1 | 4 | 5 | 7 => {
                reading.number()?;
            }
            2 => {
                let _ports = (reading.number()?, reading.number()?);
                known.lanes.push(reading.lane()?);
                reading.number()?;
            }
            3 => {
                reading.number()?;
                let _over = (reading.lane()?, reading.number()?, reading.byte()?);
            }
            6 => {
                let _ports = (reading.number()?, reading.number()?, reading.number()?);
                known.lanes.push(reading.lane()?);
                reading.number()?;
            }
            _ => return None,
        }
    }
    let _more = reading.byte()?;
    if matches!(reading.number()?, 2 | 3 | 9) {
        known.ports.push(reading.number()?);
    }
    if known.ports.len() > most {
        known.ports.remove(0);
    }
    if known.lanes.len() > most {
        known.lanes.remove(0);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            assert_eq!(Reading(&bytes).number(), Some(number));
        }
    }

    #[test]
    fn replies_name_sockets_and_lanes() {
        let mut known = Known::default();
        // One notice about a lane, and the reply that a socket was opened.
        let reply = [1, 2, 10, 11, 5, 1, 3, 0, 0, 2, 0xac, 2];
        assert_eq!(learn(&mut known, &reply), Some(()));
        assert_eq!((&known.ports[..], &known.lanes[..]), (&[300][..], &[[5, 1, 3]][..]));
    }
}
