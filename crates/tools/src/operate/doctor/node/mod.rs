//! Checks of what the node itself reports. `status` shows their findings too.

use std::collections::BTreeSet;

use crate::operate::finding::{Finding, Level};
use crate::operate::snapshot::{Bearer, Link, Problem, Snapshot};
use crate::operate::text::{bytes, duration};

/// A frame or a failure this long ago still counts as present, milliseconds: nodes repeat their discovery messages at
/// least once a minute.
const RECENT_MS: u64 = 3 * 60_000;

/// A daemon that has run this long should have found its neighbours, milliseconds.
const SETTLED_MS: u64 = 10_000;

/// A user that has this share of a quota in use gets a warning, percent.
const QUOTA_PERCENT: u64 = 90;

/// Maximum number of findings of one check; a cluster may have thousands of links.
const MAX_FINDINGS: usize = 5;

/// All checks of a snapshot, in the order in which they are shown.
pub(crate) fn all(shot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in [
        address,
        bearers,
        links,
        neighbours,
        one_sided_peers,
        foreign_cluster,
        duplicate_address,
        undecryptable,
        wrong_key,
        clear_text,
        replayed,
        malformed,
        mtu,
        quotas,
        turns,
        version,
    ] {
        findings.extend(limited(check(shot)));
    }
    findings
}

/// At most [`MAX_FINDINGS`]; the last counts the others.
fn limited(mut findings: Vec<Finding>) -> Vec<Finding> {
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    findings.truncate(MAX_FINDINGS);
    if let Some(last) = findings.last_mut().filter(|_| more > 0) {
        last.text.push_str(&format!(" (and {more} more)"));
    }
    findings
}

/// The findings, or one that reports no problem.
fn or_ok(findings: Vec<Finding>, check: &'static str, text: impl Into<String>) -> Vec<Finding> {
    if findings.is_empty() { vec![Finding::ok(check, text)] } else { findings }
}

fn address(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "address";
    if shot.node.address == "0" {
        let text = "the node has no address yet, so it has no links";
        let remedy = if shot.engine == "kernel" {
            "set one: `tipc node set identity NAME`"
        } else {
            "it is chosen within a second after the first bearer; see the daemon's log if this stays"
        };
        return vec![Finding::new(CHECK, Level::Warning, text, remedy)];
    }
    vec![Finding::ok(CHECK, format!("{} in cluster {}", shot.node.address, shot.node.cluster))]
}

fn bearers(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "bearers";
    if shot.bearers.is_empty() {
        let text = "no bearer: the node serves programs of this host only";
        let remedy = "to join a cluster: `utipc bearer enable media udp name U localip ADDRESS`, or [[bearer]] in utipcd.toml";
        return vec![Finding::new(CHECK, Level::Note, text, remedy)];
    }
    let mut found = Vec::new();
    for bearer in &shot.bearers {
        if bearer.tx_dropped > 0 && bearer.tx_dropped * 100 > bearer.tx_frames {
            let text = format!(
                "{} could not send {} of {} frames",
                bearer.name,
                bearer.tx_dropped,
                bearer.tx_frames + bearer.tx_dropped
            );
            let remedy =
                "see the daemon's log for the error; check the interface, its route and the firewall";
            found.push(Finding::new(CHECK, Level::Warning, text, remedy));
        }
        if bearer.rx_unreachable > 0 {
            let text = format!(
                "{}: {} frames did not reach their node, by reports of the network",
                bearer.name, bearer.rx_unreachable
            );
            let remedy = "a daemon has ended, or a firewall rejects its port; a remote that is gone for good is removed \
                          by `utipc bearer remove media udp name NAME remoteip IP`";
            found.push(Finding::new(CHECK, Level::Note, text, remedy));
        }
        if bearer.rx_errors > 0 {
            let text = format!("{} had {} receive errors", bearer.name, bearer.rx_errors);
            found.push(Finding::new(
                CHECK,
                Level::Warning,
                text,
                "see whether the interface is up: `ip link`",
            ));
        }
    }
    let names: Vec<&str> = shot.bearers.iter().map(|bearer| &*bearer.name).collect();
    or_ok(found, CHECK, names.join(", "))
}

fn links(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "links";
    let mut found = Vec::new();
    for link in &shot.links {
        let reason = link.last_down_reason.as_deref().unwrap_or("it never came up");
        let ago = link.last_down.map(|at| shot.time.saturating_sub(at));
        if !link.up {
            let since = ago.map(|ago| format!(" for {}", duration(ago))).unwrap_or_default();
            let text = format!("{} is down{since}: {reason}", link.name);
            let remedy = "see whether the peer runs and can be reached; remove it if it is gone for good: `utipc peer \
                          remove`";
            found.push(Finding::new(CHECK, Level::Warning, text, remedy));
        } else if let Some(ago) = ago.filter(|ago| *ago < RECENT_MS) {
            let text = format!("{} was down {} ago: {reason}", link.name, duration(ago));
            found.push(Finding::new(CHECK, Level::Note, text, "`utipc link list --why` has the history"));
        }
    }
    let up = shot.links.iter().filter(|link| link.up).count();
    or_ok(found, CHECK, format!("{up} up"))
}

fn uptime(shot: &Snapshot) -> Option<u64> {
    shot.daemon.as_ref().map(|daemon| shot.time.saturating_sub(daemon.started))
}

fn neighbours(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "neighbours";
    let up = shot.neighbours.iter().filter(|node| node.up).count();
    let is_settled = uptime(shot).is_none_or(|uptime| uptime > SETTLED_MS);
    if shot.bearers.is_empty() || up > 0 || !is_settled {
        return vec![Finding::ok(CHECK, format!("{up} in contact"))];
    }
    let silent = shot.bearers.iter().all(|bearer| bearer.rx_frames == 0);
    let (text, remedy) = if silent {
        let remedy = if shot.bearers.iter().any(|bearer| bearer.group.is_some()) {
            "if there are other nodes: check firewall and switch, multicast may not pass (then name peers: `remoteip`)"
        } else {
            "if there are other nodes: check firewall, addresses and port 6118 on both sides"
        };
        ("no neighbour, and no frames have arrived from any node", remedy)
    } else {
        (
            "no neighbour, although frames arrive",
            "see the findings below; compare cluster ids: `utipc node get clusterid`",
        )
    };
    vec![Finding::new(CHECK, if silent { Level::Note } else { Level::Warning }, text, remedy)]
}

/// A peer list that only one side has: broadcasts go only one way.
fn one_sided_peers(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "one-sided-peers";
    let mut found = Vec::new();
    let lists: Vec<&Bearer> = shot.bearers.iter().filter(|bearer| !bearer.remotes.is_empty()).collect();
    for bearer in &lists {
        let of_bearer = |link: &&Link| link.bearer == bearer.name && link.up;
        let linked: BTreeSet<&str> =
            shot.links.iter().filter(of_bearer).map(|link| link.peer_media.as_str()).collect();
        let listed: BTreeSet<&str> = bearer.remotes.iter().map(String::as_str).collect();
        for missing in linked.difference(&listed).filter(|media| !media.is_empty()) {
            let text = format!(
                "{missing} has a link on {}, whose list of peers lacks it: it misses broadcasts",
                bearer.name
            );
            let (media, address) = (
                bearer.name.trim_start_matches("udp:"),
                missing.rsplit_once(':').map_or(*missing, |(ip, _)| ip),
            );
            let remedy =
                format!("`utipc bearer add media udp name {media} remoteip {address}`, and in utipcd.toml");
            found.push(Finding::new(CHECK, Level::Warning, text, remedy));
        }
        if uptime(shot).is_none_or(|uptime| uptime > SETTLED_MS) {
            for silent in listed.difference(&linked) {
                let text = format!("peer {silent} of {} has no link", bearer.name);
                let remedy = "see whether its daemon runs, its firewall lets port 6118 pass and its cluster id is the same";
                found.push(Finding::new(CHECK, Level::Warning, text, remedy));
            }
        }
    }
    or_ok(
        found,
        CHECK,
        if lists.is_empty() { "no bearer has a list of peers" } else { "all listed peers have links" },
    )
}

/// A finding for frames that show a problem, if some have arrived lately.
fn recent(
    shot: &Snapshot,
    name: &str,
    check: &'static str,
    level: Level,
    remedy: &str,
    what: impl Fn(&Problem) -> String,
) -> Vec<Finding> {
    let found = shot.problems.iter().find(|problem| problem.name == name);
    let Some(problem) = found else { return vec![Finding::ok(check, "no such frame")] };
    let ago = shot.time.saturating_sub(problem.last);
    let on = if problem.bearer.is_empty() { String::new() } else { format!(" on {}", problem.bearer) };
    let text = format!("{} ({} frames{on}, the last {} ago)", what(problem), problem.count, duration(ago));
    if ago > RECENT_MS {
        return vec![Finding::new(check, Level::Note, text, "none has arrived since; it may be solved")];
    }
    vec![Finding::new(check, level, text, remedy)]
}

fn foreign_cluster(shot: &Snapshot) -> Vec<Finding> {
    let remedy = "if they should be one cluster: give them the same cluster id; otherwise: another group or port keeps \
                  them apart";
    recent(shot, "other-cluster", "foreign-cluster", Level::Warning, remedy, |problem| {
        format!("nodes of another cluster share a network with this one: {}", problem.detail)
    })
}

fn duplicate_address(shot: &Snapshot) -> Vec<Finding> {
    let remedy = "change the address or the identity of one of them: copied machines need a new identity (delete the \
                  daemon's state directory)";
    recent(shot, "duplicate-address", "duplicate-address", Level::Error, remedy, |problem| {
        problem.detail.clone()
    })
}

fn undecryptable(shot: &Snapshot) -> Vec<Finding> {
    let remedy =
        "give this node the cluster's key: [encryption] in its configuration, or `utipc node set key`";
    recent(shot, "encrypted", "undecryptable-frames", Level::Error, remedy, |_| {
        "encrypted frames arrive, for which this node has no key".to_owned()
    })
}

fn wrong_key(shot: &Snapshot) -> Vec<Finding> {
    let is_wrong = |problem: &&Problem| problem.name == "wrong-key" && !matches!(&*problem.peer, "" | "0");
    let sender = shot.problems.iter().find(is_wrong).map(|problem| &problem.peer);
    let known = shot.neighbours.iter().find(|node| sender == Some(&node.address));
    let remedy = "compare the fingerprints on both nodes (`utipc node get key`); a node that has restarted with an \
                  old key file needs the present key in that file, and another restart";
    recent(shot, "wrong-key", "wrong-key", Level::Error, remedy, |_| match (sender, known) {
        (Some(_), Some(node)) if !node.up => format!(
            "{} is out of the cluster: frames in its name are encrypted with a key that this node lacks",
            node.identity
        ),
        (Some(sender), None) => {
            format!("frames in the name of node {sender} are encrypted with a key that this node lacks")
        }
        _ => "frames arrive that are altered or encrypted with a key that this node lacks".to_owned(),
    })
}

fn clear_text(shot: &Snapshot) -> Vec<Finding> {
    let remedy = "give the other nodes the key too, or accept clear text (encryption.strict = false)";
    recent(shot, "clear-text", "clear-text", Level::Warning, remedy, |_| {
        "nodes send in clear text, which this node refuses because it has a key".to_owned()
    })
}

fn replayed(shot: &Snapshot) -> Vec<Finding> {
    let remedy = "if a node has just restarted with a clock that went back, wait until its link is up; else look for an \
                  attacker on this network";
    recent(shot, "replayed", "replayed-frames", Level::Warning, remedy, |_| {
        "encrypted frames arrive that were received before".to_owned()
    })
}

fn malformed(shot: &Snapshot) -> Vec<Finding> {
    let remedy = "see what sends them: `utipc capture -w -`; another program may use the port";
    recent(shot, "malformed", "malformed-frames", Level::Warning, remedy, |problem| {
        format!("frames that are not TIPC arrive: {}", problem.detail)
    })
}

/// Links with a smaller packet size than their bearer: probes have found that the path carries no more, or the peer has
/// a smaller MTU.
fn mtu(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "mtu";
    let mut found = Vec::new();
    for link in shot.links.iter().filter(|link| link.up) {
        let bearer = shot.bearers.iter().find(|bearer| bearer.name == link.bearer);
        let Some(mtu) =
            bearer.and_then(|bearer| bearer.mtu).filter(|mtu| link.mtu > 0 && link.mtu + 64 < *mtu)
        else {
            continue;
        };
        let text = format!(
            "{} uses packets of {} bytes, its bearer allows {mtu}: the path or the peer takes no larger ones",
            link.name, link.mtu
        );
        let remedy = "give the peer, and the switches, routers and tunnels on the path, the MTU of this interface; or \
                      lower that of the bearer: `utipc bearer set mtu`";
        found.push(Finding::new(CHECK, Level::Warning, text, remedy));
    }
    or_ok(found, CHECK, "links use the packets of their bearers")
}

fn quotas(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "quotas";
    let mut found = Vec::new();
    for user in &shot.users {
        let whom = user.uid.map_or_else(|| "all users".to_owned(), |uid| format!("user {uid}"));
        for resource in &user.resources {
            let Some(limit) = resource.limit.filter(|limit| *limit > 0) else { continue };
            let amount = |number| if resource.name == "memory" { bytes(number) } else { number.to_string() };
            let (used, limit_text) = (amount(resource.used), amount(limit));
            let key = match (&*resource.name, user.uid) {
                ("memory", None) => "memory_mib".to_owned(),
                ("memory", Some(_)) => "memory_per_user_mib".to_owned(),
                (name, None) => name.to_owned(),
                (name, Some(_)) => format!("{name}_per_user"),
            };
            let remedy = format!("close some, or raise limits.{key} in utipcd.toml");
            if resource.used.saturating_mul(100) >= limit.saturating_mul(QUOTA_PERCENT) {
                let text = format!("{whom}: {used} of {limit_text} {}", resource.name);
                found.push(Finding::new(CHECK, Level::Warning, text, remedy));
            } else if resource.refused > 0 {
                let text = format!("{whom}: {} were refused {} times", resource.name, resource.refused);
                found.push(Finding::new(CHECK, Level::Note, text, remedy));
            }
        }
    }
    or_ok(found, CHECK, "no user is near a limit")
}

fn turns(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "turns";
    let Some(daemon) = &shot.daemon else { return Vec::new() };
    let longest = format!(
        "longest turn {:.1} ms ({})",
        daemon.longest_turn_us as f64 / 1000.0,
        daemon.longest_turn_handler
    );
    if daemon.long_turns > 0 {
        let text =
            format!("{} turns of more than 20 ms, {longest}: programs and links waited", daemon.long_turns);
        let remedy = "give the daemon processor time (CPUWeight=, nice); the log names the program: docs/operating/turns.md";
        return vec![Finding::new(CHECK, Level::Note, text, remedy)];
    }
    vec![Finding::ok(CHECK, longest)]
}

fn version(shot: &Snapshot) -> Vec<Finding> {
    const CHECK: &str = "version-skew";
    let Some(daemon) = &shot.daemon else { return Vec::new() };
    let own = env!("CARGO_PKG_VERSION");
    if daemon.release != own {
        let text = format!("the daemon is {}, this program {own}", daemon.release);
        let remedy = "restart the daemon after an upgrade: `systemctl restart utipcd`";
        return vec![Finding::new(CHECK, Level::Warning, text, remedy)];
    }
    vec![Finding::ok(CHECK, format!("daemon and tools are {own}"))]
}

#[cfg(test)]
mod tests;
