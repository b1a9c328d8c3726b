//! `libutipc`: the C API, modelled on TIPC's own `tipcc.h`. Its header is `include/utipc.h`, its manual utipc(7).
//!
//! A socket is an `int` for poll, select and epoll: a duplicate of the descriptor that shows the socket's readiness.
//! [`table`] maps it to the socket. All sockets of a process belong to one node, started at first use.

mod address;
mod call;
mod group;
mod message;
mod node;
mod options;
mod polling;
mod receive;
mod send;
mod sockaddr;
mod socket;
mod table;
mod text;
mod topology;
