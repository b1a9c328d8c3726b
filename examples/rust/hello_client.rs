//! A client that knows only a service address. See `hello_server`.
//!
//! `cargo run -p utipc --example hello_client`

use std::time::Duration;

use utipc::{Node, ServiceAddress};

const HELLO: ServiceAddress = ServiceAddress::new(18888, 17);

fn main() -> utipc::Result<()> {
    let node = Node::start()?;
    println!("client: node {} waits for {HELLO}", node.address());
    node.wait_for_service(HELLO, Duration::from_secs(30))?;

    let socket = node.rdm()?;
    socket.set_receive_timeout(Some(Duration::from_secs(10)));
    socket.send_to(b"Hello World!!!", HELLO)?;
    let reply = socket.receive()?;
    println!("client: \"{}\" from {}", String::from_utf8_lossy(&reply.data), reply.source);
    Ok(())
}
