//! Bearers: what carries frames between nodes. A bearer never looks behind the frame it carries.
//!
//! [`UdpBearer`] (multicast or replicast), [`EthernetBearer`], [`LocalBearer`] (the nodes of one
//! user on one host find each other without configuration), [`LoopbackNetwork`] (in memory, for tests), and
//! [`Middleware`], which wraps any of them to lose, delay, duplicate, reorder, cut or record.
//! All pass the same conformance suite, `tests/bearers.rs`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use utipc_core::outbox::{BearerId, FrameBatch};
use utipc_core::wire::MediaAddr;
use utipc_os::OsError;
use utipc_os::mmsg::ReceiveRing;
use utipc_os::udp::Express;

mod ethernet;
mod faults;
mod local;
mod loopback;
mod middleware;
mod pcap;
mod runs;
mod tally;
mod udp;

pub use ethernet::EthernetBearer;
pub use faults::{FaultCounters, Faults};
pub use local::{LocalBearer, LocalConfig};
pub use loopback::{LoopbackBearer, LoopbackNetwork};
pub use middleware::{Control, Direction, Middleware};
pub use tally::Counters;
pub use udp::{DEFAULT_PORT, UdpBearer, UdpConfig, UdpMode, default_group};

/// Why a bearer cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum BearerError {
    /// The system refused; the text says what to do.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The configuration cannot work.
    #[error("cannot use bearer {bearer}: {reason} ({remedy})")]
    Config {
        /// The bearer's name.
        bearer: String,
        /// What is wrong.
        reason: String,
        /// What to change.
        remedy: &'static str,
    },
}

/// A medium that carries frames between nodes, with the local end's address on it.
///
/// Level-triggered: wait until one of [`fds`](Bearer::fds) is readable, then call
/// [`receive`](Bearer::receive). Nothing here blocks beyond the bounded wait for room in a full
/// send buffer ([`utipc_os::mmsg::SEND_STALL`] a batch).
pub trait Bearer: Send {
    /// Its name, `<media>:<name>` as in `udp:lan` or `eth:eth0`. Spec: tipc.md §4.1.
    fn name(&self) -> &str;

    /// What it does where, in a line for the user.
    fn description(&self) -> String;

    /// The descriptors to wait on for reading, the same ones as long as the bearer lives.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// The address that peers send to, and that discovery announces. Spec: tipc.md §4.2.
    fn local_address(&self) -> MediaAddr;

    /// The largest frame, in bytes, that it carries whole. Spec: tipc.md §4.1, DESIGN L12.
    fn mtu(&self) -> usize;

    /// The largest frame, in bytes, that can arrive: more than it sends where the system puts parts together.
    fn max_receive(&self) -> usize {
        self.mtu()
    }

    /// Whether one send reaches all (multicast, Ethernet broadcast); if not, a broadcast is
    /// copied to each known remote.
    fn has_broadcast(&self) -> bool;

    /// Where a broadcast goes now: the group, the broadcast address, or each remote.
    fn broadcast_targets(&self) -> Vec<MediaAddr>;

    /// Sends the frames of `batch` that are for bearer `id`, in their order.
    ///
    /// Best effort, as on any wire: what is larger than the MTU, refused by the system or finds
    /// no room in time is dropped and counted.
    fn send(&mut self, id: BearerId, batch: &FrameBatch);

    /// Hands arrived frames with their sender's address to `sink`: a bounded batch, without
    /// waiting; `true` if there may be more at once. Own frames never come back.
    ///
    /// # Errors
    /// Only what makes the bearer useless. An interface that is down and the like are counted.
    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError>;

    /// Like [`receive`](Bearer::receive), for a caller that asks again and again: it may leave out for some calls what
    /// brings frames rarely.
    ///
    /// # Errors
    /// As [`receive`](Bearer::receive).
    fn glance(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.receive(sink)
    }

    /// Like [`receive`](Bearer::receive), without the express way: somebody else reads there.
    ///
    /// # Errors
    /// As [`receive`](Bearer::receive).
    fn receive_others(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.receive(sink)
    }

    /// The express way that the bearer has, and which of [`fds`](Bearer::fds) it is: a thread may wait and read there
    /// without the bearer.
    fn express(&self) -> Option<(usize, Arc<Express>)> {
        None
    }

    /// Hands on what was read from the express way.
    ///
    /// # Errors
    /// As [`receive`](Bearer::receive).
    fn receive_express(
        &mut self,
        read: io::Result<&ReceiveRing>,
        sink: &mut dyn FnMut(MediaAddr, &[u8]),
    ) -> Result<(), BearerError> {
        let _ = (read, sink);
        Ok(())
    }

    /// What has passed so far.
    fn counters(&self) -> Counters;

    /// Copies broadcasts to `remote` too, from now on. Spec: tipc.md §4.1.
    ///
    /// # Errors
    /// Unless this is a UDP bearer in replicast mode that can take this remote.
    fn add_remote(&mut self, remote: SocketAddr) -> Result<(), BearerError> {
        Err(BearerError::Config {
            bearer: self.name().to_owned(),
            reason: format!("it finds its peers by itself and cannot take remote {remote}"),
            remedy: "enable a UDP bearer with a unicast remote address",
        })
    }
}
