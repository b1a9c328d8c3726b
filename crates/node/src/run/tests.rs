use super::*;
use crate::bearers::LoopbackNetwork;
use crate::driver::Plan;
use utipc_core::config::StackConfig;
use utipc_core::wire::MediaAddr;
use utipc_core::{Destination, NodeAddr, Scope, ServiceRange, SocketKind};

/// Longer than any step takes on a loaded machine.
const LIMIT: Wait = Wait::AtMost(Duration::from_secs(30));

fn node(network: &LoopbackNetwork, number: u32) -> Node {
    let address = MediaAddr::Ethernet([2, 0, 0, 0, 0, number as u8]);
    let bearer = network.attach(address, 1500).unwrap();
    let stack =
        StackConfig { address: Some(NodeAddr(number)), seed: number.into(), ..StackConfig::default() };
    let mut plan = Plan::new(Box::new(bearer));
    plan.tune = Box::new(|config| config.name = "loopback:test".to_owned());
    Node::start(NodeConfig {
        stack,
        bearers: vec![plan],
        label: format!("test {number}"),
        ..NodeConfig::default()
    })
    .unwrap()
}

fn is_linked(node: &Node) -> bool {
    node.with(|stack, _| stack.links().iter().any(|link| link.up))
}

fn wait_linked(node: &Node) {
    let linked = |stack: &mut Stack, _| stack.links().iter().any(|link| link.up).then_some(());
    node.block(&node.observers(), Want::Change, LIMIT, linked).expect("the nodes link");
}

fn receive(stack: &mut Stack, now: Time, port: u32) -> Option<u8> {
    let mut buffer = [0; 10];
    stack.recv(now, port, &mut buffer, Default::default()).ok().map(|_| buffer[0])
}

fn bound(node: &Node, service: u32) -> u32 {
    node.with(|stack, now| {
        let port = stack.open(now, SocketKind::Rdm).unwrap();
        stack.bind(now, port, ServiceRange::new(service, 1, 1), Scope::Cluster).unwrap();
        port
    })
}

/// Sends as soon as the service is bound.
fn send(node: &Node, data: u8, service: u32) {
    node.block(&node.observers(), Want::Change, LIMIT, |stack, now| {
        let port = stack.open(now, SocketKind::Rdm).unwrap();
        let sent = stack.send(now, port, &[data], Some(Destination::service(service, 1))).ok();
        stack.close(now, port);
        sent
    })
    .expect("the service is bound");
}

#[test]
fn node_without_bearers_serves_its_own_process() {
    let node = Node::start(NodeConfig::default()).unwrap();
    let port = bound(&node, 1000);
    let slot = node.slot(port);
    std::thread::scope(|scope| {
        // It drives, and only the other thread's call can end its wait: this node has no timer.
        let waiting =
            scope.spawn(|| node.block(&slot, Want::Read, LIMIT, |stack, now| receive(stack, now, port)));
        std::thread::sleep(Duration::from_millis(50));
        send(&node, 7, 1000);
        assert_eq!(waiting.join().unwrap(), Some(7));
    });
}

#[test]
fn driving_call_hands_over_to_a_thread_that_still_waits() {
    let network = LoopbackNetwork::new();
    let (red, blue) = (node(&network, 1), node(&network, 2));
    wait_linked(&red);
    let ports = [1001, 1002].map(|service| bound(&blue, service));
    std::thread::scope(|scope| {
        let waiting = ports.map(|port| {
            let (slot, blue) = (blue.slot(port), &blue);
            scope.spawn(move || blue.block(&slot, Want::Read, LIMIT, |stack, now| receive(stack, now, port)))
        });
        std::thread::sleep(Duration::from_millis(50));
        // The driving call returns first; then the other one must drive.
        send(&red, 1, 1001);
        std::thread::sleep(Duration::from_millis(50));
        send(&red, 2, 1002);
        assert_eq!(waiting.map(|thread| thread.join().unwrap()), [Some(1), Some(2)]);
    });
}

#[test]
fn calls_that_never_wait_drive_the_node() {
    let network = LoopbackNetwork::new();
    let (red, blue) = (node(&network, 1), node(&network, 2));
    wait_linked(&red);
    let port = bound(&blue, 1000);
    let slot = blue.slot(port);
    send(&red, 9, 1000);
    let end = now() + Duration::from_secs(30);
    let got = loop {
        match blue.block(&slot, Want::Read, Wait::Never, |stack, now| receive(stack, now, port)) {
            None if now() < end => std::hint::spin_loop(),
            got => break got,
        }
    };
    assert_eq!(got, Some(9));
}

#[test]
fn wait_ends_at_its_limit() {
    let network = LoopbackNetwork::new();
    let blue = node(&network, 2);
    let slot = blue.slot(bound(&blue, 1000));
    let (start, limit) = (now(), Duration::from_millis(30));
    assert_eq!(blue.block(&slot, Want::Read, Wait::AtMost(limit), |_, _| None::<()>), None);
    assert!(now().since(start) >= limit);
}

#[test]
fn supervisor_keeps_links_of_idle_nodes_and_drop_ends_them() {
    let network = LoopbackNetwork::new();
    let (red, blue) = (node(&network, 1), node(&network, 2));
    wait_linked(&red);
    wait_linked(&blue);
    std::thread::sleep(Duration::from_secs(2));
    assert!(is_linked(&red) && is_linked(&blue));
    assert_eq!(red.counters().links_down, 0);
    drop(blue);
    let unlinked = |stack: &mut Stack, _| stack.links().iter().all(|link| !link.up).then_some(());
    // Less than the tolerance of 1500 ms, after which the loss of a peer is detected.
    let limit = Wait::AtMost(Duration::from_millis(1400));
    red.block(&red.observers(), Want::Change, limit, unlinked).expect("the peer announces that it leaves");
    assert_eq!(red.counters().links_down, 1);
}
