//! SERIES: entries one after another. Spec: rssl.md §4.6.

use super::DataType;
use super::container::{Entries, EntryContainer, EntryContainerWriter, Kind, SummaryKind};
use super::flags::flags;
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// Flags of a [`Series`].
    SeriesFlags(u8) {
        /// Set definitions are present.
        SETS = 0x01,
        /// A summary is present.
        SUMMARY = 0x02,
        /// An estimate of the number of entries in all parts is present.
        HINT = 0x04,
    }
}

impl Kind for SeriesFlags {
    const NAME: &'static str = "series";
    const MAX_ENTRIES: u16 = u16::MAX;
    const PERMISSIONS: u8 = 0;
    type Entry<'a> = &'a [u8];

    #[inline]
    fn has(self, flags: u8) -> bool {
        self.contains(Self(flags))
    }

    #[inline]
    fn read_entry<'a>(r: &mut Reader<'a>, _: bool, container: DataType) -> Result<&'a [u8]> {
        if container == DataType::NO_DATA { Ok(&[]) } else { r.buf16().named("series entry") }
    }
}

impl SummaryKind for SeriesFlags {
    const SETS: u8 = Self::SETS.0;
    const SUMMARY: u8 = Self::SUMMARY.0;
    const HINT: u8 = Self::HINT.0;
    const COUNT: &'static str = "series count";

    fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// A series, over borrowed bytes.
pub type Series<'a> = EntryContainer<'a, SeriesFlags>;

/// Entries of a [`Series`], each as its bytes.
pub type SeriesEntries<'a> = Entries<'a, SeriesFlags>;

/// Writes a series.
pub type SeriesWriter<'w, 'b> = EntryContainerWriter<'w, 'b, SeriesFlags>;

impl<'w, 'b> SeriesWriter<'w, 'b> {
    /// Begins a series.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is not a container type.
    pub fn new(w: &'w mut Writer<'b>, container: DataType) -> Result<Self> {
        Self::begin(w, &[], container)
    }

    /// An entry; `f` writes its content, and is not called if the series' container is [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// Those of `f`; [`crate::Error::Full`], [`crate::Error::TooLong`] above 65535 bytes or 65535 entries.
    pub fn entry(&mut self, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
        let no_data = self.container() == DataType::NO_DATA;
        let w = self.next_entry(None)?;
        if no_data { Ok(()) } else { w.nested16(f).named("series entry") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn series_round_trips_and_every_prefix_is_an_error() {
        let bytes = to_vec(|w| {
            let mut series = SeriesWriter::new(w, DataType::OPAQUE)?;
            series.sets(|w| w.bytes(&[0, 0]))?;
            series.summary(|w| w.u8(9))?;
            series.hint(3)?;
            series.entry(|w| w.u8(5))?;
            series.entry(|_| Ok(()))?;
            assert_eq!((series.count(), series.written()), (2, 19));
            series.finish()
        })
        .unwrap();
        let series = Series::decode(&bytes).unwrap();
        assert_eq!((series.sets, series.summary, series.hint), (Some(&[0, 0][..]), Some(&[9][..]), Some(3)));
        assert_eq!(series.entries().map(Result::unwrap).collect::<Vec<_>>(), [&[5][..], &[]]);
        for n in 1..bytes.len() {
            let part = Series::decode(&bytes[..n]).and_then(|m| m.entries().collect::<Result<Vec<_>>>());
            assert!(part.is_err(), "{n}");
        }
        assert_eq!(Series::decode(&[]).unwrap().entries().count(), 0);
        let counted = Series::decode(&[0, 0, 0, 2]).unwrap();
        assert_eq!((counted.container, counted.entries().count()), (DataType::NO_DATA, 2));
    }
}
