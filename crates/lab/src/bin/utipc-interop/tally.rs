//! Counts of numbered messages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::pattern;

/// Results of a run of numbered messages.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    expected: u32,
    pub(crate) got: u32,
    late: u32,
    broken: u32,
    missing: BTreeSet<u32>,
}

impl Tally {
    pub(crate) fn new(first: u32) -> Self {
        Self { expected: first, ..Self::default() }
    }

    pub(crate) fn take(&mut self, data: &[u8], length: usize) {
        let number = data.first_chunk().map_or(0, |head| u32::from_be_bytes(*head));
        if data != pattern::numbered(number, length) {
            self.broken += 1;
        }
        self.got += 1;
        if number < self.expected {
            self.late += 1;
            self.missing.remove(&number);
            return;
        }
        self.missing.extend(self.expected..number);
        self.expected = number + 1;
    }

    /// Messages that are missing, that came late or twice, and that were changed.
    pub(crate) fn faults(&self) -> [usize; 3] {
        [self.missing.len(), self.late as usize, self.broken as usize]
    }

    pub(crate) fn answer(&self, error: Option<String>) -> Value {
        let [missing, late, broken] = self.faults();
        json!({
            "got": self.got,
            "missing": missing,
            "late": late,
            "broken": broken,
            "error": error,
            "next": self.expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_repeats_and_changes_are_counted_apart() {
        let mut tally = Tally::new(0);
        for number in [0, 1, 4, 2, 4] {
            tally.take(&pattern::numbered(number, 50), 50);
        }
        tally.take(&[0, 0, 0, 5, 9], 50);
        let expected = json!({"got": 6, "missing": 1, "late": 2, "broken": 1, "error": null, "next": 6});
        assert_eq!(tally.answer(None), expected);
    }
}
