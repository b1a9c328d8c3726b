//! A window of numbers, each of which is accepted once.

/// Words of the window of frames on a bearer, a power of two: 32,704 numbers, 50 ms at 650,000 frames in a second.
pub(super) const FRAMES: usize = 512;
/// Words of the window of discovery messages, a power of two, of which a node sends few: 960 numbers.
pub(super) const DISCOVERY: usize = 16;

/// The numbers received from one counter.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The highest number; 0 before the first.
    top: u64,
    /// One bit per number, in a ring of words. The word that the window enters is cleared as a whole, so its width is
    /// one word less than the ring.
    seen: Box<[u64]>,
}

impl Window {
    /// An empty window with this many words.
    pub(super) fn new(words: usize) -> Self {
        Self { top: 0, seen: vec![0; words].into() }
    }

    /// Numbers below the highest that are still accepted once.
    fn width(&self) -> u64 {
        (self.seen.len() as u64 - 1) * 64
    }

    /// True if the number has not been received and is not too old.
    pub(super) fn is_fresh(&self, number: u64) -> bool {
        if number > self.top {
            return true;
        }
        self.top - number < self.width()
            && self.seen.get(self.word(number)).is_some_and(|word| word & bit(number) == 0)
    }

    /// Notes a fresh number.
    pub(super) fn note(&mut self, number: u64) {
        let (from, to) = (self.top / 64, number / 64);
        if number > self.top {
            self.top = number;
            for entered in (from + 1).max((to + 1).saturating_sub(self.seen.len() as u64))..=to {
                let at = self.word(entered * 64);
                if let Some(word) = self.seen.get_mut(at) {
                    *word = 0;
                }
            }
        }
        let at = self.word(number);
        if let Some(word) = self.seen.get_mut(at) {
            *word |= bit(number);
        }
    }

    /// True if the number is among those that the window tells apart, or not far above.
    pub(super) fn is_near(&self, number: u64) -> bool {
        number.abs_diff(self.top) < self.width()
    }

    /// The highest number received.
    pub(super) fn top(&self) -> u64 {
        self.top
    }

    fn word(&self, number: u64) -> usize {
        (number / 64) as usize & (self.seen.len() - 1)
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_number_is_accepted_once_as_long_as_it_is_not_too_old() {
        let mut rng = crate::rng::Rng::new(3);
        let (mut window, mut seen, mut top) = (Window::new(DISCOVERY), BTreeSet::new(), 0);
        let width = window.width();
        for _ in 0..200_000 {
            let number = match rng.below(4) {
                0 => top + 1 + rng.below(5),
                1 => top + rng.below(3000),
                _ => (top + 1).saturating_sub(rng.below(1500)).max(1),
            };
            let expected = !seen.contains(&number) && (number > top || top - number < width);
            assert_eq!(window.is_fresh(number), expected, "{number} with {top}");
            if expected {
                window.note(number);
                seen.insert(number);
                top = top.max(number);
            }
        }
        assert_eq!(window.top(), top);
    }

    #[test]
    fn largest_number_does_not_overflow() {
        let mut window = Window::new(FRAMES);
        window.note(u64::MAX);
        assert!(!window.is_fresh(u64::MAX) && window.is_fresh(u64::MAX - 1) && !window.is_fresh(5));
    }

    #[test]
    fn window_is_wide_enough_for_bearers_50_ms_apart_at_full_rate() {
        let mut window = Window::new(FRAMES);
        window.note(1_000_000);
        assert!(window.is_fresh(1_000_000 - 32_000));
    }
}
