//! Streams of mounts: adding, finding, refusing and ending them, and the end of a mount with all its streams.

use std::mem;

use rssl::rwf::{Domain, OwnedState, State, code};

use super::mount::{MountId, Role, Stream};
use super::reason::Reason;
use super::slots::Ticket;
use super::subscribers::Subscriber;
use super::worker::{Disconnect, Worker};
use crate::hub::{HubRequest, ItemId};

impl Worker {
    /// Disconnects a mount: its streams end, nothing more is sent to it, and [`Worker::disconnects`]
    /// reports it to the driver. The first reason counts.
    pub(super) fn disconnect(&mut self, id: Ticket, reason: Reason) {
        let Some(mount) = self.mounts.get_mut(id).filter(|mount| mount.disconnecting.is_none()) else {
            return;
        };
        mount.disconnecting = Some(reason.clone());
        mount.queue.clear();
        mount.input.clear();
        if let Some(entry) = mount.pending.take() {
            self.pending.remove(entry);
        }
        // Taken back once: a disconnected mount logs out no more.
        if let Some(login) = &mount.login {
            self.shared.logins.dismiss(login.entry);
        }
        if !mount.ending {
            self.end_all_streams(id);
        }
        self.pending_disconnects.push(Disconnect { mount: MountId(id), reason });
    }

    /// Ends a stream without a message; gives back the item with its last stream.
    pub(super) fn end_stream(&mut self, ticket: Ticket) {
        let Some(stream) = self.streams.remove(ticket) else { return };
        self.give_back_bytes(stream.mount, stream.bytes());
        if let Some(mount) = self.mounts.get_mut(stream.mount) {
            mount.ids.remove(&stream.id);
            if matches!(stream.role, Role::Directory { .. }) {
                mount.directories.retain(|one| *one != ticket);
            }
            if stream.counted {
                mount.outstanding = mount.outstanding.saturating_sub(1);
                if !mount.queue.is_empty() {
                    self.resumable.push(stream.mount);
                }
            }
        }
        if let Some(item) = stream.item {
            if let Some(entry) = self.items.get_mut(item.index()) {
                entry.subscribers.remove(stream.mount.index(), stream.id);
            }
            self.release_item(item);
        }
    }

    /// Gives back the holds on an item without streams.
    pub(super) fn release_item(&mut self, item: ItemId) {
        if let Some(entry) = self.items.get_mut(item.index())
            && entry.subscribers.is_empty()
            && entry.holds > 0
        {
            let holds = mem::take(&mut entry.holds);
            self.hub_requests.push(HubRequest::Close { side: self.side, item, holds });
        }
    }

    /// Ends a stream with a status. A stream that the consumer does not know of ends silently.
    pub(super) fn refuse_stream(&mut self, ticket: Ticket, state: State<'_>) {
        if let Some(stream) = self.streams.get(ticket) {
            if stream.is_unannounced() {
                return self.end_stream(ticket);
            }
            let private = stream.flags.contains(rssl::rwf::RequestFlags::PRIVATE);
            let (mount, domain, id) = (stream.mount, Domain(stream.domain), stream.id);
            self.status(mount, domain, id, private, state);
            self.end_stream(ticket);
        }
    }

    /// Counts bytes of keys and views of a mount's items.
    ///
    /// # Errors
    /// A budget does not allow them: the status that names it. Nothing is counted.
    pub(super) fn take_bytes(&mut self, id: Ticket, bytes: usize) -> Result<(), OwnedState> {
        let Some(mount) = self.mounts.get_mut(id) else { return Ok(()) };
        let (own, total) = (self.config.open_bytes, self.config.open_bytes_total);
        let text = if mount.open_bytes + bytes > own {
            format!("the keys and views of this connection would take more than {own} bytes (open-kib)")
        } else if !self.shared.take_bytes(bytes, total) {
            format!(
                "the keys and views of all connections would take more than {total} bytes (open-total-mib)"
            )
        } else {
            mount.open_bytes += bytes;
            return Ok(());
        };
        Err(State::closed_recover(code::TOO_MANY_ITEMS, text.as_bytes()).to_owned())
    }

    /// Takes back [`Worker::take_bytes`].
    pub(super) fn give_back_bytes(&mut self, id: Ticket, bytes: usize) {
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.open_bytes -= bytes;
            self.shared.give_back_bytes(bytes);
        }
    }

    /// Adds a stream to its mount.
    pub(super) fn add_stream(&mut self, stream: Stream) -> Option<Ticket> {
        let (mount, id) = (stream.mount, stream.id);
        self.mounts.get(mount)?;
        let is_directory = matches!(stream.role, Role::Directory { .. });
        let ticket = self.streams.insert(stream);
        let mount = self.mounts.get_mut(mount)?;
        mount.ids.insert(id, ticket);
        if is_directory {
            mount.directories.push(ticket);
        }
        Some(ticket)
    }

    /// The consumer's stream with this id.
    pub(super) fn find_stream(&self, id: Ticket, stream: i32) -> Option<Ticket> {
        self.mounts.get(id)?.ids.get(&stream).copied()
    }

    /// The stream of a subscriber.
    pub(super) fn stream_of(&self, subscriber: Subscriber) -> Option<Ticket> {
        self.find_stream(self.outputs.mount_of(subscriber)?, subscriber.id)
    }

    pub(super) fn logged_in(&self, id: Ticket) -> bool {
        self.mounts.get(id).is_some_and(|mount| mount.login.is_some())
    }

    /// The streams of a mount with this role, in order of their ids.
    pub(super) fn streams_of(&self, id: Ticket, role: impl Fn(&Role) -> bool) -> Vec<Ticket> {
        let Some(mount) = self.mounts.get(id) else { return Vec::new() };
        let mut found: Vec<(i32, Ticket)> = mount.ids.iter().map(|(id, ticket)| (*id, *ticket)).collect();
        found.retain(|(_, ticket)| self.streams.get(*ticket).is_some_and(|stream| role(&stream.role)));
        found.sort_unstable();
        found.into_iter().map(|(_, ticket)| ticket).collect()
    }

    /// Sends the queued requests of mounts whose window has opened. To be called after each input, batch and tick.
    pub(super) fn resume_queues(&mut self) {
        while let Some(id) = self.resumable.pop() {
            self.send_requests(id);
        }
    }
}
