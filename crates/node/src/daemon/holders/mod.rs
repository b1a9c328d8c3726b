//! Holders of sockets: the processes and inheritances that keep each socket open.
//!
//! One holder, the *owner*, is charged with what the socket costs: its bindings and its descriptor. When the
//! owner releases the socket, another process that holds it becomes its owner.

mod socket;

use utipc_core::socket::Readiness;
use utipc_os::many::{Index, Many};

use super::attachments::AttachmentId;
use super::inheritance::InheritanceId;
use socket::{Sharer, Socket};

/// An attached process, or an inheritance, that keeps a socket open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Process(AttachmentId),
    /// Until the last copy of its descriptor is closed.
    Inheritance(InheritanceId),
}

/// The sockets of one process.
#[derive(Debug, Default)]
struct Held {
    ports: Many<u32>,
    /// Bindings of the sockets that it owns.
    bindings: usize,
    /// Descriptors of the sockets that it owns.
    descriptors: usize,
}

/// The holders of a socket after one of them has released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The socket does not exist.
    Unknown,
    /// Other processes still hold the socket.
    Shared,
    /// This process is now the only holder of the socket.
    Sole(AttachmentId),
    /// The process was the last holder. The socket stays until the caller removes it or removes its owner.
    Last,
}

/// The holders of all sockets of processes.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// By port.
    sockets: Index<u32, Socket>,
    processes: Index<AttachmentId, Held>,
}

impl Holders {
    /// Gives back memory of one of the [`PARTS`](utipc_os::many::PARTS) of tables that many entries have left.
    pub(super) fn shrink(&mut self, part: usize) {
        self.sockets.shrink(part);
        self.processes.shrink(part);
    }

    /// Adds a process that has attached.
    pub(super) fn add_process(&mut self, id: AttachmentId) {
        self.processes.insert(id, Held::default());
    }

    /// Removes a process that is gone; the caller releases the sockets that it held.
    pub(super) fn remove_process(&mut self, id: AttachmentId) -> Many<u32> {
        self.processes.remove(&id).map(|held| held.ports).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    pub(super) fn contains(&self, port: u32) -> bool {
        self.sockets.contains(&port)
    }

    /// The process that owns a socket; `None` if only inheritances hold it, or nothing.
    pub(super) fn owner(&self, port: u32) -> Option<AttachmentId> {
        self.sockets.get(&port).and_then(|socket| socket.owner)
    }

    pub(super) fn is_held_by(&self, port: u32, id: AttachmentId) -> bool {
        self.sockets.get(&port).is_some_and(|socket| socket.is_held_by(id))
    }

    /// Whether the owner is the only holder.
    pub(super) fn is_sole(&self, port: u32) -> bool {
        self.sockets.get(&port).is_some_and(|socket| socket.sharers.is_empty())
    }

    /// Whether nothing holds a socket.
    pub(super) fn is_orphaned(&self, port: u32) -> bool {
        self.sockets.get(&port).is_some_and(|socket| socket.owner.is_none() && socket.sharers.is_empty())
    }

    /// Some sockets that a process holds with numbers after `after`, in order.
    pub(super) fn ports_after(&self, id: AttachmentId, after: u32, most: usize) -> Vec<u32> {
        self.processes.get(&id).map_or_else(Vec::new, |held| held.ports.some_after(Some(after), most))
    }

    /// Bindings of a socket.
    pub(super) fn bindings(&self, port: u32) -> usize {
        self.sockets.get(&port).map_or(0, |socket| socket.bindings)
    }

    /// Whether this holder is the only one.
    pub(super) fn is_last(&self, port: u32, holder: Holder) -> bool {
        let is_owner = |socket: &Socket| socket.owner.map(Holder::Process) == Some(holder);
        self.sockets.get(&port).is_some_and(|socket| match &*socket.sharers {
            [] => is_owner(socket),
            [sharer] => socket.owner.is_none() && sharer.holder == holder,
            _ => false,
        })
    }

    /// Number of sockets that a process holds.
    pub(super) fn count_of(&self, id: AttachmentId) -> usize {
        self.processes.get(&id).map_or(0, |held| held.ports.len())
    }

    /// Bindings that a process is charged with.
    pub(super) fn bindings_of(&self, id: AttachmentId) -> usize {
        self.processes.get(&id).map_or(0, |held| held.bindings)
    }

    /// Descriptors that a process is charged with.
    pub(super) fn descriptors_of(&self, id: AttachmentId) -> usize {
        self.processes.get(&id).map_or(0, |held| held.descriptors)
    }

    /// Adds a new socket that this process owns.
    pub(super) fn add(&mut self, port: u32, owner: AttachmentId, seen: Readiness) {
        if let Some(held) = self.processes.get_mut(&owner) {
            held.ports.insert(port, ());
            self.sockets.insert(port, Socket::new(owner, seen));
        }
    }

    /// Removes a socket that has ended, from all its holders.
    pub(super) fn remove(&mut self, port: u32) {
        self.disown(port);
        let Some(socket) = self.sockets.remove(&port) else { return };
        for id in socket.sharers.iter().filter_map(Sharer::process) {
            if let Some(held) = self.processes.get_mut(&id) {
                held.ports.remove(&port);
            }
        }
    }

    /// Takes a socket from its owner; it has none then.
    pub(super) fn disown(&mut self, port: u32) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let Some(held) = socket.owner.take().and_then(|owner| self.processes.get_mut(&owner)) else { return };
        held.bindings -= socket.bindings;
        held.descriptors -= usize::from(socket.has_descriptor);
        held.ports.remove(&port);
    }

    /// Makes a process the owner of a socket that has none.
    fn own(&mut self, port: u32, id: AttachmentId, noted: bool) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        (socket.owner, socket.noted) = (Some(id), noted);
        if let Some(held) = self.processes.get_mut(&id) {
            held.bindings += socket.bindings;
            held.descriptors += usize::from(socket.has_descriptor);
            held.ports.insert(port, ());
        }
    }

    /// Adds a holder; it becomes the owner if no process was. True if another one owns it.
    pub(super) fn join(&mut self, port: u32, id: AttachmentId) -> bool {
        match self.sockets.get_mut(&port) {
            Some(socket) if socket.owner.is_none() => {
                self.own(port, id, false);
                false
            }
            Some(socket) => {
                socket.sharers.push(Sharer::new(Holder::Process(id)));
                if let Some(held) = self.processes.get_mut(&id) {
                    held.ports.insert(port, ());
                }
                true
            }
            None => false,
        }
    }

    /// An inheritance holds a socket too.
    pub(super) fn add_inheritance(&mut self, port: u32, id: InheritanceId) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.sharers.push(Sharer::new(Holder::Inheritance(id)));
        }
    }

    /// Releases a socket for one holder.
    pub(super) fn release(&mut self, port: u32, holder: Holder) -> Release {
        let Some(socket) = self.sockets.get_mut(&port) else { return Release::Unknown };
        if socket.owner.map(Holder::Process) != Some(holder) {
            let before = socket.sharers.len();
            socket.sharers.retain(|sharer| sharer.holder != holder);
            if before == socket.sharers.len() {
                // This holder has released it before.
                return Release::Shared;
            }
            if socket.sharers.len() < socket.sharers.capacity() / 4 {
                socket.sharers.shrink_to_fit();
            }
        } else if socket.sharers.is_empty() {
            return Release::Last;
        } else {
            let successor = socket.take_successor();
            self.disown(port);
            if let Some((successor, noted)) = successor {
                self.own(port, successor, noted);
            }
        }
        if let Holder::Process(id) = holder
            && let Some(held) = self.processes.get_mut(&id)
        {
            held.ports.remove(&port);
        }
        match self.sockets.get(&port) {
            Some(socket) if !socket.sharers.is_empty() => Release::Shared,
            Some(socket) => socket.owner.map_or(Release::Last, Release::Sole),
            None => Release::Unknown,
        }
    }

    /// Charges the owner with one more binding of its socket.
    pub(super) fn add_binding(&mut self, port: u32) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        socket.bindings += 1;
        if let Some(held) = socket.owner.and_then(|owner| self.processes.get_mut(&owner)) {
            held.bindings += 1;
        }
    }

    /// The counterpart of [`Self::add_binding`], for one binding or for all of a socket.
    pub(super) fn remove_bindings(&mut self, port: u32, all: bool) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let gone = if all { socket.bindings } else { socket.bindings.min(1) };
        socket.bindings -= gone;
        if let Some(held) = socket.owner.and_then(|owner| self.processes.get_mut(&owner)) {
            held.bindings -= gone;
        }
    }

    /// Charges the owner with a descriptor of its socket, or no longer.
    pub(super) fn set_descriptor(&mut self, port: u32, present: bool) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let before = std::mem::replace(&mut socket.has_descriptor, present);
        if let Some(held) = socket.owner.and_then(|owner| self.processes.get_mut(&owner)) {
            held.descriptors = held.descriptors + usize::from(present) - usize::from(before);
        }
    }

    /// Sets the readiness of a socket that its processes know.
    pub(super) fn set_seen(&mut self, port: u32, seen: Readiness) {
        self.change_seen(port, |known| *known = seen);
    }

    /// Notes that a receive found nothing: its process waits for a message.
    pub(super) fn wants_to_read(&mut self, port: u32) {
        self.change_seen(port, |seen| seen.readable = false);
    }

    /// Notes that a send found no room: its process waits for room.
    pub(super) fn wants_to_write(&mut self, port: u32) {
        self.change_seen(port, |seen| seen.writable = false);
    }

    fn change_seen(&mut self, port: u32, change: impl FnOnce(&mut Readiness)) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            change(&mut socket.seen);
        }
    }

    /// Notes that a process waits for more than is there: each further change causes a notice.
    pub(super) fn watch(&mut self, port: u32) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.watched = true;
        }
    }

    /// Updates the known readiness of a socket. Returns the processes that want a notice, each with its mark that a
    /// notice waits, which the caller sets. `by_lane`: whether its process sends, and receives, by lanes, which report
    /// their own readiness.
    pub(super) fn update(
        &mut self,
        port: u32,
        mut now: Readiness,
        by_lane: (bool, bool),
    ) -> impl Iterator<Item = (AttachmentId, &mut bool)> {
        let socket = self.sockets.get_mut(&port).and_then(|socket| {
            let (sends, receives) = by_lane;
            if sends {
                now.writable = socket.seen.writable;
            }
            if receives {
                now.readable = socket.seen.readable;
            }
            let report = socket.watched && !receives || socket::has_grown(socket.seen, now);
            socket.seen = now;
            report.then_some(socket)
        });
        socket.into_iter().flat_map(Socket::processes_mut)
    }

    /// Clears the mark that a notice about a socket waits for this process; returns whether it was set.
    pub(super) fn take_noted(&mut self, port: u32, id: AttachmentId) -> bool {
        self.sockets.get_mut(&port).is_some_and(|socket| socket.take_noted(id))
    }
}

#[cfg(test)]
mod tests;
