//! Congestion state of other nodes, as processes see it.

use utipc_attach::{Failure, ProcessCall, Reply, Request};
use utipc_core::addr::{Importance, NodeAddr, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, SendError, SocketKind};
use utipc_core::stack::Stack;
use utipc_node::bearers::{Direction, Faults};

use crate::client::wait_while;
use crate::names::fetch;
use crate::node_lanes::wired;

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Option<Destination> = Some(Destination::service(18888, 17));
const FAR: u32 = 0x1002;

#[test]
fn full_queue_is_shown_as_congested_at_its_importance_until_it_drains() {
    let (hosts, [wire, _]) = wired();
    let (mut sender, mut receiver) = (hosts[0].client(), hosts[1].client());
    let replica = fetch(&mut sender);
    receiver.server(SocketKind::Rdm, SERVICE);
    let lookup =
        Request::Process(ProcessCall::Lookup { to: ServiceAddr::new(18888, 17), domain: NodeAddr::NONE });
    wait_while(|| sender.call(&lookup) == Ok(Reply::Found(None)));
    let port = sender.open(SocketKind::Rdm);
    let low = Stack::level(port, Importance::Low);
    sender.send(port, TO, b"hello").unwrap();
    assert!(!replica.is_congested(FAR, low));
    // The bearer drops everything, so the queue fills.
    wire.set(Direction::Send, Faults::loss(100));
    let mut sent = 0;
    while !replica.is_congested(FAR, low) {
        sender.send(port, TO, &[7; 1000]).unwrap();
        sent += 1;
        assert!(sent < 10_000, "the queue is never full");
    }
    // The node accepts one more message of each socket; another importance still has room.
    sender.send(port, TO, b"one more").unwrap();
    assert_eq!(sender.send(port, TO, b"too much"), Err(Failure::Send(SendError::WouldBlock)));
    assert!(!replica.is_congested(FAR, Stack::level(port, Importance::Medium)));
    assert!(
        replica.is_congested(FAR, Stack::level(port + 1, Importance::Low)),
        "both levels use the same link"
    );
    assert!(!replica.is_congested(FAR + 1, low), "another node is not congested");
    wire.set(Direction::Send, Faults::default());
    wait_while(|| replica.is_congested(FAR, low));
    assert!(!replica.is_congested(FAR, Stack::level(port + 1, Importance::Low)));
}
