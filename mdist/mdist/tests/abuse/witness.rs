//! What happens during a campaign: lines of the servers' log, processor time of threads, rates, and output that waits.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mdist_load::consumer::Disconnect;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// User name of the well-behaved consumers: attackers have another one.
pub(crate) const USER: &str = "well-behaved";
/// In the server's line about the end of a consumer's connection.
const LEFT: &str = "a consumer left";
/// Maximum number of warnings that are kept: their causes show in the first ones.
const WARNINGS: usize = 40;

/// A line of a server's log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    at: Duration,
    /// All fields, `name=value`.
    text: String,
    peer: String,
}

#[derive(Debug, Default)]
struct Lines {
    /// Logins and ends of connections of well-behaved consumers.
    consumers: Vec<Line>,
    warnings: Vec<Line>,
    more_warnings: u64,
}

/// Keeps the lines about well-behaved consumers, and warnings.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    start: Instant,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Debug, Default)]
struct Fields {
    text: String,
    peer: String,
    user: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: String) {
        let _ = write!(self.text, "{}{field}={value}", if self.text.is_empty() { "" } else { " " });
        match field.name() {
            "peer" => self.peer = value,
            "user" => self.user = value,
            _ => {}
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = Line { at: self.start.elapsed(), text: fields.text, peer: fields.peer };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if fields.user == USER {
            lines.consumers.push(line);
        } else if !fields.user.is_empty() {
            // The ends of attackers.
        } else if level <= Level::WARN && lines.warnings.len() < WARNINGS {
            lines.warnings.push(line);
        } else if level <= Level::WARN {
            lines.more_warnings += 1;
        }
    }
}

impl Log {
    fn new() -> Self {
        Self { start: Instant::now(), lines: Arc::default() }
    }

    /// Keeps the lines of this process from now on.
    pub(crate) fn install() -> Self {
        let log = Self::new();
        tracing::subscriber::set_global_default(log.subscriber()).expect("one campaign in a process");
        log
    }

    /// Passes lines of level INFO and above to this log. The others must cost nothing: hot paths have some.
    fn subscriber(&self) -> impl Subscriber + Send + Sync + use<> {
        tracing_subscriber::registry().with(LevelFilter::INFO).with(self.clone())
    }

    /// The warnings.
    pub(crate) fn warnings(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = format!("{} warnings", lines.warnings.len() as u64 + lines.more_warnings);
        for Line { at, text: line, .. } in &lines.warnings {
            let _ = write!(text, "\n  {:9.3} s  {line}", at.as_secs_f64());
        }
        text
    }

    /// Each end of a consumer's connection, with the server's line about it.
    pub(crate) fn describe(&self, ends: &[Disconnect]) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for end in ends {
            let _ = writeln!(text, "{end}");
            let peer = end.local.map(|local| local.to_string());
            let is_its_end = |line: &&Line| Some(&line.peer) == peer.as_ref() && line.text.contains(LEFT);
            match lines.consumers.iter().find(is_its_end) {
                Some(Line { at, text: line, .. }) => {
                    let _ = writeln!(text, "  the server after {:.3} s: {line}", at.as_secs_f64());
                }
                None => text.push_str("  no line of the server about it\n"),
            }
        }
        text
    }
}

/// The time for which each thread of this process ran, and waited for a processor, nanoseconds, by thread id.
pub(crate) struct Threads(BTreeMap<u32, (String, u64, u64)>);

impl Threads {
    pub(crate) fn now() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        // A thread may end between two reads.
        Self(tasks.filter_map(|task| Self::times(&task.path())).collect())
    }

    fn times(task: &std::path::Path) -> Option<(u32, (String, u64, u64))> {
        let id = task.file_name()?.to_str()?.parse().ok()?;
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let times = fs::read_to_string(task.join("schedstat")).ok()?;
        let mut times = times.split(' ').map(|number| number.trim().parse().unwrap_or(0));
        Some((id, (name.trim().to_owned(), times.next()?, times.next()?)))
    }

    /// The threads that ran most since `earlier`, with the parts of that time for which they ran and waited.
    pub(crate) fn since(&self, earlier: &Self, time: Duration) -> String {
        let percent = |nanoseconds: u64| nanoseconds as f64 / time.as_nanos().max(1) as f64 * 100.0;
        let mut all: Vec<_> = self.0.iter().collect();
        let times = |id: &u32, ran: u64, waited: u64| {
            let before = earlier.0.get(id).map_or((0, 0), |before| (before.1, before.2));
            (ran.saturating_sub(before.0), waited.saturating_sub(before.1))
        };
        all.sort_by_key(|(id, (_, ran, waited))| std::cmp::Reverse(times(id, *ran, *waited).0));
        let mut text = String::from("threads: time that they ran, and waited for a processor");
        for (id, (name, ran, waited)) in all {
            let (ran, waited) = times(id, *ran, *waited);
            let _ = write!(text, "\n  {name:15} {:5.1} % {:5.1} %", percent(ran), percent(waited));
        }
        text
    }
}

/// The rates of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Updates per second that the publisher was to send.
    pub(crate) asked: u64,
    /// Updates that it sent.
    pub(crate) sent: u64,
    /// Updates that all consumers received.
    pub(crate) received: u64,
    pub(crate) consumers: u64,
    /// Part of the publisher's updates that each consumer is due if only the consumers have items open. The publisher
    /// updates all open items in turn, also those of attackers.
    pub(crate) share: f64,
    pub(crate) time: Duration,
}

/// Part of the asked rate above which a run has reached it.
const REACHED: f64 = 0.99;

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_s = |count: u64| count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let each = per_s(self.received) / self.consumers.max(1) as f64;
        let (sent, asked) = (per_s(self.sent), self.asked as f64);
        write!(
            f,
            "{asked:.0} updates/s asked for, {sent:.0} sent ({:.0} %); each consumer is due at most {:.0} % of them and received {each:.0}/s",
            sent / asked * 100.0,
            self.share * 100.0
        )?;
        if sent < asked * REACHED {
            f.write_str("\nTHE ASKED RATE WAS NOT REACHED: the servers slowed the publisher down, or the machine has too few processors")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn end_of_a_connection_is_described_with_the_line_of_the_server() {
        let log = Log::new();
        tracing::subscriber::with_default(log.subscriber(), || {
            for (user, port) in [("user", 5), (USER, 6), (USER, 7)] {
                tracing::info!(peer = address(port).to_string(), user, "a consumer logged in");
                let reason = format!("reason {port}");
                tracing::info!(peer = address(port).to_string(), user, reason, "a consumer left");
            }
            tracing::warn!(user = "user", "a publisher is lost");
            tracing::warn!(took = 30, "long turn");
            tracing::debug!("no line");
        });
        let end = |port| Disconnect {
            mount: 1,
            local: Some(address(port)),
            server: address(1),
            at: Duration::from_secs(2),
            reason: "closed".into(),
            unread: 3,
        };
        let text = log.describe(&[end(7), end(5)]);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines.len() == 4 && lines[0].contains("closed") && lines[1].contains("reason=reason 7"),
            "{text}"
        );
        assert_eq!(lines[3], "  no line of the server about it");
        let warnings = log.warnings();
        assert!(warnings.starts_with("1 warnings") && warnings.contains("took=30"), "{warnings}");
    }

    #[test]
    fn run_below_the_asked_rate_says_so() {
        let time = Duration::from_secs(10);
        let rates = Rates { asked: 1_000, sent: 10_000, received: 11_000, consumers: 2, share: 0.55, time };
        assert_eq!(
            rates.to_string(),
            "1000 updates/s asked for, 1000 sent (100 %); each consumer is due at most 55 % of them and received 550/s"
        );
        let slow = Rates { sent: 8_000, ..rates }.to_string();
        assert!(slow.contains("800 sent (80 %)") && slow.contains("NOT REACHED"), "{slow}");
    }

    #[test]
    fn times_of_this_thread_are_listed() {
        let (before, after) = (Threads(BTreeMap::new()), Threads::now());
        let text = after.since(&before, Duration::from_secs(1));
        assert!(text.lines().count() > 1 && text.contains(" % "), "{text}");
    }
}
