//! The end of sockets: their last holder has closed them, has ended, or has not come in time.

use utipc_core::group::Group;
use utipc_core::socket::Endpoint;
use utipc_lanes::daemon::{EndCause, Work};
use utipc_os::many::Many;

use super::{LANE_ITEMS, STEP_ITEMS, Task, Tasks, Then};
use crate::daemon::attachments::{AttachmentId, EndReason};
use crate::daemon::holders::Holder;
use crate::daemon::sockets::Sockets;

/// Members of a group that a socket forgets in the time of an item.
const ITEM_MEMBERS: usize = 16;

/// Bytes of messages that the end of a socket frees in the time of an item.
const ITEM_BYTES: u64 = 16 << 10;

/// Maximum number of orphaned sockets that end in one turn.
const ORPHANS_PER_TURN: usize = 64;

impl Tasks {
    /// Frees everything that only the process of an attachment held, which has ended for any reason. Lanes are frozen
    /// and read out first; then bindings are withdrawn, unread messages go back and connections end; subscribers learn
    /// it last ([`utipc_core::stack::Stack::close_all`]).
    pub(crate) fn end_process(&mut self, sockets: &mut Sockets, id: AttachmentId, reason: EndReason) {
        let Some((user, held)) = sockets.end_process(id, reason) else { return };
        let task = match held {
            Some(ports) => {
                self.leaving += 1;
                Task::Left { holder: Holder::Process(id), ports, process: Some(id) }
            }
            None => Task::lanes(Work::forget(id), Then::Nothing),
        };
        self.begin(sockets, user, task);
        debug_assert!(sockets.stack().ledger().is_balanced());
    }

    /// Closes a socket that its last holder has closed, or withdraws all its bindings (`closes` false). `reply_to` gets
    /// its reply when that is done.
    pub(crate) fn unbind(
        &mut self,
        sockets: &mut Sockets,
        port: u32,
        closes: bool,
        reply_to: Option<AttachmentId>,
    ) {
        let user = sockets.owner_of(port);
        self.begin(sockets, user, Task::Unbind { port, closes, reply_to });
    }

    /// Handles a descriptor whose near end was closed.
    pub(crate) fn end_closed(&mut self, sockets: &mut Sockets, port: u32) {
        if sockets.end_descriptor(port) {
            self.unbind(sockets, port, true, None);
        }
    }

    /// Ends orphaned sockets that no process has claimed in time.
    pub(crate) fn expire_orphans(&mut self, sockets: &mut Sockets) {
        for _ in 0..ORPHANS_PER_TURN {
            let Some(port) = sockets.next_expired() else { return };
            let (user, task) = (sockets.owner_of(port), end_sockets(sockets, vec![port], None));
            self.begin(sockets, user, task);
        }
    }

    /// Releases a socket for one holder; false if it was the last one: then the caller ends the socket.
    pub(crate) fn release(&mut self, sockets: &mut Sockets, port: u32, holder: Holder) -> bool {
        if sockets.release(port, holder) {
            return true;
        }
        let is_orphaned = sockets.orphan(port);
        if is_orphaned {
            let user = sockets.owner_of(port);
            self.begin(sockets, user, Task::lanes(Work::share(port), Then::Nothing));
        }
        is_orphaned
    }

    /// Releases some sockets for a holder that is gone, and ends those without other holders.
    pub(super) fn step_left(
        &mut self,
        sockets: &mut Sockets,
        (holder, process): (Holder, Option<AttachmentId>),
        mut ports: Many<u32>,
    ) -> Option<Task> {
        let batch = next_batch(sockets, &mut ports, holder);
        if let Holder::Inheritance(number) = holder {
            self.inheritances.release(sockets.stack_mut().ledger_mut(), number, batch.len());
        }
        let mut left = batch;
        left.retain(|port| sockets.holders().contains(*port) && !self.release(sockets, *port, holder));
        if !left.is_empty() {
            let next = end_sockets(sockets, left, Some(Task::Left { holder, ports, process }));
            return self.step(sockets, next);
        }
        if !ports.is_empty() {
            return Some(Task::Left { holder, ports, process });
        }
        if let Holder::Inheritance(number) = holder {
            self.inheritances.remove(sockets.stack_mut().ledger_mut(), number);
        }
        self.step_lanes(sockets, vec![Work::forget(process?)], Then::Forgotten)
    }

    /// Closes a socket that its last holder has closed.
    pub(super) fn close_socket(&mut self, sockets: &mut Sockets, port: u32, reply_to: Option<AttachmentId>) {
        let user = sockets.owner_of(port);
        sockets.forget(port);
        let work = Work::end(port, EndCause::Closed);
        self.begin(sockets, user, Task::lanes(work, Then::Close(port, reply_to)));
    }
}

/// Ends the lanes of sockets without holders, then the sockets, then continues with another task. No process reaches
/// them.
fn end_sockets(sockets: &mut Sockets, ports: Vec<u32>, next: Option<Task>) -> Task {
    for port in &ports {
        sockets.forget(*port);
    }
    let work = ports.iter().map(|port| Work::end(*port, EndCause::Dead)).collect();
    Task::Lanes { work, then: Then::CloseAll(ports, next.map(Box::new)) }
}

/// Takes the sockets that end next. A socket with more bindings than items are left loses some of them, and stays.
fn next_batch(sockets: &mut Sockets, ports: &mut Many<u32>, holder: Holder) -> Vec<u32> {
    let (mut batch, mut items) = (Vec::new(), STEP_ITEMS);
    while items > 0
        && let Some(port) = ports.first()
    {
        let bindings = sockets.holders().bindings(port);
        let ends = sockets.ends_without(port, holder);
        if ends && bindings > items {
            sockets.unbind_some(port, STEP_ITEMS);
            break;
        }
        let endpoint = sockets.stack().endpoint(port);
        let members = endpoint.and_then(Endpoint::group).map_or(0, Group::member_count);
        let unread = endpoint.map_or(0, |endpoint| endpoint.memory() / ITEM_BYTES) as usize;
        let ended = if ends { bindings + members / ITEM_MEMBERS + unread } else { 0 };
        let cost = 1 + LANE_ITEMS * sockets.lanes().count_of(port) + ended;
        items = items.saturating_sub(cost);
        batch.push(port);
        ports.remove(&port);
    }
    batch
}
