//! `libcpg.so.4`: Corosync's closed process groups for C programs, on [`utipc::ordered`].
//!
//! * [`layer`]: the state of a joined group without sockets and clocks: its members, as process id and node; the order
//!   of delivery; long messages in pieces.
//! * [`membership`]: the thread of a joined group, which moves messages between the ordered group and the layer.
//! * [`inbox`]: what waits for `cpg_dispatch`.
//! * [`directory`]: groups and members of the cluster, for calls about groups that the program has not joined.
//! * [`api`]: the functions of `cpg.h`.
//!
//! Decision 36 has the reasons, docs/spec/cpg.md the messages.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod api;
mod directory;
mod handles;
mod inbox;
mod layer;
mod membership;
mod name;
mod node;
mod types;
mod wire;
