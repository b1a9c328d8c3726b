//! The requests of the attach protocol as a grammar, written from docs/spec/attach.md, without the project's own
//! encoder: the results are valid, or nearly valid.

use utipc_bench_kit::numbered::Random;

/// A field of a request, encoded as `postcard` does: numbers of more than 8 bits in groups of 7 bits.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// A socket of the process.
    Port,
    Byte,
    Number,
    Long,
    Flag,
    /// A variant of an enum without fields; the number of variants.
    Variant(u64),
    /// Service type, lower and upper instance.
    Range,
    Destination,
    Lane,
    Pair,
    /// A service address, or a socket address.
    Two,
    /// A variant with one number: an option's value.
    OneOf(u64),
    /// The policy for a slow member of a group.
    Slow,
    /// There, or not.
    Maybe(&'static [Field]),
}

use Field::{
    Byte, Destination, Flag, Lane, Long, Maybe, Number, OneOf, Pair, Port, Range, Slow, Two, Variant,
};

/// Options of sockets, scopes of bindings, ends of lanes.
const OPTION: Field = Variant(16);
const SCOPE: Field = Variant(3);
const END: Field = Variant(2);

/// The fields of each call on a socket behind its port, by its number in the protocol.
const SOCKET: [&[Field]; 30] = [
    &[],                                   // Close
    &[Range, SCOPE],                       // Bind
    &[Maybe(&[Range, SCOPE])],             // Unbind
    &[],                                   // Listen
    &[Maybe(&[Destination])],              // Connect
    &[],                                   // Accept
    &[],                                   // Shutdown
    &[OPTION, OneOf(2)],                   // SetOption
    &[OPTION],                             // GetOption
    &[Maybe(&[Destination])],              // Send
    &[Destination, Two],                   // SendFound
    &[Maybe(&[Destination]), Long],        // SendKeyed
    &[Number, Flag, Flag, Flag, Flag],     // Receive
    &[Number, Flag, Flag, Flag, Flag],     // ReceivePolled
    &[],                                   // Look
    &[],                                   // TakeError
    &[],                                   // Descriptor
    &[],                                   // Keep
    &[],                                   // Rearm
    &[Flag],                               // Drained
    &[],                                   // FarEnd
    &[Flag],                               // Adopt
    &[Maybe(&[Lane, Number])],             // MakeHosted
    &[],                                   // Lend
    &[Port],                               // WantLane
    &[Byte],                               // AwaitRoom
    &[Two, SCOPE, Flag, Flag, Slow, Flag], // Join
    &[],                                   // Leave
    &[Maybe(&[Port, Number])],             // GroupMembers
    &[],                                   // GroupLanes
];

/// The fields of each call about lanes.
const LANE: [&[Field]; 6] = [
    &[Pair],             // FetchPair
    &[Lane, Byte, Byte], // Grow
    &[Lane, END],        // LaneDone
    &[Lane],             // Report
    &[Lane],             // Wake
    &[Lane],             // FarEnd
];

/// The fields of each call of the process.
const PROCESS: [&[Field]; 8] = [
    &[Variant(4)],             // Open
    &[],                       // Claim
    &[],                       // Fork
    &[Number, Long],           // Inherit
    &[],                       // Notices
    &[],                       // FetchTable
    &[Two, Number],            // Lookup
    &[Maybe(&[Number]), Flag], // Barrier
];

/// Where the kinds of requests begin: numbers of the attacks, in the order of the tables.
const FIRST_LANE: u64 = SOCKET.len() as u64;
const FIRST_PROCESS: u64 = FIRST_LANE + LANE.len() as u64;
const MANAGE: u64 = FIRST_PROCESS + PROCESS.len() as u64;

/// The number of requests of the management family in the protocol.
const MANAGE_GROUP: u64 = 3;

/// Kinds of requests of the protocol.
pub(super) const KINDS: u64 = MANAGE + 1;

/// Kinds of requests that the attacks make on purpose.
pub(super) const CLOSE: u64 = 0;
pub(super) const BIND: u64 = 1;
pub(super) const LISTEN: u64 = 3;
pub(super) const CONNECT: u64 = 4;
pub(super) const GET_OPTION: u64 = 8;
pub(super) const SEND: u64 = 9;
const SEND_FOUND: u64 = 10;
const SEND_KEYED: u64 = 11;
pub(super) const KEEP: u64 = 17;
pub(super) const ADOPT: u64 = 21;
pub(super) const MAKE_HOSTED: u64 = 22;
pub(super) const WANT_LANE: u64 = 24;
pub(super) const JOIN: u64 = 26;
pub(super) const FETCH_PAIR: u64 = FIRST_LANE;
pub(super) const GROW: u64 = FIRST_LANE + 1;
pub(super) const OPEN: u64 = FIRST_PROCESS;
pub(super) const CLAIM: u64 = FIRST_PROCESS + 1;
pub(super) const FORK: u64 = FIRST_PROCESS + 2;
pub(super) const FETCH_TABLE: u64 = FIRST_PROCESS + 5;

/// The group of a kind, its number in the group, and its fields.
fn place(kind: u64) -> (u64, u64, &'static [Field]) {
    let groups: [(u64, &[&[Field]]); 3] = [(0, &SOCKET), (FIRST_LANE, &LANE), (FIRST_PROCESS, &PROCESS)];
    for (group, (first, calls)) in (0..).zip(groups) {
        if let Some(fields) = kind.checked_sub(first).and_then(|call| calls.get(call as usize)) {
            return (group, kind - first, fields);
        }
    }
    (MANAGE_GROUP, 0, &[Long])
}

/// The beginning of a request of this kind, with the port of a call on a socket.
fn begin(kind: u64, port: u64) -> Vec<u8> {
    let (mut out, (group, call, _)) = (Vec::new(), place(kind));
    match group {
        0 => put_all(&mut out, &[group, port, call]),
        MANAGE_GROUP => put(&mut out, group),
        _ => put_all(&mut out, &[group, call]),
    }
    out
}

/// Maximum number of bytes of a payload.
const PAYLOAD_MAX: u64 = 66_000;

/// A process's knowledge of its state at the daemon.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) ports: Vec<u64>,
    /// Pair, writing side, slot.
    pub(super) lanes: Vec<[u64; 3]>,
    /// Service types worth attacking.
    pub(super) services: Vec<u64>,
}

impl Known {
    /// Usually one of these, sometimes another number.
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
        _ => random.draw() & u64::from(u32::MAX),
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
        Byte => out.push(random.draw() as u8),
        Number => put(out, number(random)),
        Long => put(out, if random.below(2) == 0 { number(random) } else { random.draw() }),
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
    let mut out = begin(kind, known.port(random));
    for part in place(kind).2 {
        field(&mut out, random, known, *part);
    }
    if has_payload(kind) {
        let most = if random.below(8) == 0 { PAYLOAD_MAX } else { 300 };
        out.extend((0..random.below(most + 1)).map(|n| n as u8));
    }
    out
}

/// The request of this kind whose fields are these numbers; the first one is the port of a call on a socket.
pub(super) fn of(kind: u64, numbers: &[u64]) -> Vec<u8> {
    let (port, rest) = match numbers {
        [port, rest @ ..] if kind < FIRST_LANE => (*port, rest),
        rest => (0, rest),
    };
    let mut out = begin(kind, port);
    put_all(&mut out, rest);
    out
}

/// Whether a request of this kind may have a payload.
pub(super) fn has_payload(kind: u64) -> bool {
    matches!(kind, SEND | SEND_FOUND | SEND_KEYED | MANAGE)
}

/// Closes a socket.
pub(super) fn close(port: u64) -> Vec<u8> {
    of(CLOSE, &[port])
}

/// Binds a socket to the first instances of a service.
pub(super) fn bind(random: &mut Random, known: &Known, service: u64) -> Vec<u8> {
    of(BIND, &[known.port(random), service, random.below(4), 4, 1])
}

/// A multicast to all sockets of a service.
pub(super) fn multicast(random: &mut Random, known: &Known, service: u64) -> Vec<u8> {
    of(SEND, &[known.port(random), 1, 1, service, 0, u64::from(u32::MAX)])
}

/// A valid request of any kind.
pub(super) fn any(random: &mut Random, known: &Known) -> Vec<u8> {
    let kind = random.below(KINDS);
    request(random, known, kind)
}

/// The first packet of a process: versions and name.
pub(super) fn greeting(random: &mut Random, takes_lanes: bool) -> Vec<u8> {
    let mut out = b"utipc\0".to_vec();
    // Newer versions too.
    out.extend([1 + random.below(3) as u8, 0, 1, 0]);
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
        4 => packet.insert(at, random.draw() as u8),
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

/// Adds what a reply says about sockets and lanes; the last 64 are kept; `None` if it says something else, or is not a
/// reply.
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
    fn each_kind_has_its_place() {
        assert_eq!(place(BIND).1, 1);
        assert_eq!((place(GROW).0, place(GROW).1), (1, 1));
        assert_eq!((place(FETCH_TABLE).0, place(FETCH_TABLE).1), (2, 5));
        assert_eq!((place(FIRST_PROCESS).0, place(MANAGE).0), (2, MANAGE_GROUP));
        assert_eq!(of(BIND, &[300, 7, 1, 4, 1]), [0, 0xac, 2, 1, 7, 1, 4, 1]);
        assert_eq!(of(OPEN, &[3]), [2, 0, 3]);
    }

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
