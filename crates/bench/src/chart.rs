//! Bar charts as SVG pictures that can be read on light and dark pages: transparent, with text in mid-grey.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::save;

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub label: String,
    /// Its length, above zero.
    pub value: f64,
    /// The text after it.
    pub text: String,
    /// Whether it is drawn in colour instead of grey.
    pub is_own: bool,
}

/// Bars under a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The title.
    pub title: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

const WIDTH: i32 = 760;
/// Space for labels on the left and for the texts behind the bars.
const LEFT: i32 = 200;
const RIGHT: i32 = 110;
const ROW: i32 = 26;
const TITLE: i32 = 40;
const GREY: RGBColor = RGBColor(0x80, 0x80, 0x80);
const OTHERS: RGBColor = RGBColor(0xa0, 0xa0, 0xa0);
const OWN: RGBColor = RGBColor(0x1f, 0x8d, 0xd6);

/// Writes the groups one below the other. Bars of a group share a linear scale that begins at zero.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, groups: &[Group]) -> Result<()> {
    let height = |group: &Group| TITLE + ROW * i32::try_from(group.bars.len()).unwrap_or(0) + 10;
    let total: i32 = groups.iter().map(height).sum();
    let text = |size: i32| ("sans-serif", size).into_font().color(&GREY);
    save(path, (WIDTH as u32, u32::try_from(total).unwrap_or(1)), |area| {
        let mut top = 0;
        for group in groups {
            area.draw(&Text::new(group.title.clone(), (10, top + 12), text(16)))?;
            let longest = group.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
            for (bar, y) in group.bars.iter().zip((top + TITLE..).step_by(ROW as usize)) {
                let length = (bar.value / longest * f64::from(WIDTH - LEFT - RIGHT)).max(1.0) as i32;
                let colour = if bar.is_own { OWN } else { OTHERS };
                let middle = y + (ROW - 6) / 2;
                let label = text(13).pos(Pos::new(HPos::Right, VPos::Center));
                area.draw(&Text::new(bar.label.clone(), (LEFT - 8, middle), label))?;
                area.draw(&Rectangle::new([(LEFT, y), (LEFT + length, y + ROW - 6)], colour.filled()))?;
                let value = text(13).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw(&Text::new(bar.text.clone(), (LEFT + length + 8, middle), value))?;
            }
            top += height(group);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_is_transparent_and_has_every_bar() {
        let bar = |label: &str, value: f64| Bar {
            label: label.into(),
            value,
            text: format!("{value} µs"),
            is_own: label == "utipc",
        };
        let group = Group { title: "Round trip".into(), bars: vec![bar("utipc", 1.5), bar("tcp", 30.0)] };
        let path = std::env::temp_dir().join(format!("bench-kit-chart-{}.svg", std::process::id()));
        write(&path, &[group]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert!(svg.contains("Round trip") && svg.contains("30 µs") && svg.contains("#808080"));
        assert!(!svg.to_lowercase().contains("#ffffff"), "{svg}");
    }
}
