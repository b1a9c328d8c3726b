//! Latency and throughput against message size as an SVG picture.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::run::{Line, Name};
use super::table::groups;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Room of a panel for its axes and its legend: left, right, top, bottom.
const MARGIN: [f64; 4] = [80.0, 190.0, 40.0, 50.0];
/// Colours that can be told apart, also by most who see some of them alike.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f00", "#8c564b",
    "#666666",
];

/// One line of a panel: (bytes, value), values above zero.
struct Curve {
    label: String,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

/// Writes the panels for what `lines` hold.
pub(super) fn write(path: &Path, lines: &[Line]) -> Result<()> {
    let of = |names: &[Name]| -> Vec<Line> {
        lines.iter().filter(|line| names.contains(&line.case.name)).cloned().collect()
    };
    let round_trips = of(&[Name::Latency]);
    let rates = of(&[Name::Throughput, Name::Sizes, Name::Multicast, Name::Pairs]);
    let mut panels = Vec::new();
    if !round_trips.is_empty() {
        panels.push(("Round trip, median [µs]", curves(&round_trips, Line::p50)));
    }
    if !rates.is_empty() {
        panels.push(("Throughput [Mbit/s]", curves(&rates, Line::mbit_per_s)));
        panels.push(("Throughput [messages/s]", curves(&rates, |line| line.measured.messages_per_s())));
    }
    std::fs::write(path, picture(&panels)).with_context(|| format!("write the plot {}", path.display()))
}

fn curves(lines: &[Line], value: impl Fn(&Line) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for group in groups(lines) {
        let Some(line) = group.lines.first() else { continue };
        let mut label = format!("{}, {}", line.case.party.label(), line.case.party.mode.name());
        if line.case.connections > 1 {
            let _ = write!(label, " ×{}", line.case.connections);
        }
        let point = (f64::from(line.case.size), group.median(&value));
        if !point.1.is_finite() || point.1 <= 0.0 {
            continue;
        }
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => {
                let dashed = !line.case.party.transport.is_tipc();
                curves.push(Curve { label, dashed, points: vec![point] });
            }
        }
    }
    curves
}

fn picture(panels: &[(&str, Vec<Curve>)]) -> String {
    let height = HEIGHT * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, (title, curves)) in panels.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", number as f64 * HEIGHT);
        panel(&mut svg, title, curves);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

/// A logarithmic axis from one power of `base` to another.
struct Axis {
    base: f64,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(base: f64, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value.log(base));
            high = high.max(value.log(base));
        }
        let (low, high) = if low.is_finite() { (low.floor(), high.ceil()) } else { (0.0, 1.0) };
        Self { base, low, high: high.max(low + 1.0), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log(self.base) - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=(self.high - self.low) as u32).map(|step| self.base.powf(self.low + f64::from(step)))
    }
}

fn panel(svg: &mut String, title: &str, curves: &[Curve]) {
    let [left, right, top, bottom] = MARGIN;
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let x = Axis::new(4.0, points().map(|point| point.0), left, WIDTH - right);
    let y = Axis::new(10.0, points().map(|point| point.1), HEIGHT - bottom, top);
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"{}\" font-size=\"15\">{title}</text>", top - 14.0);
    for tick in y.ticks() {
        let at = y.place(tick);
        let _ = writeln!(svg, "<path d=\"M{} {at:.1}H{}\" stroke=\"#ddd\"/>", x.from, x.to);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            at + 4.0,
            number(tick)
        );
    }
    for tick in x.ticks() {
        let at = x.place(tick);
        let _ = writeln!(svg, "<path d=\"M{at:.1} {}V{}\" stroke=\"#ddd\"/>", y.from, y.to);
        let below = HEIGHT - bottom + 18.0;
        let _ =
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>", number(tick));
    }
    let (middle, below) = (f64::midpoint(left, WIDTH - right), HEIGHT - bottom + 38.0);
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">message size [bytes]</text>"
    );
    for (number, curve) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = if curve.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        let line: Vec<String> =
            curve.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x.place(*a), y.place(*b))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            line.join(" ")
        );
        for (a, b) in &curve.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x.place(*a),
                y.place(*b)
            );
        }
        let (key, row) = (WIDTH - right + 14.0, top + 8.0 + 18.0 * number as f64);
        let _ = writeln!(svg, "<path d=\"M{key} {row}h22\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", key + 28.0, row + 4.0, curve.label);
    }
}

/// 250, 1k, 4M: as short as an axis needs it.
fn number(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", v / 1e9),
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e5 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_spans_its_values() {
        let axis = Axis::new(10.0, [3.0, 250.0].into_iter(), 0.0, 300.0);
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.place(100.0) - 200.0).abs() < 1e-9);
        assert_eq!(Axis::new(10.0, std::iter::empty(), 0.0, 1.0).ticks().count(), 2);
    }

    #[test]
    fn a_picture_has_a_line_for_each_curve() {
        let curve = |label: &str, dashed| Curve {
            label: label.to_owned(),
            dashed,
            points: vec![(64.0, 1.5), (1024.0, 2.5)],
        };
        let svg = picture(&[("Round trip", vec![curve("utipc, busy", false), curve("tcp", true)])]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("<polyline").count(), svg.matches("stroke-dasharray").count()), (2, 2));
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
        assert_eq!(
            (number(64.0), number(16_384.0), number(262_144.0)),
            ("64".into(), "16384".into(), "262.144k".into())
        );
    }
}
