//! Numbers of frames that have been received under a key, so that a recorded frame is not accepted again. Linux has no
//! such window.

/// Numbers below the highest that are still accepted once. Frames of two links and of several CPUs overtake each other
/// by far less.
const WIDTH: u64 = 1024;
const WORDS: usize = (WIDTH / 64) as usize;

/// The numbers received under one key of one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// The highest number; 0 before the first.
    top: u64,
    /// One bit per number, at its remainder by the width.
    seen: [u64; WORDS],
}

impl Window {
    /// True if the number has not been received and is not too old.
    pub(super) fn is_fresh(&self, number: u64) -> bool {
        if number > self.top {
            return true;
        }
        self.top - number < WIDTH && self.seen.get(word(number)).is_some_and(|word| word & bit(number) == 0)
    }

    /// Notes a fresh number.
    pub(super) fn note(&mut self, number: u64) {
        if number > self.top {
            let ahead = number - self.top;
            if ahead >= WIDTH {
                self.seen = [0; WORDS];
            } else {
                for passed in self.top + 1..=number {
                    self.set(passed, false);
                }
            }
            self.top = number;
        }
        self.set(number, true);
    }

    /// True if the number is among those that the window tells apart, or not far above.
    pub(super) fn is_near(&self, number: u64) -> bool {
        number.abs_diff(self.top) < WIDTH
    }

    /// The highest number received.
    pub(super) fn top(&self) -> u64 {
        self.top
    }

    fn set(&mut self, number: u64, on: bool) {
        if let Some(word) = self.seen.get_mut(word(number)) {
            *word = *word & !bit(number) | if on { bit(number) } else { 0 };
        }
    }
}

const fn word(number: u64) -> usize {
    (number % WIDTH / 64) as usize
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
        let (mut window, mut seen, mut top) = (Window::default(), BTreeSet::new(), 0);
        for _ in 0..200_000 {
            let number = match rng.below(4) {
                0 => top + 1 + rng.below(5),
                1 => top + rng.below(3000),
                _ => (top + 1).saturating_sub(rng.below(1500)).max(1),
            };
            let expected = !seen.contains(&number) && (number > top || top - number < WIDTH);
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
        let mut window = Window::default();
        window.note(u64::MAX);
        assert!(!window.is_fresh(u64::MAX) && window.is_fresh(u64::MAX - 1) && !window.is_fresh(5));
    }
}
