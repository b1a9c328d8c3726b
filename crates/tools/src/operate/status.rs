//! `utipc status`: the state of the node on one screen. Problems come first.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::doctor;
use super::finding::{Finding, Level};
use super::node::Target;
use super::snapshot::{Link, Snapshot, User};
use super::text::{bytes, duration, short};
use crate::manage::when::utc;

/// Rows of each list, at most, unless all are wanted.
const ROWS: usize = 12;

/// Options of `utipc status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    /// List all links, neighbours and users, however many there are
    #[arg(short, long)]
    all: bool,
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report<'a> {
    running: bool,
    findings: &'a [Finding],
    #[serde(flatten)]
    shot: Option<&'a Snapshot>,
}

/// Prints the state. The exit code is 0 if the node answers, otherwise 1.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let node = match options.target.open() {
        Ok(node) => node,
        Err(error) => {
            let finding = doctor::unreachable(&error, &doctor::Host::look());
            print(options, &[finding], None)?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let shot = Snapshot::take(&node, false)?;
    let findings: Vec<Finding> =
        doctor::node::all(&shot).into_iter().filter(|found| found.level != Level::Ok).collect();
    print(options, &findings, Some(&shot))?;
    Ok(ExitCode::SUCCESS)
}

fn print(options: &Options, findings: &[Finding], shot: Option<&Snapshot>) -> Result<()> {
    if options.json {
        let report = Report { running: shot.is_some(), findings, shot };
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let mut out = String::new();
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|found| std::cmp::Reverse(found.level));
    for found in sorted {
        out.push_str(&found.line());
    }
    if let Some(shot) = shot {
        if !out.is_empty() {
            out.push('\n');
        }
        screen(&mut out, shot, if options.all { usize::MAX } else { ROWS });
    }
    print!("{out}");
    Ok(())
}

/// The lists as text.
fn screen(out: &mut String, shot: &Snapshot, rows: usize) {
    // Writing to text cannot fail.
    let _ = head(out, shot);
    let _ = bearers(out, shot);
    let _ = links(out, shot, rows);
    let _ = neighbours(out, shot, rows);
    let _ = users(out, &shot.users, rows);
}

fn head(out: &mut String, shot: &Snapshot) -> std::fmt::Result {
    let node = &shot.node;
    let identity = if node.identity.is_empty() { "none" } else { &node.identity };
    writeln!(out, "Node        {} identity {identity}, cluster {}", node.address, node.cluster)?;
    let Some(daemon) = &shot.daemon else {
        return writeln!(out, "Engine      the kernel's TIPC, which reports no counters, users or reasons");
    };
    let up = duration(shot.time.saturating_sub(daemon.started));
    writeln!(
        out,
        "Engine      daemon {}, process {}, user {}, up {up}",
        daemon.release, daemon.pid, daemon.user
    )?;
    writeln!(
        out,
        "Programs    {} processes, {} sockets, {} lanes{}",
        daemon.processes,
        daemon.sockets,
        daemon.lanes,
        if daemon.damaged_lanes > 0 { format!(", {} damaged", daemon.damaged_lanes) } else { String::new() }
    )?;
    writeln!(
        out,
        "Event loop  longest turn {:.1} ms{}, {} of {} longer than 20 ms",
        daemon.longest_turn_us as f64 / 1000.0,
        if daemon.longest_turn_handler.is_empty() {
            String::new()
        } else {
            format!(" ({})", daemon.longest_turn_handler)
        },
        daemon.long_turns,
        short(daemon.turns)
    )
}

fn bearers(out: &mut String, shot: &Snapshot) -> std::fmt::Result {
    if shot.bearers.is_empty() {
        return writeln!(out, "\nBearers     none");
    }
    writeln!(
        out,
        "\n{:<18} {:<22} {:>6} {:>9} {:>9} {:>8}",
        "Bearer", "Address", "MTU", "Received", "Sent", "Not sent"
    )?;
    for bearer in &shot.bearers {
        let mtu = bearer.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string());
        let local = bearer.local.as_deref().unwrap_or("-");
        writeln!(
            out,
            "{:<18} {local:<22} {mtu:>6} {:>9} {:>9} {:>8}",
            bearer.name,
            short(bearer.rx_frames),
            short(bearer.tx_frames),
            short(bearer.tx_dropped)
        )?;
    }
    Ok(())
}

/// The links, those that are down first.
fn links(out: &mut String, shot: &Snapshot, rows: usize) -> std::fmt::Result {
    if shot.links.is_empty() {
        return writeln!(out, "\nLinks       none");
    }
    let width = shot.links.iter().map(|link| link.name.len()).max().unwrap_or(0).clamp(4, 40);
    writeln!(
        out,
        "\n{:<width$} {:<4} {:>7} {:>7} {:>6}  Last change",
        "Link", "", "Resent", "Congest", "Queue"
    )?;
    let mut sorted: Vec<&Link> = shot.links.iter().collect();
    sorted.sort_by_key(|link| link.up);
    for link in sorted.iter().take(rows) {
        writeln!(
            out,
            "{:<width$} {:<4} {:>7} {:>7} {:>6}  {}",
            link.name,
            if link.up { "up" } else { "DOWN" },
            short(link.retransmitted.into()),
            short(link.congestions.into()),
            link.max_queue,
            last_change(link, narrowed(link, shot))
        )?;
    }
    more(out, sorted.len(), rows)
}

/// The MTU of a link's bearer, if the link uses smaller packets.
fn narrowed(link: &Link, shot: &Snapshot) -> Option<u32> {
    let mtu = shot.bearers.iter().find(|bearer| bearer.name == link.bearer)?.mtu?;
    (link.up && link.mtu > 0 && link.mtu < mtu).then_some(mtu)
}

/// Time and reason of a link's last change, and the size of its packets if that is not the bearer's.
fn last_change(link: &Link, bearer_mtu: Option<u32>) -> String {
    let size = bearer_mtu.map(|mtu| format!("; packets of {} bytes, the bearer allows {mtu}", link.mtu));
    change(link) + &size.unwrap_or_default()
}

fn change(link: &Link) -> String {
    let down = link.last_down.map(|at| {
        format!("down {}: {}", utc(at), link.last_down_reason.as_deref().unwrap_or("unknown reason"))
    });
    match (link.up_since, down) {
        (Some(at), None) => format!("up {}", utc(at)),
        (Some(at), Some(down)) => format!("up {}; {down}", utc(at)),
        (None, Some(down)) => down,
        (None, None) => "not known".to_owned(),
    }
}

fn neighbours(out: &mut String, shot: &Snapshot, rows: usize) -> std::fmt::Result {
    if shot.neighbours.is_empty() {
        return writeln!(out, "\nNeighbours  none");
    }
    writeln!(out, "\n{:<9} {:<32} State", "Neighbour", "Identity")?;
    let mut sorted: Vec<_> = shot.neighbours.iter().collect();
    sorted.sort_by_key(|node| node.up);
    for node in sorted.iter().take(rows) {
        writeln!(out, "{:<9} {:<32} {}", node.address, node.identity, if node.up { "up" } else { "DOWN" })?;
    }
    more(out, sorted.len(), rows)
}

/// Use of resources: one row for each user.
fn users(out: &mut String, users: &[User], rows: usize) -> std::fmt::Result {
    if users.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:<7} Uses", "User")?;
    for user in users.iter().take(rows) {
        let name = user.uid.map_or_else(|| "all".to_owned(), |uid| uid.to_string());
        let used = user.resources.iter().filter(|r| user.uid.is_some() || r.used + r.refused > 0).map(|r| {
            let amount = |number| if r.name == "memory" { bytes(number) } else { short(number) };
            let limit = r.limit.map(|limit| format!("/{}", amount(limit))).unwrap_or_default();
            let refused = if r.refused > 0 { format!(" ({} refused)", r.refused) } else { String::new() };
            format!("{} {}{limit}{refused}", r.name, amount(r.used))
        });
        let used: Vec<String> = used.collect();
        writeln!(out, "{name:<7} {}", if used.is_empty() { "nothing".to_owned() } else { used.join(", ") })?;
    }
    more(out, users.len(), rows)
}

fn more(out: &mut String, len: usize, rows: usize) -> std::fmt::Result {
    if len > rows { writeln!(out, "… and {} more (--all lists them)", len - rows) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::snapshot::{Bearer, Daemon, Neighbour, OwnNode, Resource};

    fn shot() -> Snapshot {
        Snapshot {
            engine: "daemon",
            time: 1_795_324_623_250,
            node: OwnNode { address: "1001001".to_owned(), identity: "alpha".to_owned(), cluster: 4711 },
            daemon: Some(Daemon {
                release: "1.2.3".to_owned(),
                pid: 7,
                longest_turn_us: 1500,
                ..Daemon::default()
            }),
            bearers: vec![Bearer { name: "udp:U".to_owned(), mtu: Some(14_000), ..Bearer::default() }],
            links: (0..20)
                .map(|n| Link {
                    name: format!("alpha:U-node{n}:U"),
                    up: n != 15,
                    last_down: (n == 15).then_some(1_795_324_620_000),
                    last_down_reason: (n == 15).then(|| "tolerance exceeded".to_owned()),
                    ..Link::default()
                })
                .collect(),
            neighbours: vec![Neighbour::default()],
            users: vec![User {
                uid: Some(1000),
                resources: vec![Resource {
                    name: "memory".to_owned(),
                    used: 4096,
                    limit: Some(1 << 20),
                    refused: 2,
                }],
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn screen_shows_links_that_are_down_first_and_counts_the_rest() {
        let mut out = String::new();
        screen(&mut out, &shot(), ROWS);
        let first = out.lines().skip_while(|line| !line.starts_with("Link ")).nth(1).unwrap();
        assert!(first.starts_with("alpha:U-node15:U DOWN"), "{out}");
        assert!(first.ends_with("down 2026-11-22 05:17:00.000 UTC: tolerance exceeded"), "{out}");
        for part in
            ["… and 8 more", "1001001 identity alpha, cluster 4711", "memory 4.0 KiB/1.0 MiB (2 refused)"]
        {
            assert!(out.contains(part), "no {part:?} in {out}");
        }
        let mut all = String::new();
        screen(&mut all, &shot(), usize::MAX);
        assert!(!all.contains("more") && all.contains("node19"));
    }
}
