//! Layers that share views and one order of messages.

use utipc::{Member, NodeAddr};

use super::*;

/// Layers by number; number n is process 100 + n on node n / 10.
struct World {
    layers: BTreeMap<u32, Layer>,
    round: u64,
    /// Members of the current view.
    view: View,
}

fn port(n: u32) -> PortId {
    PortId { port: n, node: NodeAddr(n / 10) }
}

fn members(of: &[u32]) -> Vec<Member> {
    of.iter().map(|n| Member { port: port(*n), instance: 0 }).collect()
}

/// An address in lists, with a reason.
fn at(n: u32, reason: Reason) -> CpgAddress {
    address(n / 10, 100 + n, reason)
}

fn change(members: &[u32], left: &[(u32, Reason)], joined: &[(u32, Reason)]) -> Event {
    let plain = members.iter().map(|n| at(*n, Reason::Undefined)).collect();
    let with = |list: &[(u32, Reason)]| list.iter().map(|(n, reason)| at(*n, *reason)).collect();
    Event::Change { members: plain, left: with(left), joined: with(joined) }
}

fn text(n: u32, data: &[u8]) -> Event {
    Event::Deliver { nodeid: n / 10, pid: 100 + n, data: data.to_vec() }
}

impl World {
    fn new() -> Self {
        Self { layers: BTreeMap::new(), round: 0, view: View::default() }
    }

    fn add(&mut self, n: u32, name: &[u8]) {
        self.layers.insert(n, Layer::new(port(n), 100 + n, Name::new(name).unwrap(), false));
    }

    /// A view of members that come together in these sets.
    fn view(&mut self, sets: &[&[u32]]) {
        self.round += 1;
        let all = sets.concat();
        let id = ViewId { round: self.round, coordinator: port(all[0]) };
        for set in sets {
            for n in *set {
                let view = View { id, members: members(&all), together: members(set), ..View::default() };
                // Node 3 is never up.
                self.layers.get_mut(n).unwrap().view(&view, |node| node != 3);
                self.view = view;
            }
        }
    }

    /// A view whose members are all new.
    fn first_view(&mut self, all: &[u32]) {
        self.view(&all.iter().map(std::slice::from_ref).collect::<Vec<_>>());
    }

    /// Messages that the members want to send now, in their order.
    fn collect(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut sent = Vec::new();
        for (n, layer) in &mut self.layers {
            layer.send_next(|message, _| {
                sent.push((*n, message.to_vec()));
                true
            });
        }
        sent.retain(|(n, _)| self.view.contains(port(*n)));
        sent
    }

    fn deliver(&mut self, from: u32, message: &[u8]) {
        let id = self.view.id;
        for (n, layer) in &mut self.layers {
            if self.view.contains(port(*n)) {
                assert!(layer.message(port(from), id, message.to_vec()));
            }
        }
    }

    /// Delivers everything that the members want to send.
    fn run(&mut self) {
        loop {
            let sent = self.collect();
            if sent.is_empty() {
                return;
            }
            for (from, message) in sent {
                self.deliver(from, &message);
            }
        }
    }

    /// A message of the program, as it is sent.
    fn submit(&mut self, n: u32, data: &[u8]) -> Option<Vec<u8>> {
        let layer = self.layers.get_mut(&n).unwrap();
        assert!(layer.can_send());
        layer.submit(data.to_vec(), false)
    }

    fn say(&mut self, n: u32, data: &[u8]) {
        let message = self.submit(n, data).expect("a short message");
        self.deliver(n, &message);
    }

    /// The events of a member since the last call, without rings.
    fn events(&mut self, n: u32) -> Vec<Event> {
        let layer = self.layers.get_mut(&n).unwrap();
        let all = std::iter::from_fn(|| layer.next_event());
        all.filter(|event| !matches!(event, Event::Ring { .. })).collect()
    }

    fn expect(&mut self, of: &[u32], events: &[Event]) {
        for n in of {
            assert_eq!(self.events(*n), events, "member {n}");
        }
    }

    /// Members of one group that have shown one another, with no events left.
    fn together(all: &[u32]) -> Self {
        let mut world = Self::new();
        for n in all {
            world.add(*n, b"group");
        }
        world.first_view(all);
        world.run();
        for n in all {
            assert!(!world.events(*n).is_empty());
        }
        world
    }
}

use Reason::{Join, Leave, NodeDown, NodeUp, ProcDown};

#[test]
fn each_join_is_a_separate_change() {
    let mut world = World::together(&[10, 11]);
    world.add(20, b"group");
    world.add(21, b"group");
    world.view(&[&[10, 11], &[20], &[21]]);
    world.run();
    let first = change(&[10, 11, 20], &[], &[(20, Join)]);
    let second = change(&[10, 11, 20, 21], &[], &[(21, Join)]);
    world.expect(&[10, 11, 20], &[first, second.clone()]);
    world.expect(&[21], &[second]);
}

#[test]
fn messages_of_a_view_follow_its_change() {
    let mut world = World::together(&[10, 11]);
    world.add(20, b"group");
    let early = world.submit(11, b"early").unwrap();
    world.view(&[&[10, 11], &[20]]);
    // Sent in the new view, before the sender has learned of it.
    world.deliver(11, &early);
    world.expect(&[10, 11, 20], &[]);
    assert!(!world.layers[&11].can_send());
    world.run();
    world.expect(&[10, 11, 20], &[change(&[10, 11, 20], &[], &[(20, Join)]), text(11, b"early")]);
}

#[test]
fn components_that_merge_show_each_other_as_nodes_that_are_up() {
    let mut world = World::together(&[10, 20]);
    let other = World::together(&[11, 30]);
    world.layers.extend(other.layers);
    world.round = 9;
    world.view(&[&[20, 10], &[11, 30]]);
    world.run();
    world.expect(&[10, 20], &[change(&[10, 11, 20, 30], &[], &[(11, NodeUp), (30, NodeUp)])]);
    world.expect(&[11, 30], &[change(&[10, 11, 20, 30], &[], &[(10, NodeUp), (20, NodeUp)])]);
}

#[test]
fn change_whose_view_ends_first_has_not_happened() {
    let mut world = World::together(&[10, 11]);
    world.add(20, b"group");
    let early = world.submit(11, b"early").unwrap();
    world.view(&[&[10, 11], &[20]]);
    world.deliver(11, &early);
    let rosters = world.collect();
    assert_eq!(rosters.len(), 2);
    // Only the roster of 20 arrives in the view.
    let (from, roster) = rosters.iter().find(|(n, _)| *n == 20).unwrap().clone();
    world.deliver(from, &roster);
    world.view(&[&[10, 11, 20]]);
    world.expect(&[10, 11], &[text(11, b"early")]);
    world.expect(&[20], &[]);
    world.run();
    world.expect(&[10, 11, 20], &[change(&[10, 11, 20], &[], &[(20, Join)])]);
}

#[test]
fn names_with_one_service_type_are_kept_apart() {
    let mut world = World::together(&[10]);
    world.add(11, b"other");
    world.view(&[&[10], &[11]]);
    world.run();
    world.expect(&[10], &[]);
    world.expect(&[11], &[change(&[11], &[], &[(11, Join)])]);
    world.say(10, b"to group");
    world.say(11, b"to other");
    world.expect(&[10], &[text(10, b"to group")]);
    world.expect(&[11], &[text(11, b"to other")]);
    world.view(&[&[10]]);
    world.expect(&[10], &[]);
}

#[test]
fn leaving_members_have_reasons() {
    let mut world = World::together(&[10, 11, 12, 20, 30]);
    world.layers.get_mut(&11).unwrap().say_bye(Leave);
    world.run();
    world.expect(&[10, 11, 12, 20, 30], &[change(&[10, 12, 20, 30], &[(11, Leave)], &[])]);
    assert!(world.layers[&11].has_left());
    world.view(&[&[10, 20]]);
    let node = change(&[10, 12, 20], &[(30, NodeDown)], &[]);
    world.expect(&[10, 20], &[node, change(&[10, 20], &[(12, ProcDown)], &[])]);
}

#[test]
fn member_that_comes_from_another_view_has_been_down() {
    let mut world = World::together(&[10, 20]);
    world.view(&[&[10], &[20]]);
    world.run();
    let down = |here, other| change(&[here], &[(other, NodeDown)], &[]);
    let up = |other| change(&[10, 20], &[], &[(other, NodeUp)]);
    world.expect(&[10], &[down(10, 20), up(20)]);
    world.expect(&[20], &[down(20, 10), up(10)]);
}

#[test]
fn long_messages_arrive_whole() {
    let mut world = World::together(&[10, 11]);
    let data: Vec<u8> = (0..MAX).map(|n| n as u8).collect();
    assert_eq!(world.submit(10, &data), None);
    assert!(!world.layers[&10].can_send());
    world.run();
    world.expect(&[10, 11], &[text(10, &data)]);
    assert!(world.layers[&10].can_send());
}

const MAX: usize = crate::types::MAX_MESSAGE;

#[test]
fn member_that_joins_amid_a_long_message_receives_it_whole() {
    let mut world = World::together(&[10, 11]);
    world.add(20, b"group");
    let data = vec![7; MAX];
    assert_eq!(world.submit(10, &data), None);
    let pieces = world.collect();
    // The view comes between two pieces; the remaining pieces are sent in it, where they are useless.
    for (from, piece) in &pieces[..3] {
        world.deliver(*from, piece);
    }
    world.view(&[&[10, 11], &[20]]);
    for (from, piece) in &pieces[3..5] {
        world.deliver(*from, piece);
    }
    world.run();
    world.expect(&[10, 11, 20], &[change(&[10, 11, 20], &[], &[(20, Join)]), text(10, &data)]);
    // A view without joiners changes nothing.
    assert_eq!(world.submit(11, &data), None);
    let pieces = world.collect();
    world.deliver(11, &pieces[0].1);
    world.view(&[&[11, 20]]);
    for (from, piece) in &pieces[1..] {
        world.deliver(*from, piece);
    }
    world.expect(&[11, 20], &[change(&[11, 20], &[(10, ProcDown)], &[]), text(11, &data)]);
}

#[test]
fn long_message_sent_in_the_joiners_view_is_delivered_once() {
    let mut world = World::together(&[10]);
    world.add(20, b"group");
    let data = vec![7; MAX];
    assert_eq!(world.submit(10, &data), None);
    let pieces = world.collect();
    world.view(&[&[10], &[20]]);
    for (from, piece) in &pieces {
        world.deliver(*from, piece);
    }
    world.run();
    world.expect(&[10, 20], &[change(&[10, 20], &[], &[(20, Join)]), text(10, &data)]);
}

#[test]
fn hostile_pieces_and_rosters_are_ignored() {
    let mut world = World::together(&[10, 11]);
    let piece = |offset, total, bytes: &[u8]| Message::Piece { number: 1, offset, total, bytes }.encode();
    for message in [
        piece(0, u32::MAX, b"x"),
        piece(u32::MAX, u32::MAX, b"x"),
        piece(0, 1, b"xy"),
        piece(0, 0, b""),
        piece(1, 2, b"x"),
        vec![],
        vec![1, 1, 0, 0],
    ] {
        world.deliver(11, &message);
    }
    world.expect(&[10, 11], &[]);
    world.say(11, b"still here");
    world.expect(&[10, 11], &[text(11, b"still here")]);
}
