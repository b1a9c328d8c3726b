//! A network in memory: bearers for tests, without a system's network.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use utipc_core::outbox::{BearerId, FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_os::reactor::Waker;

use super::tally::{Counters, Tally};
use super::{Bearer, BearerError, runs};

/// Maximum number of frames that wait at one port; further ones are dropped, as by a full switch.
const PORT_QUEUE_MAX: usize = 4096;

/// Maximum number of frames of one receive call.
const RECEIVE_BATCH: usize = 64;

/// A segment in memory to which any number of bearers can be attached.
#[derive(Clone, Default)]
pub struct LoopbackNetwork {
    ports: Arc<Mutex<BTreeMap<MediaAddr, Port>>>,
}

struct Port {
    waker: Waker,
    frames: VecDeque<(MediaAddr, Vec<u8>)>,
}

/// One attachment to a [`LoopbackNetwork`].
pub struct LoopbackBearer {
    name: String,
    network: LoopbackNetwork,
    address: MediaAddr,
    mtu: usize,
    waker: Waker,
    tally: Tally,
}

impl LoopbackNetwork {
    /// An empty network.
    pub fn new() -> LoopbackNetwork {
        LoopbackNetwork::default()
    }

    /// Attaches a bearer with this address, which carries frames of up to `mtu` bytes.
    ///
    /// # Errors
    /// If the address is attached already, or descriptors have run out.
    pub fn attach(&self, address: MediaAddr, mtu: usize) -> Result<LoopbackBearer, BearerError> {
        let waker = Waker::new()?;
        let name = format!("loopback:{address}");
        let mut ports = self.ports();
        if ports.contains_key(&address) {
            return Err(BearerError::Config {
                bearer: name,
                reason: "its address is attached already".into(),
                remedy: "take another address",
            });
        }
        ports.insert(address, Port { waker: waker.clone(), frames: VecDeque::new() });
        drop(ports);
        Ok(LoopbackBearer { name, network: self.clone(), address, mtu, waker, tally: Tally::default() })
    }

    /// Locks the queues. They are usable even after a panic of another thread: frames are whole or absent.
    fn ports(&self) -> MutexGuard<'_, BTreeMap<MediaAddr, Port>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    fn take_in(&mut self, from: MediaAddr, frame: &[u8]) -> bool {
        if self.frames.len() >= PORT_QUEUE_MAX {
            return false;
        }
        self.frames.push_back((from, frame.to_vec()));
        self.waker.wake();
        true
    }
}

impl Bearer for LoopbackBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        format!("{} in memory, mtu {}", self.name, self.mtu)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.waker.as_fd()]
    }

    fn local_address(&self) -> MediaAddr {
        self.address
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn has_broadcast(&self) -> bool {
        true
    }

    fn broadcast_targets(&self) -> Vec<MediaAddr> {
        self.network.ports().keys().copied().filter(|it| *it != self.address).collect()
    }

    fn send(&mut self, id: BearerId, batch: &FrameBatch) {
        let (own, counters) = (self.address, &mut self.tally.counters);
        let mut ports = self.network.ports();
        counters.tx_refused += runs::for_each(batch, id, self.mtu, false, |run| {
            let Some(frame) = batch.frames().get(run.first) else { return };
            let bytes = &*batch.frame(frame);
            let sent = match run.to {
                Target::Unicast(to) => ports.get_mut(&to).is_none_or(|port| port.take_in(own, bytes)),
                Target::Broadcast => {
                    let others = ports.iter_mut().filter(|(address, _)| **address != own);
                    others.fold(true, |all, (_, port)| port.take_in(own, bytes) && all)
                }
            };
            if sent {
                counters.tx_frames += 1;
                counters.tx_bytes += bytes.len() as u64;
            } else {
                counters.tx_dropped += 1;
            }
        });
    }

    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        let (taken, more) = {
            let mut ports = self.network.ports();
            let Some(port) = ports.get_mut(&self.address) else { return Ok(false) };
            let count = port.frames.len().min(RECEIVE_BATCH);
            let taken: Vec<_> = port.frames.drain(..count).collect();
            if port.frames.is_empty() {
                port.waker.drain();
            }
            (taken, !port.frames.is_empty())
        };
        self.tally.counters.rx_calls += 1;
        for (from, frame) in taken {
            self.tally.frame(frame.len());
            sink(from, &frame);
        }
        Ok(more)
    }

    fn counters(&self) -> Counters {
        self.tally.counters
    }
}

impl Drop for LoopbackBearer {
    fn drop(&mut self) {
        self.network.ports().remove(&self.address);
    }
}
