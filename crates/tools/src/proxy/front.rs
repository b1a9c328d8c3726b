//! The side on which clients connect.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use utipc::tokio::{Connection, Listener};
use utipc::{Node, ServiceRange, SocketKind};

use super::address::Address;

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
    Service(Box<Connection>),
}

#[derive(Debug)]
enum Open {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _file: Unlink },
    Service(Box<Listener>),
}

/// Removes the socket's file at the end.
#[derive(Debug)]
struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The listening socket, which can be closed and opened again.
#[derive(Debug)]
pub(super) struct Front {
    address: Address,
    node: Node,
    kind: SocketKind,
    open: Option<Open>,
}

impl Front {
    /// A listening socket that is not open yet.
    pub(super) fn new(address: &Address, node: &Node, kind: SocketKind) -> Self {
        Self { address: address.clone(), node: node.clone(), kind, open: None }
    }

    /// Opens the socket; afterwards the address names the actual port.
    pub(super) async fn reopen(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let failed = || format!("cannot listen on {}", self.address);
        self.open = Some(match &self.address {
            Address::Tcp(at) => {
                let listener = TcpListener::bind(at).await.map_err(explained).with_context(failed)?;
                let actual = listener.local_addr().with_context(failed)?;
                self.address = Address::Tcp(actual.to_string());
                Open::Tcp(listener)
            }
            Address::Unix(path) => {
                remove_stale(path).await.with_context(failed)?;
                let listener = UnixListener::bind(path).map_err(explained).with_context(failed)?;
                Open::Unix { listener, _file: Unlink(path.clone()) }
            }
            Address::Service(range) => {
                Open::Service(Box::new(service(&self.node, self.kind, *range).with_context(failed)?))
            }
        });
        Ok(())
    }

    /// Refuses clients until the next [`Front::reopen`]. A service is withdrawn from the binding table.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for a client. A call that is dropped loses none. Never returns while the socket is closed.
    pub(super) async fn accept(&self) -> Result<Client> {
        let failed = || format!("cannot accept on {}", self.address);
        match &self.open {
            None => std::future::pending().await,
            Some(Open::Tcp(listener)) => {
                let (stream, _) = listener.accept().await.with_context(failed)?;
                Ok(Client::Tcp(stream))
            }
            Some(Open::Unix { listener, .. }) => {
                let (stream, _) = listener.accept().await.with_context(failed)?;
                Ok(Client::Unix(stream))
            }
            Some(Open::Service(listener)) => {
                Ok(Client::Service(Box::new(listener.accept().await.with_context(failed)?)))
            }
        }
    }
}

impl Client {
    /// The client in a log line.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tcp(stream) => {
                stream.peer_addr().map_or_else(|_| "tcp".to_owned(), |peer| peer.to_string())
            }
            Self::Unix(stream) => match stream.peer_cred().ok().and_then(|peer| peer.pid()) {
                Some(pid) => format!("process {pid}"),
                None => "unix".to_owned(),
            },
            Self::Service(connection) => {
                connection.peer().map_or_else(|| "service".to_owned(), |peer| format!("socket {peer}"))
            }
        }
    }
}

fn service(node: &Node, kind: SocketKind, range: ServiceRange) -> utipc::Result<Listener> {
    Listener::new(node.listen(kind, range)?)
}

/// Removes the file of a socket on which no program listens.
async fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path).await.is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Adds the remedy of a frequent error.
fn explained(error: io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it, or use another address",
        io::ErrorKind::PermissionDenied => "use a port above 1023 or a folder that you may write",
        io::ErrorKind::AddrNotAvailable => "this host does not have that address: `ip address` lists its own",
        io::ErrorKind::NotFound => "create the folder first",
        _ => "check the address",
    };
    anyhow::anyhow!("{error} ({remedy})")
}
