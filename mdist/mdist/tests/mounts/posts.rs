//! Posts, acknowledgements and generic messages.

use mdist::hub::{Batch, ItemId, Kind, Target};
use rssl::rwf::{Ack, DataType, Domain, Generic, Key, Message, Post, PostFlags, PostUser, nak};
use rssl::wire::to_vec;

use crate::support::*;

fn post(stream: i32, key: Option<Key<'_>>) -> Vec<u8> {
    let post = Post {
        domain: Domain::MARKET_PRICE,
        stream,
        flags: PostFlags::COMPLETE | PostFlags::ACK,
        container: DataType::FIELD_LIST,
        post_user: PostUser { addr: 0x7f00_0001, id: 42 },
        seq: Some(9),
        post_id: Some(7),
        key,
        payload: &FIELDS,
        ..Post::default()
    };
    to_vec(|w| post.encode(w)).unwrap()
}

#[test]
fn posts_go_up_and_acks_come_back() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.heard(at);
    let on_stream = post(5, None);
    let off_stream = post(1, Some(Key::item(1, b"B")));
    room.send(at, &on_stream);
    room.send(at, &off_stream);
    let item = room.hub.item("A");
    let ups = std::mem::take(&mut room.hub.ups);
    assert_eq!(ups[0].1, Target::Item(item));
    assert_eq!(ups[1].1, Target::Service(1));
    assert_eq!((&ups[0].2, &ups[1].2), (&on_stream, &off_stream));
    let mut batch = Batch::default();
    for (token, _, _) in &ups {
        let ack = Ack { domain: Domain::MARKET_PRICE, stream: 1, ack_id: 7, seq: Some(9), ..Ack::default() };
        batch.push(Kind::Reply, SIDE, ItemId::NONE, *token, &to_vec(|w| ack.encode(w)).unwrap());
    }
    room.apply(&batch);
    let heard = room.heard(at);
    assert_eq!(heard.iter().map(Heard::stream).collect::<Vec<_>>(), [5, 1]);
    for heard in &heard {
        assert!(
            matches!(heard.message(), Message::Ack(Ack { ack_id: 7, nak: None, seq: Some(9), .. })),
            "{heard:?}"
        );
    }
}

#[test]
fn posts_that_can_go_nowhere_are_refused() {
    let mut room = Room::new();
    room.hub.prompt = false;
    let at = room.login();
    for (message, code) in [
        (post(99, None), nak::NOT_OPEN),
        (post(1, None), nak::INVALID_CONTENT),
        (post(1, Some(Key::item(9, b"A"))), nak::SOURCE_UNKNOWN),
    ] {
        room.send(at, &message);
        let heard = room.one(at);
        let Message::Ack(ack) = heard.message() else { panic!("{heard:?}") };
        assert_eq!((ack.ack_id, ack.nak, ack.seq), (7, Some(code), Some(9)), "{ack:?}");
        assert!(ack.text.is_some_and(|text| !text.is_empty()));
    }
    assert_eq!(room.hub.ups.len(), 0);
}

#[test]
fn generic_messages() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.heard(at);
    let generic = |domain, stream| {
        to_vec(|w| Generic { domain, stream, container: DataType::NO_DATA, ..Generic::default() }.encode(w))
            .unwrap()
    };
    room.send(at, &generic(Domain::MARKET_PRICE, 5));
    // Which connection is active, how busy the consumer is: taken, and nothing comes of it.
    room.send(at, &generic(Domain::LOGIN, 1));
    room.send(at, &generic(Domain::MARKET_PRICE, 77));
    let item = room.hub.item("A");
    let ups = std::mem::take(&mut room.hub.ups);
    assert_eq!(ups.iter().map(|up| up.1).collect::<Vec<_>>(), [Target::Item(item)]);
    let mut batch = Batch::default();
    batch.push(Kind::Reply, SIDE, item, ups[0].0, &generic(Domain::MARKET_PRICE, 1));
    room.apply(&batch);
    assert_eq!(room.one(at).stream(), 5);
    room.tell(item, &generic(Domain::MARKET_PRICE, 1));
    assert_eq!(room.one(at).stream(), 5);
    assert_eq!(room.cuts, []);
}
