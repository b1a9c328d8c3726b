//! Sockets for programs that run on tokio (feature `tokio`).
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

/// Registers a descriptor with the event loop of the current runtime.
#[allow(
    deprecated,
    reason = "its successor is unsafe; it requires that values keep their descriptor for life, which they do here"
)]
fn register<T: AsRawFd>(watched: T, interest: Interest) -> Result<AsyncFd<T>> {
    AsyncFd::with_interest(watched, interest).map_err(event_loop_error)
}

/// The error of a descriptor that the event loop cannot watch.
fn event_loop_error(cause: std::io::Error) -> Error {
    Error::System(OsError::new("watch", "the descriptor of a socket in tokio's event loop", cause))
}
