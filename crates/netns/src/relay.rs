//! Two namespaces joined by a path that loses, delays, duplicates and reorders packets, and drops large ones, without
//! netem, which many kernels lack.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use utipc_os::tun::Tun;

use crate::Namespace;

/// Name of the interface at either end.
const INTERFACE: &str = "path0";
/// Largest IP packet, bytes.
const PACKET_MAX: usize = 65_535;
/// Longest wait for packets, so that the relay notices its end.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of packets on their way; a further one is lost, as in the queue of a router.
const QUEUE_MAX: usize = 20_000;

/// What a path does to packets. The default carries all of them, at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Share of packets that arrive twice.
    pub duplicated: f64,
    /// Share of packets that are delayed by up to [`Self::delay`] more than the others, which overtake them.
    pub delayed: f64,
    /// Longest additional delay.
    pub delay: Duration,
    /// Delay of every packet.
    pub latency: Duration,
    /// Largest IP packet that passes, bytes; larger ones are dropped without a message to their sender.
    pub width: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicated: 0.0,
            delayed: 0.0,
            delay: Duration::from_millis(20),
            latency: Duration::ZERO,
            width: PACKET_MAX,
        }
    }
}

/// Packets of a path so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// That the ends have sent.
    pub sent: u64,
    /// That were lost by chance, or because too many were on their way.
    pub lost: u64,
    /// That were dropped because of their size.
    pub too_large: u64,
}

#[derive(Debug, Default)]
struct Shared {
    faults: Mutex<Faults>,
    is_over: AtomicBool,
    sent: AtomicU64,
    lost: AtomicU64,
    too_large: AtomicU64,
}

/// The path between two namespaces, which a thread of this process carries. It ends when this value is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Makes two namespaces with these addresses in one /24 network and interfaces of `mtu` bytes. `seed` determines
    /// which packets are lost. Needs root.
    ///
    /// # Errors
    /// A namespace or an interface cannot be made.
    pub fn join(
        addresses: [Ipv4Addr; 2],
        mtu: u32,
        faults: Faults,
        seed: u64,
    ) -> Result<(Self, [Namespace; 2])> {
        let first = Namespace::new(None)?;
        let second = Namespace::new(Some(&first))?;
        let hosts = [first, second];
        let make = |host: &Namespace| -> Result<Tun> {
            host.inside(|| Tun::make(INTERFACE))?.context("join two network namespaces")
        };
        let ends = [make(&hosts[0])?, make(&hosts[1])?];
        for (host, address) in hosts.iter().zip(addresses) {
            host.ip(&["addr", "add", &format!("{address}/24"), "dev", INTERFACE])?;
            host.ip(&["link", "set", INTERFACE, "mtu", &mtu.to_string(), "txqueuelen", "10000", "up"])?;
            host.ip(&["link", "set", "lo", "up"])?;
        }
        let shared = Arc::new(Shared { faults: Mutex::new(faults), ..Shared::default() });
        let carrier =
            Carrier { ends, shared: Arc::clone(&shared), rng: seed | 1, queue: BTreeMap::new(), count: 0 };
        let thread = Some(std::thread::spawn(move || carrier.carry()));
        Ok((Self { shared, thread }, hosts))
    }

    /// Changes what the path does from now on.
    pub fn set(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// The packets so far.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { sent, lost, too_large, .. } = &*self.shared;
        Passed { sent: of(sent), lost: of(lost), too_large: of(too_large) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Carrier {
    ends: [Tun; 2],
    shared: Arc<Shared>,
    rng: u64,
    /// Packets on their way, by time of arrival; the end that they go to.
    queue: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
}

impl Carrier {
    fn carry(mut self) {
        let mut packet = vec![0; PACKET_MAX];
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let faults = *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
            let mut any = false;
            for from in 0..self.ends.len() {
                // The other direction, and packets that are due, come between.
                for _ in 0..64 {
                    let Some(len) = self.ends[from].read(&mut packet) else { break };
                    self.take(1 - from, packet.get(..len).unwrap_or_default(), &faults);
                    any = true;
                }
            }
            let now = Instant::now();
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= now) {
                let (to, packet) = entry.remove();
                self.ends[to].write(&packet);
            }
            if !any {
                self.wait(now);
            }
        }
    }

    fn take(&mut self, to: usize, packet: &[u8], faults: &Faults) {
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        if packet.len() > faults.width {
            self.shared.too_large.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.happens(faults.loss) || self.queue.len() >= QUEUE_MAX {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copies = 1 + usize::from(self.happens(faults.duplicated));
        for _ in 0..copies {
            let more = if self.happens(faults.delayed) {
                faults.delay.mul_f64(self.random())
            } else {
                Duration::ZERO
            };
            self.count += 1;
            self.queue.insert((Instant::now() + faults.latency + more, self.count), (to, packet.to_vec()));
        }
    }

    /// Waits for packets, or until one is due.
    fn wait(&self, now: Instant) {
        let due = self.queue.keys().next().map_or(LOOK, |(at, _)| at.saturating_duration_since(now));
        utipc_os::tun::wait(&self.ends, due.min(LOOK));
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random() < share
    }

    /// A random number from 0 to 1.
    fn random(&mut self) -> f64 {
        // Xorshift: every packet needs a few.
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 11) as f64 / (1_u64 << 53) as f64
    }
}
