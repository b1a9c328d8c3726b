//! SERIES: entries one after another. Spec: rssl.md §4.6.

use super::DataType;
use super::common::{definitions, entries, optional_parts};
use super::flags::flags;
use super::header::Optional;
use super::sets::{ElementSets, FieldSets};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// What a [`Series`] has.
    SeriesFlags(u8) {
        /// Set definitions.
        SETS = 0x01,
        /// A summary.
        SUMMARY = 0x02,
        /// An estimate of the number of entries in all parts.
        HINT = 0x04,
    }
}

/// A series, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Series<'a> {
    /// What it has.
    pub flags: SeriesFlags,
    /// Type of the entries and of the summary.
    pub container: DataType,
    /// Set definitions, for [`FieldSets::decode`] or [`ElementSets::decode`].
    pub sets: Option<&'a [u8]>,
    /// What holds for all entries.
    pub summary: Option<&'a [u8]>,
    /// Estimate of the number of entries in all parts.
    pub hint: Option<u32>,
    /// Number of entries, as announced.
    pub count: u16,
    entries: &'a [u8],
}

impl<'a> Series<'a> {
    /// Reads what is before the entries. No bytes at all are an empty series.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut series = Self::default();
        if bytes.is_empty() {
            return Ok(series);
        }
        let mut r = Reader::new(bytes);
        series.flags = SeriesFlags(r.u8()?);
        series.container = super::header::container(&mut r)?;
        let has = |flag| series.flags.contains(flag);
        let parts = super::header::parts(
            &mut r,
            has(SeriesFlags::SETS),
            has(SeriesFlags::SUMMARY),
            has(SeriesFlags::HINT),
        )?;
        (series.sets, series.summary, series.hint) = (parts.sets, parts.summary, parts.hint);
        series.count = r.u16().named("series count")?;
        series.entries = r.rest();
        Ok(series)
    }

    /// The entries, each as its bytes.
    #[must_use]
    pub const fn entries(&self) -> SeriesEntries<'a> {
        SeriesEntries {
            r: Reader::new(self.entries),
            left: self.count,
            no_data: self.container.0 == DataType::NO_DATA.0,
        }
    }
}

definitions!(Series);

/// Entries of a [`Series`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct SeriesEntries<'a> {
    r: Reader<'a>,
    left: u16,
    no_data: bool,
}

impl<'a> SeriesEntries<'a> {
    fn read(&mut self) -> Result<&'a [u8]> {
        if self.no_data { Ok(&[]) } else { self.r.buf16().named("series entry") }
    }
}

entries!(SeriesEntries, &'a [u8]);

/// Writes a series. Optional parts, in the order of the methods, come before the first entry; the count is filled in
/// by [`SeriesWriter::finish`].
#[derive(Debug)]
pub struct SeriesWriter<'w, 'b> {
    head: Optional<'w, 'b>,
    container: DataType,
}

impl<'w, 'b> SeriesWriter<'w, 'b> {
    /// Begins a series.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is none.
    pub fn new(w: &'w mut Writer<'b>, container: DataType) -> Result<Self> {
        let flags_at = w.len();
        w.u8(0)?;
        super::header::write_container(w, container)?;
        Ok(Self { head: Optional::new(w, flags_at, "series", true), container })
    }

    /// An entry; `f` writes its content, and is not called if the series' container is [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// What `f` says; [`crate::Error::Full`], [`crate::Error::TooLong`] above 65535 bytes or 65535 entries.
    pub fn entry(&mut self, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
        let no_data = self.container == DataType::NO_DATA;
        let w = self.head.entry(None)?;
        if no_data { Ok(()) } else { w.nested16(f).named("series entry") }
    }

    /// Entries so far.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.head.count()
    }

    /// Bytes that the caller's writer holds, what was before the series included.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.head.written()
    }

    /// Fills in the count.
    ///
    /// # Errors
    /// [`crate::Error::Full`] if there is no entry and no room for the count.
    pub fn finish(self) -> Result<()> {
        self.head.finish()
    }
}

optional_parts!(SeriesWriter, SeriesFlags);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn a_series_comes_back() {
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
