//! The backbone over TIPC.
//!
//! A source listens for connections at `{SOURCE_TYPE, its id}` and multicasts each feed to `{FEED_TYPE, the feed's
//! id}`; a sink binds one socket to all its feeds there. Topology events and broken connections report who comes and
//! goes: there are no heartbeats. Packets are sent from one datagram socket of the source, which is never polled, so
//! that on one host they take lanes; credits come back to the same socket.

mod carrier;
mod connection;
mod sink;
mod source;

pub use carrier::Tipc;
pub use sink::TipcSink;
pub use source::TipcSource;

use utipc::{NodeAddr, PortId, Spin};

use super::{Address, Error};

/// Default service type of sources, for tests and examples; the programs have it in their settings.
pub const SOURCE_TYPE: u32 = 0x6D64_7301;
/// Default service type of feeds.
pub const FEED_TYPE: u32 = 0x6D64_7302;

/// Maximum number of credits that a source reads in one call: a program that floods its port cannot hold its thread. A
/// credit costs about 1 µs.
pub const CREDITS_PER_TURN: usize = 1024;

rssl::with_defaults! {
    /// Options of an endpoint. Both ends need the same service types.
    #[derive(Clone, Copy, Debug)]
    pub struct Options {
        /// Service type of sources.
        pub source_type: u32 = SOURCE_TYPE,
        /// Service type of feeds.
        pub feed_type: u32 = FEED_TYPE,
        /// Receive buffer of feeds, bytes; clamped to 1 MiB to 16 MiB. `None`: 16 MiB.
        pub receive_buffer: Option<u32> = None,
        /// Whether the feeds' thread spins while it waits; `None`: as the node (`UTIPC_SPIN`).
        pub spin: Option<Spin> = None,
    }
}

fn address(port: PortId) -> Address {
    Address(u64::from(port.node.0) << 32 | u64::from(port.port))
}

fn port(address: Address) -> PortId {
    PortId { node: NodeAddr((address.0 >> 32) as u32), port: address.0 as u32 }
}

fn failed(what: &'static str) -> impl FnOnce(utipc::Error) -> Error {
    move |why| Error::Carrier { what, why: why.to_string() }
}

fn refused(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |why| Error::Carrier { what, why: why.to_string() }
}
