//! The backbone over TIPC.
//!
//! A source listens for connections at `{SOURCE_TYPE, its id}` and multicasts each feed to `{FEED_TYPE, the feed's id}`; a
//! sink binds there one socket for all feeds. Who comes and goes is told by the topology service and by connections that
//! break: there are no heartbeats. Packets go from one datagram socket of the source, which never is polled, so that on
//! one host they go by lanes; credits come back to it.

mod link;
mod sink;
mod source;

pub use sink::TipcSink;
pub use source::TipcSource;

use utipc::{PortId, Spin};

use super::{Address, Error};

/// Service type of sources where nobody names one: in tests and examples. The programs are told by their settings.
pub const SOURCE_TYPE: u32 = 0x6D64_7301;
/// The same of feeds.
pub const FEED_TYPE: u32 = 0x6D64_7302;

/// What both ends have to agree on, and how they wait.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Service type of sources.
    pub source_type: u32,
    /// Service type of feeds.
    pub feed_type: u32,
    /// Receive buffer of feeds, bytes: 1 MiB to 16 MiB, nearest; `None`: 16 MiB.
    pub receive_buffer: Option<u32>,
    /// What the feed's thread does while it waits; `None`: as the node (`UTIPC_SPIN`).
    pub spin: Option<Spin>,
}

impl Default for Options {
    fn default() -> Self {
        Self { source_type: SOURCE_TYPE, feed_type: FEED_TYPE, receive_buffer: None, spin: None }
    }
}

fn address(port: PortId) -> Address {
    Address(u64::from(port.node.0) << 32 | u64::from(port.port))
}

fn failed(what: &'static str) -> impl FnOnce(utipc::Error) -> Error {
    move |why| Error::Carrier { what, why: why.to_string() }
}

fn refused(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |why| Error::Carrier { what, why: why.to_string() }
}
