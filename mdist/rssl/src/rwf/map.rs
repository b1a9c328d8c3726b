//! MAP: entries with keys. Spec: rssl.md §4.4.

use super::container::{
    Entries, EntryContainerWriter, Kind, Parts, SummaryKind, permission_flag, read_container,
    read_permission, write_permission,
};
use super::flags::flags;
use super::{DataType, Short};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// Flags of a [`Map`].
    MapFlags(u8) {
        /// Set definitions are present.
        SETS = 0x01,
        /// A summary is present.
        SUMMARY = 0x02,
        /// Entries may have permission data.
        PERMISSIONS = 0x04,
        /// An estimate of the number of entries in all parts is present.
        HINT = 0x08,
        /// The field that the keys are values of is present.
        KEY_FIELD = 0x10,
    }
}

/// Effect of an entry on the entry of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapAction {
    /// Changes it.
    Update = 1,
    /// Adds it, or replaces it if it exists.
    Add = 2,
    /// Removes it.
    Delete = 3,
}

/// One entry of a [`Map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapEntry<'a> {
    /// Action.
    pub action: MapAction,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Key, a value of the map's key type.
    pub key: &'a [u8],
    /// Content; empty if the action is [`MapAction::Delete`].
    pub data: &'a [u8],
}

/// A map, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Map<'a> {
    /// Flags, including those of optional parts.
    pub flags: MapFlags,
    /// Primitive type of the keys.
    pub key_type: DataType,
    /// Type of the entries and of the summary.
    pub container: DataType,
    /// Field that the keys are values of.
    pub key_field: Option<i16>,
    /// Set definitions, for [`FieldSets::decode`](super::FieldSets::decode) or
    /// [`ElementSets::decode`](super::ElementSets::decode).
    pub sets: Option<&'a [u8]>,
    /// Data that hold for all entries.
    pub summary: Option<&'a [u8]>,
    /// Estimate of the number of entries in all parts.
    pub hint: Option<u32>,
    /// Number of entries, as announced.
    pub count: u16,
    entries: &'a [u8],
}

impl<'a> Map<'a> {
    /// Reads everything before the entries. No bytes at all are an empty map.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes);
        let flags = MapFlags(r.u8()?);
        let key_type = DataType(r.u8().named("map key type")?);
        let container = read_container(&mut r)?;
        let has_key_field = flags.contains(MapFlags::KEY_FIELD);
        let key_field = has_key_field.then(|| r.i16().named("map key field")).transpose()?;
        let Parts { sets, summary, hint } = Parts::read(&mut r, flags)?;
        let count = r.u16().named(MapFlags::COUNT)?;
        Ok(Self { flags, key_type, container, key_field, sets, summary, hint, count, entries: r.rest() })
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> MapEntries<'a> {
        Entries::new(self.entries, self.count, self.flags, self.container)
    }
}

impl Kind for MapFlags {
    const NAME: &'static str = "map";
    const MAX_ENTRIES: u16 = u16::MAX;
    const PERMISSIONS: u8 = Self::PERMISSIONS.0;
    type Entry<'a> = MapEntry<'a>;

    #[inline]
    fn has(self, flags: u8) -> bool {
        self.contains(Self(flags))
    }

    fn read_entry<'a>(r: &mut Reader<'a>, permissions: bool, container: DataType) -> Result<MapEntry<'a>> {
        let bad = r.malformed("map action");
        let byte = r.u8().named("map entry")?;
        let action = match byte & 0xF {
            1 => MapAction::Update,
            2 => MapAction::Add,
            3 => MapAction::Delete,
            _ => return Err(bad),
        };
        let perm = read_permission(r, permissions, byte)?;
        let key = r.buf15().named("map key")?;
        let no_data = container == DataType::NO_DATA || action == MapAction::Delete;
        let data = if no_data { &[] } else { r.buf16().named("map entry data")? };
        Ok(MapEntry { action, perm, key, data })
    }
}

impl SummaryKind for MapFlags {
    const SETS: u8 = Self::SETS.0;
    const SUMMARY: u8 = Self::SUMMARY.0;
    const HINT: u8 = Self::HINT.0;
    const COUNT: &'static str = "map count";

    fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// Entries of a [`Map`].
pub type MapEntries<'a> = Entries<'a, MapFlags>;

/// Writes a map. The methods that add an entry have the errors of [`MapWriter::entry`].
pub type MapWriter<'w, 'b> = EntryContainerWriter<'w, 'b, MapFlags>;

impl<'w, 'b> MapWriter<'w, 'b> {
    /// Begins a map.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is not a container type.
    pub fn new(w: &'w mut Writer<'b>, key_type: DataType, container: DataType) -> Result<Self> {
        Self::begin(w, &[key_type.0], container)
    }

    /// Names the field that the keys are values of.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if it comes too late.
    pub fn key_field(&mut self, id: i16) -> Result<()> {
        self.part(1, MapFlags::KEY_FIELD.0, |w| w.i16(id))
    }

    /// An entry; `f` writes its content, and is not called if the action is [`MapAction::Delete`] or the map's
    /// container is [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// Those of `f`; [`crate::Error::Full`], [`crate::Error::TooLong`] for a key above 32767 or content above 65535
    /// bytes, or more than 65535 entries.
    pub fn entry(
        &mut self,
        action: MapAction,
        key: &[u8],
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        self.entry_with(action, None, key, f)
    }

    /// An entry with permission data.
    pub fn entry_with(
        &mut self,
        action: MapAction,
        perm: Option<&[u8]>,
        key: &[u8],
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        let no_data = self.container() == DataType::NO_DATA || action == MapAction::Delete;
        let w = self.next_entry(perm)?;
        w.u8(action as u8 | permission_flag(perm))?;
        write_permission(w, perm)?;
        w.buf15(key).named("map key")?;
        if no_data { Ok(()) } else { w.nested16(f).named("map entry") }
    }

    /// An entry whose key is an unsigned integer.
    pub fn uint_entry(
        &mut self,
        action: MapAction,
        key: u64,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        let key: Short = super::uint::to_bytes(key);
        self.entry(action, &key, f)
    }

    /// Removes an entry.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.entry(MapAction::Delete, key, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::wire::to_vec;

    #[test]
    fn map_round_trips_and_every_prefix_is_an_error() {
        let bytes = to_vec(|w| {
            let mut map = MapWriter::new(w, DataType::UINT, DataType::OPAQUE)?;
            map.key_field(3426)?;
            map.sets(|w| w.bytes(&[0, 0]))?;
            map.summary(|w| w.u8(9))?;
            map.hint(100)?;
            map.uint_entry(MapAction::Add, 300, |w| w.u8(5))?;
            map.entry_with(MapAction::Update, Some(&[1, 2]), &[7], |w| w.bytes(&[]))?;
            map.delete(&[8])?;
            map.finish()
        })
        .unwrap();
        let map = Map::decode(&bytes).unwrap();
        assert_eq!(
            (map.key_type, map.container, map.key_field),
            (DataType::UINT, DataType::OPAQUE, Some(3426))
        );
        assert_eq!((map.sets, map.summary, map.hint), (Some(&[0, 0][..]), Some(&[9][..]), Some(100)));
        let entries: Vec<_> = map.entries().map(Result::unwrap).collect();
        let entry = |action, perm, key, data| MapEntry { action, perm, key, data };
        assert_eq!(
            entries,
            [
                entry(MapAction::Add, None, &[1, 44], &[5]),
                entry(MapAction::Update, Some(&[1, 2]), &[7], &[]),
                entry(MapAction::Delete, None, &[8], &[]),
            ]
        );
        for n in 1..bytes.len() {
            let part = Map::decode(&bytes[..n]).and_then(|m| m.entries().collect::<Result<Vec<_>>>());
            assert!(part.is_err(), "{n}");
        }
    }

    #[test]
    fn optional_parts_out_of_order_and_bad_types_are_errors() {
        let empty = to_vec(|w| MapWriter::new(w, DataType::UINT, DataType::FILTER_LIST)?.finish()).unwrap();
        assert_eq!(empty, [0, 4, 7, 0, 0]);
        assert_eq!(Map::decode(&empty).unwrap().entries().count(), 0);
        assert_eq!(Map::decode(&[]).unwrap().count, 0);
        let names = to_vec(|w| {
            let mut map = MapWriter::new(w, DataType::ASCII_STRING, DataType::NO_DATA)?;
            map.entry(MapAction::Add, b"TRI.N", |w| w.u8(1))?;
            map.finish()
        });
        assert_eq!(names.unwrap(), [0, 17, 0, 0, 1, 2, 5, b'T', b'R', b'I', b'.', b'N']);
        let late = to_vec(|w| {
            let mut map = MapWriter::new(w, DataType::UINT, DataType::OPAQUE)?;
            map.hint(1)?;
            map.key_field(1)
        });
        assert!(matches!(late, Err(Error::Malformed { .. })));
        assert!(to_vec(|w| MapWriter::new(w, DataType::UINT, DataType::INT).map(drop)).is_err());
        assert!(Map::decode(&[0, 4, 0x85, 0, 0]).is_err());
        let bad_action = Map::decode(&[0, 4, 2, 0, 1, 4, 0, 0]).unwrap();
        assert!(bad_action.entries().next().unwrap().is_err());
    }
}
