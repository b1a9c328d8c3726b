//! The event loop: a turn reads the wire and the requests of processes, handles timers, and then sends frames,
//! replies and notices and rings doorbells. The order ensures that a reply is never sent before the change that
//! it reports.

use std::time::Duration;

use utipc_attach::PairId;
use utipc_core::Time;
use utipc_os::reactor::Event as Ready;

use super::Dispatcher;
use crate::daemon::attachments::AttachmentId;
use crate::daemon::counters::{DaemonCounters, EndReason};
use crate::daemon::orders::Order;
use crate::daemon::token;
use crate::driver::now;

impl Dispatcher {
    /// Runs until an order stops it.
    pub(in crate::daemon) fn run(&mut self) {
        let mut ready = Vec::new();
        let mut time = now();
        self.finish_turn(time);
        while !self.stop {
            let until = if self.lanes.listed() > 0 { time } else { self.deadline() };
            let mut pause = self.driver.pause(time, until);
            if self.driver.prepare_sleep() {
                pause = Some(Duration::ZERO);
            }
            let waited = self.lanes.wait(&mut self.reactor, pause, &mut ready);
            time = now();
            if waited.is_err() {
                self.driver.receive_all(time);
            }
            if waited.unwrap_or(true) {
                self.carry_out_orders(time);
            }
            for event in &ready {
                self.dispatch(time, event);
            }
            self.with_lanes(time, |lanes, context| lanes.serve_awake(context));
            self.driver.receive(time, &ready);
            self.driver.handle_timeout(time);
            self.expire(time);
            self.finish_turn(time);
        }
        self.leave(time);
    }

    /// The earliest deadline of the components.
    fn deadline(&self) -> Time {
        self.admission.deadline().min(self.lanes.deadline()).min(self.orphans.deadline())
    }

    fn dispatch(&mut self, now: Time, event: &Ready) {
        let id = (event.token & u64::from(u32::MAX)) as u32;
        match event.token & token::KIND {
            token::DOORWAY => self.accept_processes(now),
            token::ATTACHMENT => self.serve(now, id),
            token::PROCESS => self.end_attachment(id, EndReason::Died),
            token::DESCRIPTOR => self.near_end_closed(now, id),
            token::LANES => self.with_lanes(now, |lanes, context| lanes.serve(context, PairId(id))),
            token::INHERITANCE => self.end_inheritance(now, id),
            _ => {}
        }
    }

    /// Handles the deadlines of the components.
    fn expire(&mut self, now: Time) {
        self.expire_handshakes(now);
        self.with_lanes(now, |lanes, context| {
            lanes.expire_pairs(context);
            lanes.expire_unsent(context);
        });
        self.expire_orphans(now);
    }

    /// The end of a turn: sends everything that the turn has caused.
    fn finish_turn(&mut self, now: Time) {
        self.update_ready(now);
        for _ in 0..self.lanes.listed() {
            self.with_lanes(now, |lanes, context| lanes.carry_next(context));
        }
        loop {
            self.end_attachments(now);
            self.resume_drained(now);
            self.update_ready(now);
            if self.replica.update_congestion(&mut self.driver.stack) {
                self.lanes.ring_all();
            }
            self.driver.flush();
            if self.driver.observe() {
                self.report_address();
            }
            self.send_replies();
            if self.ended.is_empty() {
                break;
            }
        }
        self.attachments.ring_due();
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
                    self.driver.stack.set_binding_limit(limits.bindings);
                }
                Order::Count(answer) => {
                    // It fails if the caller is gone.
                    let _ = answer.send(self.count());
                }
                Order::Run(command) => command(&mut self.driver.stack, now),
            }
        }
    }

    fn count(&self) -> DaemonCounters {
        let lanes = self.lanes.counts();
        DaemonCounters {
            attached: self.attachments.served(),
            sockets: self.sockets.len(),
            lanes: lanes.lanes,
            pairs: lanes.pairs,
            lanes_corrupt: lanes.corrupt,
            node: self.driver.counters(),
            ..self.counters.clone()
        }
    }

    /// Leaves the cluster, and ends the connections of all processes.
    fn leave(&mut self, now: Time) {
        let all: Vec<AttachmentId> = self.attachments.ids().collect();
        self.ended.extend(all.into_iter().map(|id| (id, EndReason::Leaving)));
        self.end_attachments(now);
        self.driver.leave();
    }
}
