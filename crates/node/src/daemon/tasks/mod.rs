//! Tasks: work that may be long, in steps. A step has a bounded number of items, is charged to the user who caused the
//! task, and is followed by a step of each other user with work ([`utipc_core::shares::Shares`]). The first step of a
//! task runs at once, so that a small one is done in the turn in which it begins. A request is answered when its task
//! is done.
//!
//! | Question | File |
//! |---|---|
//! | How do sockets end that a holder has left? | `endings.rs` |
//! | What follows work on lanes? | `lane_work.rs` |
//! | How do sockets go to a forked process? | `forks.rs` |

mod endings;
mod forks;
mod lane_work;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use utipc_attach::Reply;
use utipc_core::quota::UserId;
use utipc_lanes::daemon::Work;
use utipc_os::disposal::Disposal;
use utipc_os::many::Many;

use super::attachments::AttachmentId;
use super::holders::Holder;
use super::inheritance::{InheritanceId, Inheritances};
use super::sockets::Sockets;

pub(super) use lane_work::Then;

/// Items of one step: a socket is one, each of its bindings one, each of its lanes [`LANE_ITEMS`]; members of its group
/// and messages that it has not read count too. Our choice: about 0.1 ms. The sockets of a step end together: all names
/// go before the first message goes back, and all messages before the first connection ends.
pub(super) const STEP_ITEMS: usize = 64;

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
    /// Work on the lanes of sockets, the last one first; see `lane_work.rs`.
    Lanes { work: Vec<Work>, then: Then },
    /// A request about a socket is answered when its changes are announced to all sockets of this node.
    Announced { port: u32, id: AttachmentId, reply: Reply },
    /// A process claims the sockets of an inheritance.
    Inherit { id: AttachmentId, number: InheritanceId, after: u32, claimed: u32 },
}

impl Task {
    /// Work on lanes, and what follows it.
    pub(super) fn lanes(work: Work, then: Then) -> Self {
        Self::Lanes { work: vec![work], then }
    }
}

/// The tasks that begin, and the inheritances of forked processes.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    inheritances: Inheritances,
    /// Processes that have ended and whose sockets and lanes are being freed.
    leaving: usize,
    /// Tasks that have begun and are not done, with their users.
    begun: VecDeque<(UserId, Task)>,
}

impl Tasks {
    pub(super) fn new(disposal: Disposal) -> Self {
        Self { inheritances: Inheritances::new(disposal), ..Self::default() }
    }

    /// Processes that have ended and whose sockets and lanes are being freed.
    pub(super) fn leaving(&self) -> usize {
        self.leaving
    }

    pub(super) fn inheritances(&self) -> usize {
        self.inheritances.len()
    }

    /// Begins a task of a user: its first step.
    pub(super) fn begin(&mut self, sockets: &mut Sockets, user: UserId, task: Task) {
        let rest = self.step(sockets, task);
        self.begun.extend(rest.map(|rest| (user, rest)));
    }

    /// A task that has begun and is not done, and its user.
    pub(super) fn next_begun(&mut self) -> Option<(UserId, Task)> {
        self.begun.pop_front()
    }

    /// One step; returns what is left.
    pub(super) fn step(&mut self, sockets: &mut Sockets, task: Task) -> Option<Task> {
        match task {
            Task::Left { holder, ports, process } => self.step_left(sockets, (holder, process), ports),
            Task::Unbind { port, closes, reply_to } => {
                if sockets.holders().bindings(port) > STEP_ITEMS {
                    sockets.unbind_some(port, STEP_ITEMS);
                    return Some(Task::Unbind { port, closes, reply_to });
                }
                if sockets.holders().contains(port) {
                    if closes {
                        self.close_socket(sockets, port, reply_to);
                        return None;
                    }
                    sockets.unbind_rest(port);
                }
                if let Some(to) = reply_to {
                    sockets.reply(to, Ok(Reply::Done));
                }
                None
            }
            Task::Fork { id, user, number, near, after } => {
                self.step_fork(sockets, (id, user), (number, near), after)
            }
            Task::Lanes { work, then } => self.step_lanes(sockets, work, then),
            Task::Announced { port, id, reply } => {
                if sockets.stack().is_spreading(port) {
                    return Some(Task::Announced { port, id, reply });
                }
                sockets.reply(id, Ok(reply));
                None
            }
            Task::Inherit { id, number, after, claimed } => {
                self.step_inherit(sockets, id, number, (after, claimed))
            }
        }
    }
}
