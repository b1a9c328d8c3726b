//! `libutipc_preload.so`: AF_TIPC sockets for programs that know nothing of utipc.
//!
//! Preloaded, it takes the place of the socket calls of the C library. A TIPC socket's descriptor is one end of a packet
//! socket pair whose other end the daemon has (docs/spec/attach.md §5, §9), so poll loops, `dup`, fork, exec and passing it
//! to another process are the kernel's own; what is read and written goes by the library `utipc-client`. A call on any
//! other descriptor costs one look into a table.
//!
//! | Question | File |
//! |---|---|
//! | Is this descriptor a TIPC socket? | `table.rs`, `entry.rs` |
//! | Where is the function that this one replaces? | `real.rs` |
//! | What does an address, an error, ancillary data look like in C? | `address.rs`, `errno.rs`, `ancillary.rs` |
//! | What does a call do? | `calls/` |
//! | What do programs look for under /proc? | `files.rs` |
//! | How do `printf` and `fgets` get to a socket? | `stdio.rs` |
//! | Who answers the netlink family TIPCv2? | `netlink.rs` |

mod address;
mod ancillary;
mod calls;
mod entry;
mod errno;
mod files;
mod netlink;
mod node;
mod parts;
mod real;
mod start;
mod stdio;
mod table;
