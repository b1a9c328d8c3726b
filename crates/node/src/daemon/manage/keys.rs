//! The list of keys: those of this node, then those of its peers.

use utipc_core::crypto::{Introduced, KeyInfo, KeyRole, Mode};
use utipc_core::stack::Stack;
use utipc_core::{NodeId, Time};
use utipc_manage::{Entry, KeyState};

pub(super) fn list(stack: &Stack, now: Time) -> Vec<Entry> {
    let info = stack.encryption();
    let own = info.keys.iter().map(|key| entry(now, None, key));
    let peers = info.peers.iter().flat_map(|peer| peer.keys.iter().map(|key| entry(now, Some(peer.id), key)));
    own.chain(peers).collect()
}

fn entry(now: Time, peer: Option<NodeId>, key: &KeyInfo) -> Entry {
    let state = match key.role {
        KeyRole::Waiting => "waiting",
        KeyRole::Master => "master",
        KeyRole::Pending => "pending",
        KeyRole::Active => "active",
        KeyRole::Passive => "passive",
    };
    let mode = match key.mode {
        Mode::Cluster => "cluster",
        Mode::PerNode => "node",
    };
    let introduced_by = match key.introduced {
        Introduced::Operator => "operator",
        Introduced::Rekeying => "rekeying",
        Introduced::Cluster => "cluster-key",
        Introduced::Peer => "peer",
    };
    Entry::Key(KeyState {
        peer: peer.map(|id| id.0),
        slot: key.slot.into(),
        state: state.to_owned(),
        mode: mode.to_owned(),
        fingerprint: key.fingerprint,
        age_ms: now.as_millis().saturating_sub(key.since.as_millis()),
        users: key.users,
        introduced_by: introduced_by.to_owned(),
    })
}
