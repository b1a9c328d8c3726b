//! Plots of latency and throughput against message size.

use std::path::Path;

use anyhow::Result;
use utipc_bench_kit::plot::{self, Curve, Panel};
use utipc_bench_kit::{Named as _, group_by};

use super::run::{Name, Run};
use super::table::{Group, groups};

/// Base of the ticks of message sizes.
const SIZE_BASE: f64 = 4.0;

/// Writes a picture with a panel for each measure that `runs` have.
pub(super) fn write(path: &Path, runs: &[Run]) -> Result<()> {
    let panel = |names: &[Name], title: &str, y, value: fn(&Run) -> f64| Panel {
        title: title.to_owned(),
        x: ("message size [bytes]", SIZE_BASE),
        y,
        curves: curves(runs.iter().filter(|run| names.contains(&run.case.name)), value),
    };
    let rates = [Name::Throughput, Name::Sizes, Name::Multicast, Name::Pairs];
    let panels = [
        panel(&[Name::Latency], "Round trip, median", "µs", Run::p50),
        panel(&rates, "Throughput", "Mbit/s", Run::mbit_per_s),
        panel(&rates, "Throughput", "messages/s", |run| run.measured.messages_per_s()),
    ];
    plot::write(path, &panels)
}

/// One line for each variant and number of connections; other transports are references.
fn curves<'a>(runs: impl Iterator<Item = &'a Run>, value: fn(&Run) -> f64) -> Vec<Curve> {
    let key = |group: &Group<'_>| (group.case.variant, group.case.connections);
    let curve = |((variant, connections), groups): ((super::Variant, u32), Vec<Group<'_>>)| {
        let several = if connections > 1 { format!(" ×{connections}") } else { String::new() };
        Curve {
            label: format!("{}, {}{several}", variant.label(), variant.mode.name()),
            is_reference: !variant.transport.is_tipc(),
            points: groups.iter().map(|group| (f64::from(group.case.size), group.median(value))).collect(),
        }
    };
    group_by(groups(runs), key).into_iter().map(curve).collect()
}
