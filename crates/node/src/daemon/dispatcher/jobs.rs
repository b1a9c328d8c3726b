//! The jobs of users, each of which is a bounded step in the user's turn.

use utipc_attach::{PairId, Request, decode};
use utipc_core::Time;
use utipc_core::quota::UserId;
use utipc_os::reactor::Event as Ready;

use super::Dispatcher;
use crate::daemon::attachments::{AttachmentId, EndReason};
use crate::daemon::requests::Waiting;
use crate::daemon::sockets::SocketJob;
use crate::daemon::tasks::Task;
use crate::daemon::token;
use crate::daemon::turns::Handler;

/// A job of a user.
#[derive(Debug)]
pub(super) enum Job {
    /// Read events of its descriptors.
    Poll,
    /// Handle one of these events.
    Event(Ready),
    /// All that were read are handled.
    EndPoll,
    /// Handle the close of a socket's descriptor.
    Closed(u32),
    /// Continue with its sockets.
    Sockets(SocketJob),
    /// Continue with a request of its process.
    Request(Waiting),
    /// Continue a task.
    Task(Task),
}

impl Job {
    /// The handler that its time counts for, and the attachment that it is of.
    fn handler(&self) -> (Handler, AttachmentId) {
        match self {
            Self::Poll | Self::EndPoll => (Handler::Requests, 0),
            Self::Event(event) => {
                let id = token::number(event.token);
                match event.token & token::KIND {
                    token::ATTACHMENT => (Handler::Requests, id),
                    token::PROCESS => (Handler::Ends, id),
                    token::LANES => (Handler::Lanes, 0),
                    _ => (Handler::Ends, 0),
                }
            }
            Self::Sockets(SocketJob::HangUp) | Self::Closed(_) | Self::Task(_) => (Handler::Releases, 0),
            Self::Sockets(SocketJob::Spread(_)) => (Handler::Spreads, 0),
            Self::Sockets(SocketJob::Subscriber(_)) => (Handler::Subscribers, 0),
            Self::Sockets(SocketJob::Lanes(_)) => (Handler::Lanes, 0),
            Self::Request(waiting) => (Handler::Requests, waiting.id()),
        }
    }

    /// Whether it may be the last job of a user whose processes have ended.
    pub(super) fn may_be_last(&self) -> bool {
        matches!(self, Self::Task(_) | Self::Sockets(SocketJob::Spread(_) | SocketJob::Subscriber(_)))
    }
}

impl Dispatcher {
    /// Does a job. `at`: the exact time, for the meter.
    pub(super) fn run_job(&mut self, at: Time, user: UserId, job: Job) {
        let (handler, attachment) = job.handler();
        self.turns.enter(at, handler, attachment);
        match job {
            Job::Poll => {
                let mut events = std::mem::take(&mut self.events);
                self.sockets.reactors_mut().poll(user, &mut events);
                events.drain(..).for_each(|event| self.shares.push(user, Job::Event(event)));
                self.shares.push(user, Job::EndPoll);
                self.events = events;
            }
            Job::Event(event) => self.handle_event(&event),
            Job::EndPoll => self.sockets.reactors_mut().end_poll(user),
            Job::Closed(port) => self.tasks.end_closed(&mut self.sockets, port),
            Job::Sockets(job) => {
                if let Some(rest) = self.sockets.run(user, job) {
                    self.shares.push(user, Job::Sockets(rest));
                }
            }
            Job::Request(mut waiting) => {
                if waiting.step(&mut self.sockets) {
                    self.shares.push(user, Job::Request(waiting));
                } else if let Ok((request, payload)) = decode::<Request>(waiting.packet()) {
                    self.carry_out(waiting.id(), request, payload, &mut None);
                }
            }
            Job::Task(task) => self.continue_task(user, task),
        }
    }

    fn continue_task(&mut self, user: UserId, task: Task) {
        if let Some(rest) = self.tasks.step(&mut self.sockets, task) {
            self.shares.push(user, Job::Task(rest));
        }
    }

    fn handle_event(&mut self, event: &Ready) {
        let id = token::number(event.token);
        match event.token & token::KIND {
            token::ATTACHMENT => self.serve(id),
            token::PROCESS => self.sockets.attachments_mut().end_later(id, EndReason::Died),
            token::DESCRIPTORS => self.sockets.collect_closed(UserId(id)),
            token::LANES => self.sockets.serve_pair(PairId(id)),
            token::INHERITANCE => self.tasks.end_inheritance(&mut self.sockets, id),
            _ => {}
        }
    }

    /// Gives users the jobs that have come up.
    pub(super) fn collect_jobs(&mut self) {
        while let Some((user, job)) = self.sockets.next_job() {
            self.shares.push(user, Job::Sockets(job));
        }
        while let Some((user, port)) = self.sockets.next_closed() {
            self.shares.push(user, Job::Closed(port));
        }
        while let Some((user, waiting)) = self.requests.next_waiting() {
            self.shares.push(user, Job::Request(waiting));
        }
        while let Some((user, task)) = self.tasks.next_begun() {
            self.shares.push(user, Job::Task(task));
        }
    }

    /// Ends all tasks: the daemon stops.
    pub(super) fn end_tasks(&mut self) {
        self.collect_jobs();
        while let Some((user, job)) = self.shares.take() {
            match job {
                // Nothing is left to announce.
                Job::Task(Task::Announced { .. }) => {}
                Job::Task(task) => self.continue_task(user, task),
                _ => {}
            }
            self.collect_jobs();
        }
    }
}
