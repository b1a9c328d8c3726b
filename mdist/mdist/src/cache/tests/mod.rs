//! Images of the cache equal the publisher's data.

mod model;

use super::*;
use rssl::rwf::*;
use rssl::wire::to_vec;

fn update(container: DataType, payload: &[u8]) -> Update<'_> {
    Update { domain: Domain::MARKET_PRICE, container, payload, ..Update::default() }
}

fn refresh(container: DataType, payload: &[u8]) -> Refresh<'_> {
    let flags = RefreshFlags::CLEAR_CACHE | RefreshFlags::COMPLETE;
    Refresh {
        domain: Domain::MARKET_PRICE,
        container,
        payload,
        flags,
        state: State::OK,
        ..Refresh::default()
    }
}

fn list(fields: &[(i16, &[u8])]) -> Vec<u8> {
    to_vec(|w| {
        let mut list = FieldListWriter::new(w)?;
        fields.iter().try_for_each(|(id, value)| list.field(*id, value))?;
        list.finish()
    })
    .unwrap()
}

fn fields(payload: &[u8]) -> Vec<(i16, Vec<u8>)> {
    let list = FieldList::decode(payload, None).unwrap();
    list.entries().map(|f| f.map(|f| (f.id, f.data.to_vec())).unwrap()).collect()
}

/// The whole payload of the image.
fn image(cache: &mut Cache, record: &Record) -> Vec<u8> {
    let mut whole = Vec::new();
    cache
        .parts(record, usize::MAX, |part| {
            assert!(part.complete && part.part == 0);
            whole = part.payload.to_vec();
        })
        .unwrap();
    whole
}

#[test]
fn updates_change_single_fields_and_add_new_ones() {
    let (mut cache, mut record) = (Cache::default(), Record::default());
    let long = [b'x'; 300];
    let first = list(&[(22, &[12, 1]), (25, &[12, 2]), (3, b"a name of some length"), (4, &[])]);
    cache.refresh(&mut record, &refresh(DataType::FIELD_LIST, &first)).unwrap();
    assert_eq!(image(&mut cache, &record), first, "an unchanged record gives the same bytes");
    for change in [
        list(&[(25, &[12, 3]), (22, &[])]),
        list(&[(3, b"short"), (4, &long)]),
        list(&[(99, b"new"), (-7, b"another new one"), (99, b"twice")]),
        list(&[]),
    ] {
        cache.update(&mut record, &update(DataType::FIELD_LIST, &change)).unwrap();
    }
    let expected: [(i16, &[u8]); 6] =
        [(22, &[]), (25, &[12, 3]), (3, b"short"), (4, &long), (99, b"twice"), (-7, b"another new one")];
    assert_eq!(fields(&image(&mut cache, &record)), expected.map(|(id, v)| (id, v.to_vec())));
    cache.refresh(&mut record, &refresh(DataType::FIELD_LIST, &first)).unwrap();
    assert_eq!(image(&mut cache, &record), first, "a refresh drops the other fields");
}

/// Records move to the learnt layout with their next update, without a visible effect.
#[test]
fn image_is_unchanged_when_records_move_to_a_learnt_layout() {
    let mut cache = Cache::default();
    let long = |n: usize| vec![b'a' + n as u8 % 26; 8 + n];
    let mut first: Vec<(i16, Vec<u8>)> =
        (0..70).map(|n| (n * 3 + 1, vec![n as u8; n as usize % 8])).collect();
    first.extend((0..4).map(|n| (900 + n, long(n as usize))));
    let write = |fields: &[(i16, Vec<u8>)]| {
        list(&fields.iter().map(|(id, value)| (*id, value.as_slice())).collect::<Vec<_>>())
    };
    let mut want = vec![first.clone(); 5];
    let mut records = vec![Record::default(); 5];
    for record in &mut records {
        cache.refresh(record, &refresh(DataType::FIELD_LIST, &write(&first))).unwrap();
    }
    let shapes: [&[i16]; 3] = [&[208, 1, 100, 64], &[100, 31, 901], &[205, 64, 900, 1]];
    for round in 0..400_usize {
        let at = round % if round < 100 { 3 } else { 5 };
        let mut change = Vec::new();
        for (n, id) in shapes[round % 3].iter().enumerate() {
            let value = vec![(round + n) as u8 & 15; (round * 7 + n) % if *id > 899 { 40 } else { 9 }];
            for field in want[at].iter_mut().filter(|field| field.0 == *id) {
                field.1.clone_from(&value);
            }
            change.push((*id, value));
        }
        if round == 250 {
            // A record with a layout of its own, which learns again.
            change.push((-5, b"one more".to_vec()));
            want[at].push((-5, b"one more".to_vec()));
        }
        cache.update(&mut records[at], &update(DataType::FIELD_LIST, &write(&change))).unwrap();
        for (record, want) in records.iter().zip(&want) {
            assert_eq!(image(&mut cache, record), write(want), "round {round}");
        }
    }
    cache.refresh(&mut records[0], &refresh(DataType::FIELD_LIST, &write(&first))).unwrap();
    assert_eq!(image(&mut cache, &records[0]), write(&first));
    assert_eq!(cache.layouts().0, 1, "earlier layouts are dropped");
}

#[test]
fn record_fits_one_cache_line() {
    assert_eq!((size_of::<Record>(), size_of::<Option<Record>>()), (64, 64));
}

#[test]
fn values_that_grow_and_shrink_do_not_leak() {
    let (mut cache, mut record) = (Cache::default(), Record::default());
    cache.refresh(&mut record, &refresh(DataType::FIELD_LIST, &list(&[(1, b"x"), (2, b"y")]))).unwrap();
    for round in 0..5_000_usize {
        let value = vec![b'v'; round * 31 % 700];
        let payload = list(&[(1, &value), (2, &value[..value.len() / 2])]);
        cache.update(&mut record, &update(DataType::FIELD_LIST, &payload)).unwrap();
        assert_eq!(image(&mut cache, &record), payload);
    }
    assert!(record.bytes() < 8_000, "{} bytes", record.bytes());
}

#[test]
fn image_has_the_attributes_of_its_refresh() {
    let (mut cache, mut record) = (Cache::default(), Record::default());
    let payload = list(&[(22, &[12, 1])]);
    let key = Key { name_type: Some(1), ..Key::item(7, b"TRI") };
    let sent = Refresh {
        stream: 5,
        seq: Some(100),
        group: &[0, 9],
        perm: Some(&[3, 1]),
        qos: Some(Qos::REALTIME_TICK),
        key: Some(key),
        ext: Some(b"ext"),
        state: State { text: b"All is well", ..State::OK },
        flags: RefreshFlags::CLEAR_CACHE | RefreshFlags::COMPLETE | RefreshFlags::SOLICITED,
        ..refresh(DataType::FIELD_LIST, &payload)
    };
    cache.message(&mut record, &sent.to_vec().unwrap()).unwrap();
    assert!(record.is_complete());
    assert_eq!((record.key(), record.group(), record.perm()), (Some(key), &[0, 9][..], Some(&[3, 1][..])));
    let mut messages = Vec::new();
    let ask = Image { domain: sent.domain, stream: 5, solicited: true, key: Some(key), state: None };
    cache.image(&record, &ask, 6_000, |m| messages.push(m.to_vec())).unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!(Refresh::decode(&messages[0]).unwrap(), sent);

    let seq = Update { seq: Some(101), perm: Some(&[4]), ..update(DataType::FIELD_LIST, &payload) };
    cache.message(&mut record, &seq.to_vec().unwrap()).unwrap();
    let stale = State::new(StreamState::Open, DataState::Suspect, code::NONE, b"stale");
    let status = Status { state: Some(stale), group: Some(&[1]), ..Status::default() };
    cache.message(&mut record, &status.to_vec().unwrap()).unwrap();
    assert_eq!((record.seq(), record.perm(), record.group()), (Some(101), Some(&[4][..]), &[1][..]));
    assert_eq!(record.state().unwrap().borrow(), stale);
    assert_eq!(image(&mut cache, &record), payload, "a stale item keeps its image");

    let other = list(&[(22, &[12, 9])]);
    let mut secret = update(DataType::FIELD_LIST, &other);
    secret.flags.insert(UpdateFlags::DO_NOT_CACHE);
    cache.update(&mut record, &secret).unwrap();
    assert_eq!(image(&mut cache, &record), payload);
    let void = Status { flags: StatusFlags::CLEAR_CACHE, ..Status::default() };
    cache.status(&mut record, &void).unwrap();
    assert!(!record.is_complete() && record.container() == DataType::NO_DATA);
    let mut secret = refresh(DataType::FIELD_LIST, &other);
    secret.flags.insert(RefreshFlags::DO_NOT_CACHE);
    cache.refresh(&mut record, &secret).unwrap();
    assert!(!record.is_complete());
}

#[test]
fn text_edits_are_applied_to_the_raw_bytes() {
    let (mut cache, mut record) = (Cache::default(), Record::default());
    cache
        .refresh(&mut record, &refresh(DataType::FIELD_LIST, &list(&[(3, b"ABCDEFGH"), (4, b"ab")])))
        .unwrap();
    let edit = list(&[(3, b"\x1b[2`xy"), (4, b"\x1b[4`z"), (5, b"\x1b[1`n")]);
    cache.update(&mut record, &update(DataType::FIELD_LIST, &edit)).unwrap();
    let edit = list(&[(3, b"\x1b[0`-"), (4, b"\x1b[0`1")]);
    cache.update(&mut record, &update(DataType::FIELD_LIST, &edit)).unwrap();
    let expected: [(i16, &[u8]); 3] = [(3, b"-BxyEFGH"), (4, b"1b  z"), (5, b" n")];
    assert_eq!(fields(&image(&mut cache, &record)), expected.map(|(id, v)| (id, v.to_vec())));

    // With a dictionary only text is edited, also by commands inside the value.
    let mut dictionary = rssl::dictionary::Fields::default();
    for (id, name, data_type) in [(3, "A", DataType::RMTES_STRING), (4, "B", DataType::BUFFER)] {
        let def = rssl::dictionary::FieldDef { id, name: name.into(), data_type, ..Default::default() };
        dictionary.insert(def);
    }
    let mut cache = Cache::new(FieldTypes::new(std::sync::Arc::new(dictionary)), Limits::default());
    cache.refresh(&mut record, &refresh(DataType::FIELD_LIST, &list(&[(3, b"ABC"), (4, b"ab")]))).unwrap();
    let edit = list(&[(3, b"x\x1b[3b"), (4, b"\x1b[1`n")]);
    cache.update(&mut record, &update(DataType::FIELD_LIST, &edit)).unwrap();
    let expected: [(i16, &[u8]); 2] = [(3, b"xxxx"), (4, b"\x1b[1`n")];
    assert_eq!(fields(&image(&mut cache, &record)), expected.map(|(id, v)| (id, v.to_vec())));
}

#[test]
fn malformed_payloads_change_nothing() {
    let (mut cache, mut record) = (Cache::default(), Record::default());
    let first = list(&[(22, &[12, 1]), (25, &[12, 2]), (3, b"a longer name")]);
    cache.refresh(&mut record, &refresh(DataType::FIELD_LIST, &first)).unwrap();
    let change = list(&[(22, &[12, 7]), (3, b"another longer name"), (98, b"x"), (25, &[12, 8])]);
    for n in 1..change.len() {
        let cut = update(DataType::FIELD_LIST, &change[..n]);
        assert!(matches!(cache.update(&mut record, &cut), Err(Error::Wire(_))), "{n}");
        let cut = refresh(DataType::FIELD_LIST, &change[..n]);
        assert!(cache.refresh(&mut record, &cut).is_err());
        assert_eq!(image(&mut cache, &record), first);
    }
    let other = update(DataType::MAP, &[]);
    let error = cache.update(&mut record, &other).unwrap_err();
    assert_eq!(error, Error::Container { have: DataType::FIELD_LIST, got: DataType::MAP });
    let switch = list(&[(22, &[12, 7]), (0, &[2]), (22, &[12, 1])]);
    assert_eq!(
        cache.update(&mut record, &update(DataType::FIELD_LIST, &switch)),
        Err(Error::DictionarySwitch)
    );
    assert_eq!(image(&mut cache, &record), first);
}
