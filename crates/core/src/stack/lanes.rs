//! Support for a daemon: messages between two local sockets that travel over a *lane* in shared memory instead of
//! through this node, messages taken back when a lane ends (decision 8), and what its users are charged for.

use super::Stack;
use super::anycast::Chosen;
use super::quotas::Charges;
use crate::addr::{PortId, ServiceAddr};
use crate::group::{GroupPolicy, MemberInfo};
use crate::memory::MessageMemory;
use crate::pool::Pool;
use crate::quota::{Ledger, UserId};
use crate::socket::{Built, Destination, Endpoint, GroupMessageKind, Resolved, SendError, Unsent};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType};

impl Stack {
    /// Messages of socket `from` to socket `to` travel over a lane from now on: [`Stack::send`] leaves out `to`.
    pub fn add_lane(&mut self, from: u32, to: u32) {
        self.switch.delivery.add_lane(from, to);
    }

    /// Messages of `from` to `to` go through the node again.
    pub fn remove_lane(&mut self, from: u32, to: u32) {
        self.switch.delivery.remove_lane(from, to);
    }

    /// Sends an anycast to the socket that its sender has found in the binding table, or one copy of a multicast to a
    /// local socket. If the socket of an anycast is gone, the anycast is looked up again, like any that arrives.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was sent.
    pub fn send_found(
        &mut self,
        now: Time,
        port: u32,
        data: &[u8],
        to: Destination,
        found: PortId,
    ) -> Result<usize, SendError> {
        let found = self.resolved(to, found);
        let chosen = self.choosing(port, data.len()).instead_of(found, to);
        let Chosen { found, from_several } = chosen.map_err(|full| self.wait_for_any(now, port, full))?;
        self.on(now, port, SendError::Broken, |endpoint, uplink| {
            uplink.found = found;
            endpoint.set_choice(from_several);
            endpoint.send_found(data, to, uplink)
        })
    }

    /// Memory for a message of `size` bytes, header included; it is empty.
    #[must_use]
    pub fn memory(&mut self, size: usize) -> Vec<u8> {
        self.switch.pool.take(size)
    }

    /// Recycles the memory of a message.
    pub fn recycle(&mut self, message: Message) {
        self.switch.pool.put(message);
    }

    /// Checks a message that a process has built as a socket of this node; see
    /// [`Endpoint::check_built`](crate::socket::Endpoint::check_built).
    #[must_use]
    pub fn check_built(&self, port: u32, bytes: Vec<u8>) -> Option<Built> {
        self.endpoints.get(port)?.check_built(self.switch.own_node(), bytes)
    }

    /// Sends a message that was checked for this socket, with the header that it has. Without a connection, one that
    /// cannot be sent comes back to the socket.
    ///
    /// # Errors
    /// See [`Unsent`].
    pub fn send_built(&mut self, now: Time, port: u32, message: Built) -> Result<(), Unsent> {
        self.on(now, port, Unsent::Over, |endpoint, uplink| endpoint.send_built(now, message, uplink))
    }

    /// The result of a lookup of `to` that returns `found`.
    fn resolved(&self, to: Destination, found: PortId) -> Resolved {
        let everywhere = !matches!(to, Destination::Service { domain, .. } if !domain.is_none());
        let node = found.node.or(self.own_node());
        Resolved { port: found.port, node, scope: if everywhere { 2 } else { 3 } }
    }

    /// Returns and clears the local receivers that the last message must reach over a lane.
    pub fn take_diverted(&mut self) -> Vec<u32> {
        self.switch.delivery.take_diverted()
    }

    /// Queues a message of `from` to `to` that was in a lane and will not be read there; the application has already
    /// read the first `read` bytes of its data. Returns false if `from` cannot have sent it to `to`: `bytes` may have
    /// any contents.
    pub fn adopt(&mut self, now: Time, from: u32, to: u32, bytes: Vec<u8>, read: usize) -> bool {
        let Ok(mut message) = Message::from_vec(bytes) else { return false };
        let Some(receiver) = self.endpoints.get(to) else { return false };
        let connected = receiver.kind().is_connection_oriented();
        let genuine = self.is_from_lane_of(from, &message) && !message.syn();
        let fits = match message.message_type() {
            MessageType::Conn => connected && message.dest_port() == to,
            MessageType::Direct | MessageType::Named => !connected && message.dest_port() == to,
            MessageType::Mcast => !connected,
            _ => false,
        };
        if !genuine || !fits {
            return false;
        }
        message.set_dest_port(to);
        self.with_endpoint(now, to, |endpoint, uplink| endpoint.adopt(now, message, read, uplink));
        self.process_pending(now);
        true
    }

    /// Whether the socket `from` of this node may have written this message, which may have any contents, into a lane.
    fn is_from_lane_of(&self, from: u32, message: &Message) -> bool {
        message.header_fits()
            && message.is_data()
            && message.error_code() == ErrorCode::Ok
            && message.origin_port() == from
            && (message.origin_node().is_none() || message.origin_node() == self.switch.own_node())
    }

    /// Queues messages that the socket `from`, this `member` of the group of `to`, has written into a lane and that
    /// will not be read there, oldest first; `skip` messages of the queue are older. The application has read the first
    /// `read` bytes of the first one. Returns how many were dropped, because `bodies` may have any contents, and the
    /// number of messages that the socket has received once it has received these.
    pub fn adopt_of_member(
        &mut self,
        now: Time,
        (from, member): (u32, ServiceAddr),
        to: u32,
        bodies: Vec<Vec<u8>>,
        (skip, read): (usize, usize),
    ) -> (usize, u64) {
        let (count, mut genuine) = (bodies.len(), Vec::with_capacity(bodies.len()));
        for body in bodies {
            let Ok(mut message) = Message::from_vec(body) else { continue };
            let of_group = GroupMessageKind::of(message.message_type()).is_some();
            if of_group && self.is_from_lane_of(from, &message) {
                message.set_dest_port(to);
                genuine.push(message);
            }
        }
        let dropped = count - genuine.len();
        let end = self.with_endpoint(now, to, |endpoint, uplink| {
            endpoint.adopt_of_member(member, genuine, (skip, read), uplink)
        });
        self.process_pending(now);
        (dropped, end.unwrap_or(0))
    }

    /// Ends the connection of a socket with an error at both ends.
    pub fn abort(&mut self, now: Time, port: u32) {
        self.with_endpoint(now, port, |endpoint, uplink| endpoint.abort(uplink));
        self.process_pending(now);
    }

    /// Passes the queued data of a connection to `take`; see [`Endpoint::hand_out`](crate::socket::Endpoint::hand_out).
    pub fn hand_out(&mut self, now: Time, port: u32, take: &mut dyn FnMut(&Message) -> bool) -> usize {
        let count = self.change_endpoint(now, port, |e, uplink| e.hand_out(take, uplink), |count| *count > 0);
        self.process_pending(now);
        count.unwrap_or(0)
    }

    /// Takes back messages that were handed out last and not read; see
    /// [`Endpoint::take_back`](crate::socket::Endpoint::take_back).
    pub fn take_back(&mut self, now: Time, port: u32, messages: Vec<Vec<u8>>, read: usize) -> bool {
        self.with_endpoint(now, port, |e, uplink| e.take_back(messages, read, uplink)).unwrap_or(true)
    }

    /// The other members of a socket's group, each with its address in the group, if messages to them may go by lanes:
    /// all are on this node, at most `most`, each knows this socket as a member, and none has a policy.
    #[must_use]
    pub fn members_here(&self, port: u32, most: usize) -> Option<Vec<(u32, ServiceAddr)>> {
        let group = self.endpoint(port)?.group()?;
        let service = group.request().member.service;
        let may_read = |member: MemberInfo| {
            let other = self.endpoint(member.port.port)?.group()?;
            let may = other.knows(port) && other.policy() == GroupPolicy::LINUX;
            may.then_some((member.port.port, ServiceAddr { service, instance: member.instance }))
        };
        group.members_here(most)?.into_iter().map(may_read).collect()
    }

    /// Collects, from now on, the sockets in whose groups members come or go.
    pub fn watch_groups(&mut self) {
        self.groups.watch();
    }

    /// Takes one of the sockets in whose group members have come or gone.
    pub fn take_changed_group(&mut self) -> Option<u32> {
        self.groups.next_changed()
    }

    /// What each user uses. Resources outside of the node may be charged here too.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// See [`Self::ledger`].
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The user that a socket is charged to.
    #[must_use]
    pub fn user_of(&self, port: u32) -> Option<UserId> {
        self.endpoints.get(port).and_then(Endpoint::user)
    }

    /// Charges a user for a new socket and everything in it, until it is gone. The caller has checked
    /// [`crate::quota::Resource::Sockets`].
    pub fn set_user(&mut self, port: u32, user: UserId) {
        let Some(endpoint) = self.endpoints.get_mut(port).filter(|e| e.user().is_none()) else { return };
        Charges::begin(endpoint, user, &mut self.ledger);
    }

    /// Replaces the memory of messages. Call it before the first socket is opened.
    pub fn set_memory(&mut self, memory: Box<dyn MessageMemory>) {
        self.switch.pool = Pool::of(memory);
    }

    /// Charges users for the memory that their messages take.
    pub(super) fn charge_memory(&mut self) {
        let memory = &mut self.switch.pool.memory;
        while let Some((user, bytes)) = memory.take_changed() {
            self.ledger.set_held(user, bytes);
        }
        self.ledger.set_short(memory.is_short());
    }

    /// Moves a message that waits outside of its socket to the memory of the socket's user.
    ///
    /// # Errors
    /// The message: its user, or the node, has no memory left.
    pub fn keep(&mut self, port: u32, message: Built) -> Result<Built, Built> {
        let Some(user) = self.user_of(port) else { return Ok(message) };
        let growth = self.ledger.growth(user);
        let kept = message.moved(|bytes| self.switch.pool.memory.keep(user, bytes, growth));
        self.charge_memory();
        kept
    }

    /// Whether everything that is charged exists. Takes time in proportion to the sockets.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        Charges::are_balanced(self.endpoints.iter(), &self.ledger)
    }
}
