//! A server without a host or port number: it binds to a service address, and clients find it wherever it runs.
//!
//! Start it in one terminal and `hello_client` in another, in any order, with no arguments:
//! `cargo run -p utipc --example hello_server`

use utipc::{Node, Scope, ServiceAddress};

const HELLO: ServiceAddress = ServiceAddress::new(18888, 17);

fn main() -> utipc::Result<()> {
    let node = Node::start()?;
    let socket = node.rdm()?;
    socket.bind(HELLO, Scope::Cluster)?;
    println!("server: bound to {HELLO} on node {}", node.address());

    let request = socket.receive()?;
    println!("server: \"{}\" from {}", String::from_utf8_lossy(&request.data), request.source);
    socket.send_to(b"Uh ?", request.source)?;

    // The reply to another node travels over a link: stay until that node has left, so that the reply arrives.
    if request.source.node == node.address() {
        println!("server: done");
        return Ok(());
    }
    let mut topology = node.topology()?;
    topology.nodes()?;
    for event in topology.events(std::time::Duration::from_secs(10)) {
        if event?.change == utipc::Change::NodeDown(request.source.node) {
            break;
        }
    }
    println!("server: done");
    Ok(())
}
