//! Findings: what is wrong, or was looked at, with its remedy.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The check found nothing wrong.
    Ok,
    /// Something that an operator may want to know.
    Note,
    /// Something works worse than it could, or will fail later.
    Warning,
    /// Something does not work.
    Error,
}

impl Level {
    /// Whether it counts as something wrong.
    pub(crate) const fn is_wrong(self) -> bool {
        matches!(self, Self::Warning | Self::Error)
    }

    /// The mark before a line.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok     ",
            Self::Note => "note   ",
            Self::Warning => "WARNING",
            Self::Error => "ERROR  ",
        }
    }
}

/// One finding. `check` and `level` are an interface; the texts are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Name of the check.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) text: String,
    /// The remedy; empty if none is needed.
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn new(
        check: &'static str,
        level: Level,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, level, text: text.into(), remedy: remedy.into() }
    }

    pub(crate) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, text, "")
    }

    /// Its line for people, with the remedy.
    pub(crate) fn line(&self) -> String {
        let Self { check, level, text, remedy } = self;
        let remedy = if remedy.is_empty() { String::new() } else { format!(" ({remedy})") };
        format!("{} {check}: {text}{remedy}\n", level.mark())
    }
}
