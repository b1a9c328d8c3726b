//! The cache against a naive model: after random messages image and model are equal.

use super::*;
use std::collections::BTreeMap;

/// The naive model: decodes, copies, searches.
#[derive(Clone, Debug, Default, PartialEq)]
enum Model {
    #[default]
    Nothing,
    Fields(BTreeMap<i16, Vec<u8>>),
    Elements(BTreeMap<Vec<u8>, (DataType, Vec<u8>, Model)>),
    /// Rows in the order of addition, with key, permission data and content.
    Map(DataType, Option<i16>, Box<Model>, Vec<(Vec<u8>, Vec<u8>, Model)>),
    Vector(Box<Model>, Vec<(u32, Vec<u8>, Model)>),
    Series(Box<Model>, Vec<Model>),
    Filters(BTreeMap<u8, (Vec<u8>, Model)>),
    Whole(DataType, Vec<u8>),
}

type Outcome = rssl::Result<()>;

fn plain(set_type: DataType, data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    if matches!(set_type, DataType::REAL_4RB | DataType::REAL_8RB) {
        data.iter_mut().take(1).for_each(|hint| *hint &= 0x3f);
    }
    data
}

impl Model {
    fn apply(&mut self, container: DataType, payload: &[u8], sets: &[u8]) -> Outcome {
        match container {
            DataType::NO_DATA => return Ok(()),
            DataType::FIELD_LIST => self.fields(payload, sets)?,
            DataType::ELEMENT_LIST => self.elements(payload, sets)?,
            DataType::MAP => self.map(payload)?,
            DataType::VECTOR => self.vector(payload)?,
            DataType::SERIES => self.series(payload)?,
            DataType::FILTER_LIST => self.filters(payload)?,
            other => *self = Self::Whole(other, payload.to_vec()),
        }
        Ok(())
    }

    fn fields(&mut self, payload: &[u8], sets: &[u8]) -> Outcome {
        if !matches!(self, Self::Fields(_)) {
            *self = Self::Fields(BTreeMap::new());
        }
        let Self::Fields(fields) = self else { unreachable!() };
        for field in FieldList::decode(payload, Some(&FieldSets::decode(sets)?))?.entries() {
            let field = field?;
            let value = fields.entry(field.id).or_default();
            if field.data.starts_with(b"\x1b") && rmtes::is_partial(field.data) {
                rmtes::apply_to_vec(value, field.data, 65_535)?;
            } else {
                *value = plain(field.set_type, field.data);
            }
        }
        // The cache refuses lists that switch dictionaries.
        if fields.contains_key(&0) { Err(rssl::Error::Full) } else { Ok(()) }
    }

    fn elements(&mut self, payload: &[u8], sets: &[u8]) -> Outcome {
        if !matches!(self, Self::Elements(_)) {
            *self = Self::Elements(BTreeMap::new());
        }
        let Self::Elements(elements) = self else { unreachable!() };
        for element in ElementList::decode(payload, Some(&ElementSets::decode(sets)?))?.entries() {
            let element = element?;
            let old = elements.remove(element.name).filter(|old| old.0 == element.data_type);
            let mut model = old.map(|old| old.2).unwrap_or_default();
            let mut bytes = Vec::new();
            if element.data_type.is_container() {
                model.apply(element.data_type, element.data, &[])?;
            } else {
                bytes = plain(element.set_type, element.data);
            }
            elements.insert(element.name.to_vec(), (element.data_type, bytes, model));
        }
        Ok(())
    }

    fn map(&mut self, payload: &[u8]) -> Outcome {
        let map = Map::decode(payload)?;
        let sets = map.sets.unwrap_or_default();
        known_sets(map.container, sets)?;
        if !matches!(self, Self::Map(..)) {
            *self = Self::Map(DataType::UNKNOWN, None, Box::default(), Vec::new());
        }
        let Self::Map(key_type, key_field, head, rows) = self else { unreachable!() };
        *key_type = map.key_type;
        *key_field = map.key_field.or(*key_field);
        if let Some(bytes) = map.summary {
            head.apply(map.container, bytes, sets)?;
        }
        for entry in map.entries() {
            let entry = entry?;
            let at = rows.iter().position(|row| row.0 == entry.key);
            if entry.action == MapAction::Delete {
                at.map(|at| rows.remove(at));
                continue;
            }
            let at = at.unwrap_or_else(|| {
                rows.push((entry.key.to_vec(), Vec::new(), Self::Nothing));
                rows.len() - 1
            });
            if entry.action == MapAction::Add {
                rows[at] = (entry.key.to_vec(), Vec::new(), Self::Nothing);
            }
            rows[at].2.apply(map.container, entry.data, sets)?;
            if let Some(perm) = entry.perm {
                rows[at].1 = perm.to_vec();
            }
        }
        Ok(())
    }

    fn vector(&mut self, payload: &[u8]) -> Outcome {
        let vector = Vector::decode(payload)?;
        let sets = vector.sets.unwrap_or_default();
        known_sets(vector.container, sets)?;
        if !matches!(self, Self::Vector(..)) {
            *self = Self::Vector(Box::default(), Vec::new());
        }
        let Self::Vector(head, rows) = self else { unreachable!() };
        if let Some(bytes) = vector.summary {
            head.apply(vector.container, bytes, sets)?;
        }
        for entry in vector.entries() {
            let entry = entry?;
            let mut row = (entry.index, Vec::new(), Self::Nothing);
            match entry.action {
                VectorAction::Update => {
                    row = rows.iter().find(|row| row.0 == entry.index).cloned().unwrap_or(row);
                    rows.retain(|row| row.0 != entry.index);
                }
                VectorAction::Set | VectorAction::Clear => rows.retain(|row| row.0 != entry.index),
                VectorAction::Insert => {
                    rows.iter_mut().filter(|row| row.0 >= entry.index).for_each(|row| row.0 += 1);
                    rows.retain(|row| row.0 < 1 << 30);
                }
                VectorAction::Delete => {
                    rows.retain(|row| row.0 != entry.index);
                    rows.iter_mut().filter(|row| row.0 > entry.index).for_each(|row| row.0 -= 1);
                }
            }
            if !matches!(entry.action, VectorAction::Clear | VectorAction::Delete) {
                row.2.apply(vector.container, entry.data, sets)?;
                if let Some(perm) = entry.perm {
                    row.1 = perm.to_vec();
                }
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| row.0);
        Ok(())
    }

    fn series(&mut self, payload: &[u8]) -> Outcome {
        let series = Series::decode(payload)?;
        let sets = series.sets.unwrap_or_default();
        known_sets(series.container, sets)?;
        if !matches!(self, Self::Series(..)) {
            *self = Self::Series(Box::default(), Vec::new());
        }
        let Self::Series(head, rows) = self else { unreachable!() };
        if let Some(bytes) = series.summary {
            head.apply(series.container, bytes, sets)?;
        }
        for entry in series.entries() {
            let mut row = Self::Nothing;
            row.apply(series.container, entry?, sets)?;
            rows.push(row);
        }
        Ok(())
    }

    fn filters(&mut self, payload: &[u8]) -> Outcome {
        let list = FilterList::decode(payload)?;
        if !matches!(self, Self::Filters(_)) {
            *self = Self::Filters(BTreeMap::new());
        }
        let Self::Filters(rows) = self else { unreachable!() };
        for entry in list.entries() {
            let entry = entry?;
            if entry.action != FilterAction::Update {
                rows.remove(&entry.id);
            }
            if entry.action != FilterAction::Clear {
                let row = rows.entry(entry.id).or_default();
                row.1.apply(entry.container, entry.data, &[])?;
                if let Some(perm) = entry.perm {
                    row.0 = perm.to_vec();
                }
            }
        }
        Ok(())
    }
}

fn known_sets(container: DataType, sets: &[u8]) -> Outcome {
    match container {
        DataType::FIELD_LIST => FieldSets::decode(sets).map(drop),
        DataType::ELEMENT_LIST => ElementSets::decode(sets).map(drop),
        _ => Ok(()),
    }
}

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self) -> Vec<u8> {
        let n = self.one_of(&[0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 20, 60, 253, 254, 300]);
        (0..n).map(|_| b'a' + self.below(26) as u8).collect()
    }

    /// A value of a field, sometimes an edit.
    fn value(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => [format!("\x1b[{}`", self.below(30)).as_bytes(), &self.bytes()].concat(),
            1 => [b"\x1b".as_slice(), &self.bytes()].concat(),
            _ => self.bytes(),
        }
    }
}

const CONTAINERS: [DataType; 8] = [
    DataType::FIELD_LIST,
    DataType::ELEMENT_LIST,
    DataType::MAP,
    DataType::VECTOR,
    DataType::SERIES,
    DataType::FILTER_LIST,
    DataType::OPAQUE,
    DataType::NO_DATA,
];

/// Set 0 of fields, for containers with definitions.
const FIELD_SET: [(i16, DataType); 3] =
    [(1, DataType::REAL_4RB), (2, DataType::UINT_2), (3, DataType::ASCII_STRING)];
const ELEMENT_SET: [(&[u8], DataType); 2] = [(b"A", DataType::UINT_4), (b"B", DataType::REAL_8RB)];

fn definitions(container: DataType) -> Option<Vec<u8>> {
    match container {
        DataType::FIELD_LIST => to_vec(|w| sets::write_field_sets(w, &[(0, &FIELD_SET)])).ok(),
        DataType::ELEMENT_LIST => to_vec(|w| sets::write_element_sets(w, &[(0, &ELEMENT_SET)])).ok(),
        _ => None,
    }
}

/// The container of the entries of a container: always the same, as with publishers, so that updates fit images.
fn inside(container: DataType, depth: usize) -> DataType {
    CONTAINERS[(container.0 as usize * 5 + depth * 3) % CONTAINERS.len()]
}

/// A random payload; `with_sets`: its container defines set 0.
fn payload(dice: &mut Dice, container: DataType, depth: usize, with_sets: bool) -> Vec<u8> {
    let few = dice.below(if depth == 0 { 12 } else { 4 });
    let real = [0x0c, dice.next() as u8];
    match container {
        DataType::FIELD_LIST => {
            let values: Vec<(i16, Vec<u8>)> =
                (0..few).map(|_| (1 + dice.below(30) as i16, dice.value())).collect();
            let (sets, info) = (with_sets && dice.below(2) == 0, dice.below(4) == 0);
            to_vec(|w| {
                let mut list = if sets {
                    FieldListWriter::with_set(w, None, 0, |w| {
                        sets::write_value(w, DataType::REAL_4RB, &real)?;
                        sets::write_value(w, DataType::UINT_2, &real[1..])?;
                        sets::write_value(w, DataType::ASCII_STRING, b"of a set")
                    })?
                } else if info {
                    FieldListWriter::with_info(w, FieldListInfo { dictionary: 1, list: 7 })?
                } else {
                    FieldListWriter::new(w)?
                };
                values.iter().try_for_each(|(id, value)| list.field(*id, value))?;
                list.finish()
            })
            .unwrap()
        }
        DataType::ELEMENT_LIST => {
            let inner = inside(container, depth);
            let values: Vec<(u8, DataType, Vec<u8>)> = (0..few)
                .map(|_| match dice.below(3) {
                    0 if depth < 3 => {
                        (b'P' + dice.below(4) as u8, inner, payload(dice, inner, depth + 1, false))
                    }
                    _ => (b'A' + dice.below(6) as u8, DataType::BUFFER, dice.bytes()),
                })
                .collect();
            let sets = with_sets && dice.below(2) == 0;
            to_vec(|w| {
                let mut list = if sets {
                    ElementListWriter::with_set(w, 0, |w| {
                        sets::write_value(w, DataType::UINT_4, &real[1..])?;
                        sets::write_value(w, DataType::REAL_8RB, &real)
                    })?
                } else {
                    ElementListWriter::new(w)?
                };
                values.iter().try_for_each(|(name, of, value)| list.element([*name], *of, value))?;
                list.finish()
            })
            .unwrap()
        }
        DataType::MAP | DataType::VECTOR | DataType::SERIES | DataType::FILTER_LIST if depth < 4 => {
            rows(dice, container, depth, few)
        }
        DataType::NO_DATA => Vec::new(),
        _ => dice.bytes(),
    }
}

/// Action, key or position, permission data, content.
type Row = (usize, usize, Option<Vec<u8>>, Vec<u8>);

fn rows(dice: &mut Dice, container: DataType, depth: usize, few: usize) -> Vec<u8> {
    let inner = inside(container, depth);
    let sets = definitions(inner).filter(|_| dice.below(2) == 0);
    let summary = (dice.below(2) == 0).then(|| payload(dice, inner, depth + 1, sets.is_some()));
    let hint = dice.below(3) == 0;
    let rows: Vec<Row> = (0..few)
        .map(|_| {
            let perm = (dice.below(4) == 0).then(|| dice.bytes());
            (dice.below(5), dice.below(20), perm, payload(dice, inner, depth + 1, sets.is_some()))
        })
        .collect();
    let perm = |perm: &Option<Vec<u8>>| perm.clone();
    to_vec(|w| match container {
        DataType::MAP => {
            let mut map = MapWriter::new(w, DataType::ASCII_STRING, inner)?;
            map.key_field(3426)?;
            sets.as_ref().map_or(Ok(()), |sets| map.sets(|w| w.bytes(sets)))?;
            summary.as_ref().map_or(Ok(()), |summary| map.summary(|w| w.bytes(summary)))?;
            if hint {
                map.hint(3)?;
            }
            for (action, key, p, data) in &rows {
                let action = [MapAction::Update, MapAction::Add, MapAction::Delete][action % 3];
                let key = format!("order {key}");
                map.entry_with(action, perm(p).as_deref(), key.as_bytes(), |w| w.bytes(data))?;
            }
            map.finish()
        }
        DataType::VECTOR => {
            let mut vector = VectorWriter::new(w, inner, true)?;
            sets.as_ref().map_or(Ok(()), |sets| vector.sets(|w| w.bytes(sets)))?;
            summary.as_ref().map_or(Ok(()), |summary| vector.summary(|w| w.bytes(summary)))?;
            if hint {
                vector.hint(3)?;
            }
            for (action, at, p, data) in &rows {
                use VectorAction::{Clear, Delete, Insert, Set, Update};
                let action = [Update, Set, Clear, Insert, Delete][*action];
                vector.entry(action, *at as u32, perm(p).as_deref(), |w| w.bytes(data))?;
            }
            vector.finish()
        }
        DataType::SERIES => {
            let mut series = SeriesWriter::new(w, inner)?;
            sets.as_ref().map_or(Ok(()), |sets| series.sets(|w| w.bytes(sets)))?;
            summary.as_ref().map_or(Ok(()), |summary| series.summary(|w| w.bytes(summary)))?;
            rows.iter().try_for_each(|(_, _, _, data)| series.entry(|w| w.bytes(data)))?;
            series.finish()
        }
        _ => {
            let mut list = FilterListWriter::new(w, inner)?;
            for (action, id, p, data) in &rows {
                let action = [FilterAction::Update, FilterAction::Set, FilterAction::Clear][action % 3];
                list.entry_with(action, *id as u8, inner, perm(p).as_deref(), |w| w.bytes(data))?;
            }
            list.finish()
        }
    })
    .unwrap()
}

/// Decodes the image of the cache, from parts of at most `max` bytes.
fn seen(cache: &mut Cache, record: &Record, max: usize) -> Model {
    let (mut model, mut parts) = (Model::default(), 0);
    let mut last = false;
    cache
        .parts(record, max, |part| {
            assert!(!last && part.part == parts, "part {} after {parts}, complete {last}", part.part);
            (parts, last) = (parts + 1, part.complete);
            model.apply(part.container, part.payload, &[]).unwrap();
        })
        .unwrap();
    assert!(last);
    model
}

fn flip(dice: &mut Dice, bytes: &mut [u8]) {
    if !bytes.is_empty() {
        bytes[dice.below(bytes.len())] = dice.next() as u8;
    }
}

fn run(container: DataType, seed: u64, rounds: usize) {
    let mut dice = Dice(seed << 8 | u64::from(container.0));
    let (mut cache, mut record, mut model) = (Cache::default(), Record::default(), Model::default());
    for round in 0..rounds {
        let mut bytes = payload(&mut dice, container, 0, false);
        // Every fourth message is truncated or changed. The model does not define what happens to entries when a map
        // changes their type.
        match dice.below(8) {
            0 => bytes.truncate(dice.below(bytes.len() + 1)),
            1 if container == DataType::FIELD_LIST => flip(&mut dice, &mut bytes),
            _ => {}
        }
        let mut next = model.clone();
        let (applied, expected) = if dice.below(10) == 0 {
            next = Model::default();
            let expected = next.apply(container, &bytes, &[]);
            (cache.refresh(&mut record, &refresh(container, &bytes)), expected)
        } else {
            let expected = next.apply(container, &bytes, &[]);
            (cache.update(&mut record, &update(container, &bytes)), expected)
        };
        match (&applied, &expected) {
            (Ok(()), Ok(())) => model = next,
            (Err(_), Err(_)) => {}
            _ => panic!("seed {seed} round {round}: cache {applied:?}, model {expected:?}"),
        }
        let max = dice.one_of(&[1, 60, 300, 1_000, usize::MAX]);
        let seen = seen(&mut cache, &record, max);
        assert!(seen == model, "seed {seed} round {round} {container}: {seen:?} instead of {model:?}");
    }
}

#[test]
fn image_equals_the_model() {
    for container in CONTAINERS {
        for seed in 0..12 {
            run(container, seed, 60);
        }
    }
}

#[test]
fn random_bytes_are_applied_or_refused() {
    for (seed, container) in (0..240).zip(CONTAINERS.into_iter().cycle()) {
        let mut dice = Dice(seed);
        let (mut cache, mut record) = (Cache::default(), Record::default());
        let whole = |cache: &mut Cache, record: &Record| {
            let mut bytes = Vec::new();
            cache.parts(record, 500, |part| bytes.extend_from_slice(part.payload)).map(|()| bytes)
        };
        for _ in 0..40 {
            let mut bytes = payload(&mut dice, container, 0, false);
            for _ in 0..dice.below(4) {
                flip(&mut dice, &mut bytes);
            }
            let before = whole(&mut cache, &record);
            if cache.update(&mut record, &update(container, &bytes)).is_err() {
                assert_eq!(whole(&mut cache, &record), before);
            }
            assert!(record.bytes() < 1 << 24);
        }
    }
}

#[test]
fn item_above_its_limits_is_refused() {
    let limits = Limits { bytes: 60_000, entries: 100 };
    let mut cache = Cache::new(FieldTypes::default(), limits);
    let add = |from: u64| {
        to_vec(|w| {
            let mut map = MapWriter::new(w, DataType::UINT, DataType::OPAQUE)?;
            (from..from + 10)
                .try_for_each(|key| map.uint_entry(MapAction::Add, key, |w| w.bytes(&[7; 50])))?;
            map.finish()
        })
        .unwrap()
    };
    let mut record = Record::default();
    // Repeated entries do not grow the record, however many bytes come.
    for _ in 0..200 {
        cache.update(&mut record, &update(DataType::MAP, &add(0))).unwrap();
    }
    let refused = (1..20).find_map(|n| cache.update(&mut record, &update(DataType::MAP, &add(n * 10))).err());
    assert_eq!(refused, Some(Error::Limit { what: "entries", limit: 100 }));
    let mut record = Record::default();
    let refused = (1..100).find_map(|id| {
        cache.update(&mut record, &update(DataType::FIELD_LIST, &list(&[(id, &[1; 999])]))).err()
    });
    assert_eq!(refused, Some(Error::Limit { what: "bytes", limit: 60_000 }));
    assert!(record.bytes() < 65_000);
}
