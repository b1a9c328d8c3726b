//! VECTOR: entries with positions. Spec: rssl.md §4.5.

use super::DataType;
use super::common::{definitions, entries, optional_parts};
use super::flags::flags;
use super::header::Optional;
use super::sets::{ElementSets, FieldSets};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// What a [`Vector`] has.
    VectorFlags(u8) {
        /// Set definitions.
        SETS = 0x01,
        /// A summary.
        SUMMARY = 0x02,
        /// Permission data of single entries.
        PERMISSIONS = 0x04,
        /// An estimate of the number of entries in all parts.
        HINT = 0x08,
        /// Entries are inserted and deleted, so that later ones move.
        SORTING = 0x10,
    }
}

/// What an entry does at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VectorAction {
    /// Changes what is there.
    Update = 1,
    /// Replaces what is there.
    Set = 2,
    /// Empties what is there.
    Clear = 3,
    /// Puts an entry before what is there.
    Insert = 4,
    /// Removes what is there.
    Delete = 5,
}

impl VectorAction {
    const fn has_data(self) -> bool {
        !matches!(self, Self::Clear | Self::Delete)
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorEntry<'a> {
    /// What to do.
    pub action: VectorAction,
    /// Position, 0 to 2^30 - 1.
    pub index: u32,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Content; nothing on clearing and deletion.
    pub data: &'a [u8],
}

/// A vector, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vector<'a> {
    /// What it has.
    pub flags: VectorFlags,
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

impl<'a> Vector<'a> {
    /// Reads what is before the entries. No bytes at all are an empty vector.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut vector = Self::default();
        if bytes.is_empty() {
            return Ok(vector);
        }
        let mut r = Reader::new(bytes);
        vector.flags = VectorFlags(r.u8()?);
        vector.container = super::header::container(&mut r)?;
        let has = |flag| vector.flags.contains(flag);
        let parts = super::header::parts(
            &mut r,
            has(VectorFlags::SETS),
            has(VectorFlags::SUMMARY),
            has(VectorFlags::HINT),
        )?;
        (vector.sets, vector.summary, vector.hint) = (parts.sets, parts.summary, parts.hint);
        vector.count = r.u16().named("vector count")?;
        vector.entries = r.rest();
        Ok(vector)
    }

    /// The entries.
    #[must_use]
    pub const fn entries(&self) -> VectorEntries<'a> {
        VectorEntries {
            r: Reader::new(self.entries),
            left: self.count,
            permissions: self.flags.contains(VectorFlags::PERMISSIONS),
            no_data: self.container.0 == DataType::NO_DATA.0,
        }
    }
}

definitions!(Vector);

/// Entries of a [`Vector`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct VectorEntries<'a> {
    r: Reader<'a>,
    left: u16,
    permissions: bool,
    no_data: bool,
}

impl<'a> VectorEntries<'a> {
    fn read(&mut self) -> Result<VectorEntry<'a>> {
        let r = &mut self.r;
        let bad = r.malformed("vector action");
        let byte = r.u8().named("vector entry")?;
        let action = match byte & 0xF {
            1 => VectorAction::Update,
            2 => VectorAction::Set,
            3 => VectorAction::Clear,
            4 => VectorAction::Insert,
            5 => VectorAction::Delete,
            _ => return Err(bad),
        };
        let index = r.rb30().named("vector index")?;
        let perm = super::header::permission(r, self.permissions && byte & 0x10 != 0)?;
        let data =
            if self.no_data || !action.has_data() { &[] } else { r.buf16().named("vector entry data")? };
        Ok(VectorEntry { action, index, perm, data })
    }
}

entries!(VectorEntries, VectorEntry<'a>);

/// Writes a vector. Optional parts, in the order of the methods, come before the first entry; the count is filled in
/// by [`VectorWriter::finish`].
#[derive(Debug)]
pub struct VectorWriter<'w, 'b> {
    head: Optional<'w, 'b>,
    container: DataType,
}

impl<'w, 'b> VectorWriter<'w, 'b> {
    /// Begins a vector; `sorting` says that entries are inserted and deleted.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is none.
    pub fn new(w: &'w mut Writer<'b>, container: DataType, sorting: bool) -> Result<Self> {
        let flags_at = w.len();
        w.u8(0)?;
        super::header::write_container(w, container)?;
        let mut head = Optional::new(w, flags_at, "vector", true);
        head.set(if sorting { VectorFlags::SORTING.0 } else { 0 })?;
        Ok(Self { head, container })
    }

    /// An entry, with permission data if there is some; `f` writes its content, and is not called on clearing,
    /// deletion, or if the vector's container is [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// What `f` says; [`crate::Error::Full`], [`crate::Error::TooLong`] for an index of 2^30 and above, more than
    /// 65535 bytes or 65535 entries.
    pub fn entry(
        &mut self,
        action: VectorAction,
        index: u32,
        perm: Option<&[u8]>,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        let no_data = self.container == DataType::NO_DATA || !action.has_data();
        let w = self.head.entry(perm.is_some().then_some(VectorFlags::PERMISSIONS.0))?;
        w.u8(action as u8 | u8::from(perm.is_some()) << 4)?;
        w.rb30(index).named("vector index")?;
        if let Some(perm) = perm {
            w.buf15(perm).named("permission data")?;
        }
        if no_data { Ok(()) } else { w.nested16(f).named("vector entry") }
    }

    /// Fills in the count.
    ///
    /// # Errors
    /// [`crate::Error::Full`] if there is no entry and no room for the count.
    pub fn finish(self) -> Result<()> {
        self.head.finish()
    }
}

optional_parts!(VectorWriter, VectorFlags);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn a_vector_comes_back() {
        let bytes = to_vec(|w| {
            let mut vector = VectorWriter::new(w, DataType::OPAQUE, true)?;
            vector.sets(|w| w.bytes(&[0, 0]))?;
            vector.summary(|w| w.u8(9))?;
            vector.hint(300)?;
            vector.entry(VectorAction::Insert, 0, Some(&[1, 2]), |w| w.u8(5))?;
            vector.entry(VectorAction::Set, 5000, None, |w| w.u8(6))?;
            vector.entry(VectorAction::Delete, 70_000, None, |w| w.u8(6))?;
            vector.finish()
        })
        .unwrap();
        let vector = Vector::decode(&bytes).unwrap();
        assert!(vector.flags.contains(VectorFlags::SORTING));
        assert_eq!(
            (vector.sets, vector.summary, vector.hint),
            (Some(&[0, 0][..]), Some(&[9][..]), Some(300))
        );
        let entry = |action, index, perm, data| VectorEntry { action, index, perm, data };
        assert_eq!(
            vector.entries().map(Result::unwrap).collect::<Vec<_>>(),
            [
                entry(VectorAction::Insert, 0, Some(&[1, 2][..]), &[5][..]),
                entry(VectorAction::Set, 5000, None, &[6]),
                entry(VectorAction::Delete, 70_000, None, &[]),
            ]
        );
        for n in 1..bytes.len() {
            let part = Vector::decode(&bytes[..n]).and_then(|m| m.entries().collect::<Result<Vec<_>>>());
            assert!(part.is_err(), "{n}");
        }
        assert_eq!(Vector::decode(&[]).unwrap().entries().count(), 0);
        let bad = Vector::decode(&[0, 2, 0, 1, 6, 0, 0]).unwrap();
        assert!(bad.entries().next().unwrap().is_err());
    }
}
