//! Every system call that utipc makes: UDP, Ethernet, offloads, reactor, shared memory.
//!
//! One kernel feature per file, each with its fallback where a kernel may lack it. Nothing here
//! knows TIPC: bearers (in `utipc-node`) and lanes (`utipc-lanes`) give meaning to the bytes.
//! Together with the crates that foreign programs call (C, preload, Python) it is the only one
//! with `unsafe`; every block says why it is sound.

pub mod af_tipc;
pub mod clock;
mod error;
pub mod ethernet;
pub mod fdpass;
pub mod file_lock;
pub mod fork;
pub mod futex;
pub mod hangup;
pub mod hidden;
pub mod inotify;
pub mod interface;
mod lock;
pub mod mmsg;
pub mod netns;
pub mod offload;
pub mod packets;
pub mod pollable;
pub mod random;
pub mod reactor;
pub mod replica;
pub mod runtime_dir;
pub mod shm;
pub mod signals;
pub mod sockaddr;
pub mod spin;
pub mod timer;
pub mod udp;
mod wait;

pub use error::{OsError, Result};
pub use lock::lock;
pub use wait::{Deadline, Left, Wait};
