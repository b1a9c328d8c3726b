//! Faults of a configuration, and the places where the user finds them: a line of the file, or an option.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value stands: table, number in a list of tables, key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) section: &'static str,
    pub(crate) number: Option<usize>,
    pub(crate) key: Option<String>,
}

impl At {
    /// The key of a table.
    pub(crate) fn key(section: &'static str, key: &str) -> Self {
        Self { section, number: None, key: Some(key.to_owned()) }
    }

    /// A bearer, by its number, and one of its keys.
    pub(crate) fn bearer(number: usize, key: Option<&str>) -> Self {
        Self { section: "bearer", number: Some(number), key: key.map(str::to_owned) }
    }
}

/// A fault: what, why and what to do, without the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: At,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(at: At, text: impl Into<String>) -> Self {
        Self { at, text: text.into() }
    }
}

/// Faults with their places, one line each.
#[derive(Debug)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    pub(crate) fn one(line: String) -> Self {
        Self(vec![line])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Faults {}

/// The configuration as the user wrote it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    path: Option<PathBuf>,
    text: String,
    /// Options that add bearers, after those of the file.
    options: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: Option<&Path>, text: String) -> Self {
        Self { path: path.map(Path::to_owned), text, options: Vec::new() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Notes an option that adds a bearer.
    pub(crate) fn add_option(&mut self, option: String) {
        self.options.push(option);
    }

    /// The faults in the order of their lines.
    pub(crate) fn faults(&self, faults: &[Fault]) -> Faults {
        let mut lines: Vec<(usize, String)> = faults
            .iter()
            .map(|fault| {
                let (line, place) = self.place(&fault.at);
                let colon = if place.is_empty() { "" } else { ": " };
                (line, format!("{place}{colon}{}", fault.text))
            })
            .collect();
        lines.sort_by_key(|(line, _)| *line);
        Faults(lines.into_iter().map(|(_, text)| text).collect())
    }

    /// Faults with their places in the text.
    pub(crate) fn faults_at(&self, faults: &[(usize, String)]) -> Faults {
        let mut sorted: Vec<&(usize, String)> = faults.iter().collect();
        sorted.sort_by_key(|(byte, _)| *byte);
        Faults(sorted.into_iter().map(|(byte, text)| format!("{}: {text}", self.at_byte(*byte))).collect())
    }

    /// The file's name with a line.
    fn at_byte(&self, byte: usize) -> String {
        let name = self.path.as_deref().unwrap_or(Path::new("configuration"));
        format!("{}:{}", name.display(), self.line(byte))
    }

    fn line(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().get(..byte).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn place(&self, at: &At) -> (usize, String) {
        let table = DeTable::parse(&self.text).ok();
        if let Some(span) = table.as_ref().and_then(|table| span(table.get_ref(), at)) {
            return (self.line(span.start), self.at_byte(span.start));
        }
        let written = table.as_ref().map_or(0, |table| bearers(table.get_ref()));
        if let Some(option) = at.number.and_then(|number| self.options.get(number.checked_sub(written)?)) {
            return (usize::MAX, option.clone());
        }
        // The value is a default, or a separate option, which the fault names.
        (usize::MAX, String::new())
    }
}

fn bearers(table: &DeTable<'_>) -> usize {
    match table.get("bearer").map(Spanned::get_ref) {
        Some(DeValue::Array(all)) => all.len(),
        _ => 0,
    }
}

/// Where a value stands in the text. A missing key has the place of its table.
fn span(table: &DeTable<'_>, at: &At) -> Option<Range<usize>> {
    let section = table.get(at.section)?;
    let (keys, whole) = match (section.get_ref(), at.number) {
        (DeValue::Table(keys), None) => (keys, section.span()),
        (DeValue::Array(all), Some(number)) => match all.get(number)?.get_ref() {
            DeValue::Table(keys) => (keys, all.get(number)?.span()),
            _ => return None,
        },
        _ => return Some(section.span()),
    };
    let Some(wanted) = &at.key else { return Some(whole) };
    let (name, rest) = wanted.split_once('.').unwrap_or((wanted, ""));
    let found = keys.iter().find(|(key, _)| key.get_ref() == name);
    match found {
        Some((_, value)) if !rest.is_empty() => match value.get_ref() {
            DeValue::Table(below) => {
                below.iter().find(|(key, _)| key.get_ref() == rest).map(|(key, _)| key.span())
            }
            _ => Some(value.span()),
        },
        Some((key, _)) => Some(key.span()),
        None if at.number.is_some() => Some(whole),
        None => None,
    }
}
