//! One message to all sockets bound in a range of instances.
//!
//! `cargo run -p utipc --example multicast`

use utipc::{Node, Scope, ServiceAddress, ServiceRange};

const WEATHER: u32 = 1000;

fn main() -> utipc::Result<()> {
    let node = Node::start()?;
    let mut stations = Vec::new();
    for instance in [10, 20, 30] {
        let socket = node.rdm()?;
        socket.bind(ServiceAddress::new(WEATHER, instance), Scope::Cluster)?;
        stations.push((instance, socket));
    }
    // A socket may have many bindings, also of whole ranges.
    let archive = node.rdm()?;
    archive.bind(ServiceRange::new(WEATHER, 0, u32::MAX), Scope::Cluster)?;

    let sender = node.rdm()?;
    sender.send_to(b"rain in the south", ServiceRange::new(WEATHER, 0, 25))?;
    sender.send_to(b"sun everywhere", ServiceRange::new(WEATHER, 0, 99))?;

    for (instance, socket) in &stations {
        let expected = if *instance <= 25 { 2 } else { 1 };
        for _ in 0..expected {
            println!("station {instance}: {}", String::from_utf8_lossy(&socket.receive()?.data));
        }
    }
    for _ in 0..2 {
        let message = archive.receive()?;
        let range = message.destination.expect("a multicast names its range");
        println!("archive: {} (sent to {range})", String::from_utf8_lossy(&message.data));
    }
    Ok(())
}
