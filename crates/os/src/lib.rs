//! The system calls of utipc: UDP, Ethernet, offloads, epoll, shared memory, descriptor passing.
//!
//! One kernel feature per file, each with its fallback if a kernel may lack it. Except for `af_tipc`, no
//! module knows TIPC: bearers (in `utipc-node`) and lanes (`utipc-lanes`) interpret the bytes. Only this crate
//! and those that foreign programs call (`c`, `preload`, `python`) contain `unsafe`; every block says why it
//! is sound.

pub mod af_tipc;
pub mod clock;
pub mod disposal;
mod error;
pub mod ethernet;
pub mod fdpass;
pub mod file_lock;
pub mod fork;
pub mod futex;
pub mod hangup;
pub mod heap;
pub mod hidden;
pub mod inotify;
pub mod interface;
mod lock;
pub mod machine;
pub mod many;
pub mod mmsg;
pub mod netns;
pub mod offload;
pub mod packets;
pub mod pollable;
pub mod random;
pub mod reactor;
pub mod reentry;
pub mod replica;
pub mod runtime_dir;
pub mod shm;
pub mod signals;
pub mod sockaddr;
pub mod spin;
pub mod timer;
pub mod tun;
pub mod udp;
mod wait;

pub use error::{OsError, Result};
pub use lock::lock;
pub use wait::{Deadline, Left, Wait};
