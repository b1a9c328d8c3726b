//! Line plots and histograms as SVG pictures.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

/// A line of a plot: (x, y), both above zero.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its entry in the legend.
    pub label: String,
    /// Its points, by rising x.
    pub points: Vec<(f64, f64)>,
    /// A curve to compare with, drawn faint and thin.
    pub is_reference: bool,
}

/// A plot with logarithmic axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title.
    pub title: String,
    /// Name of the horizontal axis, and the base of its ticks.
    pub x: (&'static str, f64),
    /// Name of the vertical axis.
    pub y: &'static str,
    /// The lines.
    pub curves: Vec<Curve>,
}

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Size of a plot, pixels.
const SIZE: (u32, u32) = (900, 560);
/// Colours that most people with a colour vision deficiency can tell apart.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x7f, 0x7f, 0x00),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0x66, 0x66, 0x66),
];

impl Panel {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.curves.iter().flat_map(|curve| positive(&curve.points))
    }
}

fn positive(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + Clone + '_ {
    points.iter().copied().filter(|point| point.0 > 0.0 && point.1 > 0.0)
}

/// Writes the panels that have points into one picture, one below the other. Without any, it writes nothing.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, panels: &[Panel]) -> Result<()> {
    let panels: Vec<&Panel> = panels.iter().filter(|panel| panel.points().next().is_some()).collect();
    if panels.is_empty() {
        return Ok(());
    }
    let height = SIZE.1 * u32::try_from(panels.len()).unwrap_or(1);
    save(path, (SIZE.0, height), |area| {
        area.fill(&WHITE)?;
        let parts = area.split_evenly((panels.len(), 1));
        parts.iter().zip(&panels).try_for_each(|(part, panel)| draw(part, panel))
    })
}

/// Writes a histogram of latencies: (upper bound in microseconds, count). Without any, it writes nothing.
///
/// # Errors
/// The file cannot be written.
pub fn histogram(path: &Path, title: &str, classes: &[(f64, u64)]) -> Result<()> {
    let (Some(first), Some(last)) = (classes.first(), classes.last()) else { return Ok(()) };
    let most = classes.iter().map(|class| class.1).max().unwrap_or(1);
    save(path, SIZE, |area| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(48)
            .y_label_area_size(70)
            .build_cartesian_2d((first.0 / 2.0..last.0 * 1.25).log_scale(), 0..most + most / 10 + 1)?;
        chart
            .configure_mesh()
            .x_desc("latency [µs]")
            .y_desc("updates")
            .x_label_formatter(&|value| short(*value))
            .draw()?;
        let bar = |class: &(f64, u64)| {
            Rectangle::new([(class.0 / 2.0, 0), (class.0, class.1)], BLUE.mix(0.5).filled())
        };
        chart.draw_series(classes.iter().map(bar))?;
        Ok(())
    })
}

/// Draws a picture and writes it, with the folder that it lies in.
pub(crate) fn save(path: &Path, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    }
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area).and_then(|()| Ok(area.present()?))
    };
    drawn.map_err(|why| anyhow!("draw {}: {why}", path.display()))?;
    std::fs::write(path, svg).with_context(|| format!("write the picture {}", path.display()))
}

/// The range of an axis, with some space at both ends.
fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    values.clone().fold(f64::INFINITY, f64::min) * 0.8..values.fold(0.0, f64::max) * 1.25
}

fn draw(area: &Area<'_>, panel: &Panel) -> Drawn {
    let points: Vec<(f64, f64)> = panel.points().collect();
    let (name, base) = panel.x;
    let (x, y) = (range(points.iter().map(|p| p.0)), range(points.iter().map(|p| p.1)));
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(48)
        .y_label_area_size(70)
        .build_cartesian_2d(x.log_scale().base(base), y.log_scale())?;
    let plain = |value: &f64| if (base - 10.0).abs() < 0.5 { short(*value) } else { format!("{value}") };
    chart
        .configure_mesh()
        .x_desc(name)
        .y_desc(panel.y)
        .x_label_formatter(&plain)
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (curve, colour) in panel.curves.iter().zip(COLOURS.into_iter().cycle()) {
        let style = ShapeStyle::from(colour).stroke_width(2);
        // Faint and thin instead of dashed: plotters dashes with `f32::hypot`, which needs glibc 2.35.
        let line = if curve.is_reference { ShapeStyle::from(colour.mix(0.5)).stroke_width(1) } else { style };
        let drawn = chart.draw_series(LineSeries::new(positive(&curve.points), line).point_size(3))?;
        let label = drawn.label(curve.label.clone());
        label.legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}

/// A number in short form: 250, 1k, 4M.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", v / 1e9),
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_a_line_and_a_legend_for_each_curve() {
        let curve = |label: &str, is_reference| Curve {
            label: label.into(),
            points: vec![(1e3, 80.0), (1e5, 95.0), (1e6, 300.0)],
            is_reference,
        };
        let panel = |curves| Panel { title: "T8".into(), x: ("updates/s", 10.0), y: "latency [µs]", curves };
        let path = std::env::temp_dir().join(format!("bench-kit-plot-{}.svg", std::process::id()));
        write(&path, &[panel(vec![curve("mean", false), curve("p99", true)]), panel(Vec::new())]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(svg.contains("T8") && svg.contains("mean") && svg.contains("p99") && svg.contains("100k"));
        assert!(svg.matches("<polyline").count() >= 2);
        assert_eq!((short(2.5e6), short(40.0)), ("2.5M".into(), "40".into()));
        write(&path, &[panel(Vec::new())]).unwrap();
        assert!(!path.exists());
    }
}
