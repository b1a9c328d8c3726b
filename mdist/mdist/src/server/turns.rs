//! How long the turns of a thread are. All sockets of the thread wait while one turn lasts, so each handler has a
//! budget; `docs/operating/turns.md` lists them.

use std::time::Duration;

use crate::net::{Event, Now, Poller};

/// Time that a turn gives to sockets that are ready before timers and output have their turn; at least one socket is
/// handled. Ours: above the cost of the largest read, far below the time after which a peer is missed.
const SOCKETS_TIME: Duration = Duration::from_millis(5);
/// Duration above which a turn is counted as long and logged.
const LONG: Duration = Duration::from_millis(20);
/// Least interval between two lines about long turns.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Sockets that are ready.
    Sockets,
    /// Packets of feeds.
    Feeds,
    /// Timers.
    Timers,
    /// Requests and log of the hub, and output.
    Hub,
    /// The hub's log, as a worker applies it.
    Log,
    /// Output of a worker.
    Output,
}

impl Part {
    /// Name in the log.
    const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Feeds => "feeds",
            Self::Timers => "timers",
            Self::Hub => "hub",
            Self::Log => "log",
            Self::Output => "output",
        }
    }
}

/// A long turn to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongTurn {
    took: Duration,
    /// The part that took longest, and its time.
    part: Part,
    part_took: Duration,
    /// Long turns since the last one that was logged.
    unlogged: u64,
}

/// Measures turns. It reads no clock: each call has the time.
#[derive(Debug)]
pub(super) struct TurnMeter {
    begun: Now,
    running: (Part, Now),
    slowest: (Part, Duration),
    longest: Duration,
    long: u64,
    log_again: Now,
    unlogged: u64,
}

impl Default for TurnMeter {
    fn default() -> Self {
        Self {
            begun: Now::ZERO,
            running: (Part::Sockets, Now::ZERO),
            slowest: (Part::Sockets, Duration::ZERO),
            longest: Duration::ZERO,
            long: 0,
            log_again: Now::ZERO,
            unlogged: 0,
        }
    }
}

impl TurnMeter {
    /// A turn begins, with this part.
    pub(super) fn begin(&mut self, part: Part, at: Now) {
        self.begun = at;
        self.running = (part, at);
        self.slowest = (part, Duration::ZERO);
    }

    /// Another part begins.
    pub(super) fn enter(&mut self, part: Part, at: Now) {
        let (before, since) = std::mem::replace(&mut self.running, (part, at));
        let took = at.saturating_sub(since);
        if took > self.slowest.1 {
            self.slowest = (before, took);
        }
    }

    /// The turn ends. Returns it if it was long and a line about it is due.
    #[must_use = "a long turn is logged"]
    pub(super) fn end(&mut self, at: Now) -> Option<LongTurn> {
        self.enter(self.running.0, at);
        let took = at.saturating_sub(self.begun);
        self.longest = self.longest.max(took);
        if took <= LONG {
            return None;
        }
        self.long += 1;
        if at < self.log_again {
            self.unlogged += 1;
            return None;
        }
        self.log_again = at + LOG_INTERVAL;
        let ((part, part_took), unlogged) = (self.slowest, std::mem::take(&mut self.unlogged));
        Some(LongTurn { took, part, part_took, unlogged })
    }

    /// The longest turn, microseconds, and the number of long ones.
    pub(super) fn counts(&self) -> (u64, u64) {
        (u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX), self.long)
    }
}

impl LongTurn {
    /// Logs it.
    pub(super) fn log(self, thread: &str) {
        let Self { took, part, part_took, unlogged } = self;
        tracing::warn!(
            thread,
            micros = took.as_micros(),
            part = part.name(),
            part_micros = part_took.as_micros(),
            unlogged,
            "long turn: all sockets of this thread waited"
        );
    }
}

/// Sockets that are ready. Those for which a turn has no time are first in the next one.
#[derive(Debug, Default)]
pub(super) struct Ready {
    events: Vec<Event>,
    next: usize,
    until: Option<Now>,
}

impl Ready {
    /// Waits for sockets, unless some are left.
    ///
    /// # Errors
    /// The wait fails in the system.
    pub(super) fn wait(&mut self, poller: &Poller, timeout: Duration) -> std::io::Result<()> {
        self.until = None;
        if self.next < self.events.len() {
            return Ok(());
        }
        self.events.clear();
        self.next = 0;
        poller.wait(Some(timeout), &mut self.events)
    }

    /// The next one to be handled in this turn.
    pub(super) fn next(&mut self, at: Now) -> Option<Event> {
        let until = *self.until.get_or_insert(at + SOCKETS_TIME);
        let event = self.events.get(self.next).filter(|_| at < until).copied()?;
        self.next += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_beyond_the_time_of_a_turn_are_first_in_the_next_one() {
        let event = |token| Event { token, readable: true, writable: false };
        let mut ready = Ready { events: (1..=3).map(event).collect(), ..Ready::default() };
        let poller = Poller::new().unwrap();
        let token = |ready: &mut Ready, at| ready.next(at).map(|event| event.token);
        let start = Now::from_secs(7);
        assert_eq!(token(&mut ready, start), Some(1));
        assert_eq!(token(&mut ready, start + SOCKETS_TIME / 2), Some(2));
        assert_eq!(token(&mut ready, start + SOCKETS_TIME), None);
        ready.wait(&poller, Duration::ZERO).unwrap();
        assert_eq!(token(&mut ready, start + 2 * SOCKETS_TIME), Some(3));
        assert_eq!(token(&mut ready, start + 2 * SOCKETS_TIME), None);
        ready.wait(&poller, Duration::ZERO).unwrap();
        assert_eq!(token(&mut ready, start + 3 * SOCKETS_TIME), None);
    }

    fn turn(meter: &mut TurnMeter, start_ms: u64, parts: &[(Part, u64)]) -> Option<LongTurn> {
        let mut at = Now::from_millis(start_ms);
        meter.begin(Part::Sockets, at);
        for (part, ms) in parts {
            meter.enter(*part, at);
            at += Duration::from_millis(*ms);
        }
        meter.end(at)
    }

    #[test]
    fn long_turns_are_counted_and_reported_with_their_slowest_part_once_a_second() {
        let mut meter = TurnMeter::default();
        assert_eq!(turn(&mut meter, 1000, &[(Part::Sockets, 10), (Part::Hub, 10)]), None);
        assert_eq!(meter.counts(), (20_000, 0));
        let parts = [(Part::Sockets, 3), (Part::Timers, 15), (Part::Hub, 7)];
        let long = turn(&mut meter, 2000, &parts).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(long, LongTurn { took: ms(25), part: Part::Timers, part_took: ms(15), unlogged: 0 });
        assert_eq!(turn(&mut meter, 2500, &[(Part::Hub, 30)]), None);
        let long = turn(&mut meter, 3100, &[(Part::Hub, 21)]).unwrap();
        assert_eq!((long.part, long.unlogged), (Part::Hub, 1));
        assert_eq!(meter.counts(), (30_000, 3));
    }
}
