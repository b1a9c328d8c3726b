//! The key of a message, which identifies an item. Spec: rssl.md §2.9.

use super::DataType;
use crate::limits::MAX_BUF15;
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

/// Types of the name in a key.
pub mod name_type {
    /// Items: a RIC, also if the type is absent. Logins: a user name.
    pub const RIC: u8 = 1;
    /// Login: a user name.
    pub const USER_NAME: u8 = 1;
    /// Login: an e-mail address.
    pub const EMAIL: u8 = 2;
    /// Login: a token.
    pub const TOKEN: u8 = 3;
    /// Login: a cookie.
    pub const COOKIE: u8 = 4;
    /// Login: an authentication token, which is in the attributes.
    pub const AUTHENTICATION_TOKEN: u8 = 5;
}

const SERVICE: u16 = 0x01;
const NAME: u16 = 0x02;
const NAME_TYPE: u16 = 0x04;
const FILTER: u16 = 0x08;
const IDENTIFIER: u16 = 0x10;
const ATTRIB: u16 = 0x20;

/// Further attributes of a key, as one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attrib<'a> {
    /// Type of the container.
    pub container: DataType,
    /// Its content; empty if it is [`DataType::NO_DATA`].
    pub data: &'a [u8],
}

/// Key of an item; every part is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    /// Id of the service in the directory of this connection.
    pub service: Option<u16>,
    /// Name, up to 255 bytes.
    pub name: Option<&'a [u8]>,
    /// Type of the name, one of [`name_type`]; written only with a name.
    pub name_type: Option<u8>,
    /// Bits whose meaning depends on the domain: parts of a directory, verbosity of a dictionary.
    pub filter: Option<u32>,
    /// A number whose meaning depends on the domain.
    pub identifier: Option<i32>,
    /// Further attributes.
    pub attrib: Option<Attrib<'a>>,
}

impl<'a> Key<'a> {
    /// The key of an item: service and name, without a name type.
    #[must_use]
    pub const fn item(service: u16, name: &'a [u8]) -> Self {
        Self {
            service: Some(service),
            name: Some(name),
            name_type: None,
            filter: None,
            identifier: None,
            attrib: None,
        }
    }

    /// Reads the content of a key (without its size), all of `bytes`.
    ///
    /// # Errors
    /// Cut short, or an attribute container that does not exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        Self::read_content(Reader::new(bytes))
    }

    /// Reads a key after its size.
    ///
    /// # Errors
    /// As [`Key::decode`].
    #[inline]
    pub fn read(r: &mut Reader<'a>) -> Result<Self> {
        Self::read_content(r.inner15().named("key")?)
    }

    fn read_content(mut r: Reader<'a>) -> Result<Self> {
        let mut key = Self::default();
        if r.is_empty() {
            return Ok(key);
        }
        let flags = r.rb15().named("key flags")?;
        if flags & SERVICE != 0 {
            key.service = Some(r.ob16().named("service id")?);
        }
        if flags & NAME != 0 {
            key.name = Some(r.buf8().named("name")?);
            if flags & NAME_TYPE != 0 {
                key.name_type = Some(r.u8().named("name type")?);
            }
        }
        if flags & FILTER != 0 {
            key.filter = Some(r.u32().named("filter")?);
        }
        if flags & IDENTIFIER != 0 {
            key.identifier = Some(r.i32().named("identifier")?);
        }
        if flags & ATTRIB != 0 {
            let bad = r.malformed("attribute container");
            let byte = r.u8().named("attribute container")?;
            let container = DataType::from_container_byte(byte).ok_or(bad)?;
            let data = if container == DataType::NO_DATA { &[] } else { r.buf15().named("attributes")? };
            key.attrib = Some(Attrib { container, data });
        }
        Ok(key)
    }

    /// The name type for comparing keys: without one it is [`name_type::RIC`].
    #[must_use]
    pub const fn effective_name_type(&self) -> u8 {
        match self.name_type {
            Some(t) => t,
            None => name_type::RIC,
        }
    }

    /// Bytes of the content, without the size.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        1 + self.service.map_or(0, |s| if s < 0xFE { 1 } else { 3 })
            + self.name.map_or(0, |n| 1 + n.len() + usize::from(self.name_type.is_some()))
            + if self.filter.is_some() { 4 } else { 0 }
            + if self.identifier.is_some() { 4 } else { 0 }
            + self.attrib.as_ref().map_or(0, |a| match (a.container, a.data.len()) {
                (DataType::NO_DATA, _) => 1,
                (_, n @ 0..0x80) => 2 + n,
                (_, n) => 3 + n,
            })
    }

    /// Writes the content, without the size.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] for a name or attributes that are too long, [`Error::Malformed`] if the
    /// attributes are not of a container type.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<()> {
        let bit = |there: bool, flag: u16| if there { flag } else { 0 };
        w.rb15(
            bit(self.service.is_some(), SERVICE)
                | bit(self.name.is_some(), NAME)
                | bit(self.name.is_some() && self.name_type.is_some(), NAME_TYPE)
                | bit(self.filter.is_some(), FILTER)
                | bit(self.identifier.is_some(), IDENTIFIER)
                | bit(self.attrib.is_some(), ATTRIB),
        )?;
        if let Some(service) = self.service {
            w.ob16(service)?;
        }
        if let Some(name) = self.name {
            w.buf8(name).named("name")?;
            if let Some(name_type) = self.name_type {
                w.u8(name_type)?;
            }
        }
        if let Some(filter) = self.filter {
            w.u32(filter)?;
        }
        if let Some(identifier) = self.identifier {
            w.i32(identifier)?;
        }
        if let Some(attrib) = self.attrib {
            let bad = Error::Malformed { what: "attribute container", at: w.len() };
            w.u8(attrib.container.container_byte().ok_or(bad)?)?;
            if attrib.container != DataType::NO_DATA {
                w.buf15(attrib.data).named("attributes")?;
            }
        }
        Ok(())
    }

    /// Writes size and content.
    ///
    /// # Errors
    /// As [`Key::encode`], and [`Error::TooLong`] if all together are above 32767 bytes.
    #[inline]
    pub fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        let n = self.encoded_len();
        let size = u16::try_from(n).map_err(|_| Error::TooLong { what: "key", len: n, max: MAX_BUF15 })?;
        w.rb15(size).named("key")?;
        self.encode(w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn every_combination_of_parts_round_trips() {
        let long = [7u8; 200];
        for bits in 0u32..128 {
            let has = |bit: u32| bits & 1 << bit != 0;
            let key = Key {
                service: has(0).then_some(if has(6) { 0x1234 } else { 9 }),
                name: has(1).then_some(&b"IBM.N"[..]),
                name_type: (has(1) && has(2)).then_some(1),
                filter: has(3).then_some(7),
                identifier: has(4).then_some(-5),
                attrib: has(5).then_some(if has(6) {
                    Attrib { container: DataType::ELEMENT_LIST, data: &long }
                } else {
                    Attrib { container: DataType::NO_DATA, data: &[] }
                }),
            };
            let content = to_vec(|w| key.encode(w)).unwrap();
            assert_eq!((content.len(), Key::decode(&content)), (key.encoded_len(), Ok(key)));
            let whole = to_vec(|w| key.write(w)).unwrap();
            let mut r = Reader::new(&whole);
            assert_eq!((Key::read(&mut r), r.is_empty()), (Ok(key), true));
            for n in 0..whole.len() {
                assert!(Key::read(&mut Reader::new(&whole[..n])).is_err());
            }
        }
    }

    #[test]
    fn long_forms_and_unknown_bytes_are_read_and_bad_keys_refused() {
        // A two-byte size, two-byte flags, a three-byte service id, an unknown byte at the end.
        let bytes = [0x80, 0x07, 0x80, 0x01, 0xFE, 0x00, 0x06, 0x99, 0x99];
        let mut r = Reader::new(&bytes);
        assert_eq!(Key::read(&mut r).unwrap().service, Some(6));
        assert_eq!(r.left(), 0);
        assert_eq!(Key::decode(&[]), Ok(Key::default()));
        // A name type without a name is not on the wire.
        assert_eq!(Key::decode(&[0x04]), Ok(Key::default()));
        assert!(Key::decode(&[0x20, 0x85]).is_err());
        assert!(to_vec(|w| Key::item(1, &[0; 256]).write(w)).is_err());
        let bad = Key { attrib: Some(Attrib { container: DataType::INT, data: &[] }), ..Key::default() };
        assert!(to_vec(|w| bad.write(w)).is_err());
    }
}
