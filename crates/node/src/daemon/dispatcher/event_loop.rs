//! The event loop: a turn does the users' jobs, one user after the other, reads frames, handles timers, then sends
//! frames, replies and notices and rings doorbells. The order ensures that a reply is never sent before the change that
//! it reports.

use utipc_attach::PairId;
use utipc_core::Time;
use utipc_core::quota::UserId;
use utipc_core::timers::{Timer, Timers};
use utipc_os::reactor::Event as Ready;
use utipc_os::{clock, heap};

use super::Dispatcher;
use super::jobs::Job;
use crate::daemon::attachments::{AttachmentId, EndReason};
use crate::daemon::memory::Portion;
use crate::daemon::token;
use crate::daemon::turns::{Handler, LongTurn, LongestTurn};
use crate::driver::now;

/// The timers of a daemon, beside those of its node.
const TIMERS: Timers<Dispatcher> = Timers(&[
    Timer { due: |it, _| it.admission.deadline(), handle: Dispatcher::expire_handshakes },
    Timer {
        due: |it, now| it.sockets.attachments().deadline(now),
        handle: |it, _| it.sockets.attachments_mut().send_delayed(),
    },
    Timer {
        due: |it, _| it.sockets.lanes().deadline(),
        handle: |it, _| it.sockets.with_lanes(|lanes, context| lanes.handle_timeout(context)),
    },
    Timer {
        due: |it, _| it.sockets.orphan_deadline(),
        handle: |it, _| it.tasks.expire_orphans(&mut it.sockets),
    },
    Timer { due: |it, _| it.trim.deadline(), handle: Dispatcher::give_memory_back },
    // The end of each turn serves them.
    Timer { due: |it, _| it.sockets.capture_deadline(), handle: |_, _| {} },
]);

impl Dispatcher {
    /// Runs until an order stops it.
    pub(crate) fn run(&mut self) {
        let mut events = Vec::new();
        self.sockets.set_now(now());
        self.finish_turn();
        while !self.stop {
            let waited = self.wait(&mut events);
            let time = now();
            self.sockets.set_now(time);
            self.turns.begin(time, clock::thread_cpu_ns);
            if waited.unwrap_or(true) {
                self.carry_out_orders();
            }
            self.note_events(&events);
            self.run_jobs();
            self.enter(Handler::Frames, 0);
            // Without an event loop every bearer is read.
            self.receive_frames(time, waited.is_some().then_some(&*events));
            self.enter(Handler::Timers, 0);
            self.sockets.driver_mut().handle_timeout(time);
            self.enter(Handler::Deadlines, 0);
            TIMERS.handle(self, time);
            self.finish_turn();
            self.end_turn();
        }
        self.sockets.set_now(now());
        self.leave();
    }

    /// Waits for events, unless there are jobs; returns whether there may be orders, `None` if the wait failed.
    fn wait(&mut self, events: &mut Vec<Ready>) -> Option<bool> {
        let time = now();
        self.sockets.set_now(time);
        let has_more = !self.shares.is_empty() || self.sockets.has_work();
        let until = if has_more { time } else { TIMERS.deadline(self, time) };
        self.sockets.wait(until, events)
    }

    /// Continues with the messages of peers that earlier turns have left, then reads frames.
    fn receive_frames(&mut self, time: Time, events: Option<&[Ready]>) {
        let driver = self.sockets.driver_mut();
        driver.begin_turn(time);
        if driver.stack.has_work() {
            self.turns.note_cut();
        }
        match events {
            Some(events) => driver.receive(time, events),
            None => driver.receive_all(time),
        }
    }

    /// Accepts connections, and makes jobs of what users have to do.
    fn note_events(&mut self, events: &[Ready]) {
        for event in events {
            let id = token::number(event.token);
            match event.token & token::KIND {
                token::DOORWAY => {
                    self.enter(Handler::Admission, 0);
                    self.accept_processes();
                }
                token::USER if self.sockets.reactors_mut().note_ready(UserId(id)) => {
                    self.shares.push(UserId(id), Job::Poll);
                }
                // The last check before a wait found something.
                token::LANES => self.sockets.serve_pair(PairId(id)),
                // Bearers are read later.
                _ => {}
            }
        }
        self.enter(Handler::Lanes, 0);
        self.sockets.serve_awake();
        self.collect_jobs();
    }

    /// Runs jobs until their time in this turn is over, one user after the other; each is charged for its jobs.
    fn run_jobs(&mut self) {
        let mut at = now();
        while !self.turns.jobs_are_over(at)
            && let Some((user, job)) = self.shares.take()
        {
            let may_be_last = job.may_be_last();
            self.run_job(at, user, job);
            self.settle();
            let end = now();
            self.shares.charge(user, end.as_nanos().saturating_sub(at.as_nanos()));
            if may_be_last && !self.sockets.reactors_mut().contains(user) {
                // It has no processes: its debt is forgotten once its work is done.
                self.shares.forget(user);
            }
            at = end;
        }
        if !self.shares.is_empty() {
            self.turns.note_cut();
        }
    }

    /// Carries out what follows at once from a job, or from the frames and timers of a turn.
    fn settle(&mut self) {
        self.end_attachments();
        self.sockets.update_changed();
        self.collect_jobs();
    }

    /// Starts the time of this handler.
    fn enter(&mut self, handler: Handler, attachment: AttachmentId) {
        self.turns.enter(now(), handler, attachment);
    }

    fn end_turn(&mut self) {
        let Some(LongTurn { turn, cpu_micros, unlogged }) = self.turns.end(now(), clock::thread_cpu_ns)
        else {
            return;
        };
        let LongestTurn { micros, handler, handler_micros, attachment } = turn;
        let attachments = self.sockets.attachments();
        let program = attachments.program(attachment).unwrap_or("none").to_owned();
        let pid = attachments.peer(attachment).map_or(0, |peer| peer.pid);
        tracing::warn!(
            micros,
            cpu_micros,
            handler,
            handler_micros,
            attachment,
            pid,
            program,
            unlogged,
            "long turn: all programs and links waited (see `turns` in the counters)"
        );
    }

    /// Gives memory back to the system that processes have released.
    fn give_memory_back(&mut self, now: Time) {
        match self.trim.step(now, self.sockets.stack().ledger()) {
            Some(Portion::Tables(part)) => self.sockets.shrink(part),
            Some(Portion::Heap) => {
                self.sockets.attachments_mut().shrink();
                heap::trim_system();
            }
            None => {}
        }
    }

    /// The end of a turn: sends everything that the turn has caused.
    fn finish_turn(&mut self) {
        self.enter(Handler::Output, 0);
        loop {
            self.settle();
            self.sockets.flush();
            if !self.sockets.attachments().has_ended() {
                break;
            }
        }
        self.sockets.end_turn();
    }

    /// Leaves the cluster, and ends the connections of all processes.
    fn leave(&mut self) {
        self.sockets.attachments_mut().end_all(EndReason::Leaving);
        self.end_attachments();
        self.end_tasks();
        self.sockets.driver_mut().leave();
    }
}
