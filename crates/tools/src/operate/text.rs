//! Numbers and times as people read them.

/// `3 d 4 h`, `5 min 2 s` or `12 s` from milliseconds.
pub(crate) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A number with a prefix of 1000: `950`, `1.2 k`, `34 M`.
pub(crate) fn short(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["", " k", " M", " G", " T"] {
        if value < 999.5 || unit == " T" {
            let digits = usize::from(!unit.is_empty() && value < 9.95);
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    String::new()
}

/// Bytes with a prefix of 1024: `4 KiB`.
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1023.5 || unit == "GiB" {
            let digits = usize::from(unit != "B" && value < 9.95);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1.0 k"), (34_000_000, "34 M"), (5 << 50, "5629 T")]
        {
            assert_eq!(short(number), text);
        }
        for (number, text) in
            [(17, "17 B"), (4096, "4.0 KiB"), (1 << 20, "1.0 MiB"), (1 << 50, "1048576 GiB")]
        {
            assert_eq!(bytes(number), text);
        }
        for (ms, text) in
            [(1999, "1 s"), (62_000, "1 min 2 s"), (3_600_000, "1 h 0 min"), (90_000_000, "1 d 1 h")]
        {
            assert_eq!(duration(ms), text);
        }
    }
}
