//! RWF: decodes, prints and encodes messages and containers; loads dictionaries from files and from the wire.

use rssl::Error;
use rssl::dictionary::{Dictionary, Enums, Fields};
use rssl::rdm::{directory, items, login, posting};
use rssl::rwf::{
    Array, DataType, ElementList, ElementListWriter, ElementSets, FieldList, FieldListWriter, FieldSets,
    FilterList, FilterListWriter, Map, MapWriter, Message, NoNames, Printed, Real, Series, SeriesWriter,
    Value, Vector, VectorWriter, peek, peek_payload, rmtes, set_stream,
};
use rssl::wire::{Writer, to_vec};

use crate::source::Source;
use crate::{Seen, magnitude};

/// Maximum number of entries examined: some containers can announce 65,535 entries without bytes.
const MAX_ENTRIES: usize = 300;
const MAX_DEPTH: usize = 16;

/// A whole message.
pub(crate) fn message(data: &[u8], seen: &mut Seen) {
    let decoded = match Message::decode(data) {
        Ok(message) => message,
        Err(error) => return note(seen, "message", &error),
    };
    let head = decoded.head();
    assert_eq!(peek(data), Ok(head), "peek agrees with decode");
    assert_eq!(peek_payload(data), Ok((decoded.container(), decoded.payload())));
    seen.note((
        head.class as u8,
        head.domain.0 & 0x1f,
        decoded.container().0,
        magnitude(decoded.payload().len()),
    ));
    let written = to_vec(|w| decoded.encode(w)).expect("a decoded message can be encoded");
    assert_eq!(Message::decode(&written).as_ref(), Ok(&decoded), "encoding preserves the message");
    let mut other = written.clone();
    set_stream(&mut other, !head.stream).expect("the message has a stream");
    assert_eq!(other.len(), written.len());
    assert_eq!(Message::decode(&other).map(|m| m.head().stream), Ok(!head.stream));
    walk(decoded.container(), decoded.payload(), None, 0, seen);
    domains(&decoded, seen);
    if data.len() < 300 {
        assert!(!Printed::new(data, &NoNames).to_string().is_empty());
    }
}

/// Interprets the message in the administrative domains.
fn domains(message: &Message<'_>, seen: &mut Seen) {
    match message {
        Message::Request(request) => {
            if let Ok(asked) = login::Request::decode(request) {
                let again = to_vec(|w| asked.encode_with(request.stream, request.flags, w)).expect("a login");
                let Ok(Message::Request(again)) = Message::decode(&again) else { panic!("a login request") };
                assert_eq!(login::Request::decode(&again), Ok(asked));
            }
            seen.note((
                "batch",
                items::batch_names(request.payload).map(|names| magnitude(names.len())).ok(),
            ));
            seen.note(("view", items::view(request.payload).is_ok()));
            seen.note(("streams", items::stream_ids(request.payload).map(|ids| ids.is_some()).ok()));
        }
        Message::Refresh(refresh) => {
            if let Ok(reply) = login::Reply::decode(refresh) {
                let again = to_vec(|w| reply.encode(refresh.stream, w)).expect("a login reply");
                let Ok(Message::Refresh(again)) = Message::decode(&again) else { panic!("a login refresh") };
                assert_eq!(login::Reply::decode(&again), Ok(reply));
            }
            if let Ok(services) = directory::decode(refresh.payload)
                && let Ok(again) = to_vec(|w| directory::encode(w, directory::filter::ALL, &services))
            {
                // The contents of a deleted service are not encoded.
                seen.note(("directory", magnitude(services.len())));
                assert_eq!(directory::decode(&again).map(|again| again.len()), Ok(services.len()));
            }
        }
        Message::Post(post) => seen.note(("post", posting::posted(post).is_ok())),
        Message::Generic(generic) => {
            seen.note(("standby", login::connection_status(generic.payload).is_ok()));
            seen.note(("mirroring", directory::consumer_status(generic.payload).is_ok()));
        }
        _ => {}
    }
}

/// A container of the type given by the first byte, or a value, or an edit of a text.
pub(crate) fn containers(data: &[u8], seen: &mut Seen) {
    let Some((&kind, data)) = data.split_first() else { return };
    match kind {
        0..=20 | 64..=84 => value(DataType(kind), data, seen),
        21 => edit(data, seen),
        _ => walk(DataType(kind | 0x80), data, None, 0, seen),
    }
}

fn value(data_type: DataType, data: &[u8], seen: &mut Seen) {
    match Value::decode(data_type, data) {
        Ok(value) => {
            seen.note((data_type.0, "value", magnitude(data.len()), value == Value::Blank));
            assert!(!value.to_string().is_empty() || data.is_empty());
            if let Value::Real(real) = value {
                assert_eq!(Real::decode(&real.to_bytes()), Ok(Some(real)));
                let _ = (real.to_f64(), Real::parse(&real.to_string()));
            }
        }
        Err(error) => note(seen, "value", &error),
    }
    if data_type == DataType::ARRAY
        && let Ok(array) = Array::decode(data)
    {
        assert!(
            array.items().take(MAX_ENTRIES).all(|item| item.is_err() || item.is_ok_and(|i| i.len() < 65_536))
        );
    }
}

/// An edit must not exceed its limit; if it fails, the text must not change.
fn edit(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let n = source.below(200);
    let (cached, edit) = (source.bytes(n).to_vec(), source.bytes(data.len()));
    let mut edited = cached.clone();
    let done = rmtes::apply_to_vec(&mut edited, edit, 255);
    assert!(done.is_ok() || edited == cached);
    assert!(done.is_err() || edited.len() <= 255);
    let mut place = [0; 255];
    place[..cached.len()].copy_from_slice(&cached);
    let also = rmtes::apply(&mut place, cached.len(), edit);
    assert_eq!(also.is_ok(), done.is_ok());
    if let Ok(len) = also {
        assert_eq!(&place[..len], edited);
    }
    seen.note(("edit", rmtes::is_partial(edit), done.is_ok(), magnitude(edited.len())));
    let _ = rmtes::Text(&edited).to_string();
}

fn note(seen: &mut Seen, what: &'static str, error: &Error) {
    let field = match error {
        Error::Short { what, .. } | Error::Malformed { what, .. } | Error::TooLong { what, .. } => what,
        _ => "",
    };
    seen.note(("refused", what));
    seen.note((what, core::mem::discriminant(error), field));
}

/// Set definitions that entries may refer to.
#[derive(Clone, Copy)]
struct Sets<'a>(Option<&'a [u8]>);

/// Walks a container and its contents, encodes it, and reads the result.
fn walk(kind: DataType, data: &[u8], sets: Option<Sets<'_>>, depth: usize, seen: &mut Seen) {
    if depth > MAX_DEPTH {
        return;
    }
    let definitions = sets.and_then(|sets| sets.0).unwrap_or_default();
    let result = match kind {
        DataType::FIELD_LIST => fields(data, definitions, seen),
        DataType::ELEMENT_LIST => elements(data, definitions, depth, seen),
        DataType::MAP => map(data, depth, seen),
        DataType::VECTOR => vector(data, depth, seen),
        DataType::SERIES => series(data, depth, seen),
        DataType::FILTER_LIST => filter_list(data, depth, seen),
        DataType::MSG => return message(data, seen),
        _ => return,
    };
    match result {
        Ok(entries) => seen.note((kind.0, depth, magnitude(entries))),
        Err(error) => note(seen, "container", &error),
    }
}

fn fields(data: &[u8], definitions: &[u8], seen: &mut Seen) -> Result<usize, Error> {
    let sets = FieldSets::decode(definitions)?;
    let list = FieldList::decode(data, Some(&sets))?;
    let fields = list.entries().take(MAX_ENTRIES).collect::<Result<Vec<_>, _>>()?;
    let plain = to_vec(|w| {
        let mut list = FieldListWriter::new(w)?;
        fields.iter().try_for_each(|field| list.copy(field))?;
        list.finish()
    })?;
    let again = FieldList::decode(&plain, None)?;
    assert_eq!(again.entries().filter(Result::is_ok).count(), fields.len());
    seen.note(("fields", fields.iter().any(|f| f.set_type != DataType::UNKNOWN), list.info.is_some()));
    Ok(fields.len())
}

fn elements(data: &[u8], definitions: &[u8], depth: usize, seen: &mut Seen) -> Result<usize, Error> {
    let sets = ElementSets::decode(definitions)?;
    let list = ElementList::decode(data, Some(&sets))?;
    let elements = list.entries().take(MAX_ENTRIES).collect::<Result<Vec<_>, _>>()?;
    for element in &elements {
        if element.data_type.is_container() {
            walk(element.data_type, element.data, None, depth + 1, seen);
        } else {
            value(element.data_type, element.data, seen);
        }
    }
    let plain = to_vec(|w| {
        let mut list = ElementListWriter::new(w)?;
        elements.iter().try_for_each(|element| list.copy(element))?;
        list.finish()
    })?;
    let again = ElementList::decode(&plain, None)?.entries().collect::<Result<Vec<_>, _>>()?;
    let same = elements.iter().zip(&again).all(|(a, b)| (a.name, a.data_type) == (b.name, b.data_type));
    assert!(same && again.len() == elements.len());
    Ok(elements.len())
}

fn copy(bytes: &[u8]) -> impl FnOnce(&mut Writer<'_>) -> Result<(), Error> {
    move |w| w.bytes(bytes)
}

fn map(data: &[u8], depth: usize, seen: &mut Seen) -> Result<usize, Error> {
    let map = Map::decode(data)?;
    let entries = map.entries().take(MAX_ENTRIES).collect::<Result<Vec<_>, _>>()?;
    let sets = Some(Sets(map.sets));
    walk(map.container, map.summary.unwrap_or_default(), sets, depth + 1, seen);
    for entry in &entries {
        value(map.key_type, entry.key, seen);
        walk(map.container, entry.data, sets, depth + 1, seen);
    }
    let written = to_vec(|w| {
        let mut writer = MapWriter::new(w, map.key_type, map.container)?;
        map.key_field.map_or(Ok(()), |id| writer.key_field(id))?;
        map.sets.map_or(Ok(()), |sets| writer.sets(copy(sets)))?;
        map.summary.map_or(Ok(()), |summary| writer.summary(copy(summary)))?;
        map.hint.map_or(Ok(()), |hint| writer.hint(hint))?;
        entries.iter().try_for_each(|e| writer.entry_with(e.action, e.perm, e.key, copy(e.data)))?;
        writer.finish()
    })?;
    let again = Map::decode(&written)?;
    assert_eq!((again.sets, again.summary, again.hint), (map.sets, map.summary, map.hint));
    assert_eq!(again.entries().collect::<Result<Vec<_>, _>>()?, entries);
    Ok(entries.len())
}

fn vector(data: &[u8], depth: usize, seen: &mut Seen) -> Result<usize, Error> {
    let vector = Vector::decode(data)?;
    let entries = vector.entries().take(MAX_ENTRIES).collect::<Result<Vec<_>, _>>()?;
    let sets = Some(Sets(vector.sets));
    walk(vector.container, vector.summary.unwrap_or_default(), sets, depth + 1, seen);
    entries.iter().for_each(|entry| walk(vector.container, entry.data, sets, depth + 1, seen));
    let written = to_vec(|w| {
        let mut writer = VectorWriter::new(w, vector.container, false)?;
        vector.sets.map_or(Ok(()), |sets| writer.sets(copy(sets)))?;
        vector.summary.map_or(Ok(()), |summary| writer.summary(copy(summary)))?;
        vector.hint.map_or(Ok(()), |hint| writer.hint(hint))?;
        entries.iter().try_for_each(|e| writer.entry(e.action, e.index, e.perm, copy(e.data)))?;
        writer.finish()
    })?;
    assert_eq!(Vector::decode(&written)?.entries().collect::<Result<Vec<_>, _>>()?, entries);
    Ok(entries.len())
}

fn series(data: &[u8], depth: usize, seen: &mut Seen) -> Result<usize, Error> {
    let series = Series::decode(data)?;
    let entries = series.entries().take(MAX_ENTRIES).collect::<Result<Vec<_>, _>>()?;
    let sets = Some(Sets(series.sets));
    walk(series.container, series.summary.unwrap_or_default(), sets, depth + 1, seen);
    entries.iter().for_each(|entry| walk(series.container, entry, sets, depth + 1, seen));
    let written = to_vec(|w| {
        let mut writer = SeriesWriter::new(w, series.container)?;
        series.sets.map_or(Ok(()), |sets| writer.sets(copy(sets)))?;
        series.summary.map_or(Ok(()), |summary| writer.summary(copy(summary)))?;
        series.hint.map_or(Ok(()), |hint| writer.hint(hint))?;
        entries.iter().try_for_each(|entry| writer.entry(copy(entry)))?;
        writer.finish()
    })?;
    assert_eq!(Series::decode(&written)?.entries().collect::<Result<Vec<_>, _>>()?, entries);
    Ok(entries.len())
}

fn filter_list(data: &[u8], depth: usize, seen: &mut Seen) -> Result<usize, Error> {
    let list = FilterList::decode(data)?;
    let entries = list.entries().collect::<Result<Vec<_>, _>>()?;
    entries.iter().for_each(|entry| walk(entry.container, entry.data, None, depth + 1, seen));
    let written = to_vec(|w| {
        let mut writer = FilterListWriter::new(w, list.container)?;
        list.hint.map_or(Ok(()), |hint| writer.hint(hint))?;
        entries
            .iter()
            .try_for_each(|e| writer.entry_with(e.action, e.id, e.container, e.perm, copy(e.data)))?;
        writer.finish()
    })?;
    assert_eq!(FilterList::decode(&written)?.entries().collect::<Result<Vec<_>, _>>()?, entries);
    Ok(entries.len())
}

/// Dictionaries as files and as parts; their contents must pass the wire unchanged.
pub(crate) fn dictionary(data: &[u8], seen: &mut Seen) {
    let Some((&kind, data)) = data.split_first() else { return };
    let mut dictionary = Dictionary::default();
    let taken = match kind & 3 {
        0 => match Fields::parse(data) {
            Ok(fields) => {
                dictionary.fields = fields;
                Ok(())
            }
            Err(error) => return seen.note(("line", error.what.split('\'').next().map(str::len))),
        },
        1 => match Enums::parse(data) {
            Ok(enums) => {
                dictionary.enums = enums;
                Ok(())
            }
            Err(error) => return seen.note(("line", error.what.split('\'').next().map(str::len))),
        },
        2 => dictionary.fields.take_part(data),
        _ => dictionary.enums.take_part(data),
    };
    if let Err(error) = taken {
        note(seen, "part", &error);
    }
    seen.note(("taken", magnitude(dictionary.fields.len()), magnitude(dictionary.enums.tables().len())));
    let mut again = Dictionary::default();
    let fields = dictionary.fields.parts(15, 600).expect("fields in parts");
    let mut fits = true;
    for part in fields {
        // Files may contain names longer than the wire format allows.
        fits &= again.fields.take_part(&part).is_ok();
    }
    assert!(!fits || again.fields.iter().eq(dictionary.fields.iter()));
    let mut fits = true;
    for part in dictionary.enums.parts(15, 600).expect("tables in parts") {
        fits &= again.enums.take_part(&part).is_ok();
    }
    let values = |enums: &Enums| enums.tables().iter().map(|table| table.values.len()).sum::<usize>();
    assert!(!fits || values(&again.enums) <= values(&dictionary.enums));
}
