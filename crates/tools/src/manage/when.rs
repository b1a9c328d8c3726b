//! Times as text.

/// `2026-11-22 05:17:03.250 UTC` from milliseconds since 1970.
pub(crate) fn utc(milliseconds: u64) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}.{rest:03} UTC", second % 60)
}

/// Year, month and day, by counting from 1 March of year 0 in eras of 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_follow_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00.000 UTC");
        assert_eq!(utc(1_795_324_623_250), "2026-11-22 05:17:03.250 UTC");
        assert_eq!(utc(4_107_542_399_999), "2100-02-28 23:59:59.999 UTC");
    }
}
