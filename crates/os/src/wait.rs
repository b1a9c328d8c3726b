//! The time limit of a call, and the remaining time.

use std::time::{Duration, Instant};

/// The time that a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// At most this long.
    AtMost(Duration),
    /// Without limit.
    Forever,
}

/// The time at which a wait ends.
#[derive(Clone, Copy, Debug)]
pub enum Deadline {
    /// Never: [`Wait::Forever`], or a limit that the clock cannot represent.
    Never,
    /// At this time.
    At(Instant),
}

/// The remaining time of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The deadline has passed.
    Nothing,
    /// This long; `None`: without limit.
    Time(Option<Duration>),
}

impl Wait {
    /// The deadline of a wait that begins now. Call it after the first attempt has failed: a call that succeeds at once
    /// need not read the clock.
    #[must_use]
    pub fn start(self) -> Deadline {
        match self {
            Self::Never => Deadline::At(Instant::now()),
            Self::Forever => Deadline::Never,
            Self::AtMost(limit) => Instant::now().checked_add(limit).map_or(Deadline::Never, Deadline::At),
        }
    }
}

impl Deadline {
    /// The remaining time.
    #[must_use]
    pub fn left(self) -> Left {
        match self {
            Self::Never => Left::Time(None),
            Self::At(end) => match end.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Left::Time(Some(left)),
                _ => Left::Nothing,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_has_its_deadline() {
        assert_eq!(Wait::Never.start().left(), Left::Nothing);
        assert_eq!(Wait::Forever.start().left(), Left::Time(None));
        assert_eq!(Wait::AtMost(Duration::MAX).start().left(), Left::Time(None));
        assert!(matches!(Wait::AtMost(Duration::from_secs(9)).start().left(), Left::Time(Some(_))));
    }
}
