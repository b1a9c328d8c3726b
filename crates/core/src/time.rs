//! Time as a value: the core never reads a clock; the caller passes the time to every call.

use core::time::Duration;

/// A point in time: nanoseconds since an epoch that the caller chooses once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The caller's epoch.
    pub const ZERO: Time = Time(0);
    /// Later than every real point in time; used for "no deadline".
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `millis` milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time elapsed since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This point plus `millis` milliseconds, saturating at [`Time::NEVER`].
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis.saturating_mul(1_000_000)))
    }
}

impl core::ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl core::ops::Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
