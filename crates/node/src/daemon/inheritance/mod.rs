//! Inheritances: the hand-over of sockets to forked children.
//!
//! A fork makes an *inheritance*, which holds all sockets of the parent. Its descriptor goes to the child, and to the
//! child's own children until they exec. A process that writes a nonce into the descriptor and presents it holds the
//! sockets by its own attachment. When the last copy of the descriptor is closed, the inheritance ends.

mod orphans;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use utipc_attach::Failure;
use utipc_core::quota::{Ledger, Resource, UserId};
use utipc_os::disposal::Disposal;
use utipc_os::fdpass::{Channel, Got, MAX_FDS};
use utipc_os::many::{Index, Many};
use utipc_os::packets;
use utipc_os::reactor::Interest;

pub(super) use orphans::Orphans;

use super::quotas::INHERITED_SOCKET;
use super::reactors::Reactors;
use super::token;

/// Number of an inheritance; never used again.
pub(super) type InheritanceId = u32;

/// Maximum number of nonces that one request reads, so that a process that writes all the time does not hold the
/// daemon. Also the maximum number kept for processes that have not presented them yet; older ones are forgotten.
const MAX_NONCES: usize = 128;

/// The sockets that one fork hands over.
#[derive(Debug)]
struct Inheritance {
    /// Absent when the inheritance has ended, and its sockets are released.
    far: Option<Channel>,
    /// The user of the process that forked; it is charged for the descriptor and the sockets until they are released,
    /// also when that process is gone.
    user: UserId,
    ports: Many<u32>,
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
        let Some(far) = &self.far else { return false };
        let (mut bytes, mut passed) = ([0; 8], 0);
        for _ in 0..MAX_NONCES {
            let mut fds = Vec::new();
            let got = far.receive_all(&mut bytes, &mut fds);
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
    open: Index<InheritanceId, Inheritance>,
    next: InheritanceId,
    /// Closes what processes have sent.
    disposal: Disposal,
}

impl Inheritances {
    /// No inheritances.
    pub(super) fn new(disposal: Disposal) -> Self {
        Self { disposal, ..Self::default() }
    }

    /// Opens the inheritance of a fork, without sockets: its number and the descriptor for the child.
    pub(super) fn open(
        &mut self,
        reactors: &mut Reactors,
        user: UserId,
    ) -> Result<(InheritanceId, OwnedFd), Failure> {
        let (own, far) = Channel::pair().map_err(|e| Failure::Limit(e.to_string()))?;
        far.refuse_descriptors();
        packets::hold(far.as_fd()).map_err(|e| Failure::Limit(e.to_string()))?;
        while self.open.contains(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        let watched = reactors.watch(user, &far, (token::INHERITANCE | u64::from(number), Interest::End));
        watched.map_err(|e| Failure::Limit(e.to_string()))?;
        self.next = number.wrapping_add(1);
        self.open.insert(
            number,
            Inheritance { far: Some(far), user, ports: Many::default(), nonces: VecDeque::new() },
        );
        Ok((number, own.into_fd()))
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Adds a socket to an inheritance; false if the inheritance has ended.
    pub(super) fn add(&mut self, number: InheritanceId, port: u32) -> bool {
        let open = self.open.get_mut(&number).filter(|inheritance| inheritance.far.is_some());
        open.is_some_and(|inheritance| inheritance.ports.insert(port, ()).is_none())
    }

    /// Whether a process may claim the sockets of an inheritance: it presents a nonce that it has written into the
    /// descriptor.
    pub(super) fn redeem(&mut self, number: InheritanceId, nonce: u64) -> bool {
        self.open.get_mut(&number).is_some_and(|inheritance| inheritance.redeem(nonce, &self.disposal))
    }

    /// Some sockets of an inheritance with numbers after `after`, in order.
    pub(super) fn ports_after(&self, number: InheritanceId, after: u32, most: usize) -> Vec<u32> {
        let open = self.open.get(&number);
        open.map_or_else(Vec::new, |inheritance| inheritance.ports.some_after(Some(after), most))
    }

    /// The last copy of an inheritance's descriptor was closed: its user, and the sockets that it held, for each of
    /// which the caller calls [`Self::release`], and [`Self::remove`] afterwards.
    pub(super) fn end(
        &mut self,
        reactors: &mut Reactors,
        number: InheritanceId,
    ) -> Option<(UserId, Many<u32>)> {
        let inheritance = self.open.get_mut(&number)?;
        let far = inheritance.far.take()?;
        reactors.unwatch(inheritance.user, &far);
        self.disposal.end(inheritance.user.0, far);
        Some((inheritance.user, std::mem::take(&mut inheritance.ports)))
    }

    /// Releases sockets of an ended inheritance: its user is no longer charged for this many.
    pub(super) fn release(&self, ledger: &mut Ledger, number: InheritanceId, sockets: usize) {
        if let Some(inheritance) = self.open.get(&number) {
            ledger.release(inheritance.user, Resource::Memory, sockets as u64 * INHERITED_SOCKET);
        }
    }

    /// All sockets of an inheritance that has ended are released.
    pub(super) fn remove(&mut self, ledger: &mut Ledger, number: InheritanceId) {
        if let Some(inheritance) = self.open.remove(&number) {
            ledger.release(inheritance.user, Resource::Descriptors, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use utipc_os::fdpass::Put;

    fn opened() -> (Reactors, Inheritances, InheritanceId, Channel) {
        let (mut reactor, mut inheritances) = (Reactors::new().unwrap(), Inheritances::default());
        let (number, near) = inheritances.open(&mut reactor, UserId(0)).unwrap();
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
        assert!(!inheritances.redeem(number, 0));
        assert!(packets::has_unread(&near), "all {written} were read");
        // Later requests find the rest.
        let last = written as u64;
        assert!((0..written).any(|_| inheritances.redeem(number, last)));
    }

    #[test]
    fn each_nonce_counts_once_in_any_order() {
        let (_reactor, mut inheritances, number, near) = opened();
        for nonce in 1..=3 {
            assert!(write(&near, nonce));
        }
        for (nonce, found) in [(2, true), (2, false), (3, true), (1, true), (1, false), (9, false)] {
            assert_eq!(inheritances.redeem(number, nonce), found, "{nonce}");
        }
    }
}
