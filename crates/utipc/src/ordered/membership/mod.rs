//! A membership without its thread: the protocol, its transport, and the events that the application has not taken.
//!
//! Unread messages stay in the protocol, which stops acknowledging them, so that senders wait. Only the next event is
//! taken ahead, to show in a descriptor that there is one; more only while a call waits for the outcome of an atomic
//! message, up to a window.

mod sending;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use utipc_core::Time;
use utipc_vsync::{self as vsync, Cause, Event, Member as Machine, Outcome, State, Token, ViewChange};

use super::error::{Ended, OrderedError};
use super::incoming::{AtomicId, Incoming, Message, StateRequest, View, port_of};
use super::link::{Link, LinkStats, Reading};
use super::{Limits, Stats};
use crate::{Error, Member};

/// Bytes that an event without a message counts for.
const EVENT_BYTES: usize = 256;

/// The state that this member gives, and how much of it is sent.
#[derive(Debug)]
struct Giving {
    view: vsync::ViewId,
    state: Vec<u8>,
    sent: usize,
}

/// The protocol's part of an ordered group's member.
#[derive(Debug)]
pub(super) struct Membership {
    machine: Machine,
    /// `None` after the end.
    link: Option<Link>,
    last_link_stats: LinkStats,
    began: Instant,
    config: vsync::Config,
    limits: Limits,
    /// Events that the application has not taken.
    ahead: VecDeque<Incoming>,
    ahead_bytes: usize,
    /// The last view in `ahead` or before it, from which the next one differs.
    last_view: View,
    /// The view at the application's place.
    view: Option<View>,
    /// The state that is being received.
    taking: Vec<u8>,
    giving: Option<Giving>,
    /// Atomic messages whose senders wait, with the outcome once it is known.
    awaited: BTreeMap<Token, Option<Outcome>>,
    /// The application discards what it receives, because it is about to leave.
    discards: bool,
    withholding_since: Option<Time>,
    ended: Option<Ended>,
    /// Until when the thread sleeps if nothing arrives.
    pub(super) sleeps_until: Time,
}

impl Membership {
    pub(super) fn new(mut machine: Machine, link: Link, config: vsync::Config, limits: Limits) -> Self {
        let began = Instant::now();
        // A new member may always join.
        let _ = machine.join(since(began));
        Self {
            machine,
            link: Some(link),
            last_link_stats: LinkStats::default(),
            began,
            config,
            limits,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            last_view: View::default(),
            view: None,
            taking: Vec::new(),
            giving: None,
            awaited: BTreeMap::new(),
            discards: false,
            withholding_since: None,
            ended: None,
            sleeps_until: Time::ZERO,
        }
    }

    /// Reads the socket.
    pub(super) fn receive(&mut self) -> Reading {
        let now = since(self.began);
        let Some(link) = &mut self.link else { return Reading::Done };
        link.receive(&mut self.machine, now).unwrap_or_else(|error| {
            self.fail(error);
            Reading::Done
        })
    }

    /// Handles what is due, sends what there is to send, and takes the next event.
    pub(super) fn turn(&mut self) {
        let now = since(self.began);
        if self.machine.deadline() <= now {
            self.machine.handle_timeout(now);
        }
        loop {
            self.give();
            if let Some(link) = &mut self.link
                && let Err(error) = link.send(&mut self.machine, now)
            {
                self.fail(error);
            }
            // Taking events yields messages: acknowledgements of messages and pieces of state.
            if !self.take_events() {
                break;
            }
        }
        self.check_reader(now);
    }

    /// The time of the next turn if nothing arrives before.
    pub(super) fn deadline(&self) -> Time {
        let link = self.link.as_ref().map_or(Time::NEVER, Link::deadline);
        let slow = self.withholding_since.map_or(Time::NEVER, |at| at + self.limits.slow);
        self.machine.deadline().min(link).min(slow)
    }

    /// The time from now to [`Membership::deadline`]; `None`: without limit.
    pub(super) fn sleep(&mut self) -> Option<Duration> {
        self.sleeps_until = self.deadline();
        (self.sleeps_until != Time::NEVER).then(|| self.sleeps_until.since(since(self.began)))
    }

    /// Whether the membership has ended: nothing arrives any more.
    pub(super) fn is_over(&self) -> bool {
        self.machine.state() == State::Idle
    }

    /// Ends the use of the socket, which the caller drops.
    pub(super) fn close(&mut self) -> Option<Link> {
        if let Some(link) = &self.link {
            self.last_link_stats = link.stats();
        }
        self.link.take()
    }

    /// The transport has failed.
    pub(super) fn fail(&mut self, error: Error) {
        self.end(Ended::Transport(Arc::new(error)), Cause::Protocol);
    }

    fn end(&mut self, why: Ended, cause: Cause) {
        self.ended.get_or_insert(why);
        self.machine.abandon(since(self.began), cause);
    }

    /// Ends the membership of a program that does not receive while others wait for it.
    fn check_reader(&mut self, now: Time) {
        if !self.machine.is_withholding() {
            self.withholding_since = None;
        } else if now.since(*self.withholding_since.get_or_insert(now)) >= self.limits.slow {
            self.end(Ended::SlowConsumer, Cause::SlowConsumer);
            self.take_events();
            // The link tells the others.
            if let Some(link) = &mut self.link {
                let _ = link.send(&mut self.machine, now);
            }
        }
    }

    /// Whether a receive would not wait.
    pub(super) fn is_readable(&self) -> bool {
        !self.ahead.is_empty() || self.is_over()
    }

    /// The next event, or why there will be none. [`Membership::turn`] takes the one after it.
    pub(super) fn pop(&mut self) -> Option<Result<Incoming, OrderedError>> {
        let Some(incoming) = self.ahead.pop_front() else {
            return self.is_over().then(|| Err(OrderedError::Ended(self.why_ended())));
        };
        self.ahead_bytes = self.ahead_bytes.saturating_sub(size(&incoming));
        // A program that receives, however slowly, may stay.
        self.withholding_since = None;
        match &incoming {
            Incoming::View(view) => self.view = Some(view.clone()),
            Incoming::Excluded => self.view = None,
            _ => {}
        }
        Some(Ok(incoming))
    }

    /// The view at the application's place.
    pub(super) fn view(&self) -> Option<View> {
        self.view.clone()
    }

    fn why_ended(&self) -> Ended {
        self.ended.clone().unwrap_or(Ended::Left)
    }

    /// Takes events from the protocol; returns whether there was one.
    fn take_events(&mut self) -> bool {
        let mut taken = false;
        while self.wants_more() {
            let Some(event) = self.machine.poll_event() else { break };
            taken = true;
            if let Some(incoming) = self.translate(event)
                && !self.discards
            {
                self.ahead_bytes += size(&incoming);
                self.ahead.push_back(incoming);
            }
        }
        taken
    }

    fn wants_more(&self) -> bool {
        let outcome_is_open = self.awaited.values().any(Option::is_none);
        self.ahead.is_empty()
            || outcome_is_open && self.ahead_bytes < self.config.window as usize
            // What an ended member has left is bounded, and its reason comes last.
            || self.is_over()
    }

    fn translate(&mut self, event: Event) -> Option<Incoming> {
        Some(match event {
            Event::Deliver(delivery) => Incoming::Message(Message {
                data: delivery.payload.to_vec(),
                from: self.member(delivery.sender),
                view: delivery.view.into(),
                place: delivery.place,
                transitional: delivery.transitional,
            }),
            Event::View(change) => Incoming::View(self.change(&change)),
            Event::StateWanted { view } => Incoming::StateWanted(StateRequest { view }),
            Event::State { bytes, first, last } => {
                if first {
                    self.taking.clear();
                }
                if self.taking.len() + bytes.len() > self.limits.max_state {
                    self.taking = Vec::new();
                    self.end(Ended::StateTooLong { most: self.limits.max_state }, Cause::Protocol);
                    return None;
                }
                self.taking.extend_from_slice(&bytes);
                if !last {
                    return None;
                }
                Incoming::State(std::mem::take(&mut self.taking))
            }
            Event::Outcome(token, outcome) => match self.awaited.get_mut(&token) {
                Some(awaited) => {
                    *awaited = Some(outcome);
                    return None;
                }
                None => Incoming::Outcome { id: AtomicId(token.0), outcome },
            },
            Event::Blocked => Incoming::Blocked,
            Event::Excluded(cause) => {
                self.last_view = View::default();
                self.taking = Vec::new();
                match cause {
                    Cause::Superseded => Incoming::Excluded,
                    Cause::SlowConsumer => return self.note_end(Ended::SlowConsumer),
                    Cause::Protocol => return self.note_end(Ended::Protocol),
                }
            }
            Event::Left => return self.note_end(Ended::Left),
            Event::Incompatible(id) => Incoming::Incompatible(self.member(id)),
        })
    }

    fn note_end(&mut self, why: Ended) -> Option<Incoming> {
        self.ended.get_or_insert(why);
        None
    }

    fn member(&self, id: vsync::MemberId) -> Member {
        let without_instance = || Member { port: port_of(id), instance: 0 };
        self.link.as_ref().map_or_else(without_instance, |link| link.member(id))
    }

    fn change(&mut self, change: &ViewChange) -> View {
        let members: Vec<Member> = change.view.members().map(|id| self.member(id)).collect();
        let old = std::mem::take(&mut self.last_view.members);
        let outside = |list: &[Member], of: &[Member]| -> Vec<Member> {
            list.iter().filter(|m| !of.iter().any(|other| other.port == m.port)).copied().collect()
        };
        let view = View {
            id: change.view.id.into(),
            joined: outside(&members, &old),
            left: outside(&old, &members),
            together: change.together.iter().map(|id| self.member(*id)).collect(),
            fresh: change.joining.iter().map(|id| self.member(*id)).collect(),
            members,
        };
        self.last_view = view.clone();
        view
    }

    pub(super) fn stats(&self) -> Stats {
        let link = self.link.as_ref().map_or(self.last_link_stats, Link::stats);
        let vsync::Stats { views, ballots, sent, delivered, refused } = self.machine.stats();
        Stats {
            views,
            ballots,
            sent,
            delivered,
            refused: refused + link.ignored,
            stalled_members: link.stalled,
        }
    }
}

/// The time since the membership began, as the protocol's clock.
fn since(began: Instant) -> Time {
    Time::from_nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn size(incoming: &Incoming) -> usize {
    match incoming {
        Incoming::Message(message) => EVENT_BYTES + message.data.len(),
        Incoming::State(state) => EVENT_BYTES + state.len(),
        _ => EVENT_BYTES,
    }
}
