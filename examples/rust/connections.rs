//! Three ways to set up a connection.
//!
//! `cargo run -p utipc --example connections`

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use utipc::{Connection, Error, Node, ServiceAddress, SocketKind, State};

const ECHO: ServiceAddress = ServiceAddress::new(4711, 1);

fn main() -> utipc::Result<()> {
    // Both ends are on one node for demonstration; they could also be on two nodes.
    let node = Node::start()?;
    let listener = node.listen(SocketKind::Stream, ECHO)?;
    let server = thread::spawn(move || -> utipc::Result<()> {
        for _ in 0..3 {
            let connection = listener.accept()?;
            thread::spawn(move || echo(connection));
        }
        Ok(())
    });

    // 1. As with TCP: connect, wait until the server has accepted, then talk.
    let connection = node.connect(SocketKind::Stream, ECHO)?;
    let peer = connection.peer().expect("it is connected");
    println!("1. by request: connected to {peer}, answer {:?}", talk(&connection, Some(b"first"))?);

    // 2. By data: the first message is the connection request, which saves a round trip.
    let connection = Connection::open_with(node.stream()?, ECHO, b"second")?;
    println!("2. by data: answer {:?}", talk(&connection, None)?);

    // 3. Without waiting: the request is sent, and a poll loop can do other things until the reply arrives.
    let socket = node.stream()?;
    socket.set_nonblocking(true);
    match socket.connect(ECHO) {
        Ok(()) | Err(Error::WouldBlock { .. }) => {}
        Err(error) => return Err(error),
    }
    println!("3. without waiting: something else is done meanwhile");
    while socket.state() == State::Connecting {
        thread::sleep(Duration::from_millis(1));
    }
    socket.set_nonblocking(false);
    let connection = Connection::from(socket);
    let peer = connection.peer().expect("it is connected");
    println!("3. without waiting: connected to {peer}, answer {:?}", talk(&connection, Some(b"third"))?);

    server.join().expect("the server does not panic")
}

fn echo(mut connection: Connection) -> std::io::Result<()> {
    let mut buffer = [0; 1000];
    loop {
        let count = connection.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        connection.write_all(&buffer[..count])?;
    }
}

fn talk(connection: &Connection, data: Option<&[u8]>) -> utipc::Result<String> {
    if let Some(data) = data {
        connection.send(data)?;
    }
    Ok(String::from_utf8_lossy(&connection.receive()?.data).into_owned())
}
