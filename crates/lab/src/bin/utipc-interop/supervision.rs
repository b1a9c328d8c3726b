//! The node's links and its monitor, as management shows them.

use serde_json::{Value, json};
use utipc_manage::{Domain, Entry, MonitorPeer, Reply, Request, replies};

use crate::Answer;
use crate::args::{Args, Refusal};
use crate::node::Peer;
use crate::watch::monotonic;

impl Peer {
    /// The peers with a link that is up, the sums of the links' counters, and the time.
    pub(crate) fn supervision(&self) -> Answer {
        let links = self.node()?.links();
        let mut up: Vec<_> = links.iter().filter(|link| link.up).map(|link| link.peer.0).collect();
        up.sort_unstable();
        Ok(json!({
            "at": monotonic(),
            "up": up,
            "rx_states": links.iter().map(|link| link.stats.rx_states).sum::<u64>(),
            "rx_probes": links.iter().map(|link| link.stats.rx_probes).sum::<u64>(),
            "tx_states": links.iter().map(|link| link.stats.tx_states).sum::<u64>(),
            "tx_probes": links.iter().map(|link| link.stats.tx_probes).sum::<u64>(),
        }))
    }

    /// The ring of the node's only bearer, this node first.
    pub(crate) fn monitor(&self) -> Answer {
        let monitors = self.ask(&Request::Monitors)?;
        let [Entry::Monitor(monitor)] = monitors.as_slice() else {
            return Err(Refusal::Request("the node has not exactly one bearer".into()));
        };
        let ring = self.ask(&Request::MonitorPeers { bearer: monitor.bearer })?;
        let ring =
            ring.iter().filter_map(|e| if let Entry::MonitorPeer(peer) = e { Some(peer) } else { None });
        Ok(json!({"active": monitor.active, "ring": ring.map(shown).collect::<Vec<_>>()}))
    }

    /// Sets the number of nodes above which the monitor is active.
    pub(crate) fn threshold(&self, args: &Args) -> Answer {
        self.ask(&Request::MonitorSet { threshold: Some(args.u32("nodes")?) })?;
        Ok(json!({}))
    }

    fn ask(&self, request: &Request) -> Result<Vec<Entry>, Refusal> {
        let answer = self.management()?.ask(request)?;
        let mut entries = Vec::new();
        for reply in replies(&answer) {
            match reply {
                Ok(Reply::Entry(entry)) => entries.push(entry),
                Ok(Reply::Done) => break,
                Ok(Reply::Refused(refusal)) => return Err(Refusal::Request(refusal.to_string())),
                Err(errno) => return Err(Refusal::Request(format!("malformed answer: {errno:?}"))),
            }
        }
        Ok(entries)
    }
}

fn shown(peer: &MonitorPeer) -> Value {
    let letter = |domain: &Domain, at: usize| if domain.up >> (at % 64) & 1 != 0 { "U" } else { "D" };
    let applied = peer.applied as usize;
    let domain = peer.domain.as_ref().filter(|_| applied > 0);
    let members = domain.map_or(0, |d| d.members.len());
    json!({
        "address": peer.address,
        "up": peer.up,
        "direct": peer.local || peer.head,
        "domain": domain.map_or_else(String::new, |d| (0..applied).map(|at| letter(d, at)).collect()),
        "other": (applied..members)
            .filter_map(|at| domain.map(|d| format!("{:x}:{}", d.members.get(at).unwrap_or(&0), letter(d, at))))
            .collect::<Vec<_>>(),
    })
}
