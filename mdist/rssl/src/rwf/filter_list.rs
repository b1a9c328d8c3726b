//! FILTER_LIST: entries with small ids, as the source directory uses them. Spec: rssl.md §4.7.

use super::DataType;
use super::container::{
    Entries, EntryContainerWriter, Kind, permission_flag, read_container, read_permission, write_container,
    write_permission,
};
use super::flags::flags;
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// Flags of a [`FilterList`].
    FilterListFlags(u8) {
        /// Entries may have permission data.
        PERMISSIONS = 0x01,
        /// An estimate of the number of entries in all parts is present.
        HINT = 0x02,
    }
}

/// Effect of an entry on the entry of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterAction {
    /// Changes it.
    Update = 1,
    /// Replaces it.
    Set = 2,
    /// Empties it.
    Clear = 3,
}

/// One entry of a [`FilterList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterEntry<'a> {
    /// Action.
    pub action: FilterAction,
    /// Id.
    pub id: u8,
    /// Type of the content: the list's, unless the entry has its own.
    pub container: DataType,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Content; empty if the action is [`FilterAction::Clear`].
    pub data: &'a [u8],
}

/// A filter list, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilterList<'a> {
    /// Flags, including that of the hint.
    pub flags: FilterListFlags,
    /// Type of entries without their own type.
    pub container: DataType,
    /// Estimate of the number of entries in all parts.
    pub hint: Option<u8>,
    /// Number of entries, as announced.
    pub count: u8,
    entries: &'a [u8],
}

impl<'a> FilterList<'a> {
    /// Reads everything before the entries. No bytes at all are an empty list.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes);
        let flags = FilterListFlags(r.u8()?);
        let container = read_container(&mut r)?;
        let has_hint = flags.contains(FilterListFlags::HINT);
        let hint = has_hint.then(|| r.u8().named("count hint")).transpose()?;
        let count = r.u8().named("filter list count")?;
        Ok(Self { flags, container, hint, count, entries: r.rest() })
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> FilterEntries<'a> {
        Entries::new(self.entries, self.count.into(), self.flags, self.container)
    }
}

/// Flag in the action byte of an entry that has its own container type.
const ENTRY_CONTAINER: u8 = 0x20;

impl Kind for FilterListFlags {
    const NAME: &'static str = "filter list";
    const MAX_ENTRIES: u16 = 0xFF;
    const PERMISSIONS: u8 = Self::PERMISSIONS.0;
    type Entry<'a> = FilterEntry<'a>;

    #[inline]
    fn has(self, flags: u8) -> bool {
        self.contains(Self(flags))
    }

    fn read_entry<'a>(r: &mut Reader<'a>, permissions: bool, container: DataType) -> Result<FilterEntry<'a>> {
        let bad = r.malformed("filter action");
        let byte = r.u8().named("filter entry")?;
        let action = match byte & 0xF {
            1 => FilterAction::Update,
            2 => FilterAction::Set,
            3 => FilterAction::Clear,
            _ => return Err(bad),
        };
        let id = r.u8().named("filter id")?;
        let container = if byte & ENTRY_CONTAINER != 0 { read_container(r)? } else { container };
        let perm = read_permission(r, permissions, byte)?;
        let no_data = container == DataType::NO_DATA || action == FilterAction::Clear;
        let data = if no_data { &[] } else { r.buf16().named("filter entry data")? };
        Ok(FilterEntry { action, id, container, perm, data })
    }
}

/// Entries of a [`FilterList`].
pub type FilterEntries<'a> = Entries<'a, FilterListFlags>;

/// Writes a filter list.
pub type FilterListWriter<'w, 'b> = EntryContainerWriter<'w, 'b, FilterListFlags>;

impl<'w, 'b> FilterListWriter<'w, 'b> {
    /// Begins a list; `container` is the type of entries without their own type.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is not a container type.
    pub fn new(w: &'w mut Writer<'b>, container: DataType) -> Result<Self> {
        Self::begin(w, &[], container)
    }

    /// An estimate of the number of entries in all parts; before the first entry.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if it comes too late.
    pub fn hint(&mut self, entries: u8) -> Result<()> {
        self.part(1, FilterListFlags::HINT.0, |w| w.u8(entries))
    }

    /// An entry of the list's type; `f` writes its content, and is not called if the action is
    /// [`FilterAction::Clear`].
    ///
    /// # Errors
    /// Those of `f`; [`crate::Error::Full`], [`crate::Error::TooLong`] above 65535 bytes or 255 entries.
    pub fn entry(
        &mut self,
        action: FilterAction,
        id: u8,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        self.entry_with(action, id, self.container(), None, f)
    }

    /// An entry of any type, with its permission data if present.
    ///
    /// # Errors
    /// As [`FilterListWriter::entry`].
    pub fn entry_with(
        &mut self,
        action: FilterAction,
        id: u8,
        container: DataType,
        perm: Option<&[u8]>,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        let has_own_type = container != self.container();
        let w = self.next_entry(perm)?;
        w.u8(action as u8 | permission_flag(perm) | if has_own_type { ENTRY_CONTAINER } else { 0 })?;
        w.u8(id)?;
        if has_own_type {
            write_container(w, container)?;
        }
        write_permission(w, perm)?;
        if container == DataType::NO_DATA || action == FilterAction::Clear {
            return Ok(());
        }
        w.nested16(f).named("filter entry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn filter_list_round_trips_and_every_prefix_is_an_error() {
        let bytes = to_vec(|w| {
            let mut list = FilterListWriter::new(w, DataType::ELEMENT_LIST)?;
            list.hint(3)?;
            list.entry(FilterAction::Set, 2, |w| w.bytes(&[8, 0, 0]))?;
            list.entry_with(FilterAction::Update, 6, DataType::MAP, Some(&[4]), |w| w.u8(0))?;
            list.entry(FilterAction::Clear, 3, |w| w.u8(9))?;
            list.finish()
        })
        .unwrap();
        let list = FilterList::decode(&bytes).unwrap();
        assert_eq!((list.container, list.hint, list.count), (DataType::ELEMENT_LIST, Some(3), 3));
        let entry = |action, id, container, perm, data| FilterEntry { action, id, container, perm, data };
        assert_eq!(
            list.entries().map(Result::unwrap).collect::<Vec<_>>(),
            [
                entry(FilterAction::Set, 2, DataType::ELEMENT_LIST, None, &[8, 0, 0][..]),
                entry(FilterAction::Update, 6, DataType::MAP, Some(&[4][..]), &[0]),
                entry(FilterAction::Clear, 3, DataType::ELEMENT_LIST, None, &[]),
            ]
        );
        for n in 1..bytes.len() {
            let part = FilterList::decode(&bytes[..n]).and_then(|m| m.entries().collect::<Result<Vec<_>>>());
            assert!(part.is_err(), "{n}");
        }
        assert_eq!(FilterList::decode(&[]).unwrap().entries().count(), 0);
    }

    #[test]
    fn filter_list_of_256_entries_is_too_long() {
        let many = to_vec(|w| {
            let mut list = FilterListWriter::new(w, DataType::NO_DATA)?;
            for _ in 0..256 {
                list.entry(FilterAction::Set, 1, |_| Ok(()))?;
            }
            list.finish()
        });
        assert!(matches!(many, Err(crate::Error::TooLong { .. })));
    }
}
