//! Messages and containers as owned values: read, written and compared whole.

use rssl::Result;
use rssl::rwf::{
    DataType, ElementList, ElementListWriter, ElementSets, FieldList, FieldListInfo, FieldListWriter,
    FieldSets, FilterAction, FilterList, FilterListWriter, Map, MapAction, MapWriter, Message, Series,
    SeriesWriter, Vector, VectorAction, VectorFlags, VectorWriter,
};
use rssl::wire::{Writer, to_vec};

/// Permission data.
pub(crate) type Perm = Option<Vec<u8>>;

/// The part of a container before its entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Head {
    pub(crate) container: DataType,
    pub(crate) summary: Option<Box<Tree>>,
    pub(crate) hint: Option<u32>,
}

/// A container with its content. Values of sets are like values with ids.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Bytes(Vec<u8>),
    Fields {
        info: Option<FieldListInfo>,
        fields: Vec<(i16, Vec<u8>)>,
    },
    Elements {
        info: Option<u16>,
        elements: Vec<(Vec<u8>, DataType, Tree)>,
    },
    Map {
        head: Head,
        key_type: DataType,
        key_field: Option<i16>,
        entries: Vec<(MapAction, Perm, Vec<u8>, Tree)>,
    },
    Vector {
        head: Head,
        sorting: bool,
        entries: Vec<(VectorAction, u32, Perm, Tree)>,
    },
    Series {
        head: Head,
        entries: Vec<Tree>,
    },
    Filters {
        container: DataType,
        hint: Option<u8>,
        entries: Vec<(FilterAction, u8, DataType, Perm, Tree)>,
    },
    /// A message whose payload is a tree.
    Message(Vec<u8>),
}

/// Definitions that the entries of a container may refer to.
#[derive(Clone, Copy, Default)]
struct Sets<'a> {
    fields: Option<FieldSets<'a>>,
    elements: Option<ElementSets<'a>>,
}

impl<'a> Sets<'a> {
    fn decode(container: DataType, bytes: Option<&'a [u8]>) -> Result<Self> {
        let bytes = bytes.unwrap_or_default();
        Ok(match container {
            DataType::FIELD_LIST => Self { fields: Some(FieldSets::decode(bytes)?), elements: None },
            DataType::ELEMENT_LIST => Self { fields: None, elements: Some(ElementSets::decode(bytes)?) },
            _ => Self::default(),
        })
    }
}

/// Deeper than the messages of stock programs, and shallow enough for the stack.
const DEPTH: usize = 20;

impl Tree {
    /// Reads a container of type `container`.
    pub(crate) fn decode(container: DataType, bytes: &[u8]) -> Result<Self> {
        Self::read(container, bytes, Sets::default(), 0)
    }

    fn read<'a>(container: DataType, bytes: &'a [u8], sets: Sets<'a>, depth: usize) -> Result<Self> {
        if bytes.is_empty() || depth == DEPTH {
            return Ok(Self::Bytes(bytes.to_vec()));
        }
        Ok(match container {
            DataType::FIELD_LIST => Self::fields(bytes, sets)?,
            DataType::ELEMENT_LIST => Self::elements(bytes, sets, depth)?,
            DataType::MAP => Self::map(bytes, depth)?,
            DataType::VECTOR => Self::vector(bytes, depth)?,
            DataType::SERIES => Self::series(bytes, depth)?,
            DataType::FILTER_LIST => Self::filters(bytes, depth)?,
            DataType::MSG => {
                let message = Message::decode(bytes)?;
                let payload = Self::read(message.container(), message.payload(), Sets::default(), depth + 1)?;
                Self::Message(with_payload(message, &to_vec(|w| payload.write(w))?)?)
            }
            _ => Self::Bytes(bytes.to_vec()),
        })
    }

    fn fields<'a>(bytes: &'a [u8], sets: Sets<'a>) -> Result<Self> {
        let list = FieldList::decode(bytes, sets.fields.as_ref())?;
        // Copying converts REAL of sets to the plain form.
        let plain = to_vec(|w| {
            let mut out = FieldListWriter::new(w)?;
            list.entries().try_for_each(|field| out.copy(&field?))?;
            out.finish()
        })?;
        let plain = FieldList::decode(&plain, None)?;
        let fields = plain.entries().map(|f| f.map(|f| (f.id, f.data.to_vec()))).collect::<Result<_>>()?;
        Ok(Self::Fields { info: list.info, fields })
    }

    fn elements<'a>(bytes: &'a [u8], sets: Sets<'a>, depth: usize) -> Result<Self> {
        let list = ElementList::decode(bytes, sets.elements.as_ref())?;
        let plain = to_vec(|w| {
            let mut out = ElementListWriter::new(w)?;
            list.entries().try_for_each(|element| out.copy(&element?))?;
            out.finish()
        })?;
        let mut elements = Vec::new();
        for element in ElementList::decode(&plain, None)?.entries() {
            let element = element?;
            let value = Self::read(element.data_type, element.data, Sets::default(), depth + 1)?;
            elements.push((element.name.to_vec(), element.data_type, value));
        }
        Ok(Self::Elements { info: list.info, elements })
    }

    fn head(
        container: DataType,
        summary: Option<&[u8]>,
        hint: Option<u32>,
        sets: Sets<'_>,
        depth: usize,
    ) -> Result<Head> {
        let summary = summary.map(|s| Self::read(container, s, sets, depth + 1)).transpose()?.map(Box::new);
        Ok(Head { container, summary, hint })
    }

    fn map(bytes: &[u8], depth: usize) -> Result<Self> {
        let map = Map::decode(bytes)?;
        let sets = Sets::decode(map.container, map.sets)?;
        let head = Self::head(map.container, map.summary, map.hint, sets, depth)?;
        let mut entries = Vec::new();
        for entry in map.entries() {
            let entry = entry?;
            let content = Self::read(map.container, entry.data, sets, depth + 1)?;
            entries.push((entry.action, entry.perm.map(<[u8]>::to_vec), entry.key.to_vec(), content));
        }
        Ok(Self::Map { head, key_type: map.key_type, key_field: map.key_field, entries })
    }

    fn vector(bytes: &[u8], depth: usize) -> Result<Self> {
        let vector = Vector::decode(bytes)?;
        let sets = Sets::decode(vector.container, vector.sets)?;
        let head = Self::head(vector.container, vector.summary, vector.hint, sets, depth)?;
        let mut entries = Vec::new();
        for entry in vector.entries() {
            let entry = entry?;
            let content = Self::read(vector.container, entry.data, sets, depth + 1)?;
            entries.push((entry.action, entry.index, entry.perm.map(<[u8]>::to_vec), content));
        }
        Ok(Self::Vector { head, sorting: vector.flags.contains(VectorFlags::SORTING), entries })
    }

    fn series(bytes: &[u8], depth: usize) -> Result<Self> {
        let series = Series::decode(bytes)?;
        let sets = Sets::decode(series.container, series.sets)?;
        let head = Self::head(series.container, series.summary, series.hint, sets, depth)?;
        let read = |entry: Result<_>| Self::read(series.container, entry?, sets, depth + 1);
        Ok(Self::Series { head, entries: series.entries().map(read).collect::<Result<_>>()? })
    }

    fn filters(bytes: &[u8], depth: usize) -> Result<Self> {
        let list = FilterList::decode(bytes)?;
        let mut entries = Vec::new();
        for entry in list.entries() {
            let entry = entry?;
            let content = Self::read(entry.container, entry.data, Sets::default(), depth + 1)?;
            entries.push((entry.action, entry.id, entry.container, entry.perm.map(<[u8]>::to_vec), content));
        }
        Ok(Self::Filters { container: list.container, hint: list.hint, entries })
    }

    /// Writes it, without sets.
    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        match self {
            Self::Bytes(bytes) | Self::Message(bytes) => w.bytes(bytes),
            Self::Fields { info, fields } => {
                let mut list = match info {
                    Some(info) => FieldListWriter::with_info(w, *info)?,
                    None => FieldListWriter::new(w)?,
                };
                fields.iter().try_for_each(|(id, data)| list.field(*id, data))?;
                list.finish()
            }
            Self::Elements { info, elements } => {
                let mut list = match info {
                    Some(number) => ElementListWriter::with_info(w, *number)?,
                    None => ElementListWriter::new(w)?,
                };
                for (name, data_type, value) in elements {
                    match value {
                        Self::Bytes(bytes) => list.element(name, *data_type, bytes)?,
                        other => list.container(name, *data_type, |w| other.write(w))?,
                    }
                }
                list.finish()
            }
            Self::Map { head, key_type, key_field, entries } => {
                let mut map = MapWriter::new(w, *key_type, head.container)?;
                key_field.map_or(Ok(()), |id| map.key_field(id))?;
                head.summary.as_ref().map_or(Ok(()), |s| map.summary(|w| s.write(w)))?;
                head.hint.map_or(Ok(()), |n| map.hint(n))?;
                for (action, perm, key, content) in entries {
                    map.entry_with(*action, perm.as_deref(), key, |w| content.write(w))?;
                }
                map.finish()
            }
            Self::Vector { head, sorting, entries } => {
                let mut vector = VectorWriter::new(w, head.container, *sorting)?;
                head.summary.as_ref().map_or(Ok(()), |s| vector.summary(|w| s.write(w)))?;
                head.hint.map_or(Ok(()), |n| vector.hint(n))?;
                for (action, index, perm, content) in entries {
                    vector.entry(*action, *index, perm.as_deref(), |w| content.write(w))?;
                }
                vector.finish()
            }
            Self::Series { head, entries } => {
                let mut series = SeriesWriter::new(w, head.container)?;
                head.summary.as_ref().map_or(Ok(()), |s| series.summary(|w| s.write(w)))?;
                head.hint.map_or(Ok(()), |n| series.hint(n))?;
                entries.iter().try_for_each(|content| series.entry(|w| content.write(w)))?;
                series.finish()
            }
            Self::Filters { container, hint, entries } => {
                let mut list = FilterListWriter::new(w, *container)?;
                hint.map_or(Ok(()), |n| list.hint(n))?;
                for (action, id, own, perm, content) in entries {
                    list.entry_with(*action, *id, *own, perm.as_deref(), |w| content.write(w))?;
                }
                list.finish()
            }
        }
    }
}

/// The message with another payload, as bytes.
pub(crate) fn with_payload<'a>(mut message: Message<'a>, payload: &'a [u8]) -> Result<Vec<u8>> {
    match &mut message {
        Message::Request(m) => m.payload = payload,
        Message::Refresh(m) => m.payload = payload,
        Message::Status(m) => m.payload = payload,
        Message::Update(m) => m.payload = payload,
        Message::Close(m) => m.payload = payload,
        Message::Ack(m) => m.payload = payload,
        Message::Generic(m) => m.payload = payload,
        Message::Post(m) => m.payload = payload,
    }
    message.to_vec()
}

/// Result of a round trip.
#[derive(Debug, PartialEq)]
pub(crate) struct Round {
    /// The header has the same bytes.
    pub(crate) header: bool,
    /// The payload has the same bytes.
    pub(crate) payload: bool,
    /// Bytes that the sender spent on longer forms of lengths in the header.
    pub(crate) saved: usize,
}

/// Reads a message with its content, writes it with our writers, and reads it again: both are equal.
pub(crate) fn round_trip(bytes: &[u8]) -> Result<Round> {
    let message = Message::decode(bytes)?;
    let again = message.to_vec()?;
    assert_eq!(Message::decode(&again)?, message);
    let header = bytes.len() - message.payload().len();
    let same = again[..again.len() - message.payload().len()] == bytes[..header];
    if let Some(attrib) = message.key().and_then(|k| k.attrib) {
        let tree = Tree::decode(attrib.container, attrib.data)?;
        assert_eq!(Tree::decode(attrib.container, &to_vec(|w| tree.write(w))?)?, tree);
    }
    let tree = Tree::decode(message.container(), message.payload())?;
    let payload = to_vec(|w| tree.write(w))?;
    assert_eq!(Tree::decode(message.container(), &payload)?, tree);
    let saved = bytes.len().saturating_sub(again.len());
    Ok(Round { header: same, payload: payload == message.payload(), saved })
}
