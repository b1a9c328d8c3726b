//! MAP: entries with keys. Spec: rssl.md §4.4.

use super::common::{definitions, entries, optional_parts};
use super::flags::flags;
use super::header::Optional;
use super::sets::{ElementSets, FieldSets};
use super::{DataType, Short};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

flags! {
    /// What a [`Map`] has.
    MapFlags(u8) {
        /// Set definitions.
        SETS = 0x01,
        /// A summary.
        SUMMARY = 0x02,
        /// Permission data of single entries.
        PERMISSIONS = 0x04,
        /// An estimate of the number of entries in all parts.
        HINT = 0x08,
        /// The field that the keys are values of.
        KEY_FIELD = 0x10,
    }
}

/// What an entry does to the entry of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapAction {
    /// Changes it.
    Update = 1,
    /// Puts it there, replacing one that is.
    Add = 2,
    /// Removes it.
    Delete = 3,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapEntry<'a> {
    /// What to do.
    pub action: MapAction,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Key, a value of the map's key type.
    pub key: &'a [u8],
    /// Content; nothing on deletion.
    pub data: &'a [u8],
}

/// A map, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Map<'a> {
    /// What it has.
    pub flags: MapFlags,
    /// Primitive type of the keys.
    pub key_type: DataType,
    /// Type of the entries and of the summary.
    pub container: DataType,
    /// Field that the keys are values of.
    pub key_field: Option<i16>,
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

impl<'a> Map<'a> {
    /// Reads what is before the entries. No bytes at all are an empty map.
    ///
    /// # Errors
    /// Cut short, or a container type that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut map = Self::default();
        if bytes.is_empty() {
            return Ok(map);
        }
        let mut r = Reader::new(bytes);
        map.flags = MapFlags(r.u8()?);
        map.key_type = DataType(r.u8().named("map key type")?);
        map.container = super::header::container(&mut r)?;
        let has = |flag| map.flags.contains(flag);
        if has(MapFlags::KEY_FIELD) {
            map.key_field = Some(r.i16().named("map key field")?);
        }
        let parts =
            super::header::parts(&mut r, has(MapFlags::SETS), has(MapFlags::SUMMARY), has(MapFlags::HINT))?;
        (map.sets, map.summary, map.hint) = (parts.sets, parts.summary, parts.hint);
        map.count = r.u16().named("map count")?;
        map.entries = r.rest();
        Ok(map)
    }

    /// The entries.
    #[must_use]
    pub const fn entries(&self) -> MapEntries<'a> {
        MapEntries {
            r: Reader::new(self.entries),
            left: self.count,
            permissions: self.flags.contains(MapFlags::PERMISSIONS),
            no_data: self.container.0 == DataType::NO_DATA.0,
        }
    }
}

definitions!(Map);

/// Entries of a [`Map`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct MapEntries<'a> {
    r: Reader<'a>,
    left: u16,
    permissions: bool,
    no_data: bool,
}

impl<'a> MapEntries<'a> {
    fn read(&mut self) -> Result<MapEntry<'a>> {
        let r = &mut self.r;
        let bad = r.malformed("map action");
        let byte = r.u8().named("map entry")?;
        let action = match byte & 0xF {
            1 => MapAction::Update,
            2 => MapAction::Add,
            3 => MapAction::Delete,
            _ => return Err(bad),
        };
        let perm = super::header::permission(r, self.permissions && byte & 0x10 != 0)?;
        let key = r.buf15().named("map key")?;
        let data = if self.no_data || action == MapAction::Delete {
            &[]
        } else {
            r.buf16().named("map entry data")?
        };
        Ok(MapEntry { action, perm, key, data })
    }
}

entries!(MapEntries, MapEntry<'a>);

/// Writes a map. Optional parts, in the order of the methods, come before the first entry; the count is filled in by
/// [`MapWriter::finish`].
#[derive(Debug)]
pub struct MapWriter<'w, 'b> {
    head: Optional<'w, 'b>,
    container: DataType,
}

impl<'w, 'b> MapWriter<'w, 'b> {
    /// Begins a map.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if `container` is none.
    pub fn new(w: &'w mut Writer<'b>, key_type: DataType, container: DataType) -> Result<Self> {
        let flags_at = w.len();
        w.u8(0)?;
        w.u8(key_type.0)?;
        super::header::write_container(w, container)?;
        Ok(Self { head: Optional::new(w, flags_at, "map", true), container })
    }

    /// Says which field the keys are values of.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::Malformed`] if it comes too late.
    pub fn key_field(&mut self, id: i16) -> Result<()> {
        self.head.part(1, MapFlags::KEY_FIELD.0, |w| w.i16(id))
    }

    /// An entry; `f` writes its content, and is not called on deletion or if the map's container is
    /// [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// What `f` says; [`crate::Error::Full`], [`crate::Error::TooLong`] for a key or content that is too long, or more than 65535
    /// entries.
    pub fn entry(
        &mut self,
        action: MapAction,
        key: &[u8],
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        self.entry_with(action, None, key, f)
    }

    /// An entry with permission data.
    ///
    /// # Errors
    /// As [`MapWriter::entry`].
    pub fn entry_with(
        &mut self,
        action: MapAction,
        perm: Option<&[u8]>,
        key: &[u8],
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        let no_data = self.container == DataType::NO_DATA || action == MapAction::Delete;
        let w = self.head.entry(perm.is_some().then_some(MapFlags::PERMISSIONS.0))?;
        w.u8(action as u8 | u8::from(perm.is_some()) << 4)?;
        if let Some(perm) = perm {
            w.buf15(perm).named("permission data")?;
        }
        w.buf15(key).named("map key")?;
        if no_data { Ok(()) } else { w.nested16(f).named("map entry") }
    }

    /// An entry whose key is an unsigned integer.
    ///
    /// # Errors
    /// As [`MapWriter::entry`].
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
    ///
    /// # Errors
    /// As [`MapWriter::entry`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.entry(MapAction::Delete, key, |_| Ok(()))
    }

    /// Fills in the count.
    ///
    /// # Errors
    /// [`crate::Error::Full`] if there is no entry and no room for the count.
    pub fn finish(self) -> Result<()> {
        self.head.finish()
    }
}

optional_parts!(MapWriter, MapFlags);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::wire::to_vec;

    #[test]
    fn a_map_comes_back() {
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
    fn small_maps_and_a_wrong_order() {
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
