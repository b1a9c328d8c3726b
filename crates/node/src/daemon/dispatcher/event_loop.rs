//! The event loop: a turn reads the wire and the requests of processes, handles timers, and then sends frames,
//! replies and notices and rings doorbells. The order ensures that a reply is never sent before the change that
//! it reports.

use std::time::Duration;

use utipc_attach::PairId;
use utipc_core::Time;
use utipc_core::quota::Resource;
use utipc_lanes::daemon::Tapped;
use utipc_os::reactor::Event as Ready;
use utipc_os::{clock, heap};

use super::Dispatcher;
use super::releases::RELEASE_ITEMS;
use crate::daemon::attachments::AttachmentId;
use crate::daemon::counters::{DaemonCounters, EndReason};
use crate::daemon::orders::Order;
use crate::daemon::quotas;
use crate::daemon::token;
use crate::daemon::turns::{Handler, LongTurn, LongestTurn};
use crate::driver::now;

/// Interval at which captures look into lanes, and try again to hand records to a slow reader, milliseconds.
const CAPTURE_MS: u64 = 1;

/// What the event loop has reported.
#[derive(Default)]
struct Events {
    ready: Vec<Ready>,
    /// The first one that no turn has handled.
    next: usize,
    /// Reported in this turn.
    is_new: bool,
}

impl Dispatcher {
    /// Runs until an order stops it.
    pub(in crate::daemon) fn run(&mut self) {
        let mut events = Events::default();
        self.finish_turn(now());
        while !self.stop {
            let woken = self.wait(&mut events);
            let time = now();
            self.turns.begin(time, clock::thread_cpu_ns);
            if woken {
                self.carry_out_orders(time);
            }
            self.dispatch_events(time, &mut events);
            self.enter(Handler::Lanes, 0);
            self.with_lanes(time, |lanes, context| {
                lanes.begin_turn(context);
                lanes.serve_awake(context);
            });
            self.enter(Handler::Frames, 0);
            self.receive_frames(time, &events);
            self.enter(Handler::Timers, 0);
            self.driver.handle_timeout(time);
            self.enter(Handler::Deadlines, 0);
            self.expire(time);
            self.finish_turn(time);
            self.end_turn();
        }
        self.leave(now());
    }

    /// Waits for events, unless some are left; true if there may be orders.
    fn wait(&mut self, events: &mut Events) -> bool {
        events.is_new = events.next >= events.ready.len();
        if !events.is_new {
            return false;
        }
        let time = now();
        let has_more = self.lanes.has_more()
            || self.descriptors.has_closed()
            || !self.releases.is_empty()
            || self.driver.stack.has_work();
        let until = if has_more { time } else { self.deadline(time) };
        let mut pause = self.driver.pause(time, until);
        if self.driver.prepare_sleep() {
            pause = Some(Duration::ZERO);
        }
        events.next = 0;
        let waited = self.lanes.wait(&mut self.reactor, pause, &mut events.ready);
        // Without an event loop every bearer is read.
        events.is_new = waited.is_ok();
        waited.unwrap_or(true)
    }

    /// Goes on with the messages of peers that earlier turns have left, then reads frames.
    fn receive_frames(&mut self, time: Time, events: &Events) {
        self.driver.begin_turn(time);
        if self.driver.stack.has_work() {
            self.turns.note_cut();
        }
        match events.is_new {
            true => self.driver.receive(time, &events.ready),
            false => self.driver.receive_all(time),
        }
    }

    /// Handles events until their time in this turn is over; the rest is first in the next turn.
    fn dispatch_events(&mut self, time: Time, events: &mut Events) {
        while let Some(event) = events.ready.get(events.next).copied() {
            let at = now();
            if events.next > 0 && self.turns.events_are_over(at) {
                return self.turns.note_cut();
            }
            events.next += 1;
            self.dispatch((time, at), &event);
        }
    }

    /// From now on this handler runs.
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

    /// The earliest deadline of the components.
    fn deadline(&self, now: Time) -> Time {
        let own = self.admission.deadline().min(self.lanes.deadline()).min(self.orphans.deadline());
        own.min(self.attachments.deadline(now)).min(self.capture_deadline(now)).min(self.trim.deadline())
    }

    /// `at`: the exact time, for the meter.
    fn dispatch(&mut self, (now, at): (Time, Time), event: &Ready) {
        let id = (event.token & u64::from(u32::MAX)) as u32;
        let (handler, attachment) = match event.token & token::KIND {
            token::DOORWAY => (Handler::Admission, 0),
            token::ATTACHMENT => (Handler::Requests, id),
            token::PROCESS => (Handler::Ends, id),
            token::DESCRIPTORS | token::INHERITANCE => (Handler::Ends, 0),
            token::LANES => (Handler::Lanes, 0),
            // Bearers are read later.
            _ => return,
        };
        self.turns.enter(at, handler, attachment);
        match event.token & token::KIND {
            token::DOORWAY => self.accept_processes(now),
            token::ATTACHMENT => self.serve(now, id),
            token::PROCESS => self.end_attachment(id, EndReason::Died),
            token::DESCRIPTORS => self.descriptors.collect(),
            token::LANES => self.with_lanes(now, |lanes, context| lanes.serve(context, PairId(id))),
            token::INHERITANCE => self.end_inheritance(id),
            _ => {}
        }
    }

    /// Handles the deadlines of the components.
    fn expire(&mut self, now: Time) {
        self.expire_handshakes(now);
        let (behind, ended) = self.attachments.send_delayed();
        self.replies.extend(behind);
        self.ended.extend(ended);
        self.end_closed_sockets(now);
        self.with_lanes(now, |lanes, context| {
            lanes.expire_pairs(context);
            lanes.expire_unsent(context);
            lanes.expire_room_waits(context);
        });
        self.expire_orphans(now);
        if self.trim.is_due(now, self.driver.stack.ledger()) {
            self.give_memory_back();
        }
    }

    /// Gives memory back to the system that processes have released.
    fn give_memory_back(&mut self) {
        self.sockets.shrink();
        self.attachments.shrink();
        self.descriptors.shrink();
        self.lanes.shrink();
        heap::trim_system();
    }

    /// The end of a turn: sends everything that the turn has caused.
    fn finish_turn(&mut self, now: Time) {
        self.enter(Handler::Lanes, 0);
        self.update_ready(now);
        for _ in 0..self.lanes.listed() {
            if self.lanes.turn_is_over() {
                self.turns.note_cut();
                break;
            }
            self.with_lanes(now, |lanes, context| lanes.carry_next(context));
        }
        let mut items = RELEASE_ITEMS;
        loop {
            self.end_attachments(now);
            if !self.releases.is_empty() {
                self.enter(Handler::Releases, 0);
                self.run_releases(now, &mut items);
            }
            self.enter(Handler::Output, 0);
            self.resume_drained(now);
            self.update_ready(now);
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
            attached: self.attachments.served(),
            sockets: self.sockets.len(),
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

    /// Whether users are charged for exactly what there is. Takes time in proportion to the sockets.
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
        self.end_releases(now);
        self.driver.leave();
    }
}
