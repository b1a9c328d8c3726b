//! FILTER_LIST: entries with small ids, as the source directory uses them. Spec: rssl.md §4.7.

use super::DataType;
use super::common::entries;
use super::flags::flags;
use super::header::Optional;
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// What a [`FilterList`] has.
    FilterListFlags(u8) {
        /// Permission data of single entries.
        PERMISSIONS = 0x01,
        /// An estimate of the number of entries in all parts.
        HINT = 0x02,
    }
}

/// What an entry does to the entry of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterAction {
    /// Changes it.
    Update = 1,
    /// Replaces it.
    Set = 2,
    /// Empties it.
    Clear = 3,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterEntry<'a> {
    /// What to do.
    pub action: FilterAction,
    /// Id.
    pub id: u8,
    /// Type of the content: the list's, unless the entry says another.
    pub container: DataType,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Content; nothing on clearing.
    pub data: &'a [u8],
}

/// A filter list, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilterList<'a> {
    /// What it has.
    pub flags: FilterListFlags,
    /// Type of entries that do not say another.
    pub container: DataType,
    /// Estimate of the number of entries in all parts.
    pub hint: Option<u8>,
    /// Number of entries, as announced.
    pub count: u8,
    entries: &'a [u8],
}

impl<'a> FilterList<'a> {
    /// Reads what is before the entries. No bytes at all are an empty list.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut list = Self::default();
        if bytes.is_empty() {
            return Ok(list);
        }
        let mut r = Reader::new(bytes);
        list.flags = FilterListFlags(r.u8()?);
        list.container = super::header::container(&mut r)?;
        if list.flags.contains(FilterListFlags::HINT) {
            list.hint = Some(r.u8().named("count hint")?);
        }
        list.count = r.u8().named("filter list count")?;
        list.entries = r.rest();
        Ok(list)
    }

    /// The entries.
    #[must_use]
    pub const fn entries(&self) -> FilterEntries<'a> {
        FilterEntries {
            r: Reader::new(self.entries),
            left: self.count,
            permissions: self.flags.contains(FilterListFlags::PERMISSIONS),
            container: self.container,
        }
    }
}

/// Entries of a [`FilterList`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct FilterEntries<'a> {
    r: Reader<'a>,
    left: u8,
    permissions: bool,
    container: DataType,
}

impl<'a> FilterEntries<'a> {
    fn read(&mut self) -> Result<FilterEntry<'a>> {
        let r = &mut self.r;
        let bad = r.malformed("filter action");
        let byte = r.u8().named("filter entry")?;
        let action = match byte & 0xF {
            1 => FilterAction::Update,
            2 => FilterAction::Set,
            3 => FilterAction::Clear,
            _ => return Err(bad),
        };
        let id = r.u8().named("filter id")?;
        let container = if byte & 0x20 != 0 { super::header::container(r)? } else { self.container };
        let perm = super::header::permission(r, self.permissions && byte & 0x10 != 0)?;
        let data = if container == DataType::NO_DATA || action == FilterAction::Clear {
            &[]
        } else {
            r.buf16().named("filter entry data")?
        };
        Ok(FilterEntry { action, id, container, perm, data })
    }
}

entries!(FilterEntries, FilterEntry<'a>);

/// Writes a filter list; the count is filled in by [`FilterListWriter::finish`].
#[derive(Debug)]
pub struct FilterListWriter<'w, 'b> {
    head: Optional<'w, 'b>,
    container: DataType,
}

impl<'w, 'b> FilterListWriter<'w, 'b> {
    /// Begins a list; `container` is the type of entries that do not say another.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is none.
    pub fn new(w: &'w mut Writer<'b>, container: DataType) -> Result<Self> {
        let flags_at = w.len();
        w.u8(0)?;
        super::header::write_container(w, container)?;
        Ok(Self { head: Optional::new(w, flags_at, "filter list", false), container })
    }

    /// An estimate of the number of entries in all parts; before the first entry.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if it comes too late.
    pub fn hint(&mut self, entries: u8) -> Result<()> {
        self.head.part(1, FilterListFlags::HINT.0, |w| w.u8(entries))
    }

    /// An entry of the list's type; `f` writes its content, and is not called on clearing.
    ///
    /// # Errors
    /// What `f` says; [`crate::Error::Full`], [`crate::Error::TooLong`] above 65535 bytes or 255 entries.
    pub fn entry(
        &mut self,
        action: FilterAction,
        id: u8,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        self.entry_with(action, id, self.container, None, f)
    }

    /// An entry of any type, with permission data.
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
        let own = container != self.container;
        let w = self.head.entry(perm.is_some().then_some(FilterListFlags::PERMISSIONS.0))?;
        w.u8(action as u8 | u8::from(perm.is_some()) << 4 | u8::from(own) << 5)?;
        w.u8(id)?;
        if own {
            super::header::write_container(w, container)?;
        }
        if let Some(perm) = perm {
            w.buf15(perm).named("permission data")?;
        }
        if container == DataType::NO_DATA || action == FilterAction::Clear {
            return Ok(());
        }
        w.nested16(f).named("filter entry")
    }

    /// Fills in the count.
    ///
    /// # Errors
    /// [`crate::Error::Full`] if there is no entry and no room for the count.
    pub fn finish(self) -> Result<()> {
        self.head.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn a_list_comes_back() {
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
    fn the_count_has_one_byte() {
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
