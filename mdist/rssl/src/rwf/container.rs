//! The common code of maps, vectors, series and filter lists. All consist of flags, the type of the entries,
//! optional parts, a count and the entries. Spec: rssl.md §4.4 to §4.7.

use core::marker::PhantomData;

use super::DataType;
use super::sets::ElementSets;
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

/// One kind of container: a map, a vector, a series or a filter list. The type of its flags implements this
/// trait.
pub trait Kind: Copy {
    /// Name of the container in errors.
    const NAME: &'static str;
    /// Largest number of entries; above 255 the count has two bytes instead of one.
    const MAX_ENTRIES: u16;
    /// Flag of permission data in entries; 0 if entries have none.
    const PERMISSIONS: u8;
    /// One entry.
    type Entry<'a>;

    /// Whether all of `flags` are set.
    fn has(self, flags: u8) -> bool;

    /// Reads one entry. `permissions`: entries may have permission data. `container`: type of their content.
    ///
    /// # Errors
    /// Cut short, or an action that does not exist.
    fn read_entry<'a>(r: &mut Reader<'a>, permissions: bool, container: DataType) -> Result<Self::Entry<'a>>;
}

/// A [`Kind`] with set definitions, a summary and a 30-bit count hint.
pub trait SummaryKind: Kind + Default {
    /// Flag of set definitions.
    const SETS: u8;
    /// Flag of a summary.
    const SUMMARY: u8;
    /// Flag of a count hint.
    const HINT: u8;
    /// Name of the count in errors.
    const COUNT: &'static str;

    /// Flags from the byte on the wire.
    fn from_bits(bits: u8) -> Self;
}

/// A vector or a series, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryContainer<'a, K> {
    /// Flags, including those of optional parts.
    pub flags: K,
    /// Type of the entries and of the summary.
    pub container: DataType,
    /// Set definitions, for [`FieldSets::decode`](super::FieldSets::decode) or [`ElementSets::decode`].
    pub sets: Option<&'a [u8]>,
    /// Data that hold for all entries.
    pub summary: Option<&'a [u8]>,
    /// Estimate of the number of entries in all parts.
    pub hint: Option<u32>,
    /// Number of entries, as announced.
    pub count: u16,
    entries: &'a [u8],
}

impl<'a, K: SummaryKind> EntryContainer<'a, K> {
    /// Reads everything before the entries. No bytes at all are an empty container.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes);
        let flags = K::from_bits(r.u8()?);
        let container = read_container(&mut r)?;
        let Parts { sets, summary, hint } = Parts::read(&mut r, flags)?;
        let count = r.u16().named(K::COUNT)?;
        Ok(Self { flags, container, sets, summary, hint, count, entries: r.rest() })
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> Entries<'a, K> {
        Entries::new(self.entries, self.count, self.flags, self.container)
    }

    /// The set definitions, if the entries are element lists.
    ///
    /// # Errors
    /// As [`ElementSets::decode`].
    pub fn element_sets(&self) -> Result<ElementSets<'a>> {
        ElementSets::decode(self.sets.unwrap_or_default())
    }
}

/// The optional parts before the entries of a map, a vector or a series.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) sets: Option<&'a [u8]>,
    pub(super) summary: Option<&'a [u8]>,
    pub(super) hint: Option<u32>,
}

impl<'a> Parts<'a> {
    /// Reads the optional parts whose flags are set.
    pub(super) fn read<K: SummaryKind>(r: &mut Reader<'a>, flags: K) -> Result<Self> {
        Ok(Self {
            sets: flags.has(K::SETS).then(|| r.buf15().named("set definitions")).transpose()?,
            summary: flags.has(K::SUMMARY).then(|| r.buf15().named("summary")).transpose()?,
            hint: flags.has(K::HINT).then(|| r.rb30().named("count hint")).transpose()?,
        })
    }
}

/// Entries of a container; ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a, K> {
    r: Reader<'a>,
    left: u16,
    permissions: bool,
    container: DataType,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Entries<'a, K> {
    pub(super) fn new(entries: &'a [u8], count: u16, flags: K, container: DataType) -> Self {
        let permissions = K::PERMISSIONS != 0 && flags.has(K::PERMISSIONS);
        Self { r: Reader::new(entries), left: count, permissions, container, kind: PhantomData }
    }
}

impl<'a, K: Kind> Iterator for Entries<'a, K> {
    type Item = Result<K::Entry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = K::read_entry(&mut self.r, self.permissions, self.container);
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

/// Reads the type of the entries.
pub(super) fn read_container(r: &mut Reader<'_>) -> Result<DataType> {
    let bad = r.malformed("container type");
    DataType::from_container_byte(r.u8().named("container type")?).ok_or(bad)
}

/// Writes the type of the entries.
pub(super) fn write_container(w: &mut Writer<'_>, container: DataType) -> Result<()> {
    let bad = Error::Malformed { what: "container type", at: w.len() };
    w.u8(container.container_byte().ok_or(bad)?)
}

/// Flag in the action byte of an entry that has permission data.
const ENTRY_PERMISSION: u8 = 0x10;

/// Reads the permission data of an entry whose first byte is `action`, if present.
#[inline]
pub(super) fn read_permission<'a>(
    r: &mut Reader<'a>,
    permissions: bool,
    action: u8,
) -> Result<Option<&'a [u8]>> {
    let present = permissions && action & ENTRY_PERMISSION != 0;
    present.then(|| r.buf15().named("permission data")).transpose()
}

/// The flag in the action byte of an entry with this permission data.
pub(super) const fn permission_flag(perm: Option<&[u8]>) -> u8 {
    if perm.is_some() { ENTRY_PERMISSION } else { 0 }
}

/// Writes the permission data of an entry, if it has some.
pub(super) fn write_permission(w: &mut Writer<'_>, perm: Option<&[u8]>) -> Result<()> {
    match perm {
        Some(perm) => w.buf15(perm).named("permission data"),
        None => Ok(()),
    }
}

/// Writes a container with entries. Optional parts, in the order of the methods, come before the first entry;
/// [`EntryContainerWriter::finish`] fills in the count.
#[derive(Debug)]
pub struct EntryContainerWriter<'w, 'b, K> {
    w: &'w mut Writer<'b>,
    container: DataType,
    flags_at: usize,
    flags: u8,
    /// Number of the last optional part that was written; 0 before the first.
    last_part: u8,
    /// Offset of the count; `None` until the first entry or `finish`, because optional parts may still follow.
    count_at: Option<usize>,
    count: u16,
    kind: PhantomData<K>,
}

impl<'w, 'b, K: Kind> EntryContainerWriter<'w, 'b, K> {
    /// Writes the flags, then the bytes `between`, then the type of the entries.
    pub(super) fn begin(w: &'w mut Writer<'b>, between: &[u8], container: DataType) -> Result<Self> {
        let flags_at = w.len();
        w.u8(0)?;
        w.bytes(between)?;
        write_container(w, container)?;
        Ok(Self {
            w,
            container,
            flags_at,
            flags: 0,
            last_part: 0,
            count_at: None,
            count: 0,
            kind: PhantomData,
        })
    }

    /// Type of the entries.
    pub(super) const fn container(&self) -> DataType {
        self.container
    }

    /// Sets flags of the whole container.
    pub(super) fn set_flags(&mut self, flags: u8) -> Result<()> {
        self.flags |= flags;
        self.w.set_u8(self.flags_at, self.flags)
    }

    /// Writes the optional part `number`, unless it or a later one was written.
    pub(super) fn part(
        &mut self,
        number: u8,
        flag: u8,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        if self.last_part >= number || self.count_at.is_some() {
            return Err(Error::Malformed { what: K::NAME, at: self.w.len() });
        }
        self.last_part = number;
        f(self.w).named(K::NAME)?;
        self.set_flags(flag)
    }

    /// Reserves space for the count, if that has not happened yet, and returns its offset.
    fn begin_entries(&mut self) -> Result<usize> {
        if let Some(at) = self.count_at {
            return Ok(at);
        }
        let at = self.w.len();
        if K::MAX_ENTRIES > 0xFF { self.w.u16(0) } else { self.w.u8(0) }?;
        self.count_at = Some(at);
        Ok(at)
    }

    /// Counts one more entry, and returns the writer for it.
    pub(super) fn next_entry(&mut self, perm: Option<&[u8]>) -> Result<&mut Writer<'b>> {
        self.begin_entries()?;
        if self.count == K::MAX_ENTRIES {
            let max = usize::from(K::MAX_ENTRIES);
            return Err(Error::TooLong { what: K::NAME, len: max + 1, max });
        }
        self.count += 1;
        if perm.is_some() {
            self.set_flags(K::PERMISSIONS)?;
        }
        Ok(self.w)
    }

    /// Number of entries so far.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Bytes in the caller's writer, including those before the container.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.w.len()
    }

    /// Fills in the count.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no entry and no space for the count.
    pub fn finish(mut self) -> Result<()> {
        let at = self.begin_entries()?;
        if K::MAX_ENTRIES > 0xFF {
            self.w.set_u16(at, self.count)
        } else {
            self.w.set_u8(at, self.count as u8)
        }
    }
}

/// Methods for the optional parts. They must be called in this order, after `key_field` of a map.
impl<'b, K: SummaryKind> EntryContainerWriter<'_, 'b, K> {
    /// Set definitions, written by `f` with [`super::sets::write_field_sets`] or
    /// [`super::sets::write_element_sets`].
    ///
    /// # Errors
    /// Those of `f`; [`Error::Full`], [`Error::Malformed`] if it comes too late.
    pub fn sets(&mut self, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
        self.part(2, K::SETS, |w| w.nested15(f))
    }

    /// A summary, written by `f`.
    ///
    /// # Errors
    /// Those of `f`; [`Error::Full`], [`Error::Malformed`] if it comes too late.
    pub fn summary(&mut self, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
        self.part(3, K::SUMMARY, |w| w.nested15(f))
    }

    /// An estimate of the number of entries in all parts.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] at 2^30 and above, [`Error::Malformed`] if it comes too late.
    pub fn hint(&mut self, entries: u32) -> Result<()> {
        self.part(4, K::HINT, |w| w.rb30(entries))
    }
}
