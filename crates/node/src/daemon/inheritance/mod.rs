//! Inheritances: the hand-over of sockets to forked children.
//!
//! A fork makes an *inheritance*, which holds all sockets of the parent. Its descriptor goes to the child, and to the
//! child's own children until they exec. A process that writes a nonce into the descriptor and presents it holds the
//! sockets by its own attachment. When the last copy of the descriptor is closed, the inheritance ends.

mod orphans;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use utipc_attach::Failure;
use utipc_core::quota::UserId;
use utipc_os::disposal::Disposal;
use utipc_os::fdpass::{Channel, Got, MAX_FDS};
use utipc_os::packets;
use utipc_os::reactor::{Interest, Reactor};

pub(super) use orphans::Orphans;

use super::token;

/// Number of an inheritance; never used again.
pub(super) type InheritanceId = u32;

/// Most nonces that one request reads, so that a process that writes all the time does not hold the daemon; and most
/// that are kept for processes that have not presented them yet, older ones being forgotten.
const MAX_NONCES: usize = 128;

/// The sockets that one fork hands over.
#[derive(Debug)]
struct Inheritance {
    far: Channel,
    /// The user of the process that forked; it is charged for the descriptor, also when that process is gone.
    user: UserId,
    ports: BTreeSet<u32>,
    /// Oldest first.
    nonces: VecDeque<u64>,
}

impl Inheritance {
    /// Whether a process that has the descriptor wrote this nonce into it; a nonce counts once.
    fn redeem(&mut self, nonce: u64, disposal: &Disposal) -> bool {
        if let Some(at) = self.nonces.iter().position(|written| *written == nonce) {
            self.nonces.remove(at);
            return true;
        }
        let (mut bytes, mut passed) = ([0; 8], 0);
        for _ in 0..MAX_NONCES {
            let mut fds = Vec::new();
            let got = self.far.receive_all(&mut bytes, &mut fds);
            passed += fds.len();
            disposal.close(self.user.0, fds);
            // No process of utipc passes any.
            if passed > MAX_FDS {
                break;
            }
            let Ok(Got::Packet(len)) = got else { break };
            if len != bytes.len() {
                continue;
            }
            let written = u64::from_le_bytes(bytes);
            if written == nonce {
                return true;
            }
            if self.nonces.len() >= MAX_NONCES {
                self.nonces.pop_front();
            }
            self.nonces.push_back(written);
        }
        false
    }
}

/// All inheritances, by number.
#[derive(Debug, Default)]
pub(super) struct Inheritances {
    open: HashMap<InheritanceId, Inheritance>,
    next: InheritanceId,
    /// Closes what processes have sent.
    disposal: Disposal,
}

impl Inheritances {
    /// No inheritances.
    pub(super) fn new(disposal: Disposal) -> Self {
        Self { disposal, ..Self::default() }
    }

    /// Opens the inheritance of a fork: its number and the descriptor for the child.
    pub(super) fn open(
        &mut self,
        reactor: &Reactor,
        user: UserId,
        ports: BTreeSet<u32>,
    ) -> Result<(InheritanceId, OwnedFd), Failure> {
        let (own, far) = Channel::pair().map_err(|e| Failure::Limit(e.to_string()))?;
        far.refuse_descriptors();
        packets::hold(far.as_fd()).map_err(|e| Failure::Limit(e.to_string()))?;
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        let watched = reactor.add(&far, token::INHERITANCE | u64::from(number), Interest::End);
        watched.map_err(|e| Failure::Limit(e.to_string()))?;
        self.next = number.wrapping_add(1);
        self.open.insert(number, Inheritance { far, user, ports, nonces: VecDeque::new() });
        Ok((number, own.into_fd()))
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The sockets of an inheritance, for a process that presents a nonce that it has written into the descriptor.
    pub(super) fn redeem(&mut self, number: InheritanceId, nonce: u64) -> Option<&BTreeSet<u32>> {
        let inheritance = self.open.get_mut(&number)?;
        inheritance.redeem(nonce, &self.disposal).then_some(&inheritance.ports)
    }

    /// The last copy of an inheritance's descriptor was closed: its user, and the sockets that it held.
    pub(super) fn close(
        &mut self,
        reactor: &Reactor,
        number: InheritanceId,
    ) -> Option<(UserId, BTreeSet<u32>)> {
        let Inheritance { far, user, ports, .. } = self.open.remove(&number)?;
        let _ = reactor.remove(&far);
        self.disposal.end(user.0, far);
        Some((user, ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use utipc_os::fdpass::Put;

    fn opened() -> (Reactor, Inheritances, InheritanceId, Channel) {
        let (reactor, mut inheritances) = (Reactor::new().unwrap(), Inheritances::default());
        let (number, near) = inheritances.open(&reactor, UserId(0), BTreeSet::from([7])).unwrap();
        (reactor, inheritances, number, Channel::from_fd(near))
    }

    fn write(near: &Channel, nonce: u64) -> bool {
        near.send(&[IoSlice::new(&nonce.to_le_bytes())], &[], false).unwrap() == Put::Sent
    }

    /// A process that writes faster than the daemon reads must not keep it in one request.
    #[test]
    fn one_request_reads_a_bounded_number_of_nonces() {
        let (_reactor, mut inheritances, number, near) = opened();
        let written = (1..).take_while(|nonce| write(&near, *nonce)).count();
        assert!(written > MAX_NONCES, "only {written} fit");
        assert_eq!(inheritances.redeem(number, 0), None);
        assert!(packets::has_unread(&near), "all {written} were read");
        // Later ones are found by later requests.
        let last = written as u64;
        assert!((0..written).any(|_| inheritances.redeem(number, last).is_some()));
    }

    #[test]
    fn each_nonce_counts_once_in_any_order() {
        let (_reactor, mut inheritances, number, near) = opened();
        for nonce in 1..=3 {
            assert!(write(&near, nonce));
        }
        for (nonce, found) in [(2, true), (2, false), (3, true), (1, true), (1, false), (9, false)] {
            assert_eq!(inheritances.redeem(number, nonce).is_some(), found, "{nonce}");
        }
    }
}
