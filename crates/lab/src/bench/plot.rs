//! Plots of latency and throughput against message size.

use std::path::Path;

use anyhow::Result;
use utipc_bench_kit::plot::{self, Curve, Panel};
use utipc_bench_kit::{Named as _, group_by, machine};

use super::run::{Name, Run};
use super::table::{Group, groups};
use super::variant::Engine;

/// Base of the ticks of message sizes.
const SIZE_BASE: f64 = 4.0;

/// Writes a picture with a panel for each measure that `runs` have.
pub(super) fn write(path: &Path, runs: &[Run]) -> Result<()> {
    let caption = format!("{}\n{}", machine::caption(), places(runs));
    let panel =
        |names: &[Name], title: &str, y, value: fn(&Run) -> f64, band: Option<fn(&Run) -> f64>| Panel {
            title: title.to_owned(),
            caption: caption.clone(),
            x: ("message size [bytes]", SIZE_BASE),
            y,
            curves: curves(runs.iter().filter(|run| names.contains(&run.case.name)), value, band),
        };
    let rates = [Name::Throughput, Name::Sizes, Name::Multicast, Name::Pairs];
    let panels = [
        panel(
            &[Name::Latency],
            "Round trip: median of all rounds (thick), each round (dots), 99th percentile (thin)",
            "round trip [µs]",
            Run::p50,
            Some(p99),
        ),
        panel(
            &rates,
            "Throughput: median of all rounds, and each round (dots)",
            "throughput [Mbit/s]",
            Run::mbit_per_s,
            None,
        ),
        panel(
            &rates,
            "Message rate: median of all rounds, and each round (dots)",
            "rate [messages/s]",
            |run| run.measured.messages_per_s(),
            None,
        ),
    ];
    plot::write(path, &panels)
}

/// The 99th percentile of the round trip, µs.
fn p99(run: &Run) -> f64 {
    run.measured.rtt().map_or(0.0, |rtt| rtt.p99)
}

/// Engines and scopes of the runs.
fn places(runs: &[Run]) -> String {
    let mut engines: Vec<String> = runs.iter().map(|run| run.engine.name()).collect();
    let mut scopes: Vec<String> = runs.iter().map(|run| run.scope.name()).collect();
    for list in [&mut engines, &mut scopes] {
        list.sort_unstable();
        list.dedup();
    }
    format!("engine {}; scope {}", engines.join(", "), scopes.join(", "))
}

/// One line for each variant and number of connections; other transports are references. `band`: the upper edge of a
/// band around the line.
fn curves<'a>(
    runs: impl Iterator<Item = &'a Run>,
    value: fn(&Run) -> f64,
    band: Option<fn(&Run) -> f64>,
) -> Vec<Curve> {
    let mut all = Vec::new();
    for (engine, runs) in group_by(runs, |run| run.engine) {
        all.extend(curves_of(engine, groups(runs), value, band));
    }
    all
}

fn curves_of(
    engine: Engine,
    groups: Vec<Group<'_>>,
    value: fn(&Run) -> f64,
    band: Option<fn(&Run) -> f64>,
) -> Vec<Curve> {
    let key = |group: &Group<'_>| (group.case.variant, group.case.connections);
    let curve = |((variant, connections), groups): ((super::Variant, u32), Vec<Group<'_>>)| {
        let several = if connections > 1 { format!(" ×{connections}") } else { String::new() };
        let is_tipc = variant.transport.is_tipc();
        // Other transports are measured together with each engine.
        let engine = format!(", {}{}", if is_tipc { "" } else { "beside " }, engine.name());
        let size = |group: &Group<'_>| f64::from(group.case.size);
        let samples =
            groups.iter().flat_map(|group| group.runs.iter().map(move |run| (size(group), value(run))));
        Curve {
            label: format!("{}, {}{engine}{several}", variant.label(), variant.mode.name()),
            is_reference: !is_tipc,
            points: groups.iter().map(|group| (size(group), group.median(value))).collect(),
            samples: samples.collect(),
            band: band.map_or(Vec::new(), |high| {
                groups.iter().map(|group| (size(group), group.median(value), group.median(high))).collect()
            }),
        }
    };
    group_by(groups, key).into_iter().map(curve).collect()
}
