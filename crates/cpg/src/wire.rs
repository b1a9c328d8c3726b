//! Messages between the members of a group. Spec: docs/spec/cpg.md §2.

use utipc::ordered::{MAX_MESSAGE, ViewId};
use utipc::{NodeAddr, PortId};

use crate::name::Name;
use crate::types::Reason;

const VERSION: u8 = 1;
const HEADER: usize = 4;
const PIECE_HEADER: usize = HEADER + 12;

/// Maximum number of bytes of a message without pieces.
pub(crate) const MAX_WHOLE: usize = MAX_MESSAGE - HEADER;
/// Maximum number of bytes of a piece.
pub(crate) const MAX_PIECE: usize = MAX_MESSAGE - PIECE_HEADER;

/// A process of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) port: PortId,
    pub(crate) pid: u32,
    pub(crate) name: Name,
    /// It has left, and its socket is still in the view.
    pub(crate) left: bool,
}

/// A message of the layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// The processes of members that have the same state.
    Roster {
        view: ViewId,
        /// They are one process, whose join has not been shown to any program.
        young: bool,
        processes: Vec<Process>,
    },
    /// A message of the program.
    Whole(&'a [u8]),
    /// A piece of a message of the program.
    Piece { number: u32, offset: u32, total: u32, bytes: &'a [u8] },
    /// The sender leaves.
    Bye(Reason),
}

impl<'a> Message<'a> {
    /// Parses a message; `None` if it is malformed.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[kind, VERSION, flags, 0], rest) = bytes.split_first_chunk::<HEADER>()? else { return None };
        let mut reader = Reader(rest);
        let message = match (kind, flags) {
            (1, 0 | 1) => {
                let round = u64::from(reader.u32()?) << 32 | u64::from(reader.u32()?);
                let view = ViewId { round, coordinator: reader.port()? };
                let processes = (0..reader.u32()?).map(|_| reader.process()).collect::<Option<_>>()?;
                Self::Roster { view, young: flags == 1, processes }
            }
            (2, 0) => return Some(Self::Whole(rest)),
            (3, 0) => {
                let (number, offset, total) = (reader.u32()?, reader.u32()?, reader.u32()?);
                return Some(Self::Piece { number, offset, total, bytes: reader.0 });
            }
            (4, 2) => Self::Bye(Reason::Leave),
            (4, 5) => Self::Bye(Reason::ProcDown),
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let header = |kind, flags| vec![kind, VERSION, flags, 0];
        match self {
            Self::Roster { view, young, processes } => {
                let mut out = header(1, u8::from(*young));
                out.extend(view.round.to_be_bytes());
                put_port(&mut out, view.coordinator);
                out.extend((processes.len() as u32).to_be_bytes());
                for process in processes {
                    put_port(&mut out, process.port);
                    out.extend(process.pid.to_be_bytes());
                    let name = process.name.bytes();
                    out.extend([u8::from(process.left), name.len() as u8]);
                    out.extend(name);
                }
                out
            }
            Self::Whole(bytes) => [&header(2, 0)[..], bytes].concat(),
            Self::Piece { number, offset, total, bytes } => {
                let mut out = Vec::with_capacity(PIECE_HEADER + bytes.len());
                out.extend(header(3, 0));
                for field in [number, offset, total] {
                    out.extend(field.to_be_bytes());
                }
                out.extend(*bytes);
                out
            }
            Self::Bye(reason) => header(4, *reason as u8),
        }
    }
}

fn put_port(out: &mut Vec<u8>, port: PortId) {
    out.extend(port.node.0.to_be_bytes());
    out.extend(port.port.to_be_bytes());
}

/// Takes fields from the beginning of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*taken))
    }

    fn port(&mut self) -> Option<PortId> {
        let (node, port) = (self.u32()?, self.u32()?);
        Some(PortId { port, node: NodeAddr(node) })
    }

    fn process(&mut self) -> Option<Process> {
        let (port, pid) = (self.port()?, self.u32()?);
        let &[left @ (0 | 1), len] = self.take(2)? else { return None };
        let name = Name::new(self.take(usize::from(len))?)?;
        Some(Process { port, pid, name, left: left == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Vec<u8>> {
        let port = PortId { port: 7, node: NodeAddr(0x0100_1001) };
        let process = |name: &[u8], left| Process { port, pid: 9, name: Name::new(name).unwrap(), left };
        let roster = Message::Roster {
            view: ViewId { round: 1 << 40 | 3, coordinator: port },
            young: true,
            processes: vec![process(b"abc", false), process(&[0; 128], true)],
        };
        let piece = Message::Piece { number: 1, offset: 2, total: 3, bytes: b"x" };
        [roster, piece, Message::Whole(b""), Message::Whole(b"abc"), Message::Bye(Reason::Leave)]
            .iter()
            .map(Message::encode)
            .collect()
    }

    #[test]
    fn messages_survive_the_way() {
        for bytes in samples() {
            assert_eq!(Message::parse(&bytes).expect("well-formed").encode(), bytes);
        }
    }

    #[test]
    fn messages_altered_at_random_are_refused_or_well_formed() {
        let (samples, mut random) = (samples(), 1_u64);
        let mut next = |below: usize| {
            // xorshift
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        let mut accepted = 0;
        for _ in 0..100_000 {
            let mut bytes = samples[next(samples.len())].clone();
            for _ in 0..=next(3) {
                match (next(4), bytes.len()) {
                    (0, len) => bytes.truncate(next(len + 1)),
                    (1, _) => bytes.push(next(256) as u8),
                    (_, len @ 1..) => bytes[next(len)] = next(256) as u8,
                    _ => {}
                }
            }
            if let Some(message) = Message::parse(&bytes) {
                accepted += 1;
                assert_eq!(message.encode(), bytes);
            }
        }
        assert!((10_000..90_000).contains(&accepted), "{accepted}");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let roster = samples().swap_remove(0);
        for len in 0..roster.len() {
            assert_eq!(Message::parse(&roster[..len]), None, "{len} bytes");
        }
        for other in [&[1, 2, 0, 0][..], &[9, 1, 0, 0], &[4, 1, 1, 0], &[4, 1, 2, 0, 0], &[2, 1, 0, 1], &[2]]
        {
            assert_eq!(Message::parse(other), None, "{other:?}");
        }
        let mut many = roster;
        many[20..24].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Message::parse(&many), None);
    }
}
