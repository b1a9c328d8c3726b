//! Search for the highest rate at which a condition holds.

use anyhow::Result;

/// Searches from `guess` for the highest rate at which `holds` is true, until the highest good and the lowest
/// bad rate are within the factor `near`, or for `tries` tries. Returns 0 if it was false at all rates.
pub(super) fn highest(
    guess: u64,
    near: f64,
    tries: usize,
    mut holds: impl FnMut(u64) -> Result<bool>,
) -> Result<u64> {
    let (mut good, mut bad) = (0u64, u64::MAX);
    let mut rate = guess;
    for _ in 0..tries {
        if holds(rate)? {
            good = rate;
        } else {
            bad = rate;
        }
        if good > 0 && bad < u64::MAX && bad as f64 <= good as f64 * near {
            break;
        }
        rate = match (good, bad) {
            (0, bad) => bad * 2 / 3,
            (good, u64::MAX) => good * 8 / 5,
            (good, bad) => u64::midpoint(good, bad),
        };
        if rate < 100 {
            break;
        }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_ends_just_below_the_limit() {
        for limit in [90_000, 800_000, 1_000_000, 5_000_000] {
            let mut tries = 0;
            let found = highest(1_000_000, 1.05, 20, |rate| {
                tries += 1;
                Ok(rate <= limit)
            });
            let found = found.unwrap();
            assert!(found <= limit && found as f64 >= limit as f64 / 1.05, "{limit}: {found}");
            assert!(tries <= 12, "{limit}: {tries} tries");
        }
        assert_eq!(highest(1_000_000, 1.05, 30, |_| Ok(false)).unwrap(), 0);
        assert_eq!(highest(1_000, 1.05, 3, |_| Ok(true)).unwrap(), 2_560);
        assert!(highest(1, 1.05, 3, |_| anyhow::bail!("gone")).is_err());
    }
}
