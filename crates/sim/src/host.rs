//! A node of the cluster with its applications.

use std::collections::{BTreeMap, BTreeSet};

use utipc_core::crypto::{EncryptionConfig, Key, KeyUse};
use utipc_core::{
    BearerConfig, BearerId, MediaAddr, NodeAddr, NodeId, Scope, ServiceRange, Stack, StackConfig, Time,
};

use crate::config::SimConfig;
use crate::subscribers::ReportedBindings;

/// First number of packets and name updates if they should wrap soon.
const NEAR_WRAP: u16 = 65_450;

/// First session number of links in that case. It wraps after two resets.
const LAST_SESSIONS: u16 = 65_533;

/// The bearers of a node, by network.
const INTERFACES: [&str; 2] = ["eth:p0", "eth:p1"];

/// The network of a link, taken from its name.
pub(crate) fn plane_of(link: &str) -> u8 {
    u8::from(link.contains(":p1-"))
}

/// Use of a socket.
#[derive(Debug)]
pub(crate) enum Role {
    /// Connectionless, with its number in the model.
    Datagram(u64),
    /// Accepts connections.
    Listener,
    /// One end of a connection.
    Connection { id: u64, end: usize },
    /// A subscriber to the topology server of node `server`.
    Subscriber {
        id: u64,
        server: usize,
        /// Number of requests sent.
        asked: usize,
        reported: ReportedBindings,
    },
}

/// A binding of a datagram socket.
pub(crate) type Bound = (u64, ServiceRange, Scope);

/// A running node with its applications.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) stack: Stack,
    /// Its bearers by network.
    pub(crate) bearers: Vec<BearerId>,
    pub(crate) deadline: Option<Time>,
    pub(crate) roles: BTreeMap<u32, Role>,
    /// Sockets whose application does not read.
    pub(crate) paused: BTreeSet<u32>,
    pub(crate) bound: Vec<Bound>,
    /// Whether its applications have started.
    pub(crate) started: bool,
}

/// A place in the cluster: its address stays the same, its node may stop and restart.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) index: usize,
    pub(crate) addr: NodeAddr,
    /// Number of starts.
    pub(crate) incarnation: u64,
    pub(crate) running: Option<Running>,
}

/// Configuration of the nodes of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether nodes have explicit addresses instead of identities.
    pub(crate) legacy: bool,
    pub(crate) mtu: u32,
}

pub(crate) fn media_address(plane: u8, index: usize) -> MediaAddr {
    MediaAddr::Ethernet([2, 0, 0, 0, plane, index as u8 + 1])
}

/// The wall clock of all nodes when virtual time is 0, nanoseconds since 1970.
const CLOCK: u64 = 1_790_000_000_000_000_000;

impl Host {
    pub(crate) fn new(index: usize) -> Self {
        Self { index, addr: NodeAddr::NONE, incarnation: 0, running: None }
    }

    /// Starts a node here.
    pub(crate) fn start(&mut self, now: Time, style: Style, config: &SimConfig, seed: u64) {
        self.incarnation += 1;
        let address = style.legacy.then(|| NodeAddr::legacy(1, 1, self.index as u32 + 1));
        let identity = NodeId::from_text(&format!("node-{}", self.index));
        let mut wanted = StackConfig { identity: Some(identity), address, seed, ..StackConfig::default() };
        if config.keys {
            let mut secret = [self.index as u8 + 1; 36];
            secret[..8].copy_from_slice(&self.incarnation.to_be_bytes());
            let secret = Some(secret.into());
            wanted.encryption = EncryptionConfig { strict: true, clock_at_zero: CLOCK, secret };
        }
        if config.near_wrap {
            wanted.first_seqno = NEAR_WRAP;
            wanted.first_name_seqno = NEAR_WRAP;
            wanted.first_session = Some(LAST_SESSIONS);
        }
        let mut stack = Stack::new(now, wanted);
        if config.keys {
            let key = Key::new(&[9; 20]).expect("20 bytes are a key");
            stack.set_key(now, KeyUse::Master, key).expect("a new node takes a key");
            stack.rekey(now).expect("the node has a master key");
            stack.set_rekeying(now, 1);
        }
        let bearers = (0..config.bearers).map(|plane| {
            let bearer = BearerConfig::new(
                INTERFACES[usize::from(plane)],
                media_address(plane, self.index),
                style.mtu,
            );
            stack.enable_bearer(now, bearer).expect("the configuration of the simulator is valid")
        });
        let bearers = bearers.collect();
        let deadline = stack.deadline();
        self.running = Some(Running {
            stack,
            bearers,
            deadline,
            roles: BTreeMap::new(),
            paused: BTreeSet::new(),
            bound: Vec::new(),
            started: false,
        });
    }
}
