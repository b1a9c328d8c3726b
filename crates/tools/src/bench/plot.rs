//! Plots of latency and throughput against message size.

use std::path::Path;

use anyhow::Result;
use utipc_bench_kit::plot::{self, Curve, Panel};

use super::run::{Name, Run};
use super::table::groups;

/// Base of the ticks of message sizes.
const SIZE_BASE: f64 = 4.0;

/// Writes a picture with a panel for each measure that `runs` have.
pub(super) fn write(path: &Path, runs: &[Run]) -> Result<()> {
    let of = |names: &[Name]| -> Vec<Run> {
        runs.iter().filter(|run| names.contains(&run.case.name)).cloned().collect()
    };
    let round_trips = of(&[Name::Latency]);
    let rates = of(&[Name::Throughput, Name::Sizes, Name::Multicast, Name::Pairs]);
    let panel = |title: &str, y, curves| Panel {
        title: title.to_owned(),
        x: ("message size [bytes]", SIZE_BASE),
        y,
        curves,
    };
    let panels = [
        panel("Round trip, median", "µs", curves(&round_trips, Run::p50)),
        panel("Throughput", "Mbit/s", curves(&rates, Run::mbit_per_s)),
        panel("Throughput", "messages/s", curves(&rates, |run| run.measured.messages_per_s())),
    ];
    plot::write(path, &panels)
}

/// One line for each variant and number of connections; other transports are references.
fn curves(runs: &[Run], value: impl Fn(&Run) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for group in groups(runs) {
        let Some(run) = group.runs.first() else { continue };
        let variant = run.case.variant;
        let mut label = format!("{}, {}", variant.label(), variant.mode.name());
        if run.case.connections > 1 {
            label += &format!(" ×{}", run.case.connections);
        }
        let point = (f64::from(run.case.size), group.median(&value));
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => {
                let is_reference = !variant.transport.is_tipc();
                curves.push(Curve { label, is_reference, points: vec![point] });
            }
        }
    }
    curves
}
