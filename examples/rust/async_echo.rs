//! A server and its clients as tasks of one thread.
//!
//! `cargo run -p utipc --features tokio --example async_echo`

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use utipc::tokio::{Connection, Listener, Topology};
use utipc::{Change, Node, ServiceAddress, SocketKind};

const ECHO: ServiceAddress = ServiceAddress::new(4711, 2);
const CLIENTS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let node = Node::start()?;
    let mut topology = node.topology()?;
    topology.services(ECHO)?;
    let mut topology = Topology::new(topology)?;

    let listener = Listener::new(node.listen(SocketKind::Stream, ECHO)?)?;
    assert_eq!(topology.next().await?.change, Change::ServiceUp);
    println!("the service is up");
    let server = tokio::spawn(async move {
        for _ in 0..CLIENTS {
            let mut connection = listener.accept().await?;
            tokio::spawn(async move {
                let mut line = [0; 64];
                while let Ok(len @ 1..) = connection.read(&mut line).await {
                    if connection.write_all(&line[..len]).await.is_err() {
                        return;
                    }
                }
            });
        }
        // The listener closes here, which withdraws the service.
        utipc::Result::Ok(())
    });

    for client in 0..CLIENTS {
        let mut connection = Connection::open(node.stream()?, ECHO).await?;
        let text = format!("client {client}");
        connection.write_all(text.as_bytes()).await?;
        let mut reply = vec![0; text.len()];
        timeout(Duration::from_secs(5), connection.read_exact(&mut reply)).await??;
        println!("{}", String::from_utf8_lossy(&reply));
    }
    server.await??;
    assert_eq!(topology.next().await?.change, Change::ServiceDown);
    println!("the service is gone");
    Ok(())
}
