//! `libutipc`: the C API, in the shape of TIPC's own `tipcc.h`. `include/utipc.h` is its face, utipc(7) its manual.
//!
//! A socket is an `int` that poll, select and epoll take: a duplicate of the descriptor whose level is the socket's readiness.
//! [`table`] leads from it to the socket. All sockets of a process belong to one node, started at the first use.

mod address;
mod call;
mod forking;
mod message;
mod node;
mod options;
mod receive;
mod send;
mod sockaddr;
mod socket;
mod table;
mod text;
mod topology;
