//! Views: the fields that a consumer requests of a stream, and messages filtered to these. Spec: rssl.md §6

use rssl::limits::MAX_DEPTH;
use rssl::rdm::items;
use rssl::rwf::{
    DataType, ElementList, ElementListWriter, ElementSets, FieldList, FieldListWriter, FieldSets,
    FilterAction, FilterList, FilterListWriter, Map, MapAction, MapWriter, Refresh, Series, SeriesWriter,
    Vector, VectorFlags, VectorWriter, code,
};
use rssl::wire::{Writer, to_vec};

/// The result of filtering a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Viewed {
    /// The wanted part was written.
    Filtered,
    /// The payload has nothing that is wanted.
    Nothing,
    /// Its container cannot be filtered: deliver it whole.
    Whole,
}

/// The wanted fields, or elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Field ids, sorted.
    Fields(Box<[i16]>),
    /// Element names, sorted.
    Names(Box<[Box<[u8]>]>),
}

/// Whether a payload has parts that the view selects.
#[derive(Clone, Copy, Debug, Default)]
struct Selection {
    /// Whether it had fields or elements to select from.
    selected: bool,
    /// Whether something remains that must be delivered.
    any: bool,
}

impl Selection {
    const ALL: Self = Self { selected: false, any: true };

    fn add(&mut self, other: Self) {
        self.selected |= other.selected;
        self.any |= other.any;
    }
}

/// The set definitions that apply to a payload.
#[derive(Clone, Copy, Default)]
struct Sets<'a> {
    fields: Option<FieldSets<'a>>,
    elements: Option<ElementSets<'a>>,
}

impl<'a> Sets<'a> {
    fn of(container: DataType, definitions: Option<&'a [u8]>) -> rssl::Result<Self> {
        let definitions = definitions.unwrap_or_default();
        Ok(match container {
            DataType::FIELD_LIST => Self { fields: Some(FieldSets::decode(definitions)?), elements: None },
            DataType::ELEMENT_LIST => {
                Self { fields: None, elements: Some(ElementSets::decode(definitions)?) }
            }
            _ => Self::default(),
        })
    }
}

impl View {
    /// Reads the view from the payload of a request.
    ///
    /// # Errors
    /// The payload has no valid view: the code for the state.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, u8> {
        match items::view(payload) {
            Ok(items::View::Fields(mut fields)) => {
                fields.sort_unstable();
                Ok(Self::Fields(fields.into()))
            }
            Ok(items::View::Names(names)) => {
                let mut names: Vec<Box<[u8]>> = names.into_iter().map(Into::into).collect();
                names.sort_unstable();
                Ok(Self::Names(names.into()))
            }
            Err(_) => Err(code::INVALID_VIEW),
        }
    }

    /// A refresh with the wanted fields only; `None`: deliver it whole.
    pub(crate) fn refresh(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut refresh = Refresh::decode(message).ok()?;
        let (filtered, kept) = self.filter(refresh.container, refresh.payload)?;
        if !kept.selected {
            return None;
        }
        refresh.payload = &filtered;
        refresh.to_vec().ok()
    }

    /// Writes the wanted part of an update's payload to `out`.
    pub(crate) fn payload(&self, container: DataType, payload: &[u8], out: &mut Vec<u8>) -> Viewed {
        let Some((filtered, kept)) = self.filter(container, payload) else { return Viewed::Whole };
        match kept {
            Selection { selected: false, .. } => Viewed::Whole,
            Selection { any: false, .. } => Viewed::Nothing,
            _ => {
                *out = filtered;
                Viewed::Filtered
            }
        }
    }

    fn filter(&self, container: DataType, payload: &[u8]) -> Option<(Vec<u8>, Selection)> {
        let mut kept = Selection::default();
        let filtered = to_vec(|w| {
            kept = self.write(w, container, payload, Sets::default(), 0)?;
            Ok(())
        });
        Some((filtered.ok()?, kept))
    }

    fn write(
        &self,
        w: &mut Writer<'_>,
        container: DataType,
        payload: &[u8],
        sets: Sets<'_>,
        depth: usize,
    ) -> rssl::Result<Selection> {
        if depth >= MAX_DEPTH {
            return Err(rssl::Error::Malformed { what: "depth of containers", at: depth });
        }
        match (container, self) {
            (DataType::FIELD_LIST, Self::Fields(fields)) => write_fields(w, payload, sets, fields),
            (DataType::ELEMENT_LIST, Self::Names(names)) => write_elements(w, payload, sets, names),
            (DataType::MAP, _) => self.write_map(w, payload, depth),
            (DataType::VECTOR, _) => self.write_vector(w, payload, depth),
            (DataType::SERIES, _) => self.write_series(w, payload, depth),
            (DataType::FILTER_LIST, _) => self.write_filter_list(w, payload, depth),
            _ => {
                w.bytes(payload)?;
                Ok(Selection::ALL)
            }
        }
    }

    /// Filtered lists are written without set definitions; others keep theirs.
    fn keeps_sets(&self, container: DataType) -> bool {
        !matches!(
            (container, self),
            (DataType::FIELD_LIST, Self::Fields(_)) | (DataType::ELEMENT_LIST, Self::Names(_))
        )
    }

    fn write_map(&self, w: &mut Writer<'_>, payload: &[u8], depth: usize) -> rssl::Result<Selection> {
        let map = Map::decode(payload)?;
        let sets = Sets::of(map.container, map.sets)?;
        let mut kept = Selection::default();
        let mut out = MapWriter::new(w, map.key_type, map.container)?;
        if let Some(field) = map.key_field {
            out.key_field(field)?;
        }
        if let (Some(definitions), true) = (map.sets, self.keeps_sets(map.container)) {
            out.sets(|w| w.bytes(definitions))?;
        }
        if let Some(summary) = map.summary {
            out.summary(|w| {
                kept.add(self.write(w, map.container, summary, sets, depth + 1)?);
                Ok(())
            })?;
        }
        if let Some(hint) = map.hint {
            out.hint(hint)?;
        }
        for entry in map.entries() {
            let entry = entry?;
            // Added and deleted entries are delivered even if the view selects nothing of them.
            kept.any |= entry.action != MapAction::Update;
            out.entry_with(entry.action, entry.perm, entry.key, |w| {
                kept.add(self.write(w, map.container, entry.data, sets, depth + 1)?);
                Ok(())
            })?;
        }
        out.finish()?;
        Ok(kept)
    }

    fn write_vector(&self, w: &mut Writer<'_>, payload: &[u8], depth: usize) -> rssl::Result<Selection> {
        let vector = Vector::decode(payload)?;
        let sets = Sets::of(vector.container, vector.sets)?;
        let mut kept = Selection { selected: false, any: true };
        let mut out = VectorWriter::new(w, vector.container, vector.flags.contains(VectorFlags::SORTING))?;
        if let (Some(definitions), true) = (vector.sets, self.keeps_sets(vector.container)) {
            out.sets(|w| w.bytes(definitions))?;
        }
        if let Some(summary) = vector.summary {
            out.summary(|w| {
                kept.add(self.write(w, vector.container, summary, sets, depth + 1)?);
                Ok(())
            })?;
        }
        if let Some(hint) = vector.hint {
            out.hint(hint)?;
        }
        for entry in vector.entries() {
            let entry = entry?;
            out.entry(entry.action, entry.index, entry.perm, |w| {
                kept.add(self.write(w, vector.container, entry.data, sets, depth + 1)?);
                Ok(())
            })?;
        }
        out.finish()?;
        Ok(kept)
    }

    fn write_series(&self, w: &mut Writer<'_>, payload: &[u8], depth: usize) -> rssl::Result<Selection> {
        let series = Series::decode(payload)?;
        let sets = Sets::of(series.container, series.sets)?;
        let mut kept = Selection { selected: false, any: true };
        let mut out = SeriesWriter::new(w, series.container)?;
        if let (Some(definitions), true) = (series.sets, self.keeps_sets(series.container)) {
            out.sets(|w| w.bytes(definitions))?;
        }
        if let Some(summary) = series.summary {
            out.summary(|w| {
                kept.add(self.write(w, series.container, summary, sets, depth + 1)?);
                Ok(())
            })?;
        }
        if let Some(hint) = series.hint {
            out.hint(hint)?;
        }
        for entry in series.entries() {
            let entry = entry?;
            out.entry(|w| {
                kept.add(self.write(w, series.container, entry, sets, depth + 1)?);
                Ok(())
            })?;
        }
        out.finish()?;
        Ok(kept)
    }

    fn write_filter_list(&self, w: &mut Writer<'_>, payload: &[u8], depth: usize) -> rssl::Result<Selection> {
        let list = FilterList::decode(payload)?;
        let mut kept = Selection::default();
        let mut out = FilterListWriter::new(w, list.container)?;
        if let Some(hint) = list.hint {
            out.hint(hint)?;
        }
        for entry in list.entries() {
            let entry = entry?;
            kept.any |= entry.action != FilterAction::Update;
            out.entry_with(entry.action, entry.id, entry.container, entry.perm, |w| {
                kept.add(self.write(w, entry.container, entry.data, Sets::default(), depth + 1)?);
                Ok(())
            })?;
        }
        out.finish()?;
        Ok(kept)
    }
}

fn write_fields(
    w: &mut Writer<'_>,
    payload: &[u8],
    sets: Sets<'_>,
    fields: &[i16],
) -> rssl::Result<Selection> {
    let list = FieldList::decode(payload, sets.fields.as_ref())?;
    let mut out = match list.info {
        Some(info) => FieldListWriter::with_info(w, info)?,
        None => FieldListWriter::new(w)?,
    };
    let mut any = false;
    for field in list.entries() {
        let field = field?;
        let wanted = fields.binary_search(&field.id).is_ok();
        any |= wanted;
        // Field 0 names the dictionary of the fields that follow.
        if wanted || field.id == 0 {
            out.copy(&field)?;
        }
    }
    out.finish()?;
    Ok(Selection { selected: true, any })
}

fn write_elements(
    w: &mut Writer<'_>,
    payload: &[u8],
    sets: Sets<'_>,
    names: &[Box<[u8]>],
) -> rssl::Result<Selection> {
    let list = ElementList::decode(payload, sets.elements.as_ref())?;
    let mut out = match list.info {
        Some(info) => ElementListWriter::with_info(w, info)?,
        None => ElementListWriter::new(w)?,
    };
    let mut any = false;
    for element in list.entries() {
        let element = element?;
        if names.binary_search_by(|name| (**name).cmp(element.name)).is_ok() {
            any = true;
            out.copy(&element)?;
        }
    }
    out.finish()?;
    Ok(Selection { selected: true, any })
}
