//! Quality of service. Spec: rssl.md §2.11.

use core::fmt;

use crate::wire::{Reader, Writer};
use crate::{Named, Result};

/// Age of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeliness {
    /// Not specified.
    #[default]
    Unspecified = 0,
    /// Not delayed.
    RealTime = 1,
    /// Delayed by an unknown time.
    DelayedUnknown = 2,
    /// Delayed by `time_info`.
    Delayed = 3,
}

/// Rate of the updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rate {
    /// Not specified.
    #[default]
    Unspecified = 0,
    /// Every change.
    TickByTick = 1,
    /// Conflated if the receiver is slow.
    JustInTime = 2,
    /// One update per `rate_info` milliseconds.
    Conflated = 3,
}

/// Quality of service of a stream or service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qos {
    /// Age of the data.
    pub timeliness: Timeliness,
    /// Rate of the updates.
    pub rate: Rate,
    /// May change during the life of the stream.
    pub dynamic: bool,
    /// Delay; on the wire only with [`Timeliness::Delayed`].
    pub time_info: u16,
    /// Milliseconds between values; on the wire only with [`Rate::Conflated`].
    pub rate_info: u16,
}

impl Qos {
    /// Real time, every tick: the default of services.
    pub const REALTIME_TICK: Self = Self {
        timeliness: Timeliness::RealTime,
        rate: Rate::TickByTick,
        dynamic: false,
        time_info: 0,
        rate_info: 0,
    };

    /// Reads a quality of service from the front of `r`.
    ///
    /// # Errors
    /// Cut short, or a timeliness or rate above 3.
    #[inline]
    pub fn read(r: &mut Reader<'_>) -> Result<Self> {
        let bad = r.malformed("QoS");
        let byte = r.u8().named("QoS")?;
        let timeliness = match byte >> 5 {
            0 => Timeliness::Unspecified,
            1 => Timeliness::RealTime,
            2 => Timeliness::DelayedUnknown,
            3 => Timeliness::Delayed,
            _ => return Err(bad),
        };
        let rate = match byte >> 1 & 0xF {
            0 => Rate::Unspecified,
            1 => Rate::TickByTick,
            2 => Rate::JustInTime,
            3 => Rate::Conflated,
            _ => return Err(bad),
        };
        let time_info = if timeliness == Timeliness::Delayed { r.u16().named("QoS time")? } else { 0 };
        let rate_info = if rate == Rate::Conflated { r.u16().named("QoS rate")? } else { 0 };
        Ok(Self { timeliness, rate, dynamic: byte & 1 != 0, time_info, rate_info })
    }

    /// Writes the quality of service.
    #[inline]
    pub fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u8((self.timeliness as u8) << 5 | (self.rate as u8) << 1 | u8::from(self.dynamic))?;
        if self.timeliness == Timeliness::Delayed {
            w.u16(self.time_info)?;
        }
        if self.rate == Rate::Conflated {
            w.u16(self.rate_info)?;
        }
        Ok(())
    }

    /// The QOS primitive: `None` is blank (no bytes).
    ///
    /// # Errors
    /// As [`Qos::read`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.is_empty() { Ok(None) } else { Self::read(&mut Reader::new(bytes)).map(Some) }
    }

    /// Sort key that puts better qualities first: timeliness before rate, smaller before greater.
    #[must_use]
    pub const fn order(&self) -> (u8, u16, u8, u16) {
        let time = if matches!(self.timeliness, Timeliness::Delayed) { self.time_info } else { 0 };
        let rate = if matches!(self.rate, Rate::Conflated) { self.rate_info } else { 0 };
        (self.timeliness as u8, time, self.rate as u8, rate)
    }

    /// Whether it is at most as good as `best` and at least as good as `worst`, in timeliness and in rate.
    #[must_use]
    pub fn is_between(&self, best: &Self, worst: &Self) -> bool {
        let (t, ti, r, ri) = self.order();
        let (bt, bti, br, bri) = best.order();
        let (wt, wti, wr, wri) = worst.order();
        (bt, bti) <= (t, ti) && (t, ti) <= (wt, wti) && (br, bri) <= (r, ri) && (r, ri) <= (wr, wri)
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timeliness {
            Timeliness::Delayed => write!(f, "Delayed({})", self.time_info)?,
            other => write!(f, "{other:?}")?,
        }
        match self.rate {
            Rate::Conflated => write!(f, "/Conflated({})", self.rate_info)?,
            other => write!(f, "/{other:?}")?,
        }
        f.write_str(if self.dynamic { "/dynamic" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn every_combination_round_trips() {
        assert_eq!(to_vec(|w| Qos::REALTIME_TICK.write(w)).unwrap(), [0x22]);
        for timeliness in
            [Timeliness::Unspecified, Timeliness::RealTime, Timeliness::DelayedUnknown, Timeliness::Delayed]
        {
            for rate in [Rate::Unspecified, Rate::TickByTick, Rate::JustInTime, Rate::Conflated] {
                let qos = Qos {
                    timeliness,
                    rate,
                    dynamic: rate == Rate::JustInTime,
                    time_info: if timeliness == Timeliness::Delayed { 900 } else { 0 },
                    rate_info: if rate == Rate::Conflated { 250 } else { 0 },
                };
                let bytes = to_vec(|w| qos.write(w)).unwrap();
                assert_eq!(Qos::decode(&bytes), Ok(Some(qos)));
            }
        }
        assert_eq!(Qos::decode(&[]), Ok(None));
        assert!(
            Qos::decode(&[0x82]).is_err()
                && Qos::decode(&[0x28]).is_err()
                && Qos::decode(&[0x62, 1]).is_err()
        );
    }

    #[test]
    fn better_qualities_sort_first() {
        let delayed = Qos { timeliness: Timeliness::Delayed, time_info: 5, ..Qos::REALTIME_TICK };
        let slow = Qos { rate: Rate::Conflated, rate_info: 100, ..Qos::REALTIME_TICK };
        assert!(Qos::REALTIME_TICK.order() < slow.order() && slow.order() < delayed.order());
        assert!(
            slow.is_between(&Qos::REALTIME_TICK, &slow) && !delayed.is_between(&Qos::REALTIME_TICK, &slow)
        );
    }
}
