//! A hostile node: a neighbour that publishes and withdraws names all the time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use utipc::{Node, NodeAddr, Scope, ServiceRange};
use utipc_bench_kit::numbered::Random;

use super::LIMIT;
use crate::INTERVAL;
use crate::honest::{ECHO, TARGET};

/// Port of TIPC over UDP.
const PORT: u16 = 6118;

/// Number of bindings of one socket at a time.
const BINDINGS: u64 = 2000;

/// Address of the node.
pub(super) const ADDRESS: NodeAddr = NodeAddr::legacy(1, 1, 3);

/// The node.
pub(super) struct Hostile(Node);

impl Hostile {
    /// Starts it at the third address, and waits for its links to the others.
    pub(super) fn new([one, other, own]: [Ipv4Addr; 3]) -> Result<Self> {
        let peers = [one, other].map(|peer| SocketAddr::from((peer, PORT)));
        let builder = Node::builder().address(ADDRESS).udp_peers(IpAddr::from(own), peers);
        let node = builder.start().context("start the hostile node")?;
        let begun = std::time::Instant::now();
        while node.links().iter().filter(|link| link.up).count() < 2 {
            ensure!(begun.elapsed() < LIMIT, "the hostile node has no links after {LIMIT:?}");
            std::thread::sleep(INTERVAL);
        }
        Ok(Self(node))
    }

    /// Binds and unbinds names, including those of others, until the end; returns how many.
    pub(super) fn flood(&self, seed: u64, over: &AtomicBool) -> u64 {
        let (mut random, mut count) = (Random(seed << 40), 0);
        while !over.load(Relaxed) {
            let Ok(socket) = self.0.rdm() else { return count };
            for _ in 0..random.below(BINDINGS) {
                let service = match random.below(40) {
                    0 => TARGET.service,
                    n => ECHO.service + 10 + n as u32,
                };
                let lower = random.draw() as u32;
                let range = ServiceRange::new(
                    service,
                    lower.max(2),
                    lower.saturating_add(random.below(9) as u32).max(2),
                );
                count += u64::from(socket.bind(range, Scope::Cluster).is_ok());
            }
            std::thread::sleep(Duration::from_millis(random.below(50)));
        }
        count
    }
}
