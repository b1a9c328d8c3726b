//! Both ends on tokio, with one task for each connection, on one thread.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use utipc::tokio::{Connection, Listener};
use utipc::{Node, ServiceAddress, SocketKind};

use super::{End, Family, Rounds, SERVICE, SIZE, announce};

/// A connection of either family.
enum Stream {
    Tcp(TcpStream),
    Tipc(Box<Connection>),
}

impl Stream {
    async fn send(&mut self, data: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(data).await?,
            Self::Tipc(connection) => connection.send(data).await?,
        }
        Ok(())
    }

    /// Receives a whole message; false at the end of the connection.
    async fn receive(&mut self, data: &mut [u8; SIZE]) -> Result<bool> {
        match self {
            Self::Tcp(stream) => Ok(stream.read_exact(data).await.is_ok()),
            Self::Tipc(connection) => {
                Ok(connection.receive_into(data).await.is_ok_and(|got| got.len == SIZE))
            }
        }
    }
}

/// Runs the job of one end.
pub(super) fn run(end: &End) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match end.port {
            None => serve(end).await,
            Some(port) => drive(end, port).await,
        }
    })
}

async fn serve(end: &End) -> Result<()> {
    let instance = std::process::id();
    let ended = async {
        // The parent closes it at the end.
        while matches!(BufReader::new(tokio::io::stdin()).lines().next_line().await, Ok(Some(_))) {}
        Ok(())
    };
    let accept = async {
        match end.family {
            Family::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                announce(listener.local_addr()?.port().into());
                loop {
                    let stream = listener.accept().await?.0;
                    stream.set_nodelay(true)?;
                    tokio::spawn(echo(Stream::Tcp(stream)));
                }
            }
            Family::Tipc => {
                let node = Node::start()?;
                let service = ServiceAddress::new(SERVICE, instance);
                let listener = Listener::new(node.listen(SocketKind::SeqPacket, service)?)?;
                announce(instance);
                loop {
                    tokio::spawn(echo(Stream::Tipc(Box::new(listener.accept().await?))));
                }
            }
        }
    };
    tokio::select! { done = ended => done, failed = accept => failed }
}

async fn echo(mut stream: Stream) -> Result<()> {
    let mut data = [0; SIZE];
    while stream.receive(&mut data).await? {
        stream.send(&data).await?;
    }
    Ok(())
}

async fn drive(end: &End, port: u32) -> Result<()> {
    let node = if end.family == Family::Tipc { Some(Node::start()?) } else { None };
    let mut streams = Vec::new();
    for _ in 0..=end.idle {
        streams.push(match &node {
            None => {
                let port = u16::try_from(port).context("a TCP port has 16 bits")?;
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Some(node) => {
                let to = ServiceAddress::new(SERVICE, port);
                Stream::Tipc(Box::new(Connection::open(node.seqpacket()?, to).await?))
            }
        });
    }
    let mut active = streams.pop().context("there is a connection")?;
    // The idle connections have waiting tasks, as in a server.
    for mut stream in streams {
        tokio::spawn(async move { stream.receive(&mut [0; SIZE]).await });
    }
    let mut rounds = Rounds::new(end);
    let mut data = [7; SIZE];
    while rounds.goes_on() {
        let sent = Instant::now();
        active.send(&data).await?;
        anyhow::ensure!(active.receive(&mut data).await?, "the server has ended the connection");
        rounds.record(sent.elapsed());
    }
    rounds.report()
}
