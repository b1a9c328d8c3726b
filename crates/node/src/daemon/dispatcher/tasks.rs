//! Tasks: work that may be long, in steps. A step has a bounded number of items, is charged to the user who caused the
//! task, and is followed by a step of each other user with work ([`utipc_core::shares::Shares`]). The first step of a
//! task runs at once, so that a small one is done in the turn in which it begins. A request is answered when its task
//! is done.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Reply};
use utipc_core::Time;
use utipc_core::group::Group;
use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::Endpoint;
use utipc_lanes::daemon::Work;
use utipc_os::many::Many;

use super::lane_tasks::Then;
use super::requests::Done;
use super::{Answer, Dispatcher, Job};
use crate::daemon::attachments::{AttachmentId, Outgoing};
use crate::daemon::descriptors::NearEnd;
use crate::daemon::inheritance::InheritanceId;
use crate::daemon::quotas::{self, INHERITED_SOCKET};
use crate::daemon::sockets::Holder;

/// Items of one step: a socket is one, each of its bindings one, each of its lanes [`LANE_ITEMS`]; members of its group
/// and messages that it has not read count too. Our choice: about 0.1 ms. The sockets of a step end together: all names
/// go before the first message goes back, and all messages before the first connection ends.
pub(super) const STEP_ITEMS: usize = 64;

/// Members of a group that a socket forgets in the time of an item.
const ITEM_MEMBERS: usize = 16;

/// Bytes of messages that the end of a socket frees in the time of an item.
const ITEM_BYTES: u64 = 16 << 10;

/// Items of a lane: what is unread in it is read or returned.
const LANE_ITEMS: usize = 16;

/// A task in progress.
#[derive(Debug)]
pub(super) enum Task {
    /// A holder is gone, and leaves these sockets.
    Left {
        holder: Holder,
        ports: Many<u32>,
        /// The process that has ended.
        process: Option<AttachmentId>,
    },
    /// A socket loses its bindings, and is closed then or not.
    Unbind {
        port: u32,
        closes: bool,
        /// The attachment that waits for the end.
        reply_to: Option<AttachmentId>,
    },
    /// A process is about to fork: its sockets become those of an inheritance too.
    Fork {
        id: AttachmentId,
        user: UserId,
        number: InheritanceId,
        near: OwnedFd,
        /// The last socket that was handled.
        after: u32,
    },
    /// Work on the lanes of sockets, the last one first; see `lane_tasks.rs`.
    Lanes { work: Vec<Work>, then: Then },
    /// A request about a socket is answered when its changes are announced to all sockets of this node.
    Announced { port: u32, id: AttachmentId, reply: Reply },
    /// A process claims the sockets of an inheritance.
    Inherit { id: AttachmentId, number: InheritanceId, after: u32, claimed: u32 },
}

impl Dispatcher {
    /// Begins a task of a user; true if it is done.
    pub(super) fn begin_task(&mut self, now: Time, user: UserId, task: Task) -> bool {
        let rest = self.run_task(now, task);
        let is_done = rest.is_none();
        self.shares_push(user, rest);
        is_done
    }

    /// Continues a task.
    pub(super) fn continue_task(&mut self, now: Time, user: UserId, task: Task) {
        let rest = self.run_task(now, task);
        self.shares_push(user, rest);
    }

    fn shares_push(&mut self, user: UserId, task: Option<Task>) {
        if let Some(task) = task {
            self.shares.push(user, Job::Task(task));
        }
    }

    /// Releases these sockets of a user for a holder that is gone.
    pub(super) fn release_left(
        &mut self,
        now: Time,
        user: UserId,
        ports: Many<u32>,
        (holder, process): (Holder, Option<AttachmentId>),
    ) {
        self.begin_task(now, user, Task::Left { holder, ports, process });
    }

    /// Closes a socket that its last holder has closed, or withdraws all its bindings (`closes` false). `reply_to` gets
    /// its reply when that is done.
    pub(super) fn begin_unbind(
        &mut self,
        now: Time,
        port: u32,
        closes: bool,
        reply_to: Option<AttachmentId>,
    ) {
        let user = self.owner_of(port);
        self.begin_task(now, user, Task::Unbind { port, closes, reply_to });
    }

    /// Answers a request that has changed a binding of a socket when all sockets of this node know it: a process cannot
    /// make changes faster than they are announced.
    pub(super) fn answer_when_told(&mut self, id: AttachmentId, port: u32, answer: &mut Answer) -> Done {
        if self.driver.stack.is_spreading(port) {
            let user = self.user(id)?;
            answer.comes_later = true;
            self.shares_push(user, Some(Task::Announced { port, id, reply: Reply::Done }));
        }
        Ok(Reply::Done)
    }

    /// As [`Self::begin_unbind`], for a request whose reply is `answer`.
    pub(super) fn unbind_all(
        &mut self,
        now: Time,
        port: u32,
        closes: bool,
        (id, answer): (AttachmentId, &mut Answer),
    ) {
        answer.comes_later = true;
        self.begin_unbind(now, port, closes, Some(id));
    }

    /// Ends all tasks: the daemon stops.
    pub(super) fn end_tasks(&mut self, now: Time) {
        while let Some((user, job)) = self.shares.take() {
            match job {
                // Nothing is left to announce.
                Job::Task(Task::Announced { .. }) => {}
                Job::Task(task) => self.continue_task(now, user, task),
                _ => {}
            }
        }
    }

    /// One step; returns what is left.
    pub(super) fn run_task(&mut self, now: Time, task: Task) -> Option<Task> {
        match task {
            Task::Left { holder, mut ports, process } => {
                let batch = self.next_batch(now, &mut ports, holder);
                if let Holder::Inheritance(number) = holder {
                    self.inheritances.release(self.driver.stack.ledger_mut(), number, batch.len());
                }
                let left = self.release_all(now, batch, holder);
                if !left.is_empty() {
                    let next = self.end_sockets(left, Some(Task::Left { holder, ports, process }));
                    return self.run_task(now, next);
                }
                if !ports.is_empty() {
                    return Some(Task::Left { holder, ports, process });
                }
                if let Holder::Inheritance(number) = holder {
                    self.inheritances.remove(self.driver.stack.ledger_mut(), number);
                }
                match process {
                    Some(process) => self.step_lanes(now, vec![Work::forget(process)], Then::Forgotten),
                    None => None,
                }
            }
            Task::Unbind { port, closes, reply_to } => {
                if self.sockets.bindings(port) > STEP_ITEMS {
                    self.unbind_some(now, port);
                    return Some(Task::Unbind { port, closes, reply_to });
                }
                if closes && self.sockets.contains(port) {
                    self.close_socket(now, port, reply_to);
                    return None;
                }
                if self.sockets.contains(port) {
                    // A socket without bindings has none to withdraw.
                    let _ = self.driver.stack.unbind(now, port, None);
                    self.sockets.remove_bindings(port, true);
                }
                if let Some(to) = reply_to {
                    self.reply_later(to, Reply::Done, Vec::new());
                }
                None
            }
            Task::Fork { id, user, number, near, after } => {
                let ports = self.sockets.ports_after(id, after, STEP_ITEMS / LANE_ITEMS);
                for port in &ports {
                    if let Err(failure) = self.hand_over((user, *port), number) {
                        // The inheritance ends with its descriptor.
                        drop(near);
                        self.reply_later(id, Reply::Failed(failure), Vec::new());
                        return None;
                    }
                }
                match ports.last() {
                    Some(after) => {
                        let next = Task::Fork { id, user, number, near, after: *after };
                        let work = ports.iter().map(|port| Work::share(*port)).collect();
                        self.step_lanes(now, work, Then::Task(Box::new(next)))
                    }
                    None => {
                        self.attachments.forget_lanes_to_read(id);
                        self.reply_later(id, Reply::Number(number), vec![near]);
                        None
                    }
                }
            }
            Task::Lanes { work, then } => self.step_lanes(now, work, then),
            Task::Announced { port, id, reply } => {
                if self.driver.stack.is_spreading(port) {
                    return Some(Task::Announced { port, id, reply });
                }
                self.reply_later(id, reply, Vec::new());
                None
            }
            Task::Inherit { id, number, after, mut claimed } => {
                let ports = self.inheritances.ports_after(number, after, STEP_ITEMS);
                let last = ports.last().copied();
                for port in ports {
                    if !self.sockets.contains(port) {
                        continue;
                    }
                    if let Err(failure) = self.check_socket_limit(id, 1) {
                        self.reply_later(id, Reply::Failed(failure), Vec::new());
                        return None;
                    }
                    if !self.sockets.is_held_by(port, id) {
                        self.sockets.join(port, id);
                    }
                    claimed += 1;
                }
                match last {
                    Some(after) => Some(Task::Inherit { id, number, after, claimed }),
                    None => {
                        self.reply_later(id, Reply::Number(claimed), Vec::new());
                        None
                    }
                }
            }
        }
    }

    /// Adds a socket to an inheritance.
    fn hand_over(&mut self, (user, port): (UserId, u32), number: InheritanceId) -> Result<(), Failure> {
        let ledger = self.driver.stack.ledger_mut();
        if let Err(exceeded) = ledger.try_charge(user, Resource::Memory, INHERITED_SOCKET) {
            return Err(quotas::refuse(ledger, exceeded));
        }
        if !self.inheritances.add(number, port) {
            ledger.release(user, Resource::Memory, INHERITED_SOCKET);
            return Err(Failure::State);
        }
        self.sockets.add_inheritance(port, number);
        Ok(())
    }

    /// Sends a delayed reply.
    pub(super) fn reply_later(&mut self, to: AttachmentId, reply: Reply, fds: Vec<OwnedFd>) {
        self.replies.push(Outgoing { to, reply, payload: Vec::new(), fds });
    }

    /// Takes the sockets that end next. A socket with more bindings than items are left loses some of them, and stays.
    fn next_batch(&mut self, now: Time, ports: &mut Many<u32>, holder: Holder) -> Vec<u32> {
        let (mut batch, mut items) = (Vec::new(), STEP_ITEMS);
        while items > 0
            && let Some(port) = ports.first()
        {
            let bindings = self.sockets.bindings(port);
            let ends = self.sockets.is_last(port, holder)
                && matches!(self.descriptors.near_end(port), NearEnd::Closed);
            if ends && bindings > items {
                self.unbind_some(now, port);
                break;
            }
            let endpoint = self.driver.stack.endpoint(port);
            let members = endpoint.and_then(Endpoint::group).map_or(0, Group::member_count);
            let unread = endpoint.map_or(0, |endpoint| endpoint.memory() / ITEM_BYTES) as usize;
            let ended = if ends { bindings + members / ITEM_MEMBERS + unread } else { 0 };
            let cost = 1 + LANE_ITEMS * self.lanes.count_of(port) + ended;
            items = items.saturating_sub(cost);
            batch.push(port);
            ports.remove(&port);
        }
        batch
    }

    /// Withdraws the newest bindings of a socket, as many as one step may.
    fn unbind_some(&mut self, now: Time, port: u32) {
        let stack = &mut self.driver.stack;
        let newest: Vec<_> = stack.bindings_of(port).take(STEP_ITEMS).map(|b| (b.range, b.scope)).collect();
        for which in newest {
            // It was in the list.
            let _ = stack.unbind(now, port, Some(which));
            self.sockets.remove_bindings(port, false);
        }
    }
}
