//! VECTOR: entries with positions. Spec: rssl.md §4.5.

use super::DataType;
use super::container::{
    Entries, EntryContainer, EntryContainerWriter, Kind, SummaryKind, permission_flag, read_permission,
    write_permission,
};
use super::flags::flags;
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// Flags of a [`Vector`].
    VectorFlags(u8) {
        /// Set definitions are present.
        SETS = 0x01,
        /// A summary is present.
        SUMMARY = 0x02,
        /// Entries may have permission data.
        PERMISSIONS = 0x04,
        /// An estimate of the number of entries in all parts is present.
        HINT = 0x08,
        /// Entries may be inserted and deleted, which moves the entries after them.
        SORTING = 0x10,
    }
}

/// Effect of an entry at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VectorAction {
    /// Changes the entry at this index.
    Update = 1,
    /// Replaces the entry at this index.
    Set = 2,
    /// Empties the entry at this index.
    Clear = 3,
    /// Inserts an entry before the one at this index.
    Insert = 4,
    /// Removes the entry at this index.
    Delete = 5,
}

impl VectorAction {
    const fn has_data(self) -> bool {
        !matches!(self, Self::Clear | Self::Delete)
    }
}

/// One entry of a [`Vector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorEntry<'a> {
    /// Action.
    pub action: VectorAction,
    /// Position, 0 to 2^30 - 1.
    pub index: u32,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Content; empty if the action is [`VectorAction::Clear`] or [`VectorAction::Delete`].
    pub data: &'a [u8],
}

impl Kind for VectorFlags {
    const NAME: &'static str = "vector";
    const MAX_ENTRIES: u16 = u16::MAX;
    const PERMISSIONS: u8 = Self::PERMISSIONS.0;
    type Entry<'a> = VectorEntry<'a>;

    #[inline]
    fn has(self, flags: u8) -> bool {
        self.contains(Self(flags))
    }

    fn read_entry<'a>(r: &mut Reader<'a>, permissions: bool, container: DataType) -> Result<VectorEntry<'a>> {
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
        let perm = read_permission(r, permissions, byte)?;
        let no_data = container == DataType::NO_DATA || !action.has_data();
        let data = if no_data { &[] } else { r.buf16().named("vector entry data")? };
        Ok(VectorEntry { action, index, perm, data })
    }
}

impl SummaryKind for VectorFlags {
    const SETS: u8 = Self::SETS.0;
    const SUMMARY: u8 = Self::SUMMARY.0;
    const HINT: u8 = Self::HINT.0;
    const COUNT: &'static str = "vector count";

    fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// A vector, over borrowed bytes.
pub type Vector<'a> = EntryContainer<'a, VectorFlags>;

/// Entries of a [`Vector`].
pub type VectorEntries<'a> = Entries<'a, VectorFlags>;

/// Writes a vector.
pub type VectorWriter<'w, 'b> = EntryContainerWriter<'w, 'b, VectorFlags>;

impl<'w, 'b> VectorWriter<'w, 'b> {
    /// Begins a vector; `sorting` announces that entries are inserted and deleted.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is not a container type.
    pub fn new(w: &'w mut Writer<'b>, container: DataType, sorting: bool) -> Result<Self> {
        let mut vector = Self::begin(w, &[], container)?;
        if sorting {
            vector.set_flags(VectorFlags::SORTING.0)?;
        }
        Ok(vector)
    }

    /// An entry, with its permission data if present. `f` writes its content, and is not called if the action is
    /// [`VectorAction::Clear`] or [`VectorAction::Delete`], or the vector's container is [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// Those of `f`; [`crate::Error::Full`], [`crate::Error::TooLong`] for an index of 2^30 and above, more than
    /// 65535 bytes or 65535 entries.
    pub fn entry(
        &mut self,
        action: VectorAction,
        index: u32,
        perm: Option<&[u8]>,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        let no_data = self.container() == DataType::NO_DATA || !action.has_data();
        let w = self.next_entry(perm)?;
        w.u8(action as u8 | permission_flag(perm))?;
        w.rb30(index).named("vector index")?;
        write_permission(w, perm)?;
        if no_data { Ok(()) } else { w.nested16(f).named("vector entry") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn vector_round_trips_and_every_prefix_is_an_error() {
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
