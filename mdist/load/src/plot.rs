//! Plots of latency as SVG files.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

/// One curve of a plot.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Text of the legend.
    pub label: String,
    /// Points by rising rate: updates per second, microseconds. Values of zero and below are left out.
    pub points: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (900, 560);

/// Writes a plot of latency against rate, both axes logarithmic. Without points no file is written.
///
/// # Errors
/// The file cannot be written.
pub fn latency_against_rate(path: &Path, title: &str, curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| curve.points.iter()).filter(|p| p.0 > 0.0 && p.1 > 0.0);
    if points().next().is_none() {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    }
    let range = |of: fn(&(f64, f64)) -> f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        let high = points().map(of).fold(0.0, f64::max);
        (low * 0.8)..(high * 1.25)
    };
    let mut svg = String::new();
    draw(&mut svg, title, curves, range(|p| p.0), range(|p| p.1))
        .map_err(|error| anyhow!("draw {title}: {error}"))?;
    std::fs::write(path, svg).with_context(|| format!("write the plot {}", path.display()))
}

/// Writes a histogram; a class is its upper bound in microseconds and its number. Without classes no file is written.
///
/// # Errors
/// The file cannot be written.
pub fn histogram(path: &Path, title: &str, classes: &[(f64, u64)]) -> Result<()> {
    let (Some(first), Some(last)) = (classes.first(), classes.last()) else { return Ok(()) };
    let most = classes.iter().map(|class| class.1).max().unwrap_or(1);
    let mut svg = String::new();
    let mut draw = || -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
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
        area.present()?;
        Ok(())
    };
    draw().map_err(|error| anyhow!("draw {title}: {error}"))?;
    std::fs::write(path, svg).with_context(|| format!("write the plot {}", path.display()))
}

fn draw(
    svg: &mut String,
    title: &str,
    curves: &[Curve],
    rates: std::ops::Range<f64>,
    times: std::ops::Range<f64>,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(48)
        .y_label_area_size(70)
        .build_cartesian_2d(rates.log_scale(), times.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("updates per second")
        .y_desc("latency [µs]")
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        let points = curve.points.iter().copied().filter(|p| p.0 > 0.0 && p.1 > 0.0);
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(curve.label.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

/// A number in the short form of an axis: 250, 1k, 4M.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_have_curves_labels_and_short_numbers() {
        let curve =
            |label: &str| Curve { label: label.into(), points: vec![(1e3, 80.0), (1e5, 95.0), (1e6, 300.0)] };
        let mut svg = String::new();
        draw(&mut svg, "T8", &[curve("mean"), curve("p99")], 1e3..1e6, 50.0..400.0).unwrap();
        assert!(svg.contains("T8") && svg.contains("p99") && svg.contains("100k"));
        assert!(svg.matches("<polyline").count() >= 2);
        assert_eq!((short(2.5e6), short(40.0)), ("2.5M".into(), "40".into()));
    }
}
