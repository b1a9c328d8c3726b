//! How sockets, their bindings and their holders come and go.

use utipc_attach::{Failure, Notice, Reply};
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::SocketKind;
use utipc_lanes::daemon::{SocketEnd, is_datagram};
use utipc_os::fdpass::{Channel, Peer};
use utipc_os::many::Many;

use super::{Done, Sockets, limit};
use crate::daemon::attachments::{AttachmentId, EndReason, Handshake};
use crate::daemon::descriptors::NearEnd;
use crate::daemon::holders::{Holder, Release};
use crate::daemon::inheritance::InheritanceId;

impl Sockets {
    /// Adds a process that has connected; false if the system refuses that.
    pub(crate) fn connect(&mut self, id: AttachmentId, channel: Channel, peer: Peer) -> bool {
        self.attachments.add(&mut self.reactors, id, channel, peer)
    }

    /// Adds a process that has completed the handshake, and answers it.
    pub(crate) fn add_process(
        &mut self,
        id: AttachmentId,
        handshake: Handshake,
        answer: &[u8],
    ) -> Result<(), EndReason> {
        let takes_lanes = handshake.hello.takes_lanes;
        let user = self.user(id).map_err(|_| EndReason::Closed)?;
        self.attachments.serve(&mut self.reactors, id, handshake, answer)?;
        self.driver.stack.ledger_mut().charge(user, Resource::Processes, 1);
        self.holders.add_process(id);
        self.lanes.add_process(id, takes_lanes);
        Ok(())
    }

    /// Removes a process that is gone: its user and, if it had completed the handshake, the sockets that it held, which
    /// the caller releases.
    pub(crate) fn end_process(
        &mut self,
        id: AttachmentId,
        reason: EndReason,
    ) -> Option<(UserId, Option<Many<u32>>)> {
        let user = self.user(id).ok()?;
        let was_served = self.attachments.end(&mut self.reactors, id, reason)?;
        if was_served {
            self.driver.stack.ledger_mut().release(user, Resource::Processes, 1);
        }
        self.lanes.remove_process(id);
        self.driver.captures.end_of(id);
        Some((user, was_served.then(|| self.holders.remove_process(id))))
    }

    /// Checks that the attachment may hold one more socket.
    pub(crate) fn check_limit(&self, id: AttachmentId) -> Result<(), Failure> {
        let most = self.limits.sockets_per_attachment;
        if self.holders.count_of(id) < most {
            return Ok(());
        }
        Err(limit(format!(
            "{most} sockets of one process (close some, or raise `limits.sockets_per_process`)"
        )))
    }

    /// Checks that the attachment, and its user, may have one more socket.
    pub(super) fn check_new(&mut self, id: AttachmentId) -> Result<(), Failure> {
        self.check_limit(id)?;
        let user = self.user(id)?;
        self.check_quota(user, Resource::Sockets, 1)
    }

    /// Assigns a new socket to an attachment; its user is charged for it, also when others hold it later.
    pub(super) fn add(&mut self, id: AttachmentId, port: u32) {
        if let Ok(user) = self.user(id) {
            self.driver.stack.set_user(port, user);
        }
        let seen = self.readiness(port);
        self.holders.add(port, id, seen);
        self.lanes.add_socket(port, id);
    }

    pub(crate) fn open(&mut self, id: AttachmentId, kind: SocketKind) -> Done {
        self.check_new(id)?;
        let port = self.driver.stack.open(self.now, kind).map_err(limit)?;
        self.add(id, port);
        Ok(Reply::Opened { port })
    }

    /// Whether a socket is in a group.
    pub(crate) fn in_group(&self, port: u32) -> bool {
        self.driver.stack.endpoint(port).is_some_and(|endpoint| endpoint.group().is_some())
    }

    /// Checks that the limits allow one more binding of a socket.
    pub(crate) fn check_binding(&mut self, id: AttachmentId, port: u32) -> Result<(), Failure> {
        let owner = self.holders.owner(port).unwrap_or(id);
        let most = self.limits.bindings_per_attachment;
        if self.holders.bindings_of(owner) >= most {
            return Err(limit(format!(
                "{most} bindings of one process (withdraw some, or raise `limits.bindings_per_process`)"
            )));
        }
        match self.driver.stack.user_of(port) {
            Some(user) => self.check_quota(user, Resource::Bindings, 1),
            None => Ok(()),
        }
    }

    pub(crate) fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<(), Failure> {
        self.driver.stack.bind(self.now, port, range, scope).map_err(Failure::Bind)?;
        self.holders.add_binding(port);
        Ok(())
    }

    /// Withdraws one binding of a socket, or all.
    pub(crate) fn unbind(&mut self, port: u32, which: Option<(ServiceRange, Scope)>) -> Result<(), Failure> {
        self.driver.stack.unbind(self.now, port, which).map_err(Failure::Bind)?;
        self.holders.remove_bindings(port, which.is_none());
        Ok(())
    }

    /// Withdraws the newest bindings of a socket, this many at most.
    pub(crate) fn unbind_some(&mut self, port: u32, most: usize) {
        let stack = &mut self.driver.stack;
        let newest: Vec<_> = stack.bindings_of(port).take(most).map(|b| (b.range, b.scope)).collect();
        for which in newest {
            // It was in the list.
            let _ = stack.unbind(self.now, port, Some(which));
            self.holders.remove_bindings(port, false);
        }
    }

    /// Withdraws the bindings that a socket still has.
    pub(crate) fn unbind_rest(&mut self, port: u32) {
        // A socket without bindings has none to withdraw.
        let _ = self.driver.stack.unbind(self.now, port, None);
        self.holders.remove_bindings(port, true);
    }

    /// Joins a group.
    pub(crate) fn join_group(
        &mut self,
        port: u32,
        request: GroupRequest,
        policy: GroupPolicy,
    ) -> Result<(), Failure> {
        self.driver.stack.join_with(self.now, port, request, policy).map_err(Failure::Join)?;
        self.holders.add_binding(port);
        Ok(())
    }

    /// Leaves the group of a socket whose lanes have ended.
    pub(crate) fn leave_group(&mut self, port: u32) -> Done {
        self.driver.stack.leave(self.now, port).map_err(Failure::Leave)?;
        self.holders.remove_bindings(port, false);
        Ok(Reply::Done)
    }

    /// Opens lanes to the members of a socket's group.
    pub(crate) fn open_group_lanes(&mut self, id: AttachmentId, port: u32) -> Done {
        if !self.holders.is_sole(port) {
            return Err(Failure::State);
        }
        let (reply, others) = self.with_lanes(|lanes, context| lanes.want_for_group(context, id, port));
        for other in others {
            self.report_group(other);
        }
        reply
    }

    /// Shuts down the connection of a socket whose lanes have ended.
    pub(crate) fn shut_down(&mut self, port: u32) -> Done {
        if self.lanes.has_unsent(port) && !is_datagram(&self.driver.stack, port) {
            self.with_lanes(|lanes, context| lanes.end_socket(context, port, SocketEnd::Shutdown));
            return Ok(Reply::Done);
        }
        self.driver.stack.shutdown(self.now, port).map_err(Failure::Call).map(|()| Reply::Done)
    }

    /// Adds a holder.
    pub(crate) fn join(&mut self, port: u32, id: AttachmentId) {
        self.holders.join(port, id);
    }

    /// An inheritance holds a socket too.
    pub(crate) fn add_inheritance(&mut self, port: u32, id: InheritanceId) {
        self.holders.add_inheritance(port, id);
    }

    /// A process that has the descriptor of a socket becomes a holder; true if the socket's lanes have to end.
    pub(crate) fn claim(&mut self, port: u32, id: AttachmentId) -> bool {
        self.orphans.remove(port);
        if self.holders.join(port, id)
            && self.lanes.is_direct(port)
            && let Some(owner) = self.holders.owner(port)
        {
            // The owner has not noticed that its program passed the descriptor on; otherwise it would have
            // returned its lanes.
            self.attachments.notify(owner, Notice::Share { port });
            return true;
        }
        false
    }

    /// Releases a socket for one holder; false if it was the last one.
    pub(crate) fn release(&mut self, port: u32, holder: Holder) -> bool {
        match self.holders.release(port, holder) {
            Release::Unknown | Release::Last => return false,
            Release::Sole(owner) if self.lanes.takes_lanes(owner) && !self.lanes.is_direct(port) => {
                self.attachments.notify(owner, Notice::SoleHolder { port });
            }
            Release::Sole(_) | Release::Shared => {}
        }
        true
    }

    /// Orphans a socket without holders if a process may have its descriptor; its lanes end then. False if not.
    pub(crate) fn orphan(&mut self, port: u32) -> bool {
        match self.descriptors.near_end(port) {
            NearEnd::Closed => return false,
            NearEnd::Open => {}
            NearEnd::HungUp => self.orphans.add(self.now, port),
        }
        self.holders.disown(port);
        true
    }

    /// An orphaned socket that no process has claimed in time.
    pub(crate) fn next_expired(&mut self) -> Option<u32> {
        self.orphans.expire(self.now)
    }

    /// Whether a socket ends without this holder: it is the last one, and no process may have the descriptor.
    pub(crate) fn ends_without(&mut self, port: u32, holder: Holder) -> bool {
        self.holders.is_last(port, holder) && matches!(self.descriptors.near_end(port), NearEnd::Closed)
    }

    /// From now on no process reaches the socket; it stays until its lanes have ended.
    pub(crate) fn forget(&mut self, port: u32) {
        self.close_descriptor(port);
        self.ending += usize::from(self.holders.contains(port));
        self.holders.remove(port);
        self.orphans.remove(port);
    }

    /// Closes a forgotten socket whose lanes have ended.
    pub(crate) fn close(&mut self, port: u32) {
        self.end_lanes(&[port]);
        self.with_lanes(|lanes, context| lanes.end_socket(context, port, SocketEnd::Close));
    }

    /// Closes forgotten sockets whose lanes have ended: all names go before the first message goes back, and all
    /// messages before the first connection ends.
    pub(crate) fn close_all(&mut self, ports: &[u32]) {
        self.end_lanes(ports);
        let (later, ports): (Vec<u32>, Vec<u32>) =
            ports.iter().partition(|port| self.lanes.has_unsent(**port));
        for port in later {
            // A socket without bindings has none to withdraw.
            let _ = self.driver.stack.unbind(self.now, port, None);
            self.with_lanes(|lanes, context| lanes.end_socket(context, port, SocketEnd::Close));
        }
        self.driver.stack.close_all(self.now, &ports);
    }

    fn end_lanes(&mut self, ports: &[u32]) {
        self.ending = self.ending.saturating_sub(ports.len());
        for large in ports.iter().filter_map(|port| self.lanes.remove_socket(*port)) {
            self.reclaim.drop_later(large);
        }
    }
}
