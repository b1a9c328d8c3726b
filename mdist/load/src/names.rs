//! Text files of item names and their numbers of updates: what a publisher sent, for a consumer that compares.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a line `name count` for each item.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, items: &[(String, u32)]) -> Result<()> {
    let mut text = String::new();
    for (name, count) in items {
        let _ = writeln!(text, "{name} {count}");
    }
    std::fs::write(path, text).with_context(|| format!("write the items to {}", path.display()))
}

/// Reads a file that [`write()`] wrote.
///
/// # Errors
/// The file cannot be read, or a line is not `name count`; the error has the line.
pub fn read(path: &Path) -> Result<HashMap<String, u32>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("read the items of {}", path.display()))?;
    text.lines()
        .zip(1..)
        .map(|(line, number)| {
            let (name, count) =
                line.rsplit_once(' ').with_context(|| format!("line {number} is not 'name count'"))?;
            Ok((
                name.to_owned(),
                count.parse().with_context(|| format!("line {number}: '{count}' is not a count"))?,
            ))
        })
        .collect()
}
