//! The network of a run: one switch, the honest nodes, and a host for each hostile peer.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use utipc_netns::{Namespace, Switch};

use crate::daemon::{Watched, configuration};

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
        let host = self.honest.get(at).context("the host does not exist")?;
        let name = format!("-{}", at + 1);
        Watched::start_by(host.command(program), &name, &configuration(at, &HONEST, true))
    }
}
