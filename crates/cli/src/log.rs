//! Log of the programs: levels, and the form of the lines on a terminal, in a file and in the journal.

use std::fmt;
use std::io::{IsTerminal, Write as _};
use std::os::unix::fs::MetadataExt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

/// The variable that sets what the programs of utipc log.
pub const VARIABLE: &str = "UTIPC_LOG";

/// The variable of the programs for market data.
pub const MARKET_VARIABLE: &str = "RUST_LOG";

/// Levels, from few lines to many.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Prefixes of the targets of this project, which may occur without a level.
const TARGETS: [&str; 3] = ["utipc", "mdist", "rssl"];

/// The filter that a text describes: a level, or a list such as `utipc_node=debug,info`.
///
/// # Errors
/// A part is not a level; with cause and remedy. `Targets` alone takes an unknown level for a target.
pub fn filter(text: &str) -> Result<Targets, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    for part in &parts {
        let (target, level) = part.rsplit_once('=').map_or(("", *part), |(target, level)| (target, level));
        let is_level = LEVELS.contains(&level.to_ascii_lowercase().as_str());
        let is_own = target.is_empty() && TARGETS.iter().any(|own| part.starts_with(own));
        if !is_level && !is_own {
            return Err(format!(
                "not a log level (write one of {}, or as utipc_node=debug,info)",
                LEVELS.join(", ")
            ));
        }
    }
    let filter = parts.join(",").parse::<Targets>();
    filter.map_err(|error| format!("{error} (write a level, or as utipc_node=debug,info)"))
}

/// The filter of the variable `UTIPC_LOG`; `None` if it is not set.
///
/// # Errors
/// As [`filter`].
pub fn filter_of_environment() -> Result<Option<Targets>, String> {
    filter_of(VARIABLE)
}

fn filter_of(variable: &str) -> Result<Option<Targets>, String> {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => {
            filter(&text).map(Some).map_err(|why| format!("{variable}={text}: {why}"))
        }
        _ => Ok(None),
    }
}

/// Starts the log of a command on standard error. `usual`: the filter unless `UTIPC_LOG` names one.
///
/// # Errors
/// As [`filter`].
pub fn start_of_command(usual: &str) -> Result<(), String> {
    start(VARIABLE, usual)
}

/// As [`start_of_command`], with another variable.
///
/// # Errors
/// As [`filter`].
pub fn start(variable: &str, usual: &str) -> Result<(), String> {
    let filter = match filter_of(variable)? {
        Some(filter) => filter,
        None => filter(usual)?,
    };
    start_with(filter);
    Ok(())
}

/// Starts the log with a filter, which may be one that can change.
pub fn start_with(filter: impl Layer<Registry> + Send + Sync) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = lines.with_ansi(is_coloured()).event_format(Lines::new());
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Whether lines on standard error have colours.
fn is_coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stderr().is_terminal()
}

/// Whether standard error is the stream to the journal that `JOURNAL_STREAM` names (sd-daemon).
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let stream = named.as_deref().and_then(|text| text.split_once(':'));
    let Ok(found) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream
        .is_some_and(|(device, inode)| device.parse() == Ok(found.dev()) && inode.parse() == Ok(found.ino()))
}

/// Prints an error of a program on standard error, one line for each fault; in the journal with the level of errors.
pub fn print_error(program: &str, text: &str) {
    let level = if is_journal() { "<3>" } else { "" };
    for line in text.lines() {
        // If standard error is closed, the error cannot be printed.
        let _ = writeln!(std::io::stderr(), "{level}{program}: {line}");
    }
}

/// The form of a line: with time and level; in the journal, which has the time, with the level as its prefix.
#[derive(Debug)]
struct Lines {
    plain: Format<Full>,
    journal: Option<Format<Full, ()>>,
}

impl Lines {
    /// The form for this process's standard error.
    fn new() -> Self {
        let journal = is_journal().then(|| Format::default().without_time().with_level(false));
        Self { plain: Format::default(), journal }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, all: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match &self.journal {
            None => self.plain.format_event(all, to, event),
            Some(journal) => {
                to.write_str(prefix(*event.metadata().level()))?;
                journal.format_event(all, to, event)
            }
        }
    }
}

/// The prefix of sd-daemon for a level.
const fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_levels_are_refused() {
        for text in ["info", "DEBUG", "off", "utipc_node=debug,info", "utipc_node", "warn, utipc=trace"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for text in ["loud", "", "info,loud", "utipc_node=loud", "verbose=", "5x"] {
            let error = filter(text).unwrap_err();
            assert!(error.starts_with("not a log level (write one of off, error"), "{text}: {error}");
        }
    }
}
