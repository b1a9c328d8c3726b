//! DATE, TIME and DATETIME.

use core::fmt;

use super::Short;
use crate::{Error, Result};

/// A day; parts that are 0 are blank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Date {
    /// Year.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
}

impl Date {
    /// Reads a DATE of four bytes. Returns `None` if it is blank: no bytes, or four zeros.
    ///
    /// # Errors
    /// Another length.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        match *bytes {
            [] | [0, 0, 0, 0] => Ok(None),
            [day, month, a, b] => Ok(Some(Self { year: u16::from_be_bytes([a, b]), month, day })),
            _ => Err(Error::Malformed { what: "DATE", at: 0 }),
        }
    }

    /// The DATE on the wire.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> Short {
        let [a, b] = self.year.to_be_bytes();
        Short::copy(&[self.day, self.month, a, b])
    }
}

impl fmt::Display for Date {
    /// `2026-11-22`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// A time of the day; each part may be blank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Time {
    /// Hour, 0 to 23; 255 is blank.
    pub hour: u8,
    /// Minute, 0 to 59; 255 is blank.
    pub minute: u8,
    /// Second, 0 to 60; 255 is blank.
    pub second: u8,
    /// Milliseconds, 0 to 999; 65535 is blank.
    pub millisecond: u16,
    /// Microseconds, 0 to 999; 2047 is blank.
    pub microsecond: u16,
    /// Nanoseconds, 0 to 999; 2047 is blank.
    pub nanosecond: u16,
}

impl Time {
    /// All parts blank.
    pub const BLANK: Self =
        Self { hour: 255, minute: 255, second: 255, millisecond: 65535, microsecond: 2047, nanosecond: 2047 };

    /// Reads a TIME of 2, 3, 5, 7 or 8 bytes; `None` is blank. Missing parts are 0.
    ///
    /// # Errors
    /// Another length.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut time = Self::default();
        let (head, tail) = match *bytes {
            [] => return Ok(None),
            [hour, minute, ref rest @ ..] => ([hour, minute], rest),
            _ => return Err(Error::Malformed { what: "TIME", at: 0 }),
        };
        [time.hour, time.minute] = head;
        // Missing parts of a blank time are blank.
        let whole_blank = head == [255, 255];
        match *tail {
            [] => {}
            [s] => time.second = s,
            [s, a, b] => {
                time.second = s;
                time.millisecond = u16::from_be_bytes([a, b]);
            }
            [s, a, b, c, d] => {
                time.second = s;
                time.millisecond = u16::from_be_bytes([a, b]);
                time.microsecond = u16::from_be_bytes([c & 7, d]);
            }
            [s, a, b, c, d, e] => {
                time.second = s;
                time.millisecond = u16::from_be_bytes([a, b]);
                time.microsecond = u16::from_be_bytes([c & 7, d]);
                time.nanosecond = u16::from_be_bytes([c >> 3 & 7, e]);
            }
            _ => return Err(Error::Malformed { what: "TIME", at: 0 }),
        }
        if whole_blank && (tail.is_empty() || time.second == 255) {
            return Ok(None);
        }
        Ok(Some(time))
    }

    /// The shortest form without loss.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> Short {
        let [a, b] = self.millisecond.to_be_bytes();
        let [c, d] = self.microsecond.to_be_bytes();
        let [e, g] = self.nanosecond.to_be_bytes();
        let all = [self.hour, self.minute, self.second, a, b, c & 7 | (e & 7) << 3, d, g];
        let n = match self {
            Self { nanosecond: 1.., .. } => 8,
            Self { microsecond: 1.., .. } => 7,
            Self { millisecond: 1.., .. } => 5,
            Self { second: 1.., .. } => 3,
            _ => 2,
        };
        Short::copy(all.get(..n).unwrap_or(&all))
    }
}

impl fmt::Display for Time {
    /// `14:15:00`, and decimals of the second if any; blank parts are dashes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let two = |f: &mut fmt::Formatter<'_>, part: u8| {
            if part == 255 { f.write_str("--") } else { write!(f, "{part:02}") }
        };
        let three = |f: &mut fmt::Formatter<'_>, part: u16, blank: u16| {
            if part == blank { f.write_str("---") } else { write!(f, "{part:03}") }
        };
        two(f, self.hour)?;
        f.write_str(":")?;
        two(f, self.minute)?;
        f.write_str(":")?;
        two(f, self.second)?;
        if self.millisecond != 0 || self.microsecond != 0 || self.nanosecond != 0 {
            f.write_str(".")?;
            three(f, self.millisecond, 65535)?;
        }
        if self.microsecond != 0 || self.nanosecond != 0 {
            three(f, self.microsecond, 2047)?;
        }
        if self.nanosecond != 0 { three(f, self.nanosecond, 2047) } else { Ok(()) }
    }
}

/// A day and a time of the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DateTime {
    /// The day; all 0 is blank.
    pub date: Date,
    /// The time.
    pub time: Time,
}

impl DateTime {
    /// Reads a DATETIME of 6, 7, 9, 11 or 12 bytes; `None` if both parts are blank.
    ///
    /// # Errors
    /// Another length.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let bad = Error::Malformed { what: "DATETIME", at: 0 };
        if bytes.is_empty() {
            return Ok(None);
        }
        let (date, time) = bytes.split_at_checked(4).filter(|(_, t)| !t.is_empty()).ok_or(bad)?;
        match (Date::decode(date)?, Time::decode(time)?) {
            (None, None) => Ok(None),
            (date, time) => {
                Ok(Some(Self { date: date.unwrap_or_default(), time: time.unwrap_or(Time::BLANK) }))
            }
        }
    }

    /// The shortest form without loss.
    #[must_use]
    pub fn to_bytes(self) -> Short {
        let mut all = [0; 12];
        let (date, time) = (self.date.to_bytes(), self.time.to_bytes());
        let n = date.len() + time.len();
        for (to, from) in all.iter_mut().zip(date.iter().chain(time.iter())) {
            *to = *from;
        }
        Short::copy(all.get(..n).unwrap_or(&all))
    }
}

impl fmt::Display for DateTime {
    /// `2026-11-22 14:15:00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.date, self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_length_round_trip() {
        let mut time = Time { hour: 14, minute: 5, ..Time::default() };
        let check = |time: Time, len: usize, text: &str| {
            let bytes = time.to_bytes();
            assert_eq!((bytes.len(), Time::decode(&bytes)), (len, Ok(Some(time))));
            assert_eq!(time.to_string(), text);
            let date = Date { year: 2026, month: 11, day: 22 };
            let both = DateTime { date, time };
            assert_eq!(DateTime::decode(&both.to_bytes()), Ok(Some(both)));
            assert_eq!(both.to_string(), format!("2026-11-22 {text}"));
        };
        check(time, 2, "14:05:00");
        time.second = 9;
        check(time, 3, "14:05:09");
        time.millisecond = 70;
        check(time, 5, "14:05:09.070");
        time.microsecond = 999;
        check(time, 7, "14:05:09.070999");
        time.nanosecond = 876;
        check(time, 8, "14:05:09.070999876");
        check(Time { millisecond: 0, ..time }, 8, "14:05:09.000999876");
        check(Time { second: 255, millisecond: 0, microsecond: 0, nanosecond: 0, ..time }, 3, "14:05:--");
        for n in [1, 4, 6, 9] {
            assert!(Time::decode(&[1; 9][..n]).is_err());
        }
    }

    #[test]
    fn blank_values_are_none_and_blank_parts_are_dashes() {
        assert_eq!((Date::decode(&[]), Date::decode(&[0; 4])), (Ok(None), Ok(None)));
        assert_eq!((Time::decode(&[]), Time::decode(&Time::BLANK.to_bytes())), (Ok(None), Ok(None)));
        assert_eq!(Time::decode(&[255, 255, 255]), Ok(None));
        assert_eq!((DateTime::decode(&[]), DateTime::decode(&[0, 0, 0, 0, 255, 255])), (Ok(None), Ok(None)));
        let midnight = Time::default();
        assert_eq!(Time::decode(&midnight.to_bytes()), Ok(Some(midnight)));
        let half = DateTime { date: Date { year: 2026, month: 1, day: 2 }, time: Time::BLANK };
        assert_eq!(DateTime::decode(&half.to_bytes()), Ok(Some(half)));
        assert!(DateTime::decode(&[1, 1, 1, 1]).is_err() && DateTime::decode(&[1]).is_err());
        assert!(Date::decode(&[1, 2, 3]).is_err());
    }
}
