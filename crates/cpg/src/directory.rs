//! Groups and members of the cluster, for calls about groups that the program has not joined. Spec: cpg.md §5.
//!
//! Each joined group of each process has a socket that answers queries. No register can become stale; an answer takes
//! one round trip.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use utipc::{Destination, Node, PortId, Scope, ServiceRange, Socket};

use crate::name::{DIRECTORY, Name};

/// Time that a query waits for all answers.
const LIMIT: Duration = Duration::from_millis(500);
/// Maximum number of entries that a query takes.
const MAX_ENTRIES: usize = 65_536;
/// Queries that are answered before other work.
const BATCH: usize = 16;

const MARK: [u8; 3] = [b'C', b'P', 1];
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// A process in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) nodeid: u32,
    pub(crate) pid: u32,
}

/// The socket that answers queries for one joined group.
#[derive(Debug)]
pub(crate) struct Desk {
    socket: Socket,
    pid: u32,
}

impl Desk {
    pub(crate) fn open(node: &Node, pid: u32) -> utipc::Result<Self> {
        let socket = node.rdm()?;
        socket.set_nonblocking(true);
        socket.bind(ServiceRange::new(DIRECTORY, pid, pid), Scope::Cluster)?;
        Ok(Self { socket, pid })
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.descriptor().ok()
    }

    /// Answers queries that have arrived.
    pub(crate) fn answer(&self, name: &Name) {
        for _ in 0..BATCH {
            // Whether the socket has failed shows at the group's socket too.
            let Ok(question) = self.socket.receive() else { return };
            let [a, b, c, QUESTION, number @ ..] = question.data.as_slice() else { continue };
            if [*a, *b, *c] != MARK || number.len() != 4 || question.returned.is_some() {
                continue;
            }
            let pid = self.pid.to_be_bytes();
            let answer = [&MARK[..], &[ANSWER], number, &pid, name.bytes()].concat();
            // If the querying process has no room, it does without this answer.
            let _ = self.socket.send_to(&answer, question.source);
        }
    }
}

/// Asks all processes for their groups.
pub(crate) fn ask(node: &Node) -> utipc::Result<Vec<Entry>> {
    let all = ServiceRange::new(DIRECTORY, 0, u32::MAX);
    let bindings = node.bindings();
    let mut open: BTreeSet<PortId> =
        bindings.iter().filter(|binding| binding.range.service == DIRECTORY).map(|b| b.port).collect();
    let mut entries = Vec::new();
    if open.is_empty() {
        return Ok(entries);
    }
    let socket = node.rdm()?;
    let number = socket.port().port.to_be_bytes();
    socket.send_to(&[&MARK[..], &[QUESTION], &number].concat(), Destination::Range(all))?;
    let end = Instant::now() + LIMIT;
    while !open.is_empty() && entries.len() < MAX_ENTRIES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_receive_timeout(Some(left));
        let Ok(answer) = socket.receive() else { break };
        if let Some((pid, name)) = parse(&answer.data, number)
            && answer.returned.is_none()
            && open.remove(&answer.source)
        {
            entries.push(Entry { name, nodeid: answer.source.node.0, pid });
        }
    }
    entries.sort();
    Ok(entries)
}

fn parse(answer: &[u8], asked: [u8; 4]) -> Option<(u32, Name)> {
    let (head, name) = answer.split_first_chunk::<12>()?;
    let [a, b, c, kind, number @ .., p, q, r, s] = *head;
    let fits = [a, b, c] == MARK && kind == ANSWER && number == asked;
    Some((u32::from_be_bytes([p, q, r, s]), Name::new(name)?)).filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed() {
        let answer = [&b"CP\x01\x02"[..], &[1, 2, 3, 4], &[0, 0, 0, 9], b"abc"].concat();
        assert_eq!(parse(&answer, [1, 2, 3, 4]), Some((9, Name::new(b"abc").unwrap())));
        assert_eq!(parse(&answer, [1, 2, 3, 5]), None);
        assert_eq!(parse(&answer[..11], [1, 2, 3, 4]), None);
        let long = [&answer[..], &[7; 128]].concat();
        assert_eq!(parse(&long, [1, 2, 3, 4]), None);
    }
}
