//! The values that a publisher sends: a pure function of the item and of the number of its updates, so that a consumer
//! can compute the publisher's state and compare.

use rssl::rwf::DataType;

/// Value of the field that counts an item's updates before the first; from here on it has four bytes.
pub const SEQUENCE_BASE: u32 = 0x0100_0000;

/// The seed of an item in [`vary`]: a hash (FNV-1a) of its name.
#[must_use]
pub fn seed(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A hash of three numbers, all of whose bits depend on all of them.
fn mix(seed: u32, field: i16, n: u32) -> u64 {
    let mut z = (u64::from(seed) << 32 | u64::from(n)) ^ (u64::from(field.cast_unsigned()) << 20);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Changes an encoded value to the one that update `n` of the item gives to `field`. Its length does not change, and it
/// stays a valid value of its type in the shortest form.
pub fn vary(kind: DataType, value: &mut [u8], seed: u32, field: i16, n: u32) {
    let mut mixed = mix(seed, field, n);
    let mut next = |below: u64| {
        let got = mixed % below;
        mixed = (mixed / below).rotate_left(7) ^ mixed.rotate_left(29);
        got as u8
    };
    match (kind, value) {
        (DataType::UINT | DataType::INT, value) => number(value, next),
        (DataType::REAL, [_hint, mantissa @ ..]) => number(mantissa, next),
        (DataType::TIME, [hour, minute, rest @ ..]) => {
            (*hour, *minute) = (next(24), next(60));
            if let [second, ..] = rest {
                *second = next(60);
            }
        }
        (DataType::DATE, [day, month, ..]) => (*day, *month) = (1 + next(28), 1 + next(12)),
        // One of two neighbours: few enumerated values have a known name.
        (DataType::ENUM, [.., last]) => *last = (*last & !1) | next(2),
        (DataType::RMTES_STRING | DataType::ASCII_STRING | DataType::UTF8_STRING, text) => {
            for letter in text.iter_mut().filter(|c| c.is_ascii_alphanumeric()) {
                *letter = b'A' + next(26);
            }
        }
        _ => {}
    }
}

/// Changes all bytes but the first, which holds the sign and keeps the form the shortest.
fn number(value: &mut [u8], mut next: impl FnMut(u64) -> u8) {
    match value {
        [only] => *only = next(127),
        [first, second, rest @ ..] => {
            *second = match *first {
                0 => 0x80 | next(128),
                0xff => next(128),
                _ => next(256),
            };
            rest.iter_mut().for_each(|byte| *byte = next(256));
        }
        [] => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_depend_on_item_field_and_update_number_only() {
        let at = |seed, field, n| {
            let mut value = [12, 0x20, 0xdc];
            vary(DataType::REAL, &mut value, seed, field, n);
            value
        };
        assert_eq!(at(1, 22, 3), at(1, 22, 3));
        let all = [at(1, 22, 3), at(2, 22, 3), at(1, 25, 3), at(1, 22, 4)];
        for (i, a) in all.iter().enumerate() {
            assert!(a[..2] == [12, 0x20] && all[i + 1..].iter().all(|b| a != b), "{all:?}");
        }
        assert_ne!(seed(b"RDT0"), seed(b"RDT1"));
    }

    #[test]
    fn varied_values_stay_valid_and_in_the_shortest_form() {
        for n in 0..2000 {
            let run = |kind, bytes: &[u8]| {
                let mut value = bytes.to_vec();
                vary(kind, &mut value, 77, 6, n);
                value
            };
            let time = run(DataType::TIME, &[1, 2, 3]);
            assert!(time[0] < 24 && time[1] < 60 && time[2] < 60);
            let date = run(DataType::DATE, &[1, 1, 7, 0xd9]);
            assert!((1..=28).contains(&date[0]) && (1..=12).contains(&date[1]) && date[2..] == [7, 0xd9]);
            assert!(run(DataType::RMTES_STRING, b"A 1").iter().all(|c| c.is_ascii_uppercase() || *c == b' '));
            assert!((2..4).contains(&run(DataType::ENUM, &[2])[0]));
            // Shortest forms: a leading zero only before a set top bit.
            let real = run(DataType::REAL, &[12, 0x00, 0x9b, 0x87]);
            assert!(real[..2] == [12, 0] && real[2] >= 0x80);
            assert!(run(DataType::UINT, &[3])[0] < 127);
        }
    }
}
