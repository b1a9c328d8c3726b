//! A client with its connection to the server, from the first byte to the last log line.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpStream, UnixStream};
use tracing::{debug, warn};
use utipc::tokio::Connection;

use super::back::{Back, Server};
use super::front::Client;
use super::relay::{Party, Service, Totals, relay};

/// The end that is not a service.
#[derive(Debug)]
enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// Sends small pieces at once, and finds out about hosts that are gone.
    fn prepare(&self) -> io::Result<()> {
        if let Self::Tcp(stream) = self {
            stream.set_nodelay(true)?;
            rustix::net::sockopt::set_socket_keepalive(stream.as_fd(), true)?;
        }
        Ok(())
    }

    /// Closes with a reset, so that the peer can tell a failure from an end.
    fn abort(self) {
        if let Self::Tcp(stream) = &self {
            let _ = rustix::net::sockopt::set_socket_linger(stream.as_fd(), Some(Duration::ZERO));
        }
    }

    async fn relay(&mut self, service: &Service, party: Party, totals: &mut Totals) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.split();
                relay(reader, writer, service, party, totals).await
            }
            Self::Unix(stream) => {
                let (reader, writer) = stream.split();
                relay(reader, writer, service, party, totals).await
            }
        }
    }
}

/// Serves one client.
pub(super) async fn run(client: Client, back: &Back, half_close: bool, linger: Duration) {
    let name = client.name();
    debug!("{name} has connected");
    let mut totals = Totals::default();
    match serve(client, back, half_close, linger, &mut totals).await {
        Ok(()) => debug!(
            "{name} has ended: {} bytes to the service, {} from it",
            totals.to_service, totals.from_service
        ),
        Err(error) => warn!("connection of {name}: {}", utipc_cli::one_line(&error)),
    }
}

async fn serve(
    client: Client,
    back: &Back,
    half_close: bool,
    linger: Duration,
    totals: &mut Totals,
) -> Result<()> {
    let party = if client.is_service() { Party::Server } else { Party::Client(linger) };
    let (mut plain, connection) = match pair(client, back).await {
        Ok(pair) => pair,
        Err((plain, error)) => {
            plain.into_iter().for_each(Plain::abort);
            return Err(error);
        }
    };
    let done = async {
        plain.prepare()?;
        let service = Service::new(connection, half_close).await?;
        plain.relay(&service, party, totals).await
    };
    let result = done.await;
    match result {
        Ok(()) => Ok(()),
        Err(error) => {
            plain.abort();
            Err(error).context("it broke")
        }
    }
}

/// Connects the client to the server. After a failure, returns the client's end if that is the plain one.
async fn pair(client: Client, back: &Back) -> Result<(Plain, Connection), (Option<Plain>, anyhow::Error)> {
    let plain = match client {
        Client::Tcp(stream) => Plain::Tcp(stream),
        Client::Unix(stream) => Plain::Unix(stream),
        Client::Service(connection) => {
            return match back.connect().await {
                Ok(Server::Tcp(stream)) => Ok((Plain::Tcp(stream), *connection)),
                Ok(Server::Unix(stream)) => Ok((Plain::Unix(stream), *connection)),
                Ok(Server::Service(_)) => Err((None, anyhow::anyhow!("both ends are services"))),
                Err(error) => Err((None, error)),
            };
        }
    };
    match back.connect().await {
        Ok(Server::Service(connection)) => Ok((plain, *connection)),
        Ok(_) => Err((Some(plain), anyhow::anyhow!("neither end is a service"))),
        Err(error) => Err((Some(plain), error)),
    }
}
