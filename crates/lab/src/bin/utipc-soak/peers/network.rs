//! The network of a run: one switch, the honest nodes, and a host for each hostile peer.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use utipc_netns::{Namespace, Switch};

use super::{INTERVAL, LIMIT};
use crate::daemon::Watched;

/// Port of TIPC over UDP.
pub(super) const PORT: u16 = 6118;
/// Honest hosts: the attacked host, its neighbour, and one that starts in the middle.
pub(super) const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const HONEST: [Ipv4Addr; 3] = [VICTIM, Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3)];
/// Bits of the network's number.
const PREFIX: u8 = 16;
/// Maximum number of hostile peers.
pub(super) const PEERS_MAX: u32 = 250;

/// The address of the host of a hostile peer, numbered from 0.
pub(super) fn hostile_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, 1 + (number % PEERS_MAX) as u8)
}

/// The hosts.
pub(super) struct Network {
    honest: Vec<Namespace>,
    hostile: Vec<Namespace>,
    _switch: Switch,
}

impl Network {
    /// Makes the network, with this many hosts for hostile peers.
    pub(super) fn new(peers: u32) -> Result<Self> {
        let mut switch = Switch::new()?;
        let honest = HONEST.iter().map(|address| switch.join(*address, PREFIX)).collect::<Result<_>>()?;
        let hostile = (0..peers).map(|peer| switch.join(hostile_address(peer), PREFIX));
        Ok(Self { hostile: hostile.collect::<Result<_>>()?, honest, _switch: switch })
    }

    /// The hosts of the hostile peers.
    pub(super) fn hostile(&self) -> &[Namespace] {
        &self.hostile
    }

    /// Starts the daemon of an honest host, which accepts processes of all users.
    pub(super) fn daemon(&self, at: usize, program: &Path) -> Result<Watched> {
        let (host, address) = self.honest.get(at).zip(HONEST.get(at)).context("the host does not exist")?;
        let others = HONEST.iter().filter(|other| *other != address).map(|other| format!("\"{other}\""));
        let configuration = format!(
            "[node]\naddress = \"1.1.{}\"\n[[bearer]]\nmedia = \"udp\"\nname = \"lan\"\nlocal = \"{address}\"\n\
             remotes = [{}]\n[policy]\nattach = [\"*\"]\nsocket_mode = \"0666\"\n",
            at + 1,
            others.collect::<Vec<_>>().join(", ")
        );
        let name = format!("-{}", at + 1);
        Watched::start_by(host.command(program), &name, &configuration)
    }
}

/// Counters of a node's links and frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// Links that came up, and those that went down.
    pub(crate) links: (u64, u64),
    /// Frames and bytes received, bytes sent.
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) sent_bytes: u64,
}

impl Traffic {
    pub(crate) fn of(daemon: &mut Watched) -> Result<Self> {
        let counters = daemon.counters()?;
        let node = counters.get("node").context("no counters of the node")?;
        let link = |name: &str| node.get(name).and_then(Value::as_u64).context("no counter of links");
        let bearers = node.get("bearers").and_then(Value::as_array).context("no counters of bearers")?;
        let sum = |name: &str| -> u64 {
            bearers.iter().filter_map(|bearer| bearer.get(1)?.get(name)?.as_u64()).sum()
        };
        Ok(Self {
            links: (link("links_up")?, link("links_down")?),
            frames: sum("rx_frames"),
            bytes: sum("rx_bytes"),
            sent_bytes: sum("tx_bytes"),
        })
    }
}

/// Waits until a daemon has a link.
pub(crate) fn wait_for_link(daemon: &mut Watched) -> Result<()> {
    let begun = Instant::now();
    while Traffic::of(daemon)?.links.0 == 0 {
        ensure!(begun.elapsed() < LIMIT, "an honest node has no link after {LIMIT:?}");
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}
