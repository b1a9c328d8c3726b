//! The Ethernet bearer: TIPC directly in frames of type 0x88CA. Spec: tipc.md §4.1.

use std::os::fd::{AsFd, BorrowedFd};

use utipc_core::outbox::{BearerId, FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_os::ethernet::{BROADCAST, EthernetSocket};
use utipc_os::mmsg::{Datagram, ReceiveRing};

use super::tally::{Counters, Tally};
use super::{Bearer, BearerError, runs};

/// The EtherType of TIPC.
const ETHERTYPE: u16 = 0x88CA;

/// Maximum number of frames of one receive call.
const RECEIVE_BATCH: usize = 32;

/// Largest frame without jumbo frames, bytes: every Ethernet carries it.
const PLAIN_MTU: usize = 1500;

/// Smallest receive buffer for a frame, bytes: a usual jumbo frame, because the interface's MTU may grow while
/// the bearer runs.
const FRAME_ROOM: usize = 9216;

/// TIPC over Ethernet; needs CAP_NET_RAW.
pub struct EthernetBearer {
    name: String,
    socket: EthernetSocket,
    mtu: usize,
    ring: ReceiveRing,
    sends: Vec<Datagram>,
    tally: Tally,
}

impl EthernetBearer {
    /// Opens the bearer `eth:<interface>` with the interface's own address and MTU.
    ///
    /// # Errors
    /// Unknown interface, not Ethernet, down, or missing privilege.
    pub fn open(interface: &str) -> Result<EthernetBearer, BearerError> {
        let socket = EthernetSocket::open(interface, ETHERTYPE)?;
        let mtu = socket.interface().mtu;
        Ok(EthernetBearer {
            name: format!("eth:{interface}"),
            ring: ReceiveRing::new(RECEIVE_BATCH, mtu.max(FRAME_ROOM)),
            socket,
            mtu,
            sends: Vec::new(),
            tally: Tally::default(),
        })
    }
}

impl Bearer for EthernetBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        format!("{} at {}, mtu {}", self.name, self.local_address(), self.mtu)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn local_address(&self) -> MediaAddr {
        MediaAddr::Ethernet(self.socket.mac())
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    /// A switch may drop the jumbo frames that the interface allows.
    fn base_mtu(&self) -> usize {
        PLAIN_MTU
    }

    fn has_broadcast(&self) -> bool {
        true
    }

    fn broadcast_targets(&self) -> Vec<MediaAddr> {
        vec![MediaAddr::Ethernet(BROADCAST)]
    }

    fn send(&mut self, id: BearerId, batch: &FrameBatch) {
        let (socket, sends) = (&self.socket, &mut self.sends);
        sends.clear();
        let mut foreign = 0;
        let refused = runs::for_each(batch, id, self.mtu, false, |run| {
            let mac = match run.to {
                Target::Broadcast => BROADCAST,
                Target::Unicast(MediaAddr::Ethernet(mac)) => mac,
                Target::Unicast(MediaAddr::Udp(_)) => {
                    foreign += run.frames();
                    return;
                }
            };
            sends.push(run.datagram(socket.address_of(mac)));
        });
        self.tally.counters.tx_refused += refused + foreign;
        if !sends.is_empty() {
            let report = self.socket.send(&runs::Batch(batch), &self.sends);
            self.tally.sent(&self.name, &report);
        }
    }

    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        let tally = &mut self.tally;
        let result = self.socket.receive(&mut self.ring, &mut |from, frame| {
            tally.frame(frame.len());
            sink(MediaAddr::Ethernet(from), frame);
        });
        Ok(tally.received(&self.name, result)?.more)
    }

    fn counters(&self) -> Counters {
        self.tally.counters
    }
}
