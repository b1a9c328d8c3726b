//! Inheritances: the hand-over of sockets to forked children.
//!
//! A fork makes an *inheritance*, which holds all sockets of the parent. Its descriptor goes to the child, and to the
//! child's own children until they exec. A process that writes a nonce into the descriptor and presents it holds the
//! sockets by its own attachment. When the last copy of the descriptor is closed, the inheritance ends.

mod orphans;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;

use utipc_attach::Failure;
use utipc_os::fdpass::{Channel, Got};
use utipc_os::reactor::{Interest, Reactor};

pub(super) use orphans::Orphans;

use super::token;

/// Number of an inheritance; never used again.
pub(super) type InheritanceId = u32;

/// Most nonces kept for processes that have not presented them yet; older ones are forgotten.
const MAX_NONCES: usize = 64;

/// The sockets that one fork hands over.
#[derive(Debug)]
struct Inheritance {
    far: Channel,
    /// The user of the process that forked.
    uid: u32,
    ports: BTreeSet<u32>,
    nonces: Vec<u64>,
}

impl Inheritance {
    /// Whether a process that has the descriptor wrote this nonce into it; a nonce counts once.
    fn redeem(&mut self, nonce: u64) -> bool {
        let mut bytes = [0; 8];
        while let Ok(Got::Packet(len)) = self.far.receive(&mut bytes, &mut Vec::new(), 0, false) {
            if len == bytes.len() {
                self.nonces.push(u64::from_le_bytes(bytes));
            }
            if self.nonces.len() > MAX_NONCES {
                self.nonces.remove(0);
            }
        }
        let found = self.nonces.iter().position(|written| *written == nonce);
        found.map(|at| self.nonces.remove(at)).is_some()
    }
}

/// All inheritances, by number.
#[derive(Debug, Default)]
pub(super) struct Inheritances {
    open: HashMap<InheritanceId, Inheritance>,
    next: InheritanceId,
}

impl Inheritances {
    /// Opens the inheritance of a fork: its number and the descriptor for the child. A user may have `limit` of them,
    /// because each costs the daemon a descriptor, also when the parent is gone.
    pub(super) fn open(
        &mut self,
        reactor: &Reactor,
        uid: u32,
        limit: usize,
        ports: BTreeSet<u32>,
    ) -> Result<(InheritanceId, OwnedFd), Failure> {
        if self.of_user(uid) >= limit {
            return Err(Failure::Limit(format!("{limit} forked processes of one user")));
        }
        let (own, far) = Channel::pair().map_err(|e| Failure::Limit(e.to_string()))?;
        let number = self.next;
        let watched = reactor.add(&far, token::INHERITANCE | u64::from(number), Interest::End);
        watched.map_err(|e| Failure::Limit(e.to_string()))?;
        self.next = number.wrapping_add(1);
        self.open.insert(number, Inheritance { far, uid, ports, nonces: Vec::new() });
        Ok((number, own.into_fd()))
    }

    fn of_user(&self, uid: u32) -> usize {
        self.open.values().filter(|inheritance| inheritance.uid == uid).count()
    }

    /// The sockets of an inheritance, for a process that presents a nonce that it has written into the descriptor.
    pub(super) fn redeem(&mut self, number: InheritanceId, nonce: u64) -> Option<&BTreeSet<u32>> {
        let inheritance = self.open.get_mut(&number)?;
        inheritance.redeem(nonce).then_some(&inheritance.ports)
    }

    /// The last copy of an inheritance's descriptor was closed: the sockets that it held.
    pub(super) fn close(&mut self, reactor: &Reactor, number: InheritanceId) -> BTreeSet<u32> {
        let Some(inheritance) = self.open.remove(&number) else { return BTreeSet::new() };
        let _ = reactor.remove(&inheritance.far);
        inheritance.ports
    }
}
