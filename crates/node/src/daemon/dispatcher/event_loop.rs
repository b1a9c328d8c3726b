//! The event loop: a turn does the users' jobs, one user after the other, reads frames, handles timers, then sends
//! frames, replies and notices and rings doorbells. The order ensures that a reply is never sent before the change that
//! it reports.

use std::time::Duration;

use utipc_attach::PairId;
use utipc_core::Time;
use utipc_core::quota::{Resource, UserId};
use utipc_core::timers::{Timer, Timers};
use utipc_lanes::daemon::Tapped;
use utipc_os::reactor::Event as Ready;
use utipc_os::{clock, heap};

use super::{Dispatcher, Job};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::counters::{DaemonCounters, EndReason};
use crate::daemon::memory::Portion;
use crate::daemon::orders::Order;
use crate::daemon::quotas;
use crate::daemon::token;
use crate::daemon::turns::{Handler, LongTurn, LongestTurn};
use crate::driver::now;

/// The handler of a user's event, and the attachment that it is of.
fn whose(event: &Ready) -> (Handler, AttachmentId) {
    let id = (event.token & u64::from(u32::MAX)) as u32;
    match event.token & token::KIND {
        token::ATTACHMENT => (Handler::Requests, id),
        token::PROCESS => (Handler::Ends, id),
        token::LANES => (Handler::Lanes, 0),
        _ => (Handler::Ends, 0),
    }
}

/// Interval at which captures read lanes, and retry a slow reader, milliseconds.
const CAPTURE_MS: u64 = 1;

/// The timers of a daemon, beside those of its node.
const TIMERS: Timers<Dispatcher> = Timers(&[
    Timer { due: |it, _| it.admission.deadline(), handle: Dispatcher::expire_handshakes },
    Timer { due: |it, now| it.attachments.deadline(now), handle: Dispatcher::send_delayed },
    Timer {
        due: |it, _| it.lanes.deadline(),
        handle: |it, now| it.with_lanes(now, |lanes, context| lanes.handle_timeout(context)),
    },
    Timer { due: |it, _| it.orphans.deadline(), handle: Dispatcher::expire_orphans },
    Timer { due: |it, _| it.trim.deadline(), handle: Dispatcher::give_memory_back },
    // The end of each turn serves them.
    Timer { due: Dispatcher::capture_deadline, handle: |_, _| {} },
]);

impl Dispatcher {
    /// Runs until an order stops it.
    pub(in crate::daemon) fn run(&mut self) {
        let mut events = Vec::new();
        self.finish_turn(now());
        while !self.stop {
            let waited = self.wait(&mut events);
            let time = now();
            self.turns.begin(time, clock::thread_cpu_ns);
            if waited.unwrap_or(true) {
                self.carry_out_orders(time);
            }
            self.note_events(time, &events);
            self.run_jobs(time);
            self.enter(Handler::Frames, 0);
            // Without an event loop every bearer is read.
            self.receive_frames(time, waited.is_some().then_some(&*events));
            self.enter(Handler::Timers, 0);
            self.driver.handle_timeout(time);
            self.enter(Handler::Deadlines, 0);
            TIMERS.handle(self, time);
            self.finish_turn(time);
            self.end_turn();
        }
        self.leave(now());
    }

    /// Waits for events, unless there are jobs; returns whether there may be orders, `None` if the wait failed.
    fn wait(&mut self, events: &mut Vec<Ready>) -> Option<bool> {
        let time = now();
        let has_more = !self.shares.is_empty() || self.lanes.is_ringing() || self.driver.stack.has_work();
        let until = if has_more { time } else { TIMERS.deadline(self, time) };
        let mut pause = self.driver.pause(time, until);
        if self.driver.prepare_sleep() {
            pause = Some(Duration::ZERO);
        }
        self.lanes.wait(&mut self.reactors.main, pause, events).ok()
    }

    /// Continues with the messages of peers that earlier turns have left, then reads frames.
    fn receive_frames(&mut self, time: Time, events: Option<&[Ready]>) {
        self.driver.begin_turn(time);
        if self.driver.stack.has_work() {
            self.turns.note_cut();
        }
        match events {
            Some(events) => self.driver.receive(time, events),
            None => self.driver.receive_all(time),
        }
    }

    /// Accepts connections, and makes jobs of what users have to do.
    fn note_events(&mut self, now: Time, events: &[Ready]) {
        for event in events {
            let id = (event.token & u64::from(u32::MAX)) as u32;
            match event.token & token::KIND {
                token::DOORWAY => {
                    self.enter(Handler::Admission, 0);
                    self.accept_processes(now);
                }
                token::USER if self.reactors.note_ready(UserId(id)) => {
                    self.shares.push(UserId(id), Job::Poll)
                }
                // The last check before a wait found something.
                token::LANES => self.with_lanes(now, |lanes, context| lanes.serve(context, PairId(id))),
                // Bearers are read later.
                _ => {}
            }
        }
        self.enter(Handler::Lanes, 0);
        self.with_lanes(now, |lanes, context| {
            lanes.step_ring();
            lanes.serve_awake(context);
        });
    }

    /// Runs jobs until their time in this turn is over, one user after the other; each is charged for its jobs.
    fn run_jobs(&mut self, time: Time) {
        let mut at = now();
        while !self.turns.jobs_are_over(at)
            && let Some((user, job)) = self.shares.take()
        {
            self.run_job((time, at), user, job);
            self.settle(time);
            let end = now();
            self.shares.charge(user, end.as_nanos().saturating_sub(at.as_nanos()));
            at = end;
        }
        if !self.shares.is_empty() {
            self.turns.note_cut();
        }
    }

    /// `at`: the exact time, for the meter.
    fn run_job(&mut self, (time, at): (Time, Time), user: UserId, job: Job) {
        let (handler, attachment) = match &job {
            Job::Poll | Job::EndPoll => (Handler::Requests, 0),
            Job::Event(event) => whose(event),
            Job::CarryOut(_) | Job::Fill(_) | Job::Serve(_) | Job::Open(_) | Job::Resend(_) => {
                (Handler::Lanes, 0)
            }
            Job::Spread(_) => (Handler::Spreads, 0),
            Job::Subscriber(_) => (Handler::Subscribers, 0),
            Job::Closed(_) | Job::HangUp | Job::Task(_) => (Handler::Releases, 0),
        };
        self.turns.enter(at, handler, attachment);
        match job {
            Job::Poll => {
                let mut events = std::mem::take(&mut self.events);
                self.reactors.poll(user, &mut events);
                events.drain(..).for_each(|event| self.shares.push(user, Job::Event(event)));
                self.shares.push(user, Job::EndPoll);
                self.events = events;
            }
            Job::Event(event) => self.dispatch(time, &event),
            Job::EndPoll => self.reactors.end_poll(user),
            Job::CarryOut(port) => self.with_lanes(time, |lanes, context| lanes.carry_listed(context, port)),
            Job::Fill(port) => self.with_lanes(time, |lanes, context| lanes.fill(context, port)),
            Job::Serve(pair) => self.with_lanes(time, |lanes, context| lanes.serve_behind(context, pair)),
            Job::Open(port) => self.with_lanes(time, |lanes, context| lanes.open_more(context, port)),
            Job::Resend(port) => self.with_lanes(time, |lanes, context| lanes.resend(context, port)),
            Job::Closed(port) => self.end_closed(time, port),
            Job::HangUp => {
                if self.hang_up_some(time, user) {
                    self.shares.push(user, Job::HangUp);
                }
            }
            Job::Spread(origin) => {
                if self.continue_spread(time, origin) {
                    self.shares.push(user, Job::Spread(origin));
                } else {
                    self.forget_share(user);
                }
            }
            Job::Subscriber(work) => {
                if self.driver.stack.continue_subscriber(time, work) {
                    self.shares.push(user, Job::Subscriber(work));
                } else {
                    self.forget_share(user);
                }
            }
            Job::Task(task) => {
                self.continue_task(time, user, task);
                self.forget_share(user);
            }
        }
    }

    /// Forgets what a user without processes owes, once its work is done.
    fn forget_share(&mut self, user: UserId) {
        if !self.reactors.contains(user) {
            self.shares.forget(user);
        }
    }

    fn dispatch(&mut self, now: Time, event: &Ready) {
        let id = (event.token & u64::from(u32::MAX)) as u32;
        match event.token & token::KIND {
            token::ATTACHMENT => self.serve(now, id),
            token::PROCESS => self.end_attachment(id, EndReason::Died),
            token::DESCRIPTORS => {
                self.descriptors.collect(UserId(id));
            }
            token::LANES => self.with_lanes(now, |lanes, context| lanes.serve(context, PairId(id))),
            token::INHERITANCE => self.end_inheritance(now, id),
            _ => {}
        }
    }

    /// Carries out what follows at once from a job, or from the frames and timers of a turn.
    fn settle(&mut self, now: Time) {
        self.end_attachments(now);
        self.update_ready(now);
        self.resume_drained(now);
        while let Some((user, port)) = self.descriptors.next_closed() {
            self.shares.push(user, Job::Closed(port));
        }
        while let Some(user) = self.descriptors.next_waiting() {
            self.shares.push(user, Job::HangUp);
        }
        while let Some((origin, user)) = self.driver.stack.take_spread() {
            self.shares.push(user, Job::Spread(origin));
        }
        while let Some((user, work)) = self.driver.stack.take_subscriber() {
            self.shares.push(user, Job::Subscriber(work));
        }
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
        let program = self.attachments.program(attachment).unwrap_or("none").to_owned();
        let pid = self.attachments.peer(attachment).map_or(0, |peer| peer.pid);
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

    /// Tries again to send replies for which the system had no room.
    fn send_delayed(&mut self, _: Time) {
        let (behind, ended) = self.attachments.send_delayed();
        self.replies.extend(behind);
        self.ended.extend(ended);
    }

    /// Gives memory back to the system that processes have released.
    fn give_memory_back(&mut self, now: Time) {
        match self.trim.step(now, self.driver.stack.ledger()) {
            Some(Portion::Tables(part)) => {
                self.sockets.shrink(part);
                self.descriptors.shrink(part);
                self.lanes.shrink(part);
            }
            Some(Portion::Heap) => {
                self.attachments.shrink();
                heap::trim_system();
            }
            None => {}
        }
    }

    /// The end of a turn: sends everything that the turn has caused.
    fn finish_turn(&mut self, now: Time) {
        self.enter(Handler::Output, 0);
        loop {
            self.settle(now);
            if self.replica.update_congestion(&mut self.driver.stack) {
                self.lanes.ring_all();
            }
            self.driver.flush();
            if self.driver.observe() {
                self.report_address();
            }
            while let Some(port) = self.driver.stack.take_changed_group() {
                self.report_group(port);
            }
            self.send_replies();
            if self.ended.is_empty() {
                break;
            }
        }
        self.attachments.ring_due();
        self.capture_lanes();
        self.driver.captures.flush();
    }

    /// Copies new messages in lanes, if a capture wants them.
    fn capture_lanes(&mut self) {
        let Self { driver, lanes, .. } = self;
        if !driver.captures.wants_lanes() {
            return lanes.end_taps();
        }
        lanes.read_taps(&mut |ports, found| match found {
            Tapped::Message(message) => driver.captures.lane(ports, message),
            Tapped::Missed(bytes) => driver.captures.lane_missed(ports, bytes),
        });
    }

    /// When captures have something to do.
    fn capture_deadline(&self, now: Time) -> Time {
        let captures = &self.driver.captures;
        if captures.wants_lanes() || captures.has_queued() {
            now.plus_millis(CAPTURE_MS)
        } else {
            Time::NEVER
        }
    }

    fn update_ready(&mut self, now: Time) {
        while let Some(port) = self.driver.stack.poll_ready() {
            self.update_socket(now, port);
        }
    }

    /// Resumes sockets that waited until a lane was drained.
    fn resume_drained(&mut self, now: Time) {
        for (from, to) in self.lanes.take_drained() {
            self.update_socket(now, to);
            self.with_lanes(now, |lanes, context| lanes.resume(context, (from, to)));
        }
        for port in self.lanes.take_finished() {
            self.update_socket(now, port);
        }
    }

    fn report_address(&mut self) {
        let address = self.driver.stack.own_node();
        if address != self.address && self.driver.stack.address_is_final() {
            self.address = address;
            self.attachments.notify_address(address);
        }
    }

    /// Sends the replies of this turn, each with the notices that wait for its receiver.
    fn send_replies(&mut self) {
        let mut replies = std::mem::take(&mut self.replies);
        for outgoing in replies.drain(..) {
            let to = outgoing.to;
            self.head.clear();
            let Self { attachments, sockets, head, .. } = self;
            match attachments.send(outgoing, head, |port| sockets.take_noted(port, to)) {
                Ok(sent) => self.counters.requests += u64::from(sent),
                Err(reason) => self.end_attachment(to, reason),
            }
        }
        self.replies = replies;
    }

    /// Carries out the orders of the daemon's owner.
    fn carry_out_orders(&mut self, now: Time) {
        for order in self.orders.take() {
            match order {
                Order::Stop => self.stop = true,
                Order::Change(policy, limits) => {
                    self.rules.change(*policy, limits);
                    let quotas = quotas::quotas(self.rules.limits(), self.rules.own_user());
                    self.driver.stack.ledger_mut().set_quotas(quotas);
                    self.driver.stack.set_binding_limit(limits.bindings);
                    let (attachments, rules) = (&self.attachments, &self.rules);
                    let may = |owner| attachments.peer(owner).is_some_and(|peer| rules.may_manage(&peer));
                    self.driver.captures.end_unless(may);
                }
                Order::Count(answer) => {
                    // It fails if the caller is gone.
                    let _ = answer.send(self.count());
                }
                Order::List(request, from, answer) => {
                    let part = self
                        .with_management(now, |management, access| management.list(access, &request, from));
                    // It fails if the caller is gone.
                    let _ = answer.send(part);
                }
                Order::Run(command) => command(&mut self.driver.stack, now),
            }
        }
    }

    /// The counters of the daemon and its node.
    pub(super) fn count(&self) -> DaemonCounters {
        let lanes = self.lanes.counts();
        debug_assert!(self.is_balanced(), "{:?}", self.driver.stack.ledger());
        DaemonCounters {
            user: self.rules.own_user(),
            attached: self.attachments.served() + self.leaving,
            sockets: self.sockets.len() + self.ending,
            descriptors: self.descriptors.len(),
            closing: self.disposal.waiting(),
            lanes: lanes.lanes,
            pairs: lanes.pairs,
            lanes_corrupt: lanes.corrupt,
            turns: self.turns.counters().clone(),
            list_entries: self.management.positions.visited(),
            quotas: quotas::counters(self.driver.stack.ledger()),
            captures: self.driver.captures.counters(),
            node: self.driver.counters(),
            ..self.counters.clone()
        }
    }

    /// Whether users are charged for exactly what exists. Takes time in proportion to the sockets.
    fn is_balanced(&self) -> bool {
        let used = self.driver.stack.ledger().total().used;
        let is = |resource, number: usize| used.get(resource) == number as u64;
        self.driver.stack.is_balanced()
            && is(Resource::Processes, self.attachments.served())
            && is(Resource::Descriptors, self.descriptors.len() + self.inheritances.len())
            && is(Resource::Lanes, self.lanes.counts().lanes)
    }

    /// Leaves the cluster, and ends the connections of all processes.
    fn leave(&mut self, now: Time) {
        let all: Vec<AttachmentId> = self.attachments.ids().collect();
        self.ended.extend(all.into_iter().map(|id| (id, EndReason::Leaving)));
        self.end_attachments(now);
        self.end_tasks(now);
        self.driver.leave();
    }
}
