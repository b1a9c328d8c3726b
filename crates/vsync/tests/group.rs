//! Members that exchange messages without delay: order, acknowledgements, windows, outcomes, state.

use std::collections::{BTreeMap, VecDeque};

use utipc_core::Time;
use utipc_vsync::{
    Cause, Class, Components, Config, Event, Founding, MAX_MESSAGE, Member, MemberId, Ordering, Outcome,
    SendError, State, Target, Token,
};

/// Members, and the messages between them in sending order.
struct Group {
    now: Time,
    members: BTreeMap<MemberId, Member>,
    queue: VecDeque<(MemberId, MemberId, Vec<u8>)>,
    events: BTreeMap<MemberId, Vec<Event>>,
    sent: usize,
}

fn id(n: u64) -> MemberId {
    MemberId(n)
}

impl Group {
    /// A group of members 1 to `size` that are all in one view.
    fn new(size: u64, config: &Config) -> Self {
        let mut group = Self {
            now: Time::from_millis(1),
            members: BTreeMap::new(),
            queue: VecDeque::new(),
            events: BTreeMap::new(),
            sent: 0,
        };
        for n in 1..=size {
            group.join(n, config);
            group.run(200);
        }
        for member in group.members.values() {
            assert_eq!(member.view().map(|view| view.seats.len() as u64), Some(size));
        }
        group.events.clear();
        group
    }

    fn join(&mut self, n: u64, config: &Config) {
        let founding = if n == 1 { Founding::Alone } else { Founding::Never };
        self.join_as(n, founding, config);
    }

    fn join_as(&mut self, n: u64, founding: Founding, config: &Config) {
        let mut member = Member::new(id(n), Config { founding, ..config.clone() });
        member.join(self.now).unwrap();
        for (other, there) in &mut self.members {
            there.peer_up(self.now, id(n));
            member.peer_up(self.now, *other);
        }
        self.members.insert(id(n), member);
    }

    fn crash(&mut self, n: u64) {
        self.members.remove(&id(n));
        self.queue.retain(|(from, _, _)| *from != id(n));
        for member in self.members.values_mut() {
            member.peer_down(self.now, id(n));
        }
    }

    /// Delivers everything in flight; the applications take their events if `taking`.
    fn exchange(&mut self, taking: bool) {
        loop {
            let ids: Vec<MemberId> = self.members.keys().copied().collect();
            for from in &ids {
                let member = self.members.get_mut(from).unwrap();
                while let Some(out) = member.poll_transmit() {
                    self.sent += 1;
                    let to = match out.to {
                        Target::All => ids.iter().copied().filter(|to| to != from).collect(),
                        Target::One(to) => vec![to],
                    };
                    self.queue.extend(to.into_iter().map(|to| (*from, to, out.bytes.to_vec())));
                }
                while taking && let Some(event) = member.poll_event() {
                    if let Event::StateWanted { view } = event {
                        member.provide_state(view, b"state", true).unwrap();
                    }
                    self.events.entry(*from).or_default().push(event);
                }
            }
            if self.queue.is_empty() {
                return;
            }
            for (from, to, bytes) in std::mem::take(&mut self.queue) {
                if let Some(member) = self.members.get_mut(&to) {
                    member.receive(self.now, from, &bytes);
                }
            }
        }
    }

    /// Lets time pass.
    fn run(&mut self, ms: u64) {
        let end = self.now.plus_millis(ms);
        loop {
            self.exchange(true);
            let next = self.members.values().map(Member::deadline).min().unwrap_or(Time::NEVER);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            for member in self.members.values_mut() {
                member.handle_timeout(self.now);
            }
        }
    }

    fn member(&mut self, n: u64) -> &mut Member {
        self.members.get_mut(&id(n)).unwrap()
    }

    fn messages(&self, n: u64) -> Vec<Vec<u8>> {
        let payload = |event: &Event| match event {
            Event::Deliver(delivery) => Some(delivery.payload.to_vec()),
            _ => None,
        };
        self.events.get(&id(n)).into_iter().flatten().filter_map(payload).collect()
    }
}

#[test]
fn all_members_deliver_in_one_order() {
    let mut group = Group::new(3, &Config::default());
    for round in 0..20u8 {
        for n in 1..=3 {
            group.member(n).send(&[n as u8, round]).unwrap();
        }
        group.exchange(true);
    }
    assert_eq!(group.messages(1).len(), 60);
    assert_eq!(group.messages(1), group.messages(2));
    assert_eq!(group.messages(1), group.messages(3));
}

#[test]
fn small_messages_share_packets_and_acknowledgements() {
    let mut group = Group::new(3, &Config::default());
    group.sent = 0;
    for n in 0..1000u32 {
        group.member(2).send(&n.to_be_bytes()).unwrap();
    }
    group.exchange(true);
    assert_eq!(group.messages(3).len(), 1000);
    // One packet and one order.
    assert_eq!(group.sent, 2);
}

#[test]
fn safe_messages_wait_for_all_members() {
    let mut group = Group::new(3, &Config { ordering: Ordering::Safe, ..Config::default() });
    group.member(2).send(b"safe").unwrap();
    // Member 3 receives nothing.
    let lost = |to: &MemberId| *to == id(3);
    for _ in 0..5 {
        for n in [1, 2] {
            while let Some(out) = group.member(n).poll_transmit() {
                let to = id(3 - n);
                if out.to == Target::All || out.to == Target::One(to) && !lost(&to) {
                    let now = group.now;
                    group.members.get_mut(&to).unwrap().receive(now, id(n), &out.bytes);
                }
            }
            assert!(!matches!(group.member(n).poll_event(), Some(Event::Deliver(_))));
        }
    }
    assert_eq!(group.member(1).progress().received, 1);
    assert_eq!(group.member(1).progress().stable, 0);
    // Without member 3 a view change delivers it to those that have it.
    group.crash(3);
    group.run(100);
    assert_eq!(group.messages(1), [b"safe"]);
    assert_eq!(group.messages(2), [b"safe"]);
    let marked = |event: &&Event| matches!(event, Event::Deliver(delivery) if delivery.transitional);
    assert_eq!(group.events[&id(1)].iter().filter(marked).count(), 1);
}

#[test]
fn sender_of_an_atomic_message_learns_its_outcome() {
    let mut group = Group::new(3, &Config::default());
    assert_eq!(group.member(3).send_as(Class::Atomic, b"all"), Ok(Some(Token(0))));
    group.exchange(true);
    assert_eq!(group.messages(1), [b"all"]);
    assert_eq!(group.events[&id(3)].last(), Some(&Event::Outcome(Token(0), Outcome::Delivered)));
    let mut group = Group::new(2, &Config { components: Components::All, ..Config::default() });
    assert_eq!(group.member(1).send_as(Class::Atomic, b"all"), Err(SendError::NeedsPrimary));
}

#[test]
fn window_blocks_the_sender_until_all_members_have_the_messages() {
    let mut group = Group::new(3, &Config { window: 30_000, ..Config::default() });
    let message = [7; 1000];
    let mut accepted = 0;
    // Nothing is exchanged: packets stay in flight.
    while group.member(1).send(&message).is_ok() {
        accepted += 1;
        while group.member(1).poll_transmit().is_some() {}
        assert!(accepted < 100);
    }
    assert!(accepted > 20, "{accepted}");
    assert_eq!(group.member(1).send(&message), Err(SendError::WouldBlock));
    assert_eq!(group.member(1).send(&[0; MAX_MESSAGE + 1]), Err(SendError::TooLong(MAX_MESSAGE + 1)));
}

#[test]
fn member_whose_application_is_slow_makes_senders_wait_and_loses_nothing() {
    let mut group = Group::new(2, &Config { window: 50_000, ..Config::default() });
    let mut accepted = 0;
    // The applications take nothing.
    for _ in 0..2000 {
        accepted += usize::from(group.member(1).send(&[1; 30_000]).is_ok());
        group.exchange(false);
        group.now = group.now.plus_millis(10);
        let now = group.now;
        group.members.values_mut().for_each(|member| member.handle_timeout(now));
    }
    assert!(accepted < 300, "{accepted}");
    group.run(1000);
    assert_eq!(group.messages(2).len(), accepted);
    group.member(1).send(b"again").unwrap();
    group.run(100);
    assert_eq!(group.messages(2).last().map(Vec::as_slice), Some(&b"again"[..]));
}

#[test]
fn joiner_receives_the_state_before_its_view_and_then_messages() {
    let config = Config::default();
    let mut group = Group::new(2, &config);
    group.join(3, &config);
    group.run(200);
    group.member(1).send(b"first").unwrap();
    group.exchange(true);
    let events = &group.events[&id(3)];
    assert!(matches!(&events[0], Event::State { bytes, first: true, last: true } if **bytes == *b"state"));
    assert!(
        matches!(&events[1], Event::View(change) if change.view.seats.len() == 3 && change.joining == [id(3)])
    );
    assert!(matches!(&events[2], Event::Deliver(delivery) if *delivery.payload == *b"first"));
}

#[test]
fn minority_is_blocked_and_the_majority_goes_on() {
    let mut group = Group::new(3, &Config::default());
    group.crash(1);
    group.run(100);
    assert_eq!(group.member(2).view().unwrap().seats.len(), 2);
    group.crash(2);
    group.run(100);
    assert_eq!(group.member(3).state(), State::Blocked);
    assert_eq!(group.events[&id(3)].last(), Some(&Event::Blocked));
}

#[test]
fn members_leave_one_after_the_other() {
    let mut group = Group::new(3, &Config::default());
    for n in 1..=3 {
        let now = group.now;
        group.member(n).send(b"last words").unwrap();
        group.member(n).leave(now).unwrap();
        group.run(300);
        assert_eq!(group.member(n).state(), State::Idle);
        assert_eq!(group.events[&id(n)].last(), Some(&Event::Left));
        group.crash(n);
    }
}

#[test]
fn founder_need_not_have_the_lowest_name() {
    let config = Config::default();
    let mut group = Group::new(0, &config);
    for n in [2, 3, 4] {
        group.join(n, &config);
    }
    group.run(100);
    group.join_as(9, Founding::Alone, &config);
    group.run(200);
    for n in [2, 3, 4, 9] {
        assert_eq!(group.member(n).view().map(|view| view.seats.len()), Some(4));
    }
}

#[test]
fn most_senior_of_two_members_leaves() {
    let mut group = Group::new(2, &Config { state_transfer: false, ..Config::default() });
    let now = group.now;
    group.member(1).leave(now).unwrap();
    group.run(500);
    assert_eq!(group.member(1).state(), State::Idle);
    // Member 2 has no majority of the old view without member 1.
    assert_eq!(group.member(2).view().map(|view| view.seats.len()), Some(1));
    assert!(!group.events.get(&id(2)).into_iter().flatten().any(|event| matches!(event, Event::Blocked)));
}

#[test]
fn application_that_takes_nothing_is_detected_and_can_be_left_out() {
    let config = Config { window: 1000, ..Config::default() };
    let mut group = Group::new(2, &config);
    for _ in 0..9000 {
        // The sender takes its own messages, so that only the other member is slow.
        let _ = group.member(1).send(b"untaken");
        while group.member(1).poll_event().is_some() {}
        group.exchange(false);
        let now = group.now.plus_millis(6);
        group.now = now;
        group.members.values_mut().for_each(|member| member.handle_timeout(now));
    }
    assert!(group.member(2).is_withholding() && !group.member(1).is_withholding());
    assert_eq!(group.member(1).slowest(), Some(id(2)));
    assert!(group.member(1).unstable() > 0);
    let now = group.now;
    group.member(2).abandon(now, Cause::SlowConsumer);
    assert_eq!(group.member(2).state(), State::Idle);
    group.run(2000);
    let last = group.events.get(&id(2)).and_then(|events| events.last());
    assert_eq!(last, Some(&Event::Excluded(Cause::SlowConsumer)));
    assert_eq!(group.member(1).view().map(|view| view.seats.len()), Some(1));
}

#[test]
fn peer_with_other_settings_is_reported_and_ignored() {
    let mut group = Group::new(2, &Config::default());
    group.join(3, &Config { window: 1 << 16, ..Config::default() });
    group.run(300);
    assert_eq!(group.events[&id(1)], [Event::Incompatible(id(3))]);
    assert_eq!(group.member(3).state(), State::Joining);
}

/// Messages that a hostile member could send do not panic, and do not stop the others.
#[test]
fn damaged_messages_of_a_peer_do_not_panic() {
    let mut rng = utipc_core::Rng::new(3);
    let mut group = Group::new(3, &Config::default());
    for _ in 0..3000 {
        group.member(1).send(b"x").ok();
        let from = 1 + rng.below(3);
        while let Some(out) = group.members.get_mut(&id(from)).and_then(Member::poll_transmit) {
            let mut bytes = out.bytes.to_vec();
            if rng.below(10) == 0 {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u32() as u8;
            }
            let now = group.now;
            for (to, member) in &mut group.members {
                if *to != id(from) {
                    member.receive(now, id(from), &bytes);
                }
            }
        }
        group.now = group.now.plus_millis(1 + rng.below(20));
        let now = group.now;
        for member in group.members.values_mut() {
            member.handle_timeout(now);
            while member.poll_event().is_some() {}
        }
    }
}
