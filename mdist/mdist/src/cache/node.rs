//! The cached value of one container, and of the containers in it.

use super::elements::Elements;
use super::fields::{Fields, Scratch};
use super::filters::Filters;
use super::layout::Layouts;
use super::map::MapTable;
use super::series::SeriesTable;
use super::table::emit_whole;
use super::vector::VectorTable;
use super::{Error, FieldTypes, Result};
use rssl::limits::MAX_DEPTH;
use rssl::rwf::{
    DataType, ElementList, ElementSets, FieldList, FieldSets, FilterAction, FilterList, Map, MapAction,
    Series, Vector, VectorAction,
};

/// A cached container.
#[derive(Clone, Debug, Default)]
pub(super) enum Node {
    /// No data, or no payload yet.
    #[default]
    Nothing,
    Fields(Fields),
    Elements(Box<Elements>),
    Map(Box<MapTable>),
    Vector(Box<VectorTable>),
    Series(Box<SeriesTable>),
    Filters(Box<Filters>),
    /// The last value of any other type, as received.
    Whole(DataType, Box<[u8]>),
}

/// The parts of the cache that are needed to apply a payload.
#[derive(Debug)]
pub(super) struct Context<'c> {
    pub(super) layouts: &'c mut Layouts,
    pub(super) types: &'c FieldTypes,
    pub(super) scratch: &'c mut Scratch,
    /// Maximum number of bytes of one field list.
    pub(super) bytes: usize,
}

/// The set definitions that entries refer to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sets<'a> {
    pub(super) fields: FieldSets<'a>,
    pub(super) elements: ElementSets<'a>,
}

impl<'a> Sets<'a> {
    /// Decodes the definitions of a container with entries of type `container`.
    pub(super) fn decode(container: DataType, definitions: Option<&'a [u8]>) -> rssl::Result<Self> {
        let mut sets = Self::default();
        match (container, definitions) {
            (DataType::FIELD_LIST, Some(bytes)) => sets.fields = FieldSets::decode(bytes)?,
            (DataType::ELEMENT_LIST, Some(bytes)) => sets.elements = ElementSets::decode(bytes)?,
            _ => {}
        }
        Ok(sets)
    }
}

impl Node {
    /// Creates an empty container.
    pub(super) fn new(container: DataType, cx: &mut Context<'_>) -> Self {
        match container {
            DataType::NO_DATA => Self::Nothing,
            DataType::FIELD_LIST => Self::Fields(Fields::new(cx.layouts)),
            DataType::ELEMENT_LIST => Self::Elements(Box::default()),
            DataType::MAP => Self::Map(Box::default()),
            DataType::VECTOR => Self::Vector(Box::default()),
            DataType::SERIES => Self::Series(Box::default()),
            DataType::FILTER_LIST => Self::Filters(Box::default()),
            other => Self::Whole(other, Box::default()),
        }
    }

    /// Creates a container from a payload.
    pub(super) fn from(
        container: DataType,
        payload: &[u8],
        sets: &Sets<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Self> {
        let mut node = Self::new(container, cx);
        node.apply(container, payload, sets, cx)?;
        Ok(node)
    }

    /// The type of the container.
    pub(super) fn container(&self) -> DataType {
        match self {
            Self::Nothing => DataType::NO_DATA,
            Self::Fields(_) => DataType::FIELD_LIST,
            Self::Elements(_) => DataType::ELEMENT_LIST,
            Self::Map(_) => DataType::MAP,
            Self::Vector(_) => DataType::VECTOR,
            Self::Series(_) => DataType::SERIES,
            Self::Filters(_) => DataType::FILTER_LIST,
            Self::Whole(container, _) => *container,
        }
    }

    /// Whether a payload of this type can be applied to the container; otherwise it begins a new one.
    pub(super) fn takes(&self, container: DataType) -> bool {
        match self {
            Self::Nothing | Self::Whole(..) => true,
            _ => container == DataType::NO_DATA || container == self.container(),
        }
    }

    /// Applies a payload; one of another type replaces the container.
    ///
    /// # Errors
    /// The payload is malformed, which cannot be after [`check`] has accepted it, or a nested value outgrows
    /// what the wire can carry. The payload may then be applied in part.
    pub(super) fn apply(
        &mut self,
        container: DataType,
        payload: &[u8],
        sets: &Sets<'_>,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        if container == DataType::NO_DATA {
            return Ok(());
        }
        if container != self.container() {
            *self = Self::new(container, cx);
        }
        match self {
            Self::Fields(fields) => fields.apply(payload, Some(&sets.fields), cx),
            Self::Elements(elements) => {
                elements.apply(&ElementList::decode(payload, Some(&sets.elements))?, cx)
            }
            Self::Map(map) => map.apply(&Map::decode(payload)?, cx),
            Self::Vector(vector) => vector.apply(&Vector::decode(payload)?, cx),
            Self::Series(series) => series.apply(&Series::decode(payload)?, cx),
            Self::Filters(filters) => filters.apply(&FilterList::decode(payload)?, cx),
            Self::Whole(_, bytes) => {
                *bytes = payload.into();
                Ok(())
            }
            Self::Nothing => Ok(()),
        }
    }

    /// Appends the whole container as one payload.
    ///
    /// # Errors
    /// It is larger than the wire can carry in one payload.
    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Fields(fields) => {
                fields.emit(out);
                Ok(())
            }
            Self::Elements(elements) => elements.emit(out),
            Self::Map(table) => emit_whole(&**table, out),
            Self::Vector(table) => emit_whole(&**table, out),
            Self::Series(table) => emit_whole(&**table, out),
            Self::Filters(table) => emit_whole(&**table, out),
            Self::Whole(_, bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Memory of the content in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Fields(fields) => fields.bytes(),
            Self::Elements(elements) => elements.bytes(),
            Self::Map(table) => table.bytes(),
            Self::Vector(table) => table.bytes(),
            Self::Series(table) => table.bytes(),
            Self::Filters(table) => table.bytes(),
            Self::Whole(_, bytes) => bytes.len(),
        }
    }

    /// Number of entries of this and all nested containers; fields of field lists do not count.
    pub(super) fn entries(&self) -> usize {
        match self {
            Self::Nothing | Self::Fields(_) | Self::Whole(..) => 0,
            Self::Elements(elements) => elements.entries(),
            Self::Map(table) => table.entries(),
            Self::Vector(table) => table.entries(),
            Self::Series(table) => table.entries(),
            Self::Filters(table) => table.entries(),
        }
    }
}

/// Validates a payload without applying it; returns its number of entries.
///
/// # Errors
/// The payload is malformed, refers to an undefined set, is nested too deep, or has a field 0.
pub(super) fn check(
    container: DataType,
    payload: &[u8],
    sets: &Sets<'_>,
    types: &FieldTypes,
    depth: usize,
) -> Result<usize> {
    if depth > MAX_DEPTH {
        return Err(rssl::Error::Depth(MAX_DEPTH).into());
    }
    let below = |container, payload, sets: &Sets<'_>| check(container, payload, sets, types, depth + 1);
    match container {
        DataType::FIELD_LIST => check_fields(payload, sets, types, depth),
        DataType::ELEMENT_LIST => check_elements(payload, sets, types, depth),
        DataType::MAP => {
            let map = Map::decode(payload)?;
            let sets = Sets::decode(map.container, map.sets)?;
            let mut entries = map.summary.map_or(Ok(0), |summary| below(map.container, summary, &sets))?;
            for entry in map.entries() {
                let entry = entry?;
                entries += 1;
                if entry.action != MapAction::Delete {
                    entries += below(map.container, entry.data, &sets)?;
                }
            }
            Ok(entries)
        }
        DataType::VECTOR => {
            let vector = Vector::decode(payload)?;
            let sets = Sets::decode(vector.container, vector.sets)?;
            let mut entries =
                vector.summary.map_or(Ok(0), |summary| below(vector.container, summary, &sets))?;
            for entry in vector.entries() {
                let entry = entry?;
                entries += 1;
                if !matches!(entry.action, VectorAction::Clear | VectorAction::Delete) {
                    entries += below(vector.container, entry.data, &sets)?;
                }
            }
            Ok(entries)
        }
        DataType::SERIES => {
            let series = Series::decode(payload)?;
            let sets = Sets::decode(series.container, series.sets)?;
            let mut entries =
                series.summary.map_or(Ok(0), |summary| below(series.container, summary, &sets))?;
            for entry in series.entries() {
                entries += 1 + below(series.container, entry?, &sets)?;
            }
            Ok(entries)
        }
        DataType::FILTER_LIST => check_filters(payload, types, depth),
        _ => Ok(0),
    }
}

fn check_fields(payload: &[u8], sets: &Sets<'_>, types: &FieldTypes, depth: usize) -> Result<usize> {
    let mut entries = 0;
    for field in FieldList::decode(payload, Some(&sets.fields))?.entries() {
        let field = field?;
        if field.id == 0 {
            return Err(Error::DictionarySwitch);
        }
        if let Some(container) = types.container(field.id) {
            entries += check(container, field.data, &Sets::default(), types, depth + 1)?;
        }
    }
    Ok(entries)
}

fn check_elements(payload: &[u8], sets: &Sets<'_>, types: &FieldTypes, depth: usize) -> Result<usize> {
    let mut entries = 0;
    for element in ElementList::decode(payload, Some(&sets.elements))?.entries() {
        let element = element?;
        entries += 1;
        if element.data_type.is_container() {
            entries += check(element.data_type, element.data, &Sets::default(), types, depth + 1)?;
        }
    }
    Ok(entries)
}

fn check_filters(payload: &[u8], types: &FieldTypes, depth: usize) -> Result<usize> {
    let mut entries = 0;
    for entry in FilterList::decode(payload)?.entries() {
        let entry = entry?;
        entries += 1;
        if entry.action != FilterAction::Clear {
            entries += check(entry.container, entry.data, &Sets::default(), types, depth + 1)?;
        }
    }
    Ok(entries)
}
