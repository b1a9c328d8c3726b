//! Line plots and histograms as SVG pictures.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::stats::Summary;

/// A line of a plot; all coordinates are above zero.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Its entry in the legend.
    pub label: String,
    /// Its points (x, y), by rising x.
    pub points: Vec<(f64, f64)>,
    /// The single measurements (x, y) that the points sum up, drawn as dots.
    pub samples: Vec<(f64, f64)>,
    /// A band (x, lowest y, highest y), by rising x, such as from the median to the 99th percentile. Of a reference
    /// only its upper edge is drawn.
    pub band: Vec<(f64, f64, f64)>,
    /// A curve to compare with, drawn faint and thin.
    pub is_reference: bool,
}

/// A plot with logarithmic axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title.
    pub title: String,
    /// What else a reader has to know, such as the machine; may have several lines.
    pub caption: String,
    /// Name of the horizontal axis, and the base of its ticks.
    pub x: (&'static str, f64),
    /// Name of the vertical axis.
    pub y: &'static str,
    /// The lines.
    pub curves: Vec<Curve>,
}

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Size of a plot without its legend, pixels.
const SIZE: (u32, u32) = (860, 560);
/// Space around and between the parts of a picture, pixels.
const MARGIN: i32 = 14;
/// Height of the title, and of a line of the caption and of the legend, pixels.
const TITLE: i32 = 28;
const LINE: i32 = 18;
/// Width of a character of the legend, pixels, and of the mark before its labels.
const CHARACTER: usize = 7;
const MARK: i32 = 34;
/// The palette of Okabe and Ito, which people with a colour vision deficiency can tell apart. Further curves repeat it
/// with other marks.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x8c, 0x7a, 0x00),
];

impl Curve {
    /// All coordinates that have to fit into the plot.
    fn extent(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let band = self.band.iter().flat_map(|(x, low, high)| [(*x, *low), (*x, *high)]);
        self.points.iter().chain(&self.samples).copied().chain(band).filter(is_positive)
    }

    fn positive(&self) -> impl Iterator<Item = (f64, f64)> + Clone + '_ {
        self.points.iter().copied().filter(is_positive)
    }

    /// The value at its right end, by which the legend is sorted.
    fn last(&self) -> f64 {
        self.positive().last().map_or(0.0, |point| point.1)
    }
}

fn is_positive(point: &(f64, f64)) -> bool {
    point.0 > 0.0 && point.1 > 0.0
}

/// Writes the panels that have points into one picture, one below the other. Without any, it writes nothing.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, panels: &[Panel]) -> Result<()> {
    let has_points = |panel: &&Panel| panel.curves.iter().any(|curve| curve.extent().next().is_some());
    let panels: Vec<&Panel> = panels.iter().filter(has_points).collect();
    if panels.is_empty() {
        return Ok(());
    }
    let legend = panels.iter().map(|panel| legend_width(panel)).max().unwrap_or(0);
    let height = SIZE.1 * u32::try_from(panels.len()).unwrap_or(1);
    save(path, (SIZE.0 + legend, height), |area| {
        area.fill(&WHITE)?;
        let parts = area.split_evenly((panels.len(), 1));
        parts.iter().zip(&panels).try_for_each(|(part, panel)| draw(part, panel))
    })
}

/// A histogram of latencies.
#[derive(Clone, Debug)]
pub struct Histogram<'a> {
    /// Title.
    pub title: &'a str,
    /// What else a reader has to know, such as the machine; may have several lines.
    pub caption: &'a str,
    /// What is counted: the name of the vertical axis.
    pub counted: &'a str,
    /// Upper bound of each class in microseconds, and count. A class begins at half of its bound.
    pub classes: &'a [(f64, u64)],
    /// The figures to mark.
    pub summary: Summary,
}

impl Histogram<'_> {
    /// Writes the picture. Without any latency, it writes nothing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let (Some(first), Some(last)) = (self.classes.first(), self.classes.last()) else { return Ok(()) };
        let most = self.classes.iter().map(|class| class.1).max().unwrap_or(1);
        let (left, right) = (first.0 / 2.0, last.0 * 1.25);
        save(path, SIZE, |area| {
            area.fill(&WHITE)?;
            let top = draw_title(area, self.title, self.caption)?;
            let mut chart = ChartBuilder::on(area)
                .margin(MARGIN)
                .margin_top(top)
                .x_label_area_size(48)
                .y_label_area_size(80)
                .build_cartesian_2d((left..right).log_scale(), 0..most + most / 6 + 1)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
                .light_line_style(TRANSPARENT)
                .x_desc("latency [µs], logarithmic")
                .y_desc(self.counted)
                .x_label_formatter(&|value| short(*value))
                .y_label_formatter(&|value| short(*value as f64))
                .draw()?;
            let high = most + most / 6 + 1;
            let beyond =
                Rectangle::new([(self.summary.p99, 0), (right, high)], COLOURS[1].mix(0.15).filled());
            chart.draw_series([beyond])?;
            let bar = |class: &(f64, u64)| {
                Rectangle::new([(class.0 / 2.0, 0), (class.0, class.1)], COLOURS[0].mix(0.6).filled())
            };
            chart.draw_series(self.classes.iter().map(bar))?;
            let edge = |class: &(f64, u64)| {
                Rectangle::new([(class.0 / 2.0, 0), (class.0, class.1)], COLOURS[0].stroke_width(1))
            };
            chart.draw_series(self.classes.iter().map(edge))?;
            let marks = [("p50", self.summary.p50), ("p99", self.summary.p99), ("p99.9", self.summary.p999)];
            for (_, value) in marks {
                let line = PathElement::new([(value, 0), (value, high)], COLOURS[1].stroke_width(2));
                chart.draw_series([line])?;
            }
            for (row, (name, value)) in (0_i32..).zip(marks) {
                let text = format!("{name} {value:.0} µs");
                let width = i32::try_from(text.chars().count() * CHARACTER).unwrap_or(0) + 6;
                let at = chart.backend_coord(&(value, high));
                // To the left of the line where the picture ends.
                let left = if at.0 + width > SIZE.0 as i32 { at.0 - width } else { at.0 + 3 };
                let top = at.1 + 2 + row * (LINE + 2);
                area.draw(&Rectangle::new(
                    [(left, top), (left + width, top + LINE)],
                    WHITE.mix(0.9).filled(),
                ))?;
                let font = ("sans-serif", 13).into_font().color(&COLOURS[1]);
                area.draw(&Text::new(text, (left + 2, top + 3), font))?;
            }
            Ok(())
        })
    }
}

/// Draws title and caption; returns the height that they take.
fn draw_title(area: &Area<'_>, title: &str, caption: &str) -> Result<i32, Box<dyn std::error::Error>> {
    area.draw(&Text::new(title.to_owned(), (MARGIN, MARGIN), ("sans-serif", 20).into_font()))?;
    let mut top = MARGIN + TITLE;
    for line in caption.lines() {
        let grey = RGBColor(0x50, 0x50, 0x50);
        let font = ("sans-serif", 12).into_font().color(&grey);
        area.draw(&Text::new(line.to_owned(), (MARGIN, top), font))?;
        top += LINE;
    }
    Ok(top + 4)
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

/// Ticks of a logarithmic axis: all powers of `base` if there are many, else of 10 also the double and the fivefold.
fn ticks(range: &Range<f64>, base: f64) -> Vec<f64> {
    let powers: Vec<f64> = (-30..31)
        .map(|power| base.powi(power))
        .filter(|at| (range.start / base..range.end).contains(at))
        .collect();
    let steps: &[f64] = match powers.len() {
        _ if base < 10.0 => &[1.0],
        0..=2 => &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        3..=4 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let all = powers.iter().flat_map(|power| steps.iter().map(move |step| power * step));
    all.filter(|at| range.contains(at)).collect()
}

/// Width of the legend of a panel, pixels.
fn legend_width(panel: &Panel) -> u32 {
    let longest = panel.curves.iter().map(|curve| curve.label.chars().count()).max().unwrap_or(0);
    MARK as u32 + 2 * MARGIN as u32 + u32::try_from(longest * CHARACTER).unwrap_or(u32::MAX / 2)
}

fn draw(area: &Area<'_>, panel: &Panel) -> Drawn {
    let top = draw_title(area, &panel.title, &panel.caption)?;
    let (left, right) = area.split_horizontally(SIZE.0);
    let extent: Vec<(f64, f64)> = panel.curves.iter().flat_map(Curve::extent).collect();
    let (name, base) = panel.x;
    let (x, y) = (range(extent.iter().map(|p| p.0)), range(extent.iter().map(|p| p.1)));
    let (x_ticks, y_ticks) = (ticks(&x, base), ticks(&y, 10.0));
    let (x, y) = (x.log_scale().base(base), y.log_scale());
    let mut chart = ChartBuilder::on(&left)
        .margin(MARGIN)
        .margin_top(top)
        .x_label_area_size(48)
        .y_label_area_size(80)
        .build_cartesian_2d(
            x.with_key_points(x_ticks.clone()).with_light_points(x_ticks),
            y.with_key_points(y_ticks.clone()).with_light_points(y_ticks),
        )?;
    let plain = |value: &f64| if (base - 10.0).abs() < 0.5 { short(*value) } else { format!("{value}") };
    chart
        .configure_mesh()
        .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
        .light_line_style(TRANSPARENT)
        .x_desc(name)
        .y_desc(panel.y)
        .x_label_formatter(&plain)
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    // Bands first, so that they cover no line. Those of references are an edge only: several fills hide each other.
    for (number, curve) in panel.curves.iter().enumerate() {
        let (colour, _) = style(number, curve);
        let up = curve.band.iter().map(|(x, _, high)| (*x, *high)).filter(is_positive);
        let down = curve.band.iter().rev().map(|(x, low, _)| (*x, *low)).filter(is_positive);
        let outline: Vec<(f64, f64)> = up.clone().chain(down).collect();
        if outline.len() > 3 && !curve.is_reference {
            chart.draw_series([Polygon::new(outline, colour.mix(0.1).filled())])?;
        }
        chart.draw_series(LineSeries::new(up, ShapeStyle::from(colour.mix(0.45)).stroke_width(1)))?;
    }
    for (number, curve) in panel.curves.iter().enumerate() {
        let (colour, line) = style(number, curve);
        let samples = curve.samples.iter().copied().filter(is_positive);
        chart.draw_series(samples.map(|at| Circle::new(at, 2, colour.mix(0.5).filled())))?;
        chart.draw_series(LineSeries::new(curve.positive(), line))?;
        for at in curve.positive() {
            chart.draw_series([EmptyElement::at(at) + mark(number, (0, 0), line)])?;
        }
    }
    draw_legend(&right, panel, top)
}

/// Colour and line of a curve.
fn style(number: usize, curve: &Curve) -> (RGBColor, ShapeStyle) {
    let colour = *COLOURS.get(number % COLOURS.len()).unwrap_or(&BLACK);
    // Faint and thin instead of dashed: plotters dashes with `f32::hypot`, which needs glibc 2.35.
    let faint = ShapeStyle::from(colour.mix(0.6)).stroke_width(1);
    (colour, if curve.is_reference { faint } else { ShapeStyle::from(colour).stroke_width(2) })
}

/// The mark of the points of a curve: its form changes with each round of the palette, so that it does not depend on
/// colour alone.
fn mark(number: usize, (x, y): (i32, i32), style: ShapeStyle) -> Polygon<(i32, i32)> {
    let corners: &[(i32, i32)] = match (number + number / COLOURS.len()) % 4 {
        0 => &[(-3, -3), (3, -3), (3, 3), (-3, 3)],
        1 => &[(0, -4), (4, 3), (-4, 3)],
        2 => &[(0, -5), (5, 0), (0, 5), (-5, 0)],
        _ => &[(0, 4), (4, -3), (-4, -3)],
    };
    Polygon::new(
        corners.iter().map(|corner| (x + corner.0, y + corner.1)).collect::<Vec<_>>(),
        style.filled(),
    )
}

/// Draws the legend, in the order of the right ends of the curves.
fn draw_legend(area: &Area<'_>, panel: &Panel, top: i32) -> Drawn {
    let mut entries: Vec<(usize, &Curve)> =
        panel.curves.iter().enumerate().filter(|(_, curve)| curve.positive().next().is_some()).collect();
    entries.sort_by(|a, b| b.1.last().total_cmp(&a.1.last()));
    for (row, (number, curve)) in (0_i32..).zip(entries) {
        let (_, line) = style(number, curve);
        let y = top + MARGIN + row * LINE;
        area.draw(&PathElement::new([(0, y), (MARK - 8, y)], line))?;
        area.draw(&mark(number, (MARK / 2 - 4, y), line))?;
        area.draw(&Text::new(curve.label.clone(), (MARK, y - 7), ("sans-serif", 13).into_font()))?;
    }
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

    /// The text of a picture that `write` writes.
    fn picture(name: &str, write: impl FnOnce(&Path) -> Result<()>) -> Option<String> {
        let path = std::env::temp_dir().join(format!("bench-kit-{name}-{}.svg", std::process::id()));
        write(&path).unwrap();
        let svg = std::fs::read_to_string(&path).ok()?;
        std::fs::remove_file(&path).unwrap();
        Some(svg)
    }

    fn panel(curves: Vec<Curve>) -> Panel {
        let caption = "two cores\ncommit abc".into();
        Panel { title: "T8".into(), caption, x: ("updates/s", 10.0), y: "latency [µs]", curves }
    }

    #[test]
    fn picture_has_a_line_all_samples_and_a_legend_in_the_order_of_the_lines() {
        let curve = |label: &str, height: f64, is_reference| Curve {
            label: label.into(),
            points: vec![(1e3, 80.0 * height), (1e5, 95.0 * height), (1e6, 300.0 * height)],
            samples: vec![(1e3, 70.0 * height), (1e3, 91.0 * height)],
            band: vec![(1e3, 70.0 * height, 100.0 * height), (1e6, 200.0 * height, 400.0 * height)],
            is_reference,
        };
        let curves = vec![curve("lower", 1.0, false), curve("upper", 2.0, true)];
        let svg = picture("plot", |path| write(path, &[panel(curves), panel(Vec::new())])).unwrap();
        for text in ["T8", "two cores", "commit abc", "updates/s", "latency [µs]", "100k"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<circle").count(), 4, "every sample is drawn");
        assert!(svg.matches("<polyline").count() >= 2);
        assert!(
            svg.find("upper").unwrap() < svg.find("lower").unwrap(),
            "the legend has the order of the lines"
        );
        let x = |label: &str| {
            let before = &svg[..svg.find(label).unwrap()];
            let at = before.rfind("<text x=\"").unwrap() + 9;
            before[at..].split('"').next().unwrap().parse::<u32>().unwrap()
        };
        assert!(x("upper") >= SIZE.0 && x("lower") >= SIZE.0, "the legend is outside the plot");
        assert_eq!(ticks(&(0.8..30.0), 10.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!((short(2.5e6), short(40.0)), ("2.5M".into(), "40".into()));
        assert!(picture("none", |path| write(path, &[panel(Vec::new())])).is_none());
    }

    #[test]
    fn histogram_marks_its_percentiles() {
        let summary = Summary { p50: 30.0, p99: 120.0, p999: 240.0, ..Summary::default() };
        let classes = [(32.0, 700), (64.0, 250), (128.0, 45), (256.0, 5)];
        let histogram =
            Histogram { title: "latency", caption: "here", counted: "updates", classes: &classes, summary };
        let svg = picture("histogram", |path| histogram.write(path)).unwrap();
        for text in ["latency [µs]", "updates", "here", "p50 30 µs", "p99 120 µs", "p99.9 240 µs"] {
            assert!(svg.contains(text), "{text}");
        }
        let empty = Histogram { classes: &[], ..histogram };
        assert!(picture("empty", |path| empty.write(path)).is_none());
    }
}
