//! Posts, acknowledgements and generic messages.

use mdist::hub::{Batch, ItemId, Kind, Target};
use rssl::rwf::{Ack, DataType, Domain, Generic, Key, Message, Post, PostFlags, PostUser, nak};

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
    post.to_vec().unwrap()
}

#[test]
fn posts_go_upstream_and_acks_come_back() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 5, "A");
    let on_stream = post(5, None);
    let off_stream = post(1, Some(Key::item(1, b"B")));
    rig.send(at, &on_stream);
    rig.send(at, &off_stream);
    let item = rig.hub.item("A");
    let sent_upstream = std::mem::take(&mut rig.hub.sent_upstream);
    assert_eq!(sent_upstream[0].1, Target::Item(item));
    assert_eq!(sent_upstream[1].1, Target::Service(1));
    assert_eq!((&sent_upstream[0].2, &sent_upstream[1].2), (&on_stream, &off_stream));
    let mut batch = Batch::default();
    for (token, _, _) in &sent_upstream {
        let ack = Ack { domain: Domain::MARKET_PRICE, stream: 1, ack_id: 7, seq: Some(9), ..Ack::default() };
        batch.push(Kind::Reply, SIDE, ItemId::NONE, *token, &ack.to_vec().unwrap());
    }
    rig.apply(&batch);
    let received = rig.received(at);
    assert_eq!(received.iter().map(Received::stream).collect::<Vec<_>>(), [5, 1]);
    for received in &received {
        assert!(
            matches!(received.message(), Message::Ack(Ack { ack_id: 7, nak: None, seq: Some(9), .. })),
            "{received:?}"
        );
    }
}

#[test]
fn posts_without_a_target_are_refused() {
    let mut rig = Rig::new();
    rig.hub.answers_at_once = false;
    let at = rig.login();
    for (message, code) in [
        (post(99, None), nak::NOT_OPEN),
        (post(1, None), nak::INVALID_CONTENT),
        (post(1, Some(Key::item(9, b"A"))), nak::SOURCE_UNKNOWN),
    ] {
        rig.send(at, &message);
        let received = rig.one(at);
        let Message::Ack(ack) = received.message() else { panic!("{received:?}") };
        assert_eq!((ack.ack_id, ack.nak, ack.seq), (7, Some(code), Some(9)), "{ack:?}");
        assert!(ack.text.is_some_and(|text| !text.is_empty()));
    }
    assert_eq!(rig.hub.sent_upstream.len(), 0);
}

#[test]
fn generic_messages_of_items_go_upstream() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 5, "A");
    let generic = |domain, stream| {
        Generic { domain, stream, container: DataType::NO_DATA, ..Generic::default() }.to_vec().unwrap()
    };
    rig.send(at, &generic(Domain::MARKET_PRICE, 5));
    // Messages about the active connection and the load of the consumer are accepted without effect.
    rig.send(at, &generic(Domain::LOGIN, 1));
    rig.send(at, &generic(Domain::MARKET_PRICE, 77));
    let item = rig.hub.item("A");
    let sent_upstream = std::mem::take(&mut rig.hub.sent_upstream);
    assert_eq!(sent_upstream.iter().map(|up| up.1).collect::<Vec<_>>(), [Target::Item(item)]);
    let mut batch = Batch::default();
    batch.push(Kind::Reply, SIDE, item, sent_upstream[0].0, &generic(Domain::MARKET_PRICE, 1));
    rig.apply(&batch);
    assert_eq!(rig.one(at).stream(), 5);
    rig.push_message(item, &generic(Domain::MARKET_PRICE, 1));
    assert_eq!(rig.one(at).stream(), 5);
    assert_eq!(rig.disconnects, []);
}
