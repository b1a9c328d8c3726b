//! `link monitor`: the nodes that each node supervises.

use utipc_manage::{Domain, Entry, Monitor, MonitorPeer, Request};

use super::bearer;
use super::call::{Call, Ended};
use super::identity::show_address;
use super::output::Output;

const TITLE: &str =
    "node          status monitored generation applied_node_status [non_applied_node:status]\n";
/// Letters of the members' states between two commas.
const GROUP: usize = 5;

pub(super) fn set_threshold(call: &mut Call) -> Ended {
    let threshold = Some(call.number()?);
    call.finish()?;
    call.order(&Request::MonitorSet { threshold })
}

pub(super) fn get_threshold(call: &mut Call) -> Ended {
    let reply = call.ask(&Request::MonitorGet)?;
    for entry in reply {
        if let Entry::Threshold(nodes) = entry {
            call.begin();
            let threshold = |out: &mut Output| out.any("threshold", nodes, &format!("{nodes}\n"));
            if call.options.own {
                call.out.object("", threshold);
            } else {
                // iproute2 prints no object around it, which is not valid JSON.
                threshold(&mut call.out);
            }
            call.out.end();
        }
    }
    Ok(())
}

fn monitors(call: &Call) -> Result<Vec<Monitor>, super::call::Failure> {
    let reply = call.ask(&Request::Monitors)?.into_iter();
    Ok(reply.filter_map(|e| if let Entry::Monitor(m) = e { Some(m) } else { None }).collect())
}

pub(super) fn summary(call: &mut Call) -> Ended {
    let reply = monitors(call)?;
    call.begin();
    for m in reply {
        let algorithm = if m.active { "overlapping-ring" } else { "full-mesh" };
        call.out.object("", |out| {
            out.any("bearer", m.name.as_str(), &format!("\nbearer {}\n", m.name));
            out.any("table_generation", m.generation, &format!("    table_generation {}\n", m.generation));
            out.any("cluster_size", m.nodes, &format!("    cluster_size {}\n", m.nodes));
            out.any("algorithm", algorithm, &format!("    algorithm {algorithm}\n"));
        });
    }
    call.out.end();
    Ok(())
}

pub(super) fn list(call: &mut Call) -> Ended {
    let keys = call.keys(&bearer::KEYS)?;
    let wanted = keys.get("media").is_some().then(|| bearer::name(&keys)).transpose()?;
    let reply = monitors(call)?;
    call.begin();
    for m in reply.iter().filter(|m| wanted.as_ref().is_none_or(|name| *name == m.name)) {
        call.out.open_object("");
        call.out.any("bearer", m.name.as_str(), &format!("\nbearer {}\n", m.name));
        call.out.text(TITLE);
        let peers = call.ask(&Request::MonitorPeers { bearer: m.bearer })?;
        call.out.array(&m.name, |out| {
            for entry in &peers {
                if let Entry::MonitorPeer(peer) = entry {
                    out.object("", |out| show(out, peer));
                    out.text("\n");
                }
            }
        });
        call.out.close_object();
    }
    call.out.end();
    Ok(())
}

fn show(out: &mut super::output::Output, peer: &MonitorPeer) {
    let node = show_address(peer.address);
    let status = if peer.up { "up" } else { "down" };
    let monitored = if peer.local || peer.head { "direct" } else { "indirect" };
    let generation = peer.domain.as_ref().map_or(0, |d| d.generation);
    out.any("node", node.as_str(), &format!("{node:<14}"));
    out.any("status", status, &format!("{status:<7}"));
    out.any("monitored", monitored, &format!("{monitored:<10}"));
    out.any("generation", generation, &format!("{generation:<11}"));
    let Some(domain) = peer.domain.as_ref().filter(|_| peer.applied > 0) else { return };
    let applied = peer.applied as usize;
    out.array("applied_node_status", |out| {
        for i in 0..applied {
            if i > 0 && i % GROUP == 0 {
                out.text(",");
            }
            out.any("", letter(domain, i), letter(domain, i));
        }
    });
    out.array("[non_applied_node:status]", |out| {
        out.text(" [");
        for (i, member) in domain.members.iter().enumerate().skip(applied) {
            if i > applied {
                out.text(",");
            }
            let state = format!("{member:x}:{}", letter(domain, i));
            out.any("", state.as_str(), &state);
        }
        out.text("]");
    });
}

fn letter(domain: &Domain, i: usize) -> &'static str {
    if domain.up >> (i % 64) & 1 != 0 { "U" } else { "D" }
}
