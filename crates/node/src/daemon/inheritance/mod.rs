//! Sockets that several processes hold: what a fork leaves to the child, and who is left when one lets go. DESIGN L1.
//!
//! A fork gives all sockets of the parent to whoever holds the descriptor of this fork, a *heritage*: the child, and its
//! own children until they exec. Who claims it by a nonce in the descriptor holds the sockets by its own attachment. When
//! the last copy of the descriptor is closed nobody can come any more.

pub(in crate::daemon) mod orphans;
mod recovery;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Notice, Reply};
use utipc_core::Time;
use utipc_os::fdpass::{Channel, Got};
use utipc_os::reactor::Interest;

use crate::daemon::attachments::attachment::{AttachmentId, Holder, NOBODY, Sharer};
use crate::daemon::dispatcher::{Dispatcher, token};
use crate::daemon::lanes::end::Why;

/// Nonces of processes that have not asked yet, at most; older ones are forgotten.
const MAX_NONCES: usize = 64;

/// The version from which on a process knows that a socket can be its own again.
const KNOWS_ALONE: u16 = 2;

/// What one fork has left.
#[derive(Debug)]
pub(in crate::daemon) struct Heritage {
    far: Channel,
    /// The user of the process that forked.
    uid: u32,
    ports: BTreeSet<u32>,
    nonces: Vec<u64>,
}

/// By number.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Heritages {
    open: HashMap<u32, Heritage>,
    next: u32,
}

impl Heritage {
    /// Whether somebody who holds the descriptor has written this nonce.
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
        let found = self.nonces.iter().position(|other| *other == nonce);
        found.map(|at| self.nonces.remove(at)).is_some()
    }
}

impl Dispatcher {
    /// A process is about to fork.
    pub(in crate::daemon) fn fork(
        &mut self,
        now: Time,
        id: AttachmentId,
        near: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        let attachment = self.attachments.get_mut(&id).ok_or(Failure::State)?;
        let uid = attachment.peer.uid;
        // Each costs a descriptor of the daemon, also when its parent is gone.
        let limit = self.limits.descriptors_per_attachment;
        if self.heritages.open.values().filter(|h| h.uid == uid).count() >= limit {
            return Err(Failure::Limit(format!("{limit} forked processes of one user")));
        }
        attachment.forget_lanes_to_read();
        let ports = attachment.ports.clone();
        let (own, far) = Channel::pair().map_err(|e| Failure::Limit(e.to_string()))?;
        let number = self.heritages.next;
        let watched = self.reactor.add(&far, token::HERITAGE | u64::from(number), Interest::End);
        watched.map_err(|e| Failure::Limit(e.to_string()))?;
        self.heritages.next = number.wrapping_add(1);
        for port in &ports {
            self.host_for_sharing(now, *port);
            if let Some(holding) = self.sockets.get_mut(port) {
                holding.sharers.push(Sharer::new(Holder::Heritage(number)));
            }
        }
        self.heritages.open.insert(number, Heritage { far, uid, ports, nonces: Vec::new() });
        near.push(own.into_fd());
        Ok(Reply::Number(number))
    }

    /// Lanes belong to one process.
    pub(in crate::daemon) fn host_for_sharing(&mut self, now: Time, port: u32) {
        let Some(holding) = self.sockets.get_mut(&port) else { return };
        if !std::mem::replace(&mut holding.direct, false) {
            return;
        }
        for id in &holding.lanes {
            // Those of the daemon itself come by themselves.
            let lane = self.broker.lanes.get(id).filter(|lane| !lane.ended && lane.from != 0 && lane.to != 0);
            holding.former.extend(lane.map(|lane| (lane.from, lane.to)));
        }
        self.end_lanes(now, port, Why::Hosted(None));
    }

    /// A process claims what it has inherited.
    pub(in crate::daemon) fn inherit(
        &mut self,
        id: AttachmentId,
        number: u32,
        nonce: u64,
    ) -> Result<Reply, Failure> {
        let heritage = self.heritages.open.get_mut(&number).ok_or(Failure::State)?;
        if !heritage.redeem(nonce) {
            return Err(Failure::State);
        }
        let ports: Vec<u32> =
            heritage.ports.iter().copied().filter(|port| self.sockets.contains_key(port)).collect();
        let Some(attachment) = self.attachments.get_mut(&id) else { return Err(Failure::State) };
        let limit = self.limits.sockets_per_attachment;
        if attachment.ports.len() + ports.len() > limit {
            return Err(Failure::Limit(format!("{limit} sockets of one process")));
        }
        for port in &ports {
            let Some(holding) = self.sockets.get_mut(port).filter(|h| !h.is_held_by(id)) else { continue };
            attachment.ports.insert(*port);
            if holding.owner == NOBODY {
                holding.owner = id;
                holding.noted = false;
                attachment.bindings += holding.bindings;
                attachment.descriptors += usize::from(self.fars.contains_key(port));
            } else {
                holding.sharers.push(Sharer::new(Holder::Process(id)));
            }
        }
        Ok(Reply::Number(u32::try_from(ports.len()).unwrap_or(u32::MAX)))
    }

    /// The last copy of a heritage's descriptor was closed.
    pub(in crate::daemon) fn end_heritage(&mut self, now: Time, number: u32) {
        let Some(heritage) = self.heritages.open.remove(&number) else { return };
        let _ = self.reactor.remove(&heritage.far);
        let mut ports: Vec<u32> = heritage.ports.into_iter().collect();
        ports.retain(|port| {
            self.sockets.contains_key(port) && !self.release(now, *port, Holder::Heritage(number))
        });
        self.end_sockets(now, &ports);
    }

    /// One of those who hold a socket lets go of it; false if it was the only one, who then has to end it.
    pub(in crate::daemon) fn release(&mut self, now: Time, port: u32, who: Holder) -> bool {
        let Some(holding) = self.sockets.get_mut(&port) else { return false };
        if holding.owner == NOBODY || Holder::Process(holding.owner) != who {
            let before = holding.sharers.len();
            holding.sharers.retain(|sharer| sharer.who != who);
            if before == holding.sharers.len() {
                // It has let go of it before.
                return true;
            }
        } else if holding.sharers.is_empty() {
            let orphaned = self.is_orphaned(now, port);
            if orphaned
                && let Holder::Process(id) = who
                && let Some(attachment) = self.attachments.get_mut(&id)
            {
                attachment.ports.remove(&port);
            }
            return orphaned;
        } else {
            let process = |sharer: &Sharer| matches!(sharer.who, Holder::Process(_));
            let heir = holding.sharers.iter().position(process).map(|at| holding.sharers.remove(at));
            let bindings = holding.bindings;
            let descriptors = usize::from(self.fars.contains_key(&port));
            let old = holding.owner;
            holding.noted = heir.as_ref().is_some_and(|heir| heir.noted);
            holding.owner = match heir.map(|heir| heir.who) {
                Some(Holder::Process(id)) => id,
                _ => NOBODY,
            };
            if let Some(attachment) = self.attachments.get_mut(&holding.owner) {
                attachment.bindings += bindings;
                attachment.descriptors += descriptors;
            }
            if let Some(attachment) = self.attachments.get_mut(&old) {
                attachment.bindings -= bindings;
                attachment.descriptors -= descriptors;
            }
        }
        if let Holder::Process(id) = who
            && let Some(attachment) = self.attachments.get_mut(&id)
        {
            attachment.ports.remove(&port);
        }
        self.is_left(port) || self.is_orphaned(now, port)
    }

    /// Whether somebody still holds a socket; who is the only one may have its data path back.
    fn is_left(&mut self, port: u32) -> bool {
        let Some(holding) = self.sockets.get(&port) else { return false };
        if !holding.sharers.is_empty() {
            return true;
        }
        let owner = holding.owner;
        let knows = self.attachments.get(&owner).is_some_and(|a| a.version >= KNOWS_ALONE && a.takes_lanes);
        if knows && !holding.direct {
            self.tell(owner, Notice::SoleHolder { port });
        }
        owner != NOBODY
    }

    /// The data path of a socket goes back to the one process that holds it; lanes that it had come back.
    pub(in crate::daemon) fn lend(&mut self, id: AttachmentId, port: u32) -> Result<Reply, Failure> {
        self.held(id, port)?;
        let Some(holding) = self.sockets.get_mut(&port) else { return Err(Failure::NoSocket(port)) };
        if !holding.sharers.is_empty() {
            return Err(Failure::State);
        }
        holding.direct = true;
        for (from, to) in std::mem::take(&mut holding.former) {
            self.restore_lane(from, to);
        }
        Ok(Reply::Done)
    }
}
