//! Chooses the updates that carry a stamp with the time.

/// Chooses the updates that carry stamps: one at a random place of each stretch of updates.
pub(super) struct StampSchedule {
    /// Updates for each stamp.
    stretch: u64,
    /// Updates until the next stamp, and from there to the end of its stretch.
    pub(super) until: u64,
    rest: u64,
    random: u64,
}

impl StampSchedule {
    pub(super) fn new(rate: u64, stamps: u64, random: u64) -> Self {
        let stretch = rate.checked_div(stamps).map_or(u64::MAX, |stretch| stretch.max(1));
        let mut schedule = Self { stretch, until: 0, rest: 0, random: random | 1 };
        schedule.advance();
        schedule
    }

    /// Chooses the place of the next stamp at random.
    pub(super) fn advance(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = if self.stretch == u64::MAX { u64::MAX } else { self.random % self.stretch };
        self.until = self.rest.saturating_add(place);
        self.rest = self.stretch - if place == u64::MAX { self.stretch } else { place + 1 };
    }
}
