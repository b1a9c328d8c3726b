//! Sockets, poller, clock and threads: all of mdist's system calls except those of the backbone.

mod address;
mod clock;
mod poller;
mod tcp;
mod threads;

pub use address::{check_peer, resolve};
pub use clock::{Now, now};
pub use poller::{Event, Interest, Poller, Registry, Waker};
pub use tcp::{Socket, SocketOptions, connect, listen};
pub use threads::{Role, Scheduler, ThreadSettings, spawn};
