//! Watches the bindings of a service, as seen by this node or another.
//!
//! `cargo run -p utipc --example service_watch [NODE]`, with a node's address in hexadecimal.

use std::time::Duration;

use utipc::{Node, NodeAddr, Scope, ServiceAddress, ServiceRange};

const WATCHED: ServiceRange = ServiceRange::new(2222, 0, 99);
const OWN: ServiceAddress = ServiceAddress::new(2222, 5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::start()?;
    let server = match std::env::args().nth(1) {
        Some(text) => NodeAddr(u32::from_str_radix(&text, 16)?),
        None => node.address(),
    };
    if server != node.address() {
        wait_for_node(&node, server)?;
    }
    // The topology server of another node is used like that of this node.
    let mut topology = node.topology_of(server)?;
    println!("watching {WATCHED} as node {server} sees it");
    topology.services(WATCHED)?;

    let mut socket = Some(node.rdm()?);
    socket.as_ref().expect("it is open").bind(OWN, Scope::Cluster)?;
    for event in topology.events(Duration::from_secs(10)) {
        let event = event?;
        let service = ServiceAddress::new(event.found.service, event.found.lower);
        println!("service {service} is {} at {}", if event.is_up() { "up" } else { "down" }, event.port);
        if !event.is_up() {
            break;
        }
        // Closing the socket withdraws its bindings.
        socket = None;
    }
    drop(socket);
    println!("done");
    Ok(())
}

/// Waits for a node: a program that has just started does not know its peers yet.
fn wait_for_node(node: &Node, wanted: NodeAddr) -> utipc::Result<()> {
    let mut topology = node.topology()?;
    topology.nodes()?;
    for event in topology.events(Duration::from_secs(10)) {
        if event?.change == utipc::Change::NodeUp(wanted) {
            break;
        }
    }
    Ok(())
}
