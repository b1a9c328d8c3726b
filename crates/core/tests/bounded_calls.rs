//! The work of one call of a node is bounded; what is left is done by the next calls of `handle_timeout`.

mod common;

use common::lan::{Lan, PEER, VICTIM, forged, media};
use utipc_core::discovery::{DiscoveryKind, DiscoveryMessage};
use utipc_core::wire::{NAME_ITEM_LEN, NameItem, User};
use utipc_core::{
    ClusterId, Destination, Drop, Event, Message, NodeAddr, NodeId, PortId, RecvOptions, Scope, ServiceRange,
    SocketKind, Stack, StackConfig, Time, limits,
};

/// Maximum number of bindings of lost nodes that one call, or the frames of one turn, withdraw; as in `switch::work`.
const WITHDRAWN: usize = 2048;
/// Maximum number of sockets whose timers one call handles; as in `stack`.
const TIMERS_PER_CALL: usize = 1024;

fn of_peer(stack: &Stack) -> usize {
    stack.bindings().iter().filter(|b| b.port.node == PEER).count()
}

/// A peer with `count` bindings, all known to the victim.
fn with_bindings(count: u32) -> Lan {
    let mut lan = Lan::linked();
    for n in 0..count {
        if n % 1000 == 0 {
            lan.run(10);
        }
        let (now, peer) = (lan.now, &mut lan.nodes[1]);
        let port = peer.open(now, SocketKind::Rdm).unwrap();
        peer.bind(now, port, ServiceRange::new(1000, n, n), Scope::Cluster).unwrap();
        lan.exchange();
        lan.sent.clear();
    }
    lan.run(500);
    assert_eq!(of_peer(&lan.nodes[0]), count as usize + 1);
    lan
}

#[test]
fn bindings_of_a_lost_node_are_withdrawn_in_parts() {
    let mut lan = with_bindings(5000);
    let mut left = of_peer(&lan.nodes[0]);
    let victim = &mut lan.nodes[0];
    victim.lose_neighbour(lan.now, 0, media(1));
    let mut calls = 1;
    loop {
        let now_left = of_peer(victim);
        assert!(left - now_left <= WITHDRAWN, "{} in one call", left - now_left);
        left = now_left;
        if left == 0 {
            break;
        }
        assert!(victim.deadline().is_some_and(|at| at <= lan.now), "no call is due, {left} bindings left");
        victim.handle_timeout(lan.now);
        calls += 1;
        assert!(calls < 10, "{left} bindings left");
    }
    assert_eq!(calls, 3);
    // Contact again brings them back.
    lan.run(5000);
    assert_eq!(of_peer(&lan.nodes[0]), 5001);
}

/// Several nodes are lost at the same time.
#[test]
fn bindings_of_many_lost_nodes_are_withdrawn_in_parts() {
    const NODES: u32 = 5;
    const EACH: u32 = 1500;
    let mut lan = Lan::linked();
    for n in 0..NODES {
        let from = NodeAddr::legacy(1, 2, 1 + n);
        forge_bindings(&mut lan, from, EACH);
    }
    let forged = |stack: &Stack| stack.bindings().iter().filter(|b| b.range.service == FORGED).count();
    let mut left = forged(&lan.nodes[0]);
    assert_eq!(left, (NODES * EACH) as usize);
    // All links are silent, so one call finds all of them down.
    let victim = &mut lan.nodes[0];
    for _ in 0..60 {
        lan.now = lan.now.plus_millis(375);
        let mut calls = 0;
        while victim.deadline().is_some_and(|at| at <= lan.now) {
            victim.handle_timeout(lan.now);
            victim.frames().clear();
            let now_left = forged(victim);
            assert!(left - now_left <= WITHDRAWN, "{} in one call", left - now_left);
            left = now_left;
            calls += 1;
            assert!(calls < 1000, "{left} bindings left");
        }
    }
    assert_eq!(left, 0);
}

/// The frames of one turn end the links of several nodes, or repeat the setup of nodes whose bindings are not all gone.
#[test]
fn frames_of_one_turn_withdraw_bindings_in_parts() {
    const NODES: u32 = 6;
    const EACH: u32 = 3000;
    let mut lan = Lan::linked();
    let nodes = (1..=NODES).map(|n| NodeAddr::legacy(1, 2, n));
    nodes.clone().for_each(|from| forge_bindings(&mut lan, from, EACH));
    let forged = |lan: &Lan| lan.nodes[0].bindings().iter().filter(|b| b.range.service == FORGED).count();
    let (mut left, mut turns) = (forged(&lan), 0);
    assert_eq!(left, (NODES * EACH) as usize);
    while left > 0 {
        let now = lan.now;
        lan.nodes[0].begin_turn(now, WORK);
        for _ in 0..3 {
            nodes.clone().for_each(|from| give(&mut lan, &setup(from, 1, 8)));
        }
        let now_left = forged(&lan);
        assert!(left - now_left <= WITHDRAWN, "{} by the frames of one turn", left - now_left);
        lan.nodes[0].handle_timeout(now);
        lan.nodes[0].handle_timeout(now);
        let after = forged(&lan);
        assert!(after < left || after == 0, "a turn has withdrawn nothing");
        assert!(now_left - after <= WITHDRAWN / 2, "{} by the timers of one turn", now_left - after);
        left = after;
        turns += 1;
    }
    assert!((6..12).contains(&turns), "{turns}");
}

/// Service type of forged bindings.
const FORGED: u32 = 77_777;

/// Brings a link of a forged node up and publishes bindings over it.
fn forge_bindings(lan: &mut Lan, from: NodeAddr, count: u32) {
    forge_node(lan, from);
    for (part, first) in (0..count).step_by(50).enumerate() {
        let mut names = forged_names(from, part as u16 + 1, first..first + 50);
        names.set_name_bulk(true);
        give(lan, &names);
    }
}

/// A packet with these bindings of a forged node.
fn forged_names(from: NodeAddr, number: u16, bindings: std::ops::Range<u32>) -> Message {
    let item = |n: u32| NameItem { range: ServiceRange::new(FORGED, n, n), port: 1 + n, key: n }.to_bytes();
    let items: Vec<u8> = bindings.flat_map(item).collect();
    let mut names = of(from, Message::build(User::NameDistributor, 0, 40, &items));
    names.set_bcast_ack_invalid(true);
    names.set_seqno(number);
    names
}

fn of(from: NodeAddr, message: Message) -> Message {
    let mut message = forged(message);
    message.set_prev_node(from);
    message.set_origin_node(from);
    message
}

fn give(lan: &mut Lan, frame: &Message) {
    lan.nodes[0].receive(lan.now, 0, frame.bytes());
    lan.nodes[0].frames().clear();
}

/// Brings a link of a forged node up.
fn forge_node(lan: &mut Lan, from: NodeAddr) {
    let request = DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source: from,
        cluster: ClusterId::default(),
        capabilities: limits::CAPABILITIES,
        signature: 0x1235,
        media: media(100),
        net_hash: 99,
        suggestion: NodeAddr::NONE,
        identity: NodeId::from_legacy(from),
    };
    give(lan, &request.build());
    for kind in [1, 2] {
        give(lan, &setup(from, kind, 7));
    }
}

/// A RESET (1) or ACTIVATE (2) of a forged node.
fn setup(from: NodeAddr, kind: u8, session: u16) -> Message {
    let name = b"U\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut setup = of(from, Message::build(User::LinkProtocol, kind, 40, name));
    setup.set_session(session);
    setup.set_max_packet(375);
    setup
}

/// Work of a turn in the tests below, messages to one socket.
const WORK: usize = 4096;

/// One turn of the victim: what earlier turns have left, then frames.
fn turn(lan: &mut Lan) {
    let now = lan.now;
    lan.nodes[0].begin_turn(now, WORK);
    lan.exchange();
    for node in &mut lan.nodes {
        if node.deadline().is_some_and(|due| due <= now) {
            node.handle_timeout(now);
        }
    }
}

/// The frames that arrive at once carry more bindings than a turn applies. A message behind them waits for them all.
#[test]
fn bindings_that_arrive_together_are_applied_in_turns() {
    const BINDINGS: u32 = 5000;
    // A binding costs 256, half as much work is done for those that wait, and the last message is applied as a whole.
    const MOST: usize = (WORK + WORK / 2) / 256 + 2 * 1472 / NAME_ITEM_LEN;
    let mut lan = Lan::apart();
    let (now, [victim, peer]) = (lan.now, &mut lan.nodes);
    for n in 0..BINDINGS {
        let port = peer.open(now, SocketKind::Rdm).unwrap();
        peer.bind(now, port, ServiceRange::new(1000, n, n), Scope::Cluster).unwrap();
    }
    let sender = peer.open(now, SocketKind::Rdm).unwrap();
    let receiver = victim.open(now, SocketKind::Rdm).unwrap();
    let to = Destination::Port(PortId { port: receiver, node: VICTIM });
    let (mut sent, mut received, mut busy, mut applied) = (false, false, 0, 0);
    for _ in 0..4000 {
        lan.now = lan.now.plus_millis(1);
        turn(&mut lan);
        let now_applied = of_peer(&lan.nodes[0]);
        assert!(now_applied - applied <= MOST, "{} in one turn", now_applied - applied);
        applied = now_applied;
        busy += usize::from(lan.nodes[0].has_work());
        if !sent && lan.nodes[1].nodes().iter().any(|node| node.up) {
            sent = lan.nodes[1].send(lan.now, sender, b"behind the bindings", Some(to)).is_ok();
        }
        if !received && lan.nodes[0].endpoint(receiver).is_some_and(|e| e.readiness().readable) {
            received = true;
            assert_eq!(applied, BINDINGS as usize + 1, "the message overtook bindings");
        }
    }
    assert!(busy >= 5, "only {busy} turns left work to the next one");
    assert!(sent && received && lan.is_linked());
    assert_eq!(applied, BINDINGS as usize + 1);
}

/// Numbered updates wait for an earlier one, whose packet makes all of them due. A message behind it waits for all.
#[test]
fn updates_that_have_waited_are_applied_in_turns() {
    const UPDATES: u16 = 4000;
    const EACH: u32 = 20;
    /// As in `switch::work`: a binding costs 256, and half as much work is done for what has waited. One message more.
    const MOST: usize = (WORK + WORK / 2) / 256 + 2 * EACH as usize;
    let (mut lan, from) = (Lan::linked(), NodeAddr::legacy(1, 2, 1));
    let receiver = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    forge_node(&mut lan, from);
    let mut bulk = forged_names(from, 1, 0..0);
    bulk.set_name_bulk(true);
    bulk.set_name_last_bulk(true);
    give(&mut lan, &bulk);
    let update = |number: u16, seqno: u16| {
        let first = u32::from(number) * EACH;
        let mut names = forged_names(from, seqno, first..first + EACH);
        names.set_name_numbered(true);
        names.set_name_seqno(number);
        names
    };
    for number in 1..=UPDATES {
        give(&mut lan, &update(number, 1 + number));
    }
    let known = |lan: &Lan| lan.nodes[0].bindings().iter().filter(|b| b.range.service == FORGED).count();
    assert_eq!(known(&lan), 0, "an update is applied before an earlier one");
    lan.nodes[0].begin_turn(lan.now, WORK);
    give(&mut lan, &update(0, 2 + UPDATES));
    let mut data = of(from, Message::build(User::Low, 3, 32, b"behind the updates"));
    data.set_seqno(3 + UPDATES);
    data.set_origin_port(77);
    data.set_dest_port(receiver);
    give(&mut lan, &data);
    let all = (usize::from(UPDATES) + 1) * EACH as usize;
    let (mut applied, mut turns) = (0, 0);
    loop {
        let now_applied = known(&lan);
        assert!(now_applied - applied <= MOST, "{} in one turn", now_applied - applied);
        applied = now_applied;
        let got = lan.nodes[0].recv(lan.now, receiver, &mut [0; 64], RecvOptions::default());
        if got.is_ok() {
            break;
        }
        assert!(lan.nodes[0].has_work(), "{} bindings are left, and no work", all - applied);
        turns += 1;
        lan.nodes[0].begin_turn(lan.now, WORK);
    }
    assert_eq!(applied, all, "the message overtook bindings");
    assert!(turns > 100, "{turns}");
}

/// One frame carries many multicasts, each to many sockets.
#[test]
fn copies_of_multicasts_that_arrive_together_are_made_in_turns() {
    const SOCKETS: usize = 256;
    const MULTICASTS: usize = 200;
    /// Copies of one step; as in `core/switch/spread.rs`.
    const STEP: usize = 64;
    let mut lan = Lan::linked();
    let (now, [victim, _]) = (lan.now, &mut lan.nodes);
    let range = ServiceRange::new(1000, 1, 1);
    let open = |_| {
        let port = victim.open(now, SocketKind::Rdm).unwrap();
        victim.bind(now, port, range, Scope::Cluster).unwrap();
        port
    };
    let receivers: Vec<u32> = (0..SOCKETS).map(open).collect();
    lan.run(1000);
    let sender = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    for _ in 0..MULTICASTS {
        lan.nodes[1].send(lan.now, sender, b"to all", Some(Destination::Range(range))).unwrap();
    }
    let arrived = |lan: &mut Lan| -> usize {
        let (now, victim) = (lan.now, &mut lan.nodes[0]);
        let mut receive = |port| victim.recv(now, port, &mut [0; 16], RecvOptions::default()).is_ok();
        receivers
            .iter()
            .map(|port| std::iter::repeat_with(|| receive(*port)).take_while(|got| *got).count())
            .sum()
    };
    let (mut steps, mut received, mut due) = (0, 0, None);
    for _ in 0..2000 {
        lan.now = lan.now.plus_millis(1);
        turn(&mut lan);
        due = due.or_else(|| lan.nodes[0].take_spread().map(|(origin, _)| origin));
        if let Some(origin) = due {
            assert_eq!(lan.nodes[0].take_spread(), None, "one peer makes one step due at a time");
            steps += 1;
            if !lan.nodes[0].continue_spread(lan.now, origin) {
                due = None;
            }
        }
        let copies = arrived(&mut lan);
        assert!(copies <= STEP, "{copies} in one step");
        received += copies;
    }
    assert!(steps >= SOCKETS / STEP * MULTICASTS, "{steps} steps");
    assert_eq!(received, SOCKETS * MULTICASTS);
}

/// A node that sends more bindings than a turn applies delays only its own messages, and what waits of it is bounded.
#[test]
fn node_that_sends_more_than_a_turn_handles_delays_no_other_node() {
    const BINDINGS: u32 = 1_000_000;
    const MAX_HELD: usize = 16 << 20;
    let mut lan = Lan::linked();
    let (now, [victim, peer]) = (lan.now, &mut lan.nodes);
    let receiver = victim.open(now, SocketKind::Rdm).unwrap();
    let sender = peer.open(now, SocketKind::Rdm).unwrap();
    let to = Destination::Port(PortId { port: receiver, node: VICTIM });
    lan.nodes[0].begin_turn(lan.now, WORK);
    forge_bindings(&mut lan, NodeAddr::legacy(1, 2, 1), BINDINGS);
    let victim = &mut lan.nodes[0];
    let dropped = std::iter::from_fn(|| victim.poll_event());
    let dropped = dropped.filter(|e| matches!(e, Event::Dropped { reason: Drop::Held, .. })).count();
    let kept = BINDINGS as usize / 50 - victim.stats().frames_dropped as usize;
    assert!(dropped > 0 && kept * 1000 <= MAX_HELD, "{dropped} events, {kept} packets kept");
    for _ in 0..20 {
        lan.now = lan.now.plus_millis(1);
        lan.nodes[0].begin_turn(lan.now, WORK);
        lan.nodes[1].send(lan.now, sender, b"in between", Some(to)).unwrap();
        lan.exchange();
        assert!(lan.nodes[0].has_work(), "all bindings are applied");
        let got = lan.nodes[0].recv(lan.now, receiver, &mut [0; 16], RecvOptions::default());
        assert!(got.is_ok(), "{got:?}");
    }
}

/// The node comes back before its old bindings are gone.
#[test]
fn node_that_returns_early_has_its_present_bindings_only() {
    let mut lan = with_bindings(5000);
    lan.nodes[0].lose_neighbour(lan.now, 0, media(1));
    assert!(of_peer(&lan.nodes[0]) > 0);
    // Frames only: no timer runs on the victim until contact is back.
    for _ in 0..2000 {
        lan.now = lan.now.plus_millis(5);
        let (now, peer) = (lan.now, &mut lan.nodes[1]);
        if peer.deadline().is_some_and(|at| at <= now) {
            peer.handle_timeout(now);
        }
        lan.exchange();
        if lan.is_linked() {
            break;
        }
    }
    lan.run(5000);
    assert!(lan.is_linked());
    assert_eq!(of_peer(&lan.nodes[0]), 5001);
}

/// Timers of many sockets are due at the same time.
#[test]
fn timers_of_sockets_are_handled_in_parts() {
    const SOCKETS: usize = 3000;
    let now = Time::from_millis(1000);
    let mut node = Stack::new(now, StackConfig::default());
    let server = node.open(now, SocketKind::SeqPacket).unwrap();
    node.bind(now, server, ServiceRange::new(1000, 1, 1), Scope::Node).unwrap();
    node.listen(now, server).unwrap();
    let mut clients = Vec::new();
    for _ in 0..SOCKETS {
        let client = node.open(now, SocketKind::SeqPacket).unwrap();
        // The server accepts nothing: each connect times out.
        if node.connect(now, client, Some(Destination::service(1000, 1))).is_ok() {
            clients.push(client);
        }
    }
    let pending = |node: &Stack| {
        let waits = |port: &&u32| node.endpoint(**port).is_some_and(|e| e.error().is_none());
        clients.iter().filter(waits).count()
    };
    let mut waiting = pending(&node);
    assert!(waiting > 2 * TIMERS_PER_CALL, "only {waiting} wait");
    let late = Time::from_millis(3_600_000);
    let mut calls = 0;
    while node.deadline().is_some_and(|at| at <= late) {
        node.handle_timeout(late);
        let left = pending(&node);
        assert!(waiting - left <= TIMERS_PER_CALL, "{} in one call", waiting - left);
        waiting = left;
        calls += 1;
        assert!(calls < 100, "{waiting} wait for ever");
    }
    assert!(calls >= 3);
}
