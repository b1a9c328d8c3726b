//! Bearers carry frames between nodes; they never read the contents of a frame.
//!
//! [`UdpBearer`] (multicast or replicast), [`EthernetBearer`], [`HostBearer`] (shared memory between the nodes of one
//! user on one host, which find each other without configuration), [`LoopbackNetwork`] (in memory, for tests), and
//! [`Middleware`], which wraps any of them to drop, delay, duplicate or reorder frames, to interrupt it, or to record.
//! All pass the same tests, `tests/bearers`. To add one, see "Worked examples" in ARCHITECTURE.md.

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
mod host;
mod loopback;
mod middleware;
mod pcap;
mod runs;
mod tally;
mod udp;

pub use ethernet::EthernetBearer;
pub use faults::{FaultCounters, Faults};
pub use host::{HostBearer, HostConfig};
pub use loopback::{LoopbackBearer, LoopbackNetwork};
pub use middleware::{Control, Direction, Middleware};
pub use pcap::ip_packet as udp_packet;
pub use tally::Counters;
pub use udp::{DEFAULT_PORT, UdpBearer, UdpConfig, UdpMode, default_group};

/// Reason why a bearer cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum BearerError {
    /// The system refused something. The text has the remedy.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The configuration cannot work.
    #[error("cannot use bearer {bearer}: {reason} ({remedy})")]
    Config {
        /// The bearer's name.
        bearer: String,
        /// The problem.
        reason: String,
        /// The change that solves it.
        remedy: &'static str,
    },
}

/// Reports of a bearer whose peers write to memory, which a thread checks without a system call.
pub trait Idle: Send + Sync {
    /// Whether something has arrived that the bearer has not passed on.
    fn has_frames(&self) -> bool;

    /// Asks for a wake-up by the bearer's descriptors, which [`receive_spinning`](Bearer::receive_spinning) does not.
    /// Returns true if something has arrived by then: do not sleep.
    fn prepare_sleep(&self) -> bool;
}

/// A medium that carries frames between nodes, with the local end's address on it.
///
/// Level-triggered: wait until one of [`fds`](Bearer::fds) is readable, then call [`receive`](Bearer::receive).
/// No method blocks, except for a bounded wait for room in a full send buffer (at most
/// [`utipc_os::mmsg::SEND_STALL`] per batch).
pub trait Bearer: Send {
    /// Its name, `<media>:<name>` as in `udp:lan` or `eth:eth0`. Spec: tipc.md §4.1.
    fn name(&self) -> &str;

    /// Its kind, address and properties, in one line for the user.
    fn description(&self) -> String;

    /// The descriptors to wait on for reading; they stay the same as long as the bearer lives.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// The address that peers send to, and that discovery announces. Spec: tipc.md §4.2.
    fn local_address(&self) -> MediaAddr;

    /// The largest frame, in bytes, that it carries whole. Spec: tipc.md §4.1.
    fn mtu(&self) -> usize;

    /// The largest frame, in bytes, that can arrive: more than it sends where the system reassembles fragments.
    fn max_receive(&self) -> usize {
        self.mtu()
    }

    /// The largest frame, in bytes, that every path is assumed to carry: links prove larger ones. At least the MTU
    /// where the medium's MTU is known to be the path's.
    fn base_mtu(&self) -> usize {
        usize::MAX
    }

    /// Whether one send reaches all peers (multicast, Ethernet broadcast); if not, a broadcast is
    /// copied to each known remote.
    fn has_broadcast(&self) -> bool;

    /// The current destinations of a broadcast: the group, the broadcast address, or each remote.
    fn broadcast_targets(&self) -> Vec<MediaAddr>;

    /// Sends the frames of `batch` that are for bearer `id`, in their order.
    ///
    /// Best effort, as on any wire: frames that are larger than the MTU, that the system refuses or for which there is
    /// no room in time are dropped and counted.
    fn send(&mut self, id: BearerId, batch: &FrameBatch);

    /// Passes arrived frames with their sender's address to `sink`: a bounded batch, without
    /// waiting; `true` if there may be more. Own frames never come back.
    ///
    /// # Errors
    /// The bearer is unusable. Temporary errors, such as an interface that is down, are only counted.
    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError>;

    /// Like [`receive`](Bearer::receive), for a caller that spins: most calls may skip sockets on which frames
    /// rarely arrive.
    ///
    /// # Errors
    /// As [`receive`](Bearer::receive).
    fn receive_spinning(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.receive(sink)
    }

    /// Like [`receive`](Bearer::receive), without the express path, which another thread reads.
    ///
    /// # Errors
    /// As [`receive`](Bearer::receive).
    fn receive_others(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.receive(sink)
    }

    /// The express path of the bearer, and its index in [`fds`](Bearer::fds): a thread may wait and read there
    /// without the bearer.
    fn express(&self) -> Option<(usize, Arc<Express>)> {
        None
    }

    /// Passes on what was read from the express path.
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

    /// Counters of its traffic.
    fn counters(&self) -> Counters;

    /// Whether the medium has assigned the node's address: no other node on it has the same, and none needs to be
    /// asked.
    fn owns_address(&self) -> bool {
        false
    }

    /// The address of a peer that has left the medium since the last call, one at a time. Only media that know it
    /// report it; elsewhere the link detects it by silence.
    fn take_gone(&mut self) -> Option<MediaAddr> {
        None
    }

    /// Where arrived frames show without a system call, for a thread that checks this before it sleeps. It calls
    /// [`receive_spinning`](Bearer::receive_spinning) when frames have arrived.
    fn idle(&self) -> Option<Arc<dyn Idle>> {
        None
    }

    /// Also copies broadcasts to `remote` from now on. Spec: tipc.md §4.1.
    ///
    /// # Errors
    /// The bearer is not a UDP bearer in replicast mode, or cannot use this remote.
    fn add_remote(&mut self, remote: SocketAddr) -> Result<(), BearerError> {
        Err(BearerError::Config {
            bearer: self.name().to_owned(),
            reason: format!("it finds its peers itself and cannot use remote {remote}"),
            remedy: "enable a UDP bearer with a unicast remote address",
        })
    }

    /// Copies no more broadcasts to `remote`; `false` if it was not a remote.
    fn remove_remote(&mut self, remote: SocketAddr) -> bool {
        let _ = remote;
        false
    }
}
