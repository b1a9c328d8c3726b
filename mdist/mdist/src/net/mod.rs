//! Sockets, poller, clock and threads: all of mdist's system calls except those of the backbone.

mod address;
mod clock;
mod connection;
mod logins;
mod network;
mod pending;
mod poller;
mod stream;
mod tcp;
mod threads;

pub use address::{check_peer, reaches, resolve, resolve_local};
pub use clock::{Now, now};
pub use connection::{Connection, Disconnected};
pub use logins::{LoginEntry, LoginLimits, LoginPlace, LoginRefusal, Logins};
pub use network::Network;
pub use pending::{Pending, PendingLimits, network};
pub use poller::{Event, Interest, Poller, Registry, Waker};
pub use stream::{Socket, Stream};
pub use tcp::{SocketOptions, accept, connect, listen};
pub use threads::{Role, Scheduler, ThreadSettings, spawn};
