//! Sends a message to a service address.
use utipc::{Node, Scope, ServiceAddress};

fn main() -> utipc::Result<()> {
    let hello = ServiceAddress::new(18888, 1);
    let node = Node::start()?; // uses utipcd if it runs here, else this program is a node
    let server = node.rdm()?;
    server.bind(hello, Scope::Cluster)?;
    node.rdm()?.send_to(b"Hello World", hello)?; // here, in another program, or on another host
    println!("{} at {hello}", String::from_utf8_lossy(&server.receive()?.data));
    Ok(())
}
