//! How long a call may wait.

use std::time::{Duration, Instant};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// At most this long.
    AtMost(Duration),
    /// Until it is done.
    Forever,
}

/// The end of a wait, once it has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deadline {
    /// [`Wait::Never`], or too far away to be told.
    Never,
    At(Instant),
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// `None`: for ever.
    Time(Option<Duration>),
}

impl Wait {
    /// The time at which it is over; asked for when the first attempt has failed, so that a call which is answered at
    /// once need not read the clock.
    pub(crate) fn start(self) -> Deadline {
        match self {
            Self::Never => Deadline::At(Instant::now()),
            Self::Forever => Deadline::Never,
            Self::AtMost(limit) => Instant::now().checked_add(limit).map_or(Deadline::Never, Deadline::At),
        }
    }
}

impl Deadline {
    pub(crate) fn left(self) -> Left {
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
    fn what_is_left_of_each_kind() {
        assert_eq!(Wait::Never.start().left(), Left::Nothing);
        assert_eq!(Wait::Forever.start().left(), Left::Time(None));
        assert_eq!(Wait::AtMost(Duration::MAX).start().left(), Left::Time(None));
        assert!(matches!(Wait::AtMost(Duration::from_secs(9)).start().left(), Left::Time(Some(_))));
    }
}
