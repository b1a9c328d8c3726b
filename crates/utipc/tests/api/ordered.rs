//! Ordered groups through both engines: an embedded node, and processes of a daemon.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Engine, LIMIT, alone, interrupted, on_each_engine, pair, three_daemons};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc::bearers::{Direction, Faults};
use utipc::ordered::{
    Builder, Ended, Incoming, MAX_MESSAGE, Order, Ordered, OrderedError, Outcome, Partition, View, Waiting,
};
use utipc::{Error, Group, GroupIncoming, GroupRequest, LinkProperty, Node, SentTo};

on_each_engine!(
    members_on_two_nodes_have_one_order_of_concurrent_messages,
    safe_messages_reach_all_members_in_one_order,
    joiner_receives_the_state_at_its_place_under_load,
    atomic_message_has_an_outcome,
    dropped_member_is_out_of_the_next_view,
    members_leave_in_agreement,
    slow_program_stops_senders_and_leaves,
    program_that_receives_slowly_stays,
    garbage_in_the_group_is_counted,
    member_that_does_not_read_its_socket_is_left_out,
    peers_reset_their_path,
    only_a_founder_begins_a_group,
    other_settings_are_reported,
    refusals_have_reasons,
    descriptor_shows_what_can_be_received,
);

/// Patience for machines on which a program may not run for seconds.
const PATIENCE: Duration = Duration::from_secs(5);
const NONE: Duration = Duration::from_millis(300);

fn settings() -> Builder {
    Ordered::builder(4500).patience(PATIENCE)
}

fn join(node: &Node, settings: Builder) -> Ordered {
    let member = settings.join(node).unwrap();
    member.set_receive_timeout(Some(LIMIT));
    member.set_send_timeout(Some(LIMIT));
    member
}

/// Receives until the view has this number of members.
fn view_of(member: &Ordered, members: usize) -> View {
    loop {
        match member.receive().unwrap() {
            Incoming::View(view) if view.members.len() == members => return view,
            Incoming::View(_) => {}
            other => panic!("{other:?} before a view of {members}"),
        }
    }
}

/// A group with a founder on the first node, and a member on each of the others.
fn group<const N: usize>(nodes: [&Node; N], settings: &Builder) -> [Ordered; N] {
    let mut founder = true;
    let members = nodes.map(|node| {
        let own = if std::mem::take(&mut founder) { settings.clone().founder() } else { settings.clone() };
        join(node, own)
    });
    let views = members.each_ref().map(|member| view_of(member, N));
    assert!(views.iter().all(|view| view.members == views[0].members && view.id == views[0].id));
    members
}

fn data(member: &Ordered) -> Vec<u8> {
    let incoming = member.receive().unwrap();
    incoming.clone().message().unwrap_or_else(|| panic!("{incoming:?} instead of a message")).data
}

fn waiting(error: &Error) -> Waiting {
    match error {
        Error::Ordered { why: OrderedError::Waiting { reason, .. }, .. } => *reason,
        other => panic!("{other}"),
    }
}

/// Each member sends while it receives; returns what each received, without its own views.
fn exchange(members: &[Ordered], messages: u32) -> Vec<Vec<(u8, u32)>> {
    thread::scope(|scope| {
        let receivers: Vec<_> = members
            .iter()
            .zip(0_u8..)
            .map(|(member, name)| {
                scope.spawn(move || {
                    for number in 0..messages {
                        let mut data = vec![name; 5 + (number as usize * 37) % 900];
                        data[1..5].copy_from_slice(&number.to_be_bytes());
                        member.multicast(&data).unwrap();
                    }
                });
                let total = messages as usize * members.len();
                scope.spawn(move || {
                    let next = |_| {
                        let data = data(member);
                        assert!(data[5..].iter().all(|byte| *byte == data[0]));
                        (data[0], u32::from_be_bytes(data[1..5].try_into().unwrap()))
                    };
                    (0..total).map(next).collect::<Vec<_>>()
                })
            })
            .collect();
        receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect()
    })
}

fn check_orders(orders: &[Vec<(u8, u32)>]) {
    assert!(orders.iter().all(|order| *order == orders[0]), "the members have different orders");
    let mut last: BTreeMap<u8, u32> = BTreeMap::new();
    for (sender, number) in &orders[0] {
        assert_eq!(last.insert(*sender, number + 1).unwrap_or(0), *number, "the messages of one sender");
    }
}

fn members_on_two_nodes_have_one_order_of_concurrent_messages(engine: Engine) {
    let [red, blue] = pair(engine);
    let near = red.again();
    let members = group([&red, &near, &blue], &settings());
    check_orders(&exchange(&members, 300));
}

fn safe_messages_reach_all_members_in_one_order(engine: Engine) {
    let [red, blue] = pair(engine);
    let near = red.again();
    let members = group([&red, &near, &blue], &settings().order(Order::Safe).window(65_536));
    check_orders(&exchange(&members, 100));
}

/// A list of numbers that is the same at all members.
#[derive(Debug, Default, PartialEq)]
struct Replica(Vec<u32>);

impl Replica {
    fn of(state: &[u8]) -> Self {
        let (numbers, rest) = state.as_chunks::<4>();
        assert!(rest.is_empty());
        Self(numbers.iter().map(|bytes| u32::from_be_bytes(*bytes)).collect())
    }

    /// Handles events until a message says that no more come.
    fn follow(mut self, member: &Ordered) -> Self {
        loop {
            match member.receive().unwrap() {
                Incoming::Message(message) if message.data == b"end" => return self,
                Incoming::Message(message) => self.0.extend(Self::of(&message.data).0),
                Incoming::StateWanted(request) => {
                    let state: Vec<u8> = self.0.iter().flat_map(|number| number.to_be_bytes()).collect();
                    member.give_state(request, state).unwrap();
                }
                Incoming::State(state) => self = Self::of(&state),
                Incoming::View(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn joiner_receives_the_state_at_its_place_under_load(engine: Engine) {
    let [red, blue] = pair(engine);
    let settings = settings().state_transfer();
    let founder = join(&red, settings.clone().founder());
    view_of(&founder, 1);
    // More than the joiner may leave untaken: 16 pieces of 60,000 bytes.
    let old = Replica((0..400_000).collect());
    let (send, joined) = mpsc::channel();
    thread::scope(|scope| {
        let founder = &founder;
        let follower = scope.spawn(move || old.follow(founder));
        let sender = scope.spawn(move || {
            for number in 0.. {
                founder.multicast(&u32::to_be_bytes(number)).unwrap();
                if joined.try_recv().is_ok() {
                    return founder.multicast(b"end").unwrap();
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        let joiner = join(&blue, settings);
        let Incoming::State(state) = joiner.receive().unwrap() else { panic!("the state comes first") };
        assert_eq!(view_of(&joiner, 2).fresh[0].port, joiner.port());
        send.send(()).unwrap();
        let new = Replica::of(&state).follow(&joiner);
        sender.join().unwrap();
        assert!(new.0.len() > 400_000);
        assert!(follower.join().unwrap() == new, "the joiner has another state");
    });
}

fn atomic_message_has_an_outcome(engine: Engine) {
    let [red, blue] = pair(engine);
    let [first, second] = group([&red, &blue], &settings());
    // One thread sends and receives, so that what precedes the outcome has to wait in between.
    for number in 0..20_u8 {
        second.multicast(&[number]).unwrap();
        let sender = if number % 2 == 0 { &first } else { &second };
        assert_eq!(sender.multicast_atomic(&[100 + number]).unwrap(), Outcome::Delivered);
    }
    let id = first.begin_atomic(&[200]).unwrap();
    let mut seen = Vec::new();
    loop {
        match first.receive().unwrap() {
            Incoming::Message(message) => seen.push(message.data[0]),
            Incoming::Outcome { id: done, outcome } => {
                assert_eq!((done, outcome), (id, Outcome::Delivered));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seen.len(), seen[40]), (41, 200));
    for byte in seen {
        assert_eq!(data(&second), [byte]);
    }
}

fn dropped_member_is_out_of_the_next_view(engine: Engine) {
    let [red, blue] = pair(engine);
    let near = red.again();
    let [first, second, third] = group([&red, &near, &blue], &settings());
    let gone = third.port();
    third.multicast(b"last words").unwrap();
    assert_eq!(data(&first), b"last words");
    drop(third);
    let view = view_of(&first, 2);
    assert_eq!(view.left[0].port, gone);
    assert!(view.joined.is_empty() && view.together == view.members && !view.contains(gone));
    assert_eq!(data(&second), b"last words");
    assert_eq!(view_of(&second, 2).id, view.id);
    assert_eq!(second.view().unwrap(), view);
    second.multicast(b"on").unwrap();
    assert_eq!((data(&first), data(&second)), (b"on".to_vec(), b"on".to_vec()));
}

fn members_leave_in_agreement(engine: Engine) {
    let [red, blue] = pair(engine);
    let [first, second] = group([&red, &blue], &settings());
    // The first member alone would have no majority if it were lost.
    first.leave().unwrap();
    let view = view_of(&second, 1);
    assert_eq!((view.left.len(), view.members[0].port), (1, second.port()));
    assert_eq!(second.multicast_atomic(b"alone").unwrap(), Outcome::Delivered);
    second.leave().unwrap();
}

fn slow_program_stops_senders_and_leaves(engine: Engine) {
    let [red, blue] = pair(engine);
    let settings = settings().window(65_536).slow_limit(Duration::from_secs(2));
    let [first, slow, third] = group([&red, &blue, &red], &settings);
    let message = vec![7; 10_000];
    // Those that receive do so until the view changes.
    thread::scope(|scope| {
        let receive = |member| {
            move || loop {
                if let Incoming::View(view) = Ordered::receive(member).unwrap() {
                    return view;
                }
            }
        };
        let views = [scope.spawn(receive(&first)), scope.spawn(receive(&third))];
        let mut waits = 0;
        while !views.iter().all(thread::ScopedJoinHandle::is_finished) {
            first.set_send_timeout(Some(Duration::from_millis(100)));
            if let Err(error) = first.multicast(&message) {
                let reason = waiting(&error);
                assert!(error.is_timeout() && error.to_string().contains("waiting for"), "{error}");
                waits += usize::from(reason == Waiting::Window { slowest: Some(slow.port()) });
            }
        }
        assert!(waits > 0, "the sender has not waited for the slow member");
        for view in views {
            let view = view.join().unwrap();
            assert_eq!((view.members.len(), view.left[0].port), (2, slow.port()));
        }
    });
    let ended = loop {
        match slow.receive() {
            Ok(Incoming::Message(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(Error::Ordered { why: OrderedError::Ended(ended), .. }) => break ended,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(matches!(ended, Ended::SlowConsumer), "{ended}");
    let error = slow.multicast(b"x").unwrap_err();
    assert!(!error.is_temporary() && error.to_string().contains("did not receive"), "{error}");
}

fn plain(node: &Node) -> Group {
    let group = Group::join(node, GroupRequest::new(4500, 9).with_events()).unwrap();
    group.socket().set_receive_timeout(Some(LIMIT));
    group.socket().set_send_timeout(Some(LIMIT));
    group
}

/// Receives until the members are known; they send meanwhile.
fn know(group: &Group, members: usize) {
    for _ in 0..members {
        while group.receive().unwrap().joined().is_none() {}
    }
}

fn program_that_receives_slowly_stays(engine: Engine) {
    const MESSAGES: usize = 16;
    let [red, blue] = pair(engine);
    let settings = settings().window(65_536).slow_limit(Duration::from_secs(2));
    let [first, slow] = group([&red, &blue], &settings);
    thread::scope(|scope| {
        scope.spawn(|| (0..MESSAGES).for_each(|_| first.multicast(&[7; 10_000]).unwrap()));
        scope.spawn(|| (0..MESSAGES).for_each(|_| drop(data(&first))));
        for _ in 0..MESSAGES {
            thread::sleep(Duration::from_millis(300));
            assert_eq!(data(&slow), [7; 10_000]);
        }
    });
}

fn garbage_in_the_group_is_counted(engine: Engine) {
    let [red, blue] = pair(engine);
    let [first, second] = group([&red, &blue], &settings());
    let stranger = plain(&blue);
    know(&stranger, 2);
    let mut garbage: Vec<Vec<u8>> = (0..=255).map(|kind| vec![1, kind, 0, 0, 9, 9, 9, 9]).collect();
    garbage.extend((1..60).map(|len| vec![len as u8; len]));
    for message in &garbage {
        stranger.broadcast(message).unwrap();
    }
    // Messages of one sender arrive in order, so all of it has arrived when the stranger has left.
    first.multicast(b"through").unwrap();
    assert_eq!((data(&first), data(&second)), (b"through".to_vec(), b"through".to_vec()));
    let until = Instant::now() + LIMIT;
    while first.stats().refused < 200 || second.stats().refused < 200 {
        assert!(Instant::now() < until, "{:?}", first.stats());
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(second.multicast_atomic(b"on").unwrap(), Outcome::Delivered);
    assert_eq!(first.view().unwrap().members.len(), 2);
}

fn member_that_does_not_read_its_socket_is_left_out(engine: Engine) {
    let [red, blue] = pair(engine);
    let [first, second] = group([&red, &blue], &settings());
    let sleeper = plain(&blue);
    know(&sleeper, 2);
    let message = vec![7; 50_000];
    thread::scope(|scope| {
        scope.spawn(|| (0..60).for_each(|_| assert_eq!(data(&second).len(), 50_000)));
        scope.spawn(|| (0..60).for_each(|_| assert_eq!(data(&first).len(), 50_000)));
        for _ in 0..60 {
            first.multicast(&message).unwrap();
        }
    });
    assert_eq!(first.stats().stalled_members, 1);
    // It reads again, and is heard: the sender asks it to forget the path, and uses it again after the answer.
    sleeper.socket().set_receive_timeout(Some(Duration::from_millis(200)));
    while sleeper.receive().is_ok() {}
    sleeper.socket().set_receive_timeout(Some(LIMIT));
    sleeper.send(first.port(), b"awake").unwrap();
    let reset = next_from(&sleeper, &first, |data| data.starts_with(&[0, 1]));
    sleeper.send(first.port(), &[&[0, 2][..], &reset[2..]].concat()).unwrap();
    next_from(&sleeper, &first, is_hello);
}

/// The next message of a member that a plain member of the group receives alone or with others.
fn next_from(group: &Group, member: &Ordered, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    loop {
        match group.receive().unwrap() {
            GroupIncoming::Message { data, from, to } if from.port == member.port() && wanted(&data) => {
                assert_eq!(to, SentTo::Member);
                return data;
            }
            _ => {}
        }
    }
}

fn is_hello(data: &[u8]) -> bool {
    data.starts_with(&[1, 1])
}

fn peers_reset_their_path(engine: Engine) {
    let node = alone(engine);
    let member = join(&node, settings().founder());
    view_of(&member, 1);
    let peer = plain(&node.again());
    know(&peer, 1);
    next_from(&peer, &member, is_hello);
    peer.send(member.port(), &[0, 1, 0, 0, 0, 0, 0, 9]).unwrap();
    // The answer precedes everything on the new path.
    assert_eq!(next_from(&peer, &member, |_| true), [0, 2, 0, 0, 0, 0, 0, 9]);
    next_from(&peer, &member, is_hello);
}

fn only_a_founder_begins_a_group(engine: Engine) {
    let [red, blue] = pair(engine);
    let early = join(&red, settings());
    let error = early.receive_within(NONE).unwrap_err();
    assert_eq!(waiting(&error), Waiting::Joining);
    early.set_send_timeout(Some(Duration::ZERO));
    let error = early.multicast(b"x").unwrap_err();
    assert!(error.is_would_block() && error.to_string().contains("may found the group"), "{error}");
    let founder = join(&blue, settings().founder());
    let view = view_of(&founder, 2);
    assert_eq!(view_of(&early, 2).members, view.members);
    // One that may found a group joins one that is there.
    let second = join(&blue.again(), settings().founder().settle(Duration::from_millis(500)));
    let view = view_of(&second, 3);
    assert_eq!(view_of(&founder, 3).id, view.id);
    assert!(view.contains(founder.port()));
}

fn other_settings_are_reported(engine: Engine) {
    let node = alone(engine);
    let member = join(&node, settings().founder());
    view_of(&member, 1);
    let other = join(&node.again(), settings().order(Order::Safe).instance(8));
    let Incoming::Incompatible(reported) = member.receive().unwrap() else { panic!("no report") };
    assert_eq!((reported.port, reported.instance), (other.port(), 8));
    let Incoming::Incompatible(reported) = other.receive().unwrap() else { panic!("no report") };
    assert_eq!(reported.port, member.port());
}

fn refusals_have_reasons(engine: Engine) {
    let node = alone(engine);
    let member = join(&node, settings().founder().partition(Partition::All).max_state(10));
    view_of(&member, 1);
    let error = member.multicast(&vec![0; MAX_MESSAGE + 1]).unwrap_err();
    assert!(matches!(error, Error::Ordered { why: OrderedError::TooLong { .. }, .. }), "{error}");
    assert_eq!((error.errno(), error.is_temporary()), (90, false));
    member.multicast(&vec![1; MAX_MESSAGE]).unwrap();
    assert_eq!(data(&member).len(), MAX_MESSAGE);
    let error = member.multicast_atomic(b"x").unwrap_err();
    assert!(matches!(error, Error::Ordered { why: OrderedError::NeedsPrimary, .. }), "{error}");
    let error = member.receive_within(Duration::ZERO).unwrap_err();
    assert!(error.is_would_block() && waiting(&error) == Waiting::Nothing, "{error}");
    let reserved = Ordered::builder(63).join(&node).unwrap_err();
    assert!(matches!(reserved, Error::Join { group: 63, .. }), "{reserved}");
    for refused in [
        settings().window(1000),
        settings().patience(Duration::ZERO),
        settings().slow_limit(Duration::MAX),
        settings().founder().weight(0),
    ] {
        assert!(matches!(refused.join(&node).unwrap_err(), Error::OutOfRange { .. }));
    }
}

fn is_readable(member: &Ordered, limit_ms: i64) -> bool {
    let limit = Timespec { tv_sec: limit_ms / 1000, tv_nsec: limit_ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(member, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

fn descriptor_shows_what_can_be_received(engine: Engine) {
    let node = alone(engine);
    let member = join(&node, settings().founder());
    assert!(is_readable(&member, LIMIT.as_millis() as i64), "a view comes");
    view_of(&member, 1);
    assert!(!is_readable(&member, 0));
    for number in 0..3 {
        member.multicast(&[number]).unwrap();
    }
    for number in 0..3 {
        assert!(is_readable(&member, LIMIT.as_millis() as i64));
        assert_eq!(data(&member), [number]);
    }
    assert!(!is_readable(&member, 0));
}

#[test]
fn member_whose_node_is_cut_off_waits_and_joins_again() {
    let ([red, blue], wire) = interrupted(Engine::Embedded);
    for link in red.links() {
        red.set_link(&link.name, LinkProperty::ToleranceMs(1500)).unwrap();
    }
    let settings = settings().state_transfer().patience(Duration::from_secs(2));
    let founder = join(&red, settings.clone().founder());
    view_of(&founder, 1);
    let follow = |member: &Ordered, state: &[u8]| -> View {
        loop {
            match member.receive().unwrap() {
                Incoming::StateWanted(request) => member.give_state(request, state).unwrap(),
                Incoming::View(view) => return view,
                Incoming::State(found) => assert_eq!(found, state),
                other => panic!("{other:?}"),
            }
        }
    };
    let second = join(&red, settings.clone());
    assert_eq!(follow(&founder, b"old").members.len(), 2);
    assert!(
        matches!(founder.receive().unwrap(), Incoming::StateWanted(r) if founder.give_state(r, *b"old").is_ok())
    );
    assert_eq!(follow(&second, b"old").members.len(), 2);
    let third = join(&blue, settings);
    assert_eq!(follow(&founder, b"old").members.len(), 3);
    assert!(
        matches!(founder.receive().unwrap(), Incoming::StateWanted(r) if founder.give_state(r, *b"old").is_ok())
    );
    assert_eq!(follow(&second, b"old").members.len(), 3);
    assert_eq!(follow(&third, b"old").members.len(), 3);

    wire.set(Direction::Receive, Faults::loss(100));
    assert_eq!(third.receive().unwrap(), Incoming::Blocked);
    third.set_send_timeout(Some(Duration::ZERO));
    third.multicast(b"lost").unwrap();
    assert_eq!(follow(&founder, b"").left[0].port, third.port());
    assert_eq!(founder.multicast_atomic(b"meanwhile").unwrap(), Outcome::Delivered);
    assert_eq!(data(&founder), b"meanwhile");

    wire.set(Direction::Receive, Faults::default());
    assert_eq!(follow(&founder, b"new").members.len(), 3);
    assert!(
        matches!(founder.receive().unwrap(), Incoming::StateWanted(r) if founder.give_state(r, *b"new").is_ok())
    );
    assert_eq!(third.receive().unwrap(), Incoming::Excluded);
    assert_eq!(third.view(), None);
    assert_eq!(follow(&third, b"new").fresh[0].port, third.port());
}

#[test]
fn three_daemons_and_their_processes_are_one_group() {
    let nodes = three_daemons();
    let again = nodes.each_ref().map(crate::common::TestNode::again);
    // Six members: more than get a copy of each message.
    let members = group([&nodes[0], &nodes[1], &nodes[2], &again[0], &again[1], &again[2]], &settings());
    check_orders(&exchange(&members, 100));
}
