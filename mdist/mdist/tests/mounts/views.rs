//! Views: only the wanted fields, in any container.

use mdist::hub::{Batch, Kind};
use rssl::rdm::items::{self, View};
use rssl::rwf::{
    DataState, DataType, Domain, ElementListWriter, FieldList, FieldListWriter, FilterAction, FilterList,
    FilterListWriter, Key, Map, MapAction, MapWriter, Refresh, RefreshFlags, Request, RequestFlags, Series,
    SeriesWriter, State, StreamState, Update, Vector, VectorAction, VectorWriter, code, sets,
};
use rssl::wire::{Writer, to_vec};

use crate::support::*;

fn viewed(stream: i32, domain: Domain, view: Option<&View>, flags: RequestFlags) -> Vec<u8> {
    let payload = view.map(|view| to_vec(|w| items::encode_view(w, view)).unwrap()).unwrap_or_default();
    let request = Request {
        container: if view.is_some() { DataType::ELEMENT_LIST } else { DataType::NO_DATA },
        payload: &payload,
        ..Request::new(domain, stream, flags | RequestFlags::STREAMING, Key::item(1, b"A"))
    };
    request.to_vec().unwrap()
}

fn bids() -> View {
    View::Fields(vec![22, 999])
}

fn ids(payload: &[u8]) -> Vec<i16> {
    FieldList::decode(payload, None).unwrap().entries().map(|field| field.unwrap().id).collect()
}

fn fields(w: &mut Writer<'_>, ids: &[i16]) -> rssl::Result<()> {
    let mut list = FieldListWriter::new(w)?;
    for id in ids {
        list.uint(*id, 7)?;
    }
    list.finish()
}

/// The messages that a consumer with this view gets for an update with this container.
fn seen(
    container: DataType,
    view: &View,
    write: impl Fn(&mut Writer<'_>) -> rssl::Result<()>,
) -> Vec<Received> {
    let (mut rig, at) = Rig::logged_in();
    rig.send(at, &viewed(5, Domain::MARKET_BY_ORDER, Some(view), RequestFlags::VIEW));
    rig.received(at);
    let payload = to_vec(write).unwrap();
    let update = Update::new(Domain::MARKET_BY_ORDER, 1, container, &payload);
    let item = rig.hub.item("A");
    rig.push_message(item, &update.to_vec().unwrap());
    rig.received(at)
}

#[test]
fn field_lists_are_filtered() {
    let mut rig = Rig::new();
    let (viewer, other) = (rig.login(), rig.login());
    rig.send(viewer, &viewed(5, Domain::MARKET_PRICE, Some(&bids()), RequestFlags::VIEW));
    rig.request(other, 5, "A");
    assert_eq!(rig.hub.items.iter().flatten().count(), 1, "the whole item is requested once");
    assert_eq!(ids(rig.one(viewer).refresh().payload), [22]);
    assert_eq!(ids(rig.one(other).refresh().payload), [22, 25]);
    let item = rig.hub.item("A");
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    assert_eq!(ids(rig.one(viewer).update().payload), [22]);
    assert_eq!(rig.one(other).update().payload, FIELDS);
    // A new view with its image; the same view without; then no view.
    rig.send(viewer, &viewed(5, Domain::MARKET_PRICE, Some(&View::Fields(vec![25])), RequestFlags::VIEW));
    assert_eq!(ids(rig.one(viewer).refresh().payload), [25]);
    rig.send(viewer, &viewed(5, Domain::MARKET_PRICE, None, RequestFlags::VIEW | RequestFlags::NO_REFRESH));
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    assert_eq!(ids(rig.one(viewer).update().payload), [25]);
    rig.send(viewer, &viewed(5, Domain::MARKET_PRICE, None, RequestFlags::NO_REFRESH));
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    assert_eq!(ids(rig.one(viewer).update().payload), [22, 25]);
}

#[test]
fn update_without_viewed_fields_is_not_sent() {
    assert_eq!(seen(DataType::FIELD_LIST, &bids(), |w| fields(w, &[25, 30])), []);
    assert_eq!(seen(DataType::FIELD_LIST, &bids(), |w| fields(w, &[25, 22])).len(), 1);
}

#[test]
fn maps_with_sets_and_summary_are_filtered() {
    let received = seen(DataType::MAP, &bids(), |w| {
        let mut map = MapWriter::new(w, DataType::BUFFER, DataType::FIELD_LIST)?;
        map.key_field(3426)?;
        map.sets(|w| sets::write_field_sets(w, &[(0, &[(22, DataType(65)), (25, DataType(65))])]))?;
        map.summary(|w| fields(w, &[15, 22]))?;
        map.hint(3)?;
        // Two values of one byte each in the order of the set, without ids.
        map.entry(MapAction::Add, b"O1", |w| w.bytes(&[2, 1, 2]))?;
        map.entry(MapAction::Update, b"O2", |w| fields(w, &[25]))?;
        map.delete(b"O3")?;
        map.finish()
    });
    let update = received[0].update();
    let map = Map::decode(update.payload).unwrap();
    assert_eq!(
        (map.key_field, map.sets, map.hint, ids(map.summary.unwrap())),
        (Some(3426), None, Some(3), vec![22])
    );
    let entries: Vec<_> = map.entries().map(Result::unwrap).collect();
    assert_eq!(
        entries.iter().map(|entry| (entry.action, entry.key)).collect::<Vec<_>>(),
        [(MapAction::Add, &b"O1"[..]), (MapAction::Update, b"O2"), (MapAction::Delete, b"O3")]
    );
    assert_eq!((ids(entries[0].data), ids(entries[1].data)), (vec![22], vec![]));
    assert_eq!(FieldList::decode(entries[0].data, None).unwrap().get(22), Some(&[1][..]));
}

#[test]
fn vectors_series_and_filter_lists_are_filtered() {
    let received = seen(DataType::VECTOR, &bids(), |w| {
        let mut vector = VectorWriter::new(w, DataType::FIELD_LIST, true)?;
        vector.summary(|w| fields(w, &[22, 1]))?;
        vector.entry(VectorAction::Set, 4, Some(&[1]), |w| fields(w, &[22, 25]))?;
        vector.entry(VectorAction::Delete, 5, None, |_| Ok(()))?;
        vector.finish()
    });
    let update = received[0].update();
    let vector = Vector::decode(update.payload).unwrap();
    let entries: Vec<_> = vector.entries().map(Result::unwrap).collect();
    assert_eq!(
        (ids(vector.summary.unwrap()), entries[0].index, entries[0].perm),
        (vec![22], 4, Some(&[1][..]))
    );
    assert_eq!((ids(entries[0].data), entries[1].action, entries.len()), (vec![22], VectorAction::Delete, 2));

    let received = seen(DataType::SERIES, &bids(), |w| {
        let mut series = SeriesWriter::new(w, DataType::FIELD_LIST)?;
        series.entry(|w| fields(w, &[1, 22]))?;
        series.finish()
    });
    let update = received[0].update();
    let series = Series::decode(update.payload).unwrap();
    assert_eq!(series.entries().map(|entry| ids(entry.unwrap())).collect::<Vec<_>>(), [[22]]);

    let received = seen(DataType::FILTER_LIST, &bids(), |w| {
        let mut list = FilterListWriter::new(w, DataType::FIELD_LIST)?;
        list.entry(FilterAction::Set, 1, |w| fields(w, &[1, 22]))?;
        list.entry_with(FilterAction::Update, 2, DataType::ELEMENT_LIST, None, |w| {
            let mut list = ElementListWriter::new(w)?;
            list.uint("x", 1)?;
            list.finish()
        })?;
        list.finish()
    });
    let update = received[0].update();
    let list = FilterList::decode(update.payload).unwrap();
    let entries: Vec<_> = list.entries().map(Result::unwrap).collect();
    assert_eq!((ids(entries[0].data), entries[1].container), (vec![22], DataType::ELEMENT_LIST));
    assert!(!entries[1].data.is_empty(), "a view of fields does not filter elements");
}

#[test]
fn element_lists_are_filtered_by_name() {
    let view = View::Names(vec![b"x".to_vec(), b"z".to_vec()]);
    let received = seen(DataType::ELEMENT_LIST, &view, |w| {
        let mut list = ElementListWriter::new(w)?;
        for name in ["z", "y", "x"] {
            list.uint(name, 1)?;
        }
        list.finish()
    });
    let update = received[0].update();
    let list = rssl::rwf::ElementList::decode(update.payload, None).unwrap();
    assert_eq!(list.entries().map(|element| element.unwrap().name).collect::<Vec<_>>(), [b"z", b"x"]);
}

#[test]
fn unfilterable_images_are_sent_whole_with_a_code() {
    let mut rig = Rig::new();
    rig.hub.answers_at_once = false;
    let at = rig.login();
    rig.send(at, &viewed(5, Domain::MARKET_PRICE, Some(&bids()), RequestFlags::VIEW));
    let (token, item, _) = rig.hub.waiting.remove(0);
    let refresh = Refresh {
        flags: RefreshFlags::COMPLETE,
        state: State::new(StreamState::Open, DataState::Ok, 0, b"fine"),
        ..Refresh::new(Domain::MARKET_PRICE, 1, DataType::OPAQUE, b"anything")
    };
    let mut batch = Batch::default();
    batch.push(Kind::Image, SIDE, item, token, &refresh.to_vec().unwrap());
    rig.apply(&batch);
    let received = rig.one(at);
    assert_eq!(
        (received.refresh().payload, received.refresh().state.code),
        (&b"anything"[..], code::FULL_VIEW_PROVIDED)
    );
}

#[test]
fn invalid_view_ends_the_stream() {
    let (mut rig, at) = Rig::logged_in();
    let request = Request {
        container: DataType::ELEMENT_LIST,
        payload: b"\x08\x00\x01\x09:ViewType\x04\x01\x09",
        ..Request::new(
            Domain::MARKET_PRICE,
            5,
            RequestFlags::STREAMING | RequestFlags::VIEW,
            Key::item(1, b"A"),
        )
    };
    rig.send(at, &request.to_vec().unwrap());
    let received = rig.one(at);
    let state = received.status().state.unwrap();
    assert_eq!((state.stream, state.code), (StreamState::Closed, code::INVALID_VIEW));
    assert_eq!(rig.hub.opens, 0);
}
