//! REAL: an exact number, as a mantissa and a power of ten or two.

use core::fmt;

use super::{Short, int};
use crate::{Error, Result};

/// Exponent hints: the factors of mantissas.
pub mod hint {
    /// 10^-14; each further hint up to [`EXPONENT_MAX`] stands for ten times as much.
    pub const EXPONENT_MIN: u8 = 0;
    /// 10^-4.
    pub const EXPONENT_4: u8 = 10;
    /// 10^-2.
    pub const EXPONENT_2: u8 = 12;
    /// The mantissa is the value.
    pub const INTEGER: u8 = 14;
    /// 10^7.
    pub const EXPONENT_MAX: u8 = 21;
    /// The mantissa is the value; each further hint up to [`FRACTION_256`] halves it once more.
    pub const FRACTION_1: u8 = 22;
    /// A 256th.
    pub const FRACTION_256: u8 = 30;
    /// Infinity; no mantissa.
    pub const INFINITY: u8 = 33;
    /// Minus infinity; no mantissa.
    pub const NEGATIVE_INFINITY: u8 = 34;
    /// Not a number; no mantissa.
    pub const NOT_A_NUMBER: u8 = 35;
}

const BLANK: u8 = 0x20;

/// An exact number. `==` compares mantissa and hint, not values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Real {
    /// Mantissa; 0 if the hint allows none.
    pub mantissa: i64,
    /// One of [`hint`].
    pub hint: u8,
}

impl Real {
    /// The number with this mantissa and hint.
    #[inline]
    #[must_use]
    pub const fn new(mantissa: i64, hint: u8) -> Self {
        Self { mantissa, hint }
    }

    /// The number `mantissa` / 10^`places`, for 0 to 14 places; more count as 14.
    #[inline]
    #[must_use]
    pub const fn with_decimals(mantissa: i64, places: u8) -> Self {
        Self { mantissa, hint: hint::INTEGER.saturating_sub(places) }
    }

    /// Reads a REAL; `None` is blank. Also reads the forms REAL_4RB and REAL_8RB of set-defined entries.
    ///
    /// # Errors
    /// A hint that does not exist, a mantissa of 0 or more than eight bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some((&first, mantissa)) = bytes.split_first() else { return Ok(None) };
        // In set forms the two top bits are the length of the mantissa, which the slice has already.
        let hint = first & 0x3F;
        if hint & BLANK == 0 && hint <= hint::FRACTION_256 {
            match int::decode(mantissa) {
                Ok(Some(mantissa)) => return Ok(Some(Self { mantissa, hint })),
                _ => return Err(Error::Malformed { what: "mantissa of REAL", at: 1 }),
            }
        }
        match hint {
            BLANK => Ok(None),
            hint::INFINITY..=hint::NOT_A_NUMBER => Ok(Some(Self { mantissa: 0, hint })),
            _ => Err(Error::Malformed { what: "hint of REAL", at: 0 }),
        }
    }

    /// Whether it has a mantissa.
    #[inline]
    #[must_use]
    pub const fn is_finite(&self) -> bool {
        self.hint <= hint::FRACTION_256
    }

    /// The form of fields and elements.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> Short {
        if self.is_finite() {
            int::to_bytes(self.mantissa).after(self.hint)
        } else {
            Short::copy(&[self.hint])
        }
    }

    /// The nearest floating-point number; NaN for a hint that does not exist.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "nearest is what is asked for")]
        let m = self.mantissa as f64;
        match self.hint {
            h @ 0..=hint::EXPONENT_MAX => {
                let power = 10f64.powi(i32::from(h.abs_diff(hint::INTEGER)));
                if h < hint::INTEGER { m / power } else { m * power }
            }
            h @ hint::FRACTION_1..=hint::FRACTION_256 => m / f64::from(1u32 << (h - hint::FRACTION_1)),
            hint::INFINITY => f64::INFINITY,
            hint::NEGATIVE_INFINITY => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }

    /// Parses a decimal number (`-12.50`), a fraction with a power of two below (`12 3/8`) or `Inf`, `-Inf`,
    /// `NaN`. `None` if it is none of these, or has more than 14 decimal places or 18 digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Inf" => return Some(Self::new(0, hint::INFINITY)),
            "-Inf" => return Some(Self::new(0, hint::NEGATIVE_INFINITY)),
            "NaN" => return Some(Self::new(0, hint::NOT_A_NUMBER)),
            _ => {}
        }
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, hint) = match digits.split_once('/') {
            Some((above, below)) => {
                let (whole, above) = above.split_once(' ').unwrap_or(("0", above));
                let below = number(below)?;
                let power =
                    u8::try_from(below.checked_ilog2()?).ok().filter(|p| *p <= 8 && 1 << p == below)?;
                (number(whole)?.checked_mul(below)?.checked_add(number(above)?)?, hint::FRACTION_1 + power)
            }
            None => {
                let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
                if whole.is_empty() && part.is_empty() {
                    return None;
                }
                let places = u8::try_from(part.len()).ok().filter(|p| *p <= hint::INTEGER)?;
                let mut mantissa = 0i64;
                for byte in whole.bytes().chain(part.bytes()) {
                    let digit = byte.is_ascii_digit().then_some(i64::from(byte) - i64::from(b'0'))?;
                    mantissa = mantissa.checked_mul(10)?.checked_add(digit)?;
                }
                (mantissa, hint::INTEGER - places)
            }
        };
        Some(Self::new(if negative { -mantissa } else { mantissa }, hint))
    }
}

/// Reads a number that consists only of digits.
fn number(text: &str) -> Option<i64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for Real {
    /// Exact: decimals as `39.90`, fractions as `12 3/8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minus = if self.mantissa < 0 { "-" } else { "" };
        let m = self.mantissa.unsigned_abs();
        match self.hint {
            h @ 0..hint::INTEGER => {
                let places = usize::from(hint::INTEGER - h);
                let power = 10u64.pow(u32::from(hint::INTEGER - h));
                write!(f, "{minus}{}.{:0places$}", m / power, m % power)
            }
            h @ hint::INTEGER..=hint::EXPONENT_MAX => {
                write!(f, "{minus}{}", u128::from(m) * 10u128.pow(u32::from(h - hint::INTEGER)))
            }
            h @ hint::FRACTION_1..=hint::FRACTION_256 => {
                let below = 1u64 << (h - hint::FRACTION_1);
                match (m / below, m % below) {
                    (whole, 0) => write!(f, "{minus}{whole}"),
                    (0, above) => write!(f, "{minus}{above}/{below}"),
                    (whole, above) => write!(f, "{minus}{whole} {above}/{below}"),
                }
            }
            hint::INFINITY => f.write_str("Inf"),
            hint::NEGATIVE_INFINITY => f.write_str("-Inf"),
            hint::NOT_A_NUMBER => f.write_str("NaN"),
            other => write!(f, "{} with hint {other}", self.mantissa),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_forms_are_read() {
        assert_eq!(Real::decode(&[0x0C, 0x0F, 0x96]), Ok(Some(Real::with_decimals(3990, 2))));
        assert_eq!(&*Real::with_decimals(3990, 2).to_bytes(), [0x0C, 0x0F, 0x96]);
        assert_eq!((Real::decode(&[]), Real::decode(&[0x20])), (Ok(None), Ok(None)));
        assert_eq!(Real::decode(&[0x21]), Ok(Some(Real::new(0, hint::INFINITY))));
        assert_eq!(&*Real::new(0, hint::NOT_A_NUMBER).to_bytes(), [0x23]);
        // REAL_4RB with two bytes of mantissa.
        assert_eq!(Real::decode(&[0x4C, 0x0F, 0x96]), Ok(Some(Real::with_decimals(3990, 2))));
        assert!(Real::decode(&[0x0C]).is_err() && Real::decode(&[0x1F, 1]).is_err());
        assert!(Real::decode(&[0x0C, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err() && Real::decode(&[0x24]).is_err());
        for mantissa in [0, -1, 127, 128, -129, i64::MAX, i64::MIN] {
            let real = Real::new(mantissa, 20);
            assert_eq!(Real::decode(&real.to_bytes()), Ok(Some(real)));
        }
    }

    #[test]
    fn decimals_and_fractions_are_shown_exactly() {
        for (real, text, value) in [
            (Real::with_decimals(3990, 2), "39.90", 39.9),
            (Real::with_decimals(-5, 3), "-0.005", -0.005),
            (Real::new(7, hint::INTEGER), "7", 7.0),
            (Real::new(99, 25), "12 3/8", 12.375),
            (Real::new(-3, 23), "-1 1/2", -1.5),
            (Real::new(1, 30), "1/256", 1.0 / 256.0),
            (Real::new(0, hint::INFINITY), "Inf", f64::INFINITY),
        ] {
            assert_eq!((real.to_string().as_str(), real.to_f64()), (text, value));
            assert_eq!(Real::parse(text), Some(real));
        }
        assert_eq!(Real::new(-7, 16).to_string(), "-700");
        assert_eq!(Real::new(i64::MIN, 21).to_string(), "-92233720368547758080000000");
        assert_eq!(Real::new(i64::MIN, 0).to_string(), "-92233.72036854775808");
        for bad in
            ["", ".", "-", "1e5", "1/3", "1 2", "/2", "1/0", "9999999999999999999", "1.123456789012345"]
        {
            assert_eq!(Real::parse(bad), None, "{bad}");
        }
        assert_eq!(Real::parse("+.5"), Some(Real::with_decimals(5, 1)));
    }
}
