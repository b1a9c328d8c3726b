//! Bindings and messages that depend on them; barriers.

use super::*;
use crate::addr::Binding;

/// Frames that are kept back, to be delivered later.
type Kept = Vec<(usize, u8, Vec<u8>)>;

/// Two nodes in contact with a socket each, on one or two networks.
fn pair(networks: u8) -> (Lan, u32, PortId) {
    let mut lan = Lan::with_networks(2, networks);
    lan.run(5000);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    let port = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    let receiver = PortId { port, node: lan.nodes[1].own_node() };
    (lan, sender, receiver)
}

fn bind(lan: &mut Lan, node: usize, port: u32, instance: u32) {
    let range = ServiceRange::new(500, instance, instance);
    lan.nodes[node].bind(lan.now, port, range, Scope::Cluster).unwrap();
}

fn knows(lan: &mut Lan, node: usize, instance: u32) -> bool {
    lan.nodes[node].lookup(ServiceAddr { service: 500, instance }, NodeAddr::NONE).is_some()
}

/// Delivers what node 0 has sent to node 1, without its broadcasts, which are returned, and then what node 1 has sent.
fn without_broadcasts(lan: &mut Lan) -> Kept {
    let batch = core::mem::take(lan.nodes[0].frames());
    let mut kept = Kept::new();
    for frame in batch.frames() {
        let bytes = batch.frame(frame);
        match frame.to {
            Target::Broadcast => kept.push((1, frame.bearer, bytes.to_vec())),
            Target::Unicast(_) => lan.nodes[1].receive(lan.now, frame.bearer, &bytes),
        }
    }
    let batch = core::mem::take(lan.nodes[1].frames());
    for frame in batch.frames() {
        lan.nodes[0].receive(lan.now, frame.bearer, &batch.frame(frame));
    }
    kept
}

#[test]
fn message_never_overtakes_the_publication_it_depends_on() {
    for networks in [1, 2] {
        let (mut lan, sender, receiver) = pair(networks);
        let other = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
        let mut kept = Kept::new();
        for instance in 0..20 {
            bind(&mut lan, 0, sender, instance);
            for port in [sender, other] {
                let data = instance.to_be_bytes();
                lan.nodes[0].send(lan.now, port, &data, Some(Destination::Port(receiver))).unwrap();
                kept.append(&mut without_broadcasts(&mut lan));
                assert_eq!(lan.recv(1, receiver.port), data);
                assert!(knows(&mut lan, 1, instance), "{networks} networks, binding {instance}");
            }
        }
        assert!(kept.len() >= 20, "updates are broadcast too");
        let changes = lan.nodes[1].bindings().len();
        for (node, bearer, bytes) in kept {
            lan.nodes[node].receive(lan.now, bearer, &bytes);
        }
        lan.run(2000);
        assert_eq!(lan.nodes[1].bindings().len(), changes, "each is applied once");
        assert_eq!((lan.up(0), lan.up(1)), (1, 1));
    }
}

#[test]
fn withdrawal_precedes_the_message_too() {
    let (mut lan, sender, receiver) = pair(1);
    bind(&mut lan, 0, sender, 1);
    lan.run(1000);
    assert!(knows(&mut lan, 1, 1));
    lan.nodes[0].unbind(lan.now, sender, None).unwrap();
    lan.nodes[0].send(lan.now, sender, b"gone", Some(Destination::Port(receiver))).unwrap();
    without_broadcasts(&mut lan);
    assert_eq!(lan.recv(1, receiver.port), b"gone");
    assert!(!knows(&mut lan, 1, 1));
}

#[test]
fn all_updates_that_are_kept_precede_a_message() {
    let (mut lan, sender, receiver) = pair(1);
    let mut kept = Kept::new();
    let many = crate::names::MAX_RECENT as u32;
    for instance in 0..many {
        bind(&mut lan, 0, sender, instance);
        kept.append(&mut without_broadcasts(&mut lan));
    }
    lan.nodes[0].send(lan.now, sender, b"all", Some(Destination::Port(receiver))).unwrap();
    for _ in 0..1000 {
        kept.append(&mut without_broadcasts(&mut lan));
        lan.now = lan.now.plus_millis(1);
        for node in &mut lan.nodes {
            node.handle_timeout(lan.now);
        }
        if lan.nodes[1].endpoint(receiver.port).unwrap().readiness().readable {
            break;
        }
    }
    assert_eq!(lan.recv(1, receiver.port), b"all");
    assert!((0..many).all(|instance| knows(&mut lan, 1, instance)));
}

/// Copies would be so far ahead of their broadcasts that these would look like later updates.
#[test]
fn more_updates_than_are_kept_reset_no_link() {
    let (mut lan, sender, receiver) = pair(1);
    lan.events.iter_mut().for_each(Vec::clear);
    for instance in 0..60_000 {
        bind(&mut lan, 0, sender, instance % 100);
        if instance % 100 == 99 {
            lan.nodes[0].unbind(lan.now, sender, None).unwrap();
        }
        if instance % 50 == 0 {
            let _ = lan.nodes[0].send(lan.now, sender, b"in between", Some(Destination::Port(receiver)));
        }
        if instance % 1000 == 0 {
            lan.step();
        }
    }
    bind(&mut lan, 0, sender, 500);
    lan.run(10_000);
    let downs = lan.events.iter().flatten().filter(|event| matches!(event, Event::LinkDown { .. }));
    assert_eq!(downs.count(), 0);
    let known = |node: usize| {
        let own = lan.nodes[0].own_node();
        let of_sender =
            |b: &&Binding| b.range.service == 500 && (b.port.node == own || b.port.node.is_none());
        lan.nodes[node].bindings().iter().filter(of_sender).map(|b| b.range).collect::<Vec<_>>()
    };
    assert_eq!(known(1), [ServiceRange::new(500, 500, 500)]);
}

#[test]
fn message_needs_no_copies_of_what_the_peer_has_acknowledged() {
    let (mut lan, sender, receiver) = pair(1);
    bind(&mut lan, 0, sender, 1);
    lan.run(1000);
    lan.nodes[0].send(lan.now, sender, b"x", Some(Destination::Port(receiver))).unwrap();
    assert_eq!(lan.nodes[0].frames().frames().len(), 1);
}

#[test]
fn barrier_is_reached_when_all_nodes_have_acknowledged() {
    let mut lan = Lan::new(4);
    lan.run(3000);
    let sockets: Vec<u32> = (0..3).map(|_| lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap()).collect();
    for (instance, port) in (0..).zip(&sockets) {
        bind(&mut lan, 0, *port, instance);
    }
    let mut barrier = lan.nodes[0].begin_barrier(lan.now);
    let nodes: Vec<NodeAddr> = lan.nodes.iter().map(Stack::own_node).collect();
    let mut others = nodes[1..].to_vec();
    others.sort_unstable();
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut barrier), others);
    let begun = lan.now;
    lan.exchange();
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut barrier), [], "the question is answered at once");
    assert_eq!(lan.now, begun);
    for node in 1..4 {
        assert!((0..3).all(|instance| knows(&mut lan, node, instance)));
    }
}

#[test]
fn node_without_peers_or_news_does_not_wait() {
    let mut alone = Stack::new(Time::ZERO, StackConfig::default());
    let mut barrier = alone.begin_barrier(Time::ZERO);
    assert_eq!(alone.awaited(Time::ZERO, &mut barrier), []);
    let (mut lan, ..) = pair(1);
    let mut barrier = lan.nodes[0].begin_barrier(lan.now);
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut barrier), []);
}

#[test]
fn node_that_goes_down_is_not_waited_for_and_one_that_returns_is() {
    let (mut lan, sender, _) = pair(1);
    lan.cut = vec![(1, 0)];
    bind(&mut lan, 0, sender, 1);
    let mut barrier = lan.nodes[0].begin_barrier(lan.now);
    let peer = lan.nodes[1].own_node();
    lan.run(500);
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut barrier), [peer]);
    lan.run(5000);
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut barrier), [], "it is down");
    let mut later = lan.nodes[0].begin_barrier(lan.now);
    lan.cut.clear();
    while lan.up(0) == 0 {
        lan.run(1);
    }
    bind(&mut lan, 0, sender, 2);
    lan.cut = vec![(1, 0)];
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut later), [peer], "it is up again and has not answered");
    lan.cut.clear();
    lan.run(1000);
    assert_eq!(lan.nodes[0].awaited(lan.now, &mut later), []);
    assert!(knows(&mut lan, 1, 1));
}

#[test]
fn barrier_waits_for_packets_of_a_failed_link_on_the_other_one() {
    let (mut lan, sender, _) = pair(2);
    lan.cut = vec![(1, 0)];
    for instance in 0..100 {
        bind(&mut lan, 0, sender, instance);
    }
    let mut barrier = lan.nodes[0].begin_barrier(lan.now);
    let mut waited = 0;
    while !lan.nodes[0].awaited(lan.now, &mut barrier).is_empty() {
        lan.run(10);
        waited += 10;
        assert!(waited < 60_000, "the barrier is never reached");
    }
    assert!((0..100).all(|instance| knows(&mut lan, 1, instance)));
    assert_eq!(lan.up(0), 1);
}
