//! How long the turns of the event loop are, and what makes them long. All programs and links of the daemon wait while
//! one turn lasts, so that each step is bounded; the table is in `docs/operating/turns.md`.

use serde::Serialize;
use utipc_core::Time;

use super::attachments::AttachmentId;

/// Time that a turn gives to the jobs of users before links and timers run and replies leave, nanoseconds; the next
/// turn begins with the remaining jobs. Our choice: replies wait for the end of the turn, and reading events and
/// sending costs a tenth of this.
const JOBS_NS: u64 = 50_000;

/// Duration above which a turn is counted as long and logged, nanoseconds.
const LONG_NS: u64 = 20_000_000;

/// Interval at which the thread's processor time is read, nanoseconds: reading it costs a system call.
const CPU_SAMPLE_NS: u64 = 1_000_000;

/// Minimum interval between two log lines about long turns, milliseconds.
const LOG_INTERVAL_MS: u64 = 1000;

/// A part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handler {
    /// Orders of the daemon's owner.
    Orders,
    /// New connections of processes.
    Admission,
    /// Requests of processes.
    Requests,
    /// Ends of processes, descriptors and inheritances as they are noticed.
    Ends,
    /// Messages in lanes.
    Lanes,
    /// Copies of multicasts to many sockets of the node.
    Spreads,
    /// Requests, first events and events of subscribers to the topology.
    Subscribers,
    /// Frames from bearers.
    Frames,
    /// Timers of links and sockets.
    Timers,
    /// Deadlines of the daemon's components.
    Deadlines,
    /// Closed descriptors and steps of tasks, such as clean-up after processes that have ended.
    Releases,
    /// Readiness, frames, replies and notices at the end of a turn.
    Output,
}

impl Handler {
    const COUNT: usize = Self::Output as usize + 1;

    /// Names in counters and the log, in the order of the handlers.
    const NAMES: [&str; Self::COUNT] = [
        "orders",
        "admission",
        "requests",
        "ends",
        "lanes",
        "spreads",
        "subscribers",
        "frames",
        "timers",
        "deadlines",
        "releases",
        "output",
    ];
}

/// The longest turn of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LongestTurn {
    /// Its duration, microseconds.
    pub micros: u64,
    /// The handler that took most of it; empty before the first turn.
    pub handler: &'static str,
    /// Time of that handler, microseconds.
    pub handler_micros: u64,
    /// The attachment for which that handler worked longest; 0 if it worked for none.
    pub attachment: u32,
}

/// Counts of turns of the event loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TurnCounters {
    /// Number of turns.
    pub turns: u64,
    /// Turns of more than 20 ms.
    pub long: u64,
    /// Maximum processor time that one of these used, microseconds, at most 1 ms too much; the system ran something
    /// else for the rest of its time.
    pub long_cpu_micros: u64,
    /// Turns that left jobs of users or messages of peers to the next one, because a budget was used up.
    pub cut: u64,
    /// The longest turn.
    pub longest: LongestTurn,
}

/// A long turn to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LongTurn {
    pub(super) turn: LongestTurn,
    /// Processor time that it used, microseconds, at most 1 ms too much.
    pub(super) cpu_micros: u64,
    /// Long turns since the last one that was logged.
    pub(super) unlogged: u64,
}

/// Time of one handler in a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    ns: u64,
    /// The longest call, and the attachment that it was for.
    longest_ns: u64,
    attachment: AttachmentId,
}

/// Measures turns. It reads no clock: each call has the time.
#[derive(Debug)]
pub(super) struct TurnMeter {
    counters: TurnCounters,
    begun: Time,
    /// The running handler, its attachment, and its start.
    running: (Handler, AttachmentId),
    since: Time,
    parts: [Part; Handler::COUNT],
    log_again: Time,
    unlogged: u64,
    /// When the thread's processor time was last read, and what it was, nanoseconds.
    cpu: (Time, u64),
}

impl Default for TurnMeter {
    fn default() -> Self {
        Self {
            counters: TurnCounters::default(),
            begun: Time::ZERO,
            running: (Handler::Orders, 0),
            since: Time::ZERO,
            parts: [Part::default(); Handler::COUNT],
            log_again: Time::ZERO,
            unlogged: 0,
            cpu: (Time::ZERO, 0),
        }
    }
}

impl TurnMeter {
    /// Begins a turn. `cpu_ns` reads the processor time of the thread.
    pub(super) fn begin(&mut self, now: Time, cpu_ns: impl FnOnce() -> u64) {
        if now.as_nanos().saturating_sub(self.cpu.0.as_nanos()) >= CPU_SAMPLE_NS {
            self.cpu = (now, cpu_ns());
        }
        (self.begun, self.since) = (now, now);
        self.running = (Handler::Orders, 0);
        self.parts = [Part::default(); Handler::COUNT];
    }

    /// Starts the time of this handler, for this attachment or for none (0).
    pub(super) fn enter(&mut self, now: Time, handler: Handler, attachment: AttachmentId) {
        let ns = now.as_nanos().saturating_sub(self.since.as_nanos());
        let (before, of) = self.running;
        if let Some(part) = self.parts.get_mut(before as usize) {
            part.ns += ns;
            if ns > part.longest_ns {
                (part.longest_ns, part.attachment) = (ns, of);
            }
        }
        (self.running, self.since) = ((handler, attachment), now);
    }

    /// True if the jobs of this turn have used up their time.
    pub(super) fn jobs_are_over(&self, now: Time) -> bool {
        now.as_nanos().saturating_sub(self.begun.as_nanos()) >= JOBS_NS
    }

    /// Notes that a budget of this turn is used up.
    pub(super) fn note_cut(&mut self) {
        self.counters.cut += 1;
    }

    /// Ends the turn; returns it if it was long and is to be logged.
    pub(super) fn end(&mut self, now: Time, cpu_ns: impl FnOnce() -> u64) -> Option<LongTurn> {
        self.enter(now, Handler::Orders, 0);
        self.counters.turns += 1;
        let ns = now.as_nanos().saturating_sub(self.begun.as_nanos());
        if ns <= LONG_NS && ns / 1000 <= self.counters.longest.micros {
            return None;
        }
        let turn = self.describe(ns);
        if turn.micros > self.counters.longest.micros {
            self.counters.longest = turn.clone();
        }
        if ns <= LONG_NS {
            return None;
        }
        self.counters.long += 1;
        let cpu_micros = cpu_ns().saturating_sub(self.cpu.1) / 1000;
        self.counters.long_cpu_micros = self.counters.long_cpu_micros.max(cpu_micros);
        if now < self.log_again {
            self.unlogged += 1;
            return None;
        }
        self.log_again = now.plus_millis(LOG_INTERVAL_MS);
        Some(LongTurn { turn, cpu_micros, unlogged: std::mem::take(&mut self.unlogged) })
    }

    pub(super) fn counters(&self) -> &TurnCounters {
        &self.counters
    }

    fn describe(&self, ns: u64) -> LongestTurn {
        let longest = Handler::NAMES.into_iter().zip(self.parts).max_by_key(|(_, part)| part.ns);
        let (handler, part) = longest.unwrap_or_default();
        LongestTurn {
            micros: ns / 1000,
            handler,
            handler_micros: part.ns / 1000,
            attachment: part.attachment,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of these parts, each with its duration in microseconds, that begins at `at`.
    fn turn(
        meter: &mut TurnMeter,
        at: Time,
        parts: &[(Handler, AttachmentId, u64)],
    ) -> (Option<LongTurn>, Time) {
        let mut now = at;
        // The thread has the processor for a third of the time.
        meter.begin(now, || at.as_nanos() / 3);
        for (handler, attachment, micros) in parts {
            meter.enter(now, *handler, *attachment);
            now = Time::from_nanos(now.as_nanos() + micros * 1000);
        }
        (meter.end(now, || now.as_nanos() / 3), now)
    }

    #[test]
    fn longest_turn_names_the_handler_and_the_attachment() {
        let mut meter = TurnMeter::default();
        let start = Time::from_millis(1000);
        let parts = [
            (Handler::Requests, 7, 40),
            (Handler::Requests, 8, 60),
            (Handler::Requests, 9, 50),
            (Handler::Frames, 0, 140),
        ];
        let (logged, now) = turn(&mut meter, start, &parts);
        assert_eq!(logged, None);
        let longest = LongestTurn { micros: 290, handler: "requests", handler_micros: 150, attachment: 8 };
        assert_eq!(meter.counters().longest, longest);
        turn(&mut meter, now, &[(Handler::Timers, 0, 289)]);
        assert_eq!(meter.counters().longest, longest, "a shorter turn");
        turn(&mut meter, now, &[(Handler::Timers, 0, 300)]);
        assert_eq!(meter.counters().longest.handler, "timers");
        assert_eq!((meter.counters().turns, meter.counters().long), (3, 0));
    }

    #[test]
    fn long_turns_are_logged_at_most_once_a_second() {
        let mut meter = TurnMeter::default();
        let mut now = Time::from_millis(1000);
        let mut logged = Vec::new();
        for _ in 0..100 {
            let (line, end) = turn(&mut meter, now, &[(Handler::Lanes, 3, 21_000)]);
            logged.extend(line);
            now = end;
        }
        assert_eq!(meter.counters().long, 100);
        assert_eq!(logged.len(), 3, "in 2.1 s");
        assert!(logged.iter().all(|line| line.cpu_micros == 7000));
        assert_eq!(meter.counters().long_cpu_micros, 7000);
        assert_eq!(logged.iter().map(|line| line.unlogged + 1).sum::<u64>() + meter.unlogged, 100);
        let (line, _) = turn(&mut meter, now, &[(Handler::Lanes, 3, 20_000)]);
        assert_eq!((line, meter.counters().long), (None, 100), "20 ms are not above 20 ms");
    }

    #[test]
    fn jobs_leave_time_to_links_and_timers() {
        let mut meter = TurnMeter::default();
        let start = Time::from_millis(5);
        meter.begin(start, || 0);
        assert!(!meter.jobs_are_over(Time::from_nanos(start.as_nanos() + JOBS_NS - 1)));
        assert!(meter.jobs_are_over(Time::from_nanos(start.as_nanos() + JOBS_NS)));
    }
}
