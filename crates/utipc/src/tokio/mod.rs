//! Sockets for programs that run on tokio: feature `tokio`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> utipc::Result<()> {
//! use utipc::tokio::{Connection, Listener};
//! use utipc::{Node, ServiceAddress, SocketKind};
//!
//! let node = Node::builder().isolated().start()?;
//! let echo = ServiceAddress::new(4000, 7);
//! let listener = Listener::new(node.listen(SocketKind::SeqPacket, echo)?)?;
//! let server = tokio::spawn(async move {
//!     let connection = listener.accept().await?;
//!     let request = connection.receive().await?;
//!     connection.send(&request.data).await
//! });
//! let connection = Connection::open(node.seqpacket()?, echo).await?;
//! connection.send(b"hello").await?;
//! assert_eq!(connection.receive().await?.data, b"hello");
//! server.await.expect("it does not panic")?;
//! # Ok(()) }
//! ```

mod connection;
mod socket;
mod topology;

use std::os::fd::AsRawFd;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use utipc_os::OsError;

use crate::{Error, Result};

pub use connection::{Connection, Listener};
pub use socket::Socket;
pub use topology::Topology;

/// Puts something with a descriptor into the event loop of this task's runtime.
#[allow(
    deprecated,
    reason = "its successor is unsafe; what is given here keeps its descriptor for life, which is what that asks for"
)]
fn watch<T: AsRawFd>(watched: T, interest: Interest) -> Result<AsyncFd<T>> {
    AsyncFd::with_interest(watched, interest).map_err(refused)
}

/// The event loop does not watch it.
fn refused(cause: std::io::Error) -> Error {
    Error::System(OsError::new("watch", "the descriptor of a socket in tokio's event loop", cause))
}
