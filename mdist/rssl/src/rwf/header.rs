//! What maps, vectors, series and filter lists begin with: flags, a container type, optional parts, a count.

use super::DataType;
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

/// Reads the type of the entries.
pub(super) fn container(r: &mut Reader<'_>) -> Result<DataType> {
    let bad = r.malformed("container type");
    DataType::from_container_byte(r.u8().named("container type")?).ok_or(bad)
}

/// Writes the type of the entries.
pub(super) fn write_container(w: &mut Writer<'_>, container: DataType) -> Result<()> {
    let bad = Error::Malformed { what: "container type", at: w.len() };
    w.u8(container.container_byte().ok_or(bad)?)
}

/// What maps, vectors and series may have before their entries.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) sets: Option<&'a [u8]>,
    pub(super) summary: Option<&'a [u8]>,
    pub(super) hint: Option<u32>,
}

/// Reads those parts that are there.
pub(super) fn parts<'a>(r: &mut Reader<'a>, sets: bool, summary: bool, hint: bool) -> Result<Parts<'a>> {
    Ok(Parts {
        sets: sets.then(|| r.buf15().named("set definitions")).transpose()?,
        summary: summary.then(|| r.buf15().named("summary")).transpose()?,
        hint: hint.then(|| r.rb30().named("count hint")).transpose()?,
    })
}

/// Reads an entry's permission data, if it is there.
pub(super) fn permission<'a>(r: &mut Reader<'a>, there: bool) -> Result<Option<&'a [u8]>> {
    there.then(|| r.buf15().named("permission data")).transpose()
}

/// Writes the optional parts in their order, their flags, the entries and their count.
#[derive(Debug)]
pub(super) struct Optional<'w, 'b> {
    w: &'w mut Writer<'b>,
    what: &'static str,
    flags_at: usize,
    flags: u8,
    /// The last part that was written.
    stage: u8,
    /// Where the count is, once the optional parts are over.
    count_at: Option<usize>,
    count: u16,
    /// The count has two bytes instead of one.
    wide: bool,
}

impl<'w, 'b> Optional<'w, 'b> {
    pub(super) const fn new(w: &'w mut Writer<'b>, flags_at: usize, what: &'static str, wide: bool) -> Self {
        Self { w, what, flags_at, flags: 0, stage: 0, count_at: None, count: 0, wide }
    }

    /// Sets flags of the whole container.
    pub(super) fn set(&mut self, flags: u8) -> Result<()> {
        self.flags |= flags;
        self.w.set_u8(self.flags_at, self.flags)
    }

    /// The optional part number `stage`, if no later one was written.
    pub(super) fn part(
        &mut self,
        stage: u8,
        flag: u8,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        if self.stage >= stage || self.count_at.is_some() {
            return Err(Error::Malformed { what: self.what, at: self.w.len() });
        }
        self.stage = stage;
        f(self.w).named(self.what)?;
        self.set(flag)
    }

    fn begin(&mut self) -> Result<usize> {
        if let Some(at) = self.count_at {
            return Ok(at);
        }
        let at = self.w.len();
        if self.wide { self.w.u16(0) } else { self.w.u8(0) }?;
        self.count_at = Some(at);
        Ok(at)
    }

    /// Counts one more entry, and gives the place to write it; sets `flag`.
    pub(super) fn entry(&mut self, flag: Option<u8>) -> Result<&mut Writer<'b>> {
        self.begin()?;
        let max = if self.wide { u16::MAX } else { u16::from(u8::MAX) };
        if self.count == max {
            let max = usize::from(max);
            return Err(Error::TooLong { what: self.what, len: max + 1, max });
        }
        self.count += 1;
        if let Some(flag) = flag {
            self.set(flag)?;
        }
        Ok(self.w)
    }

    /// Entries so far.
    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    /// Bytes in the writer.
    pub(super) const fn written(&self) -> usize {
        self.w.len()
    }

    /// Fills in the count.
    pub(super) fn finish(mut self) -> Result<()> {
        let at = self.begin()?;
        if self.wide { self.w.set_u16(at, self.count) } else { self.w.set_u8(at, self.count as u8) }
    }
}
