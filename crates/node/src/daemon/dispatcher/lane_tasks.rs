//! Work on the lanes of sockets, in steps, and what follows when it is done: the answer to a request, the end of
//! sockets, or another task.

use utipc_attach::{Failure, Reply, Request, SocketCall};
use utipc_core::Time;
use utipc_core::quota::UserId;
use utipc_core::socket::SocketOption;
use utipc_lanes::daemon::{EndCause, SocketEnd, Work, is_datagram};

use super::requests::Done;
use super::tasks::Task;
use super::{Answer, Dispatcher};
use crate::daemon::attachments::AttachmentId;

/// The continuation when work on lanes is done.
#[derive(Debug)]
pub(super) enum Then {
    /// Nothing.
    Nothing,
    /// A process that has ended counts no longer.
    Forgotten,
    /// A request of this attachment is answered.
    Reply(AttachmentId, Reply),
    /// The request to leave a group is carried out.
    Leave(AttachmentId, u32),
    /// The request to shut down a connection is carried out.
    ShutDown(AttachmentId, u32),
    /// The counted number is added to this one, which the attachment has asked for.
    Counted(AttachmentId, u32),
    /// The packet of this attachment, a request, is carried out.
    Execute(AttachmentId, Vec<u8>),
    /// The last holder has closed the socket; maybe an attachment waits for the end.
    Close(u32, Option<AttachmentId>),
    /// These sockets have lost their last holder.
    CloseAll(Vec<u32>, Option<Box<Task>>),
    /// Another task continues.
    Task(Box<Task>),
}

impl Dispatcher {
    /// Does work on lanes for a request, which is answered when it is done.
    pub(super) fn work_for_request(
        &mut self,
        now: Time,
        id: AttachmentId,
        (work, then): (Work, Then),
        answer: &mut Answer,
    ) -> Done {
        let user = self.user(id)?;
        answer.comes_later = true;
        self.begin_task(now, user, Task::Lanes { work: vec![work], then });
        Ok(Reply::Done)
    }

    /// The user who owns a socket.
    pub(super) fn owner_of(&self, port: u32) -> UserId {
        self.driver.stack.user_of(port).unwrap_or(UserId(self.rules.own_user()))
    }

    /// One step of work on lanes; returns what is left.
    pub(super) fn step_lanes(&mut self, now: Time, mut work: Vec<Work>, then: Then) -> Option<Task> {
        let counted = match work.last_mut() {
            None => 0,
            Some(last) => {
                if self.with_lanes(now, |lanes, context| lanes.step(context, last)) {
                    return Some(Task::Lanes { work, then });
                }
                last.counted()
            }
        };
        work.pop();
        if !work.is_empty() {
            return Some(Task::Lanes { work, then });
        }
        let (id, done) = match then {
            Then::Nothing => return None,
            Then::Forgotten => {
                self.leaving = self.leaving.saturating_sub(1);
                return None;
            }
            Then::Reply(id, reply) => (id, Ok(reply)),
            Then::Leave(id, port) => {
                let reply = self.leave_group(now, port).unwrap_or_else(Reply::Failed);
                return self.run_task(now, Task::Announced { port, id, reply });
            }
            Then::ShutDown(id, port) => (id, self.shut_down_endpoint(now, port)),
            Then::Counted(id, value) => (id, Ok(Reply::Number(value.saturating_add(counted)))),
            Then::Execute(id, packet) => {
                self.execute_begun(now, id, &packet, &mut None);
                return None;
            }
            Then::Close(port, reply_to) => {
                self.ending = self.ending.saturating_sub(1);
                self.remove_lanes_of(port);
                self.with_lanes(now, |lanes, context| lanes.end_socket(context, port, SocketEnd::Close));
                (reply_to?, Ok(Reply::Done))
            }
            Then::CloseAll(ports, next) => {
                self.close_all(now, &ports);
                return next.map(|next| *next);
            }
            Then::Task(next) => return Some(*next),
        };
        self.reply_later(id, done.unwrap_or_else(Reply::Failed), Vec::new());
        None
    }

    /// Leaves the group of a socket whose lanes have ended.
    pub(super) fn leave_group(&mut self, now: Time, port: u32) -> Done {
        self.driver.stack.leave(now, port).map_err(Failure::Leave)?;
        self.sockets.remove_bindings(port, false);
        Ok(Reply::Done)
    }

    /// Shuts down the connection of a socket whose lanes have ended.
    pub(super) fn shut_down_endpoint(&mut self, now: Time, port: u32) -> Done {
        if self.lanes.has_unsent(port) && !is_datagram(&self.driver.stack, port) {
            self.with_lanes(now, |lanes, context| lanes.end_socket(context, port, SocketEnd::Shutdown));
            return Ok(Reply::Done);
        }
        self.driver.stack.shutdown(now, port).map_err(Failure::Call).map(|()| Reply::Done)
    }

    fn remove_lanes_of(&mut self, port: u32) {
        if let Some(large) = self.lanes.remove_socket(port) {
            self.reclaim.drop_later(large);
        }
    }

    /// Closes sockets without holders whose lanes have ended.
    fn close_all(&mut self, now: Time, ports: &[u32]) {
        self.ending = self.ending.saturating_sub(ports.len());
        for port in ports {
            self.remove_lanes_of(*port);
        }
        let (later, ports): (Vec<u32>, Vec<u32>) =
            ports.iter().partition(|port| self.lanes.has_unsent(**port));
        for port in later {
            // A socket without bindings has none to withdraw.
            let _ = self.driver.stack.unbind(now, port, None);
            self.with_lanes(now, |lanes, context| lanes.end_socket(context, port, SocketEnd::Close));
        }
        self.driver.stack.close_all(now, &ports);
    }

    /// Ends the lanes of sockets without holders, then the sockets, then continues with another task. No process
    /// reaches them.
    pub(super) fn end_sockets(&mut self, ports: Vec<u32>, next: Option<Task>) -> Task {
        for port in &ports {
            self.forget_socket(*port);
        }
        let work = ports.iter().map(|port| Work::end(*port, EndCause::Dead)).collect();
        Task::Lanes { work, then: Then::CloseAll(ports, next.map(Box::new)) }
    }

    /// Closes a socket that its last holder has closed.
    pub(super) fn close_socket(&mut self, now: Time, port: u32, reply_to: Option<AttachmentId>) {
        let user = self.owner_of(port);
        self.forget_socket(port);
        let work = vec![Work::end(port, EndCause::Closed)];
        self.begin_task(now, user, Task::Lanes { work, then: Then::Close(port, reply_to) });
    }

    /// From now on no process reaches the socket; it stays until its lanes have ended.
    fn forget_socket(&mut self, port: u32) {
        self.close_descriptor(port);
        if self.sockets.contains(port) {
            self.ending += 1;
        }
        self.sockets.remove(port);
        self.orphans.remove(port);
    }

    /// Whether a request waits until what the process has written into the lane of its socket is carried out: options
    /// must not apply to it, and a message must not overtake it.
    pub(super) fn carries_out_first(
        &mut self,
        now: Time,
        id: AttachmentId,
        request: &Request,
        packet: &[u8],
    ) -> bool {
        let Request::Socket { port, call } = request else { return false };
        let port = *port;
        if !self.sockets.is_held_by(port, id) {
            return false;
        }
        let Ok(user) = self.user(id) else { return false };
        let follows_lane = match call {
            SocketCall::SetOption { .. } | SocketCall::Look => true,
            SocketCall::Send { .. } | SocketCall::SendFound { .. } => is_datagram(&self.driver.stack, port),
            _ => false,
        };
        if !follows_lane || !self.lanes.has_written(port) {
            return false;
        }
        let mut work = Work::carry(port);
        if !self.with_lanes(now, |lanes, context| lanes.step(context, &mut work)) {
            return false;
        }
        let task = Task::Lanes { work: vec![work], then: Then::Execute(id, packet.to_vec()) };
        self.begin_task(now, user, task);
        true
    }

    /// The value of an option that counts what waits, with what is in unopened lanes.
    pub(super) fn count_option(
        &mut self,
        now: Time,
        id: AttachmentId,
        (port, option, value): (u32, SocketOption, u32),
        answer: &mut Answer,
    ) -> Done {
        if !self.lanes.has_unopened(port) {
            return Ok(Reply::Number(value));
        }
        self.work_for_request(now, id, (Work::count(port, option), Then::Counted(id, value)), answer)
    }
}
