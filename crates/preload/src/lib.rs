//! `libutipc_preload.so`: AF_TIPC sockets for unmodified programs.
//!
//! Preloaded, the library replaces the socket functions of the C library. A TIPC socket's descriptor is one end of a
//! packet socket pair whose other end the daemon holds (docs/spec/attach.md §5, §9), so the kernel itself provides poll
//! loops, `dup`, fork, exec and passing to other processes; data is sent and received through `utipc-client`. A call on
//! any other descriptor costs one table lookup.
//!
//! | Topic | File |
//! |---|---|
//! | The descriptors that are TIPC sockets | `table.rs`, `entry.rs`, `descriptors.rs` |
//! | The replaced functions of the C library | `real.rs` |
//! | Calls in signal handlers | `handlers.rs` |
//! | C structures: addresses, errno, ancillary data, buffers | `address.rs`, `errno.rs`, `ancillary.rs`, `parts.rs` |
//! | The calls that replace them | `calls/` |
//! | Checking lanes before a wait sleeps | `busy_poll.rs` |
//! | Files under /proc that show TIPC | `files.rs` |
//! | `printf` and `fgets` on a socket | `stdio.rs` |
//! | The netlink family TIPCv2 | `netlink.rs` |
//! | The daemon's node, and the start of the program | `node.rs`, `start.rs` |

mod address;
mod ancillary;
mod busy_poll;
mod calls;
mod descriptors;
mod entry;
mod errno;
mod files;
mod handlers;
mod netlink;
mod node;
mod parts;
mod real;
mod start;
mod stdio;
mod table;
