//! Work on many streams of one consumer is done in portions, between which all others are served.

use std::time::Duration;

use mdist::mounts::Reason;
use rssl::rwf::{Class, Close, CloseFlags, DataType, Domain, ElementListWriter, RequestFlags};
use rssl::wire::to_vec;

use crate::items::batch;
use crate::support::*;

/// Streams that one portion handles.
const PORTION: usize = 1024;
/// Items of the consumer: some portions.
const ITEMS: usize = 3 * PORTION + 500;

/// A rig with a consumer of [`ITEMS`] items I0, I1 … on streams from 10 on, and one of I7 on stream 5.
fn rig() -> (Rig, usize, usize) {
    let mut rig = Rig::new();
    let (many, one) = (rig.login(), rig.login());
    for number in 0..ITEMS {
        rig.request(many, 10 + number as i32, &format!("I{number}"));
    }
    rig.request(one, 5, "I7");
    rig.received(many);
    rig.received(one);
    (rig, many, one)
}

impl Rig {
    /// Whether work is left for the next turn.
    fn has_work(&self) -> bool {
        self.worker.deadline() == Some(Duration::ZERO)
    }

    /// A turn.
    fn turn(&mut self) {
        self.worker.tick(self.now);
        self.run();
    }
}

#[test]
fn streams_of_a_consumer_that_leaves_end_in_portions_and_others_are_served_meanwhile() {
    let (mut rig, leaves, stays) = rig();
    let id = rig.consumers[leaves].mount;
    rig.consumers[leaves].reads = false;
    rig.worker.closed(id, Reason::PeerClosed).unwrap();
    assert_eq!(rig.worker.closed(id, Reason::PeerClosed), None);
    assert!(rig.worker.mounts().all(|mount| mount != id) && rig.worker.stats(id).is_none());
    rig.run();
    assert!(rig.hub.closes <= PORTION, "{} streams at once", rig.hub.closes);
    let mut turns = 0;
    while rig.has_work() {
        let before = rig.hub.closes;
        rig.turn();
        turns += 1;
        assert!(rig.hub.closes - before <= PORTION, "{} streams in a turn", rig.hub.closes - before);
        // Others are served. The index of the mount is not used again, because its streams still have it.
        rig.push_update("I7");
        assert_eq!(rig.one(stays).stream(), 5);
        if rig.has_work() {
            let new = rig.login();
            assert_ne!(rig.consumers[new].mount.index(), id.index());
            rig.request(new, 10, "NEW");
            assert_eq!(rig.one(new).stream(), 10);
            let last = rig.hub.items.iter().position(|item| {
                item.as_ref().is_some_and(|item| named(&item.spec) == format!("I{}", ITEMS - 1).as_bytes())
            });
            if let Some(last) = last {
                rig.push_message(mdist::hub::ItemId(last as u32), &update(Domain::MARKET_PRICE));
            }
            assert_eq!(rig.received(new), [], "nothing of an item of another mount");
        }
    }
    assert!(turns >= 3, "{turns}");
    assert_eq!(rig.hub.closes, ITEMS - 1, "all items but the one that is still open");
    let new = rig.login();
    assert_eq!(rig.consumers[new].mount.index(), id.index());
}

#[test]
fn consumer_that_logs_out_and_in_again_gets_nothing_of_its_old_streams() {
    let (mut rig, at, _) = rig();
    rig.close_domain(at, 1, Domain::LOGIN);
    assert!(rig.has_work());
    // What it sends meanwhile waits.
    rig.send(at, &login_request("user", &[]));
    rig.request(at, 10, "X");
    while rig.has_work() {
        for name in ["I0", "I1", "I2000"] {
            let open = rig.hub.items.iter().flatten().any(|item| named(&item.spec) == name.as_bytes());
            if open {
                rig.push_update(name);
            }
        }
        rig.turn();
    }
    let received = rig.received(at);
    let seen: Vec<_> = received.iter().map(|one| (one.stream(), one.message().head().class)).collect();
    assert_eq!(seen, [(1, Class::Refresh), (10, Class::Refresh)]);
    assert_eq!(received[1].refresh().key.unwrap().name, Some(&b"X"[..]));
    rig.push_update("X");
    assert_eq!(rig.one(at).stream(), 10);
    assert_eq!(rig.hub.closes, ITEMS - 1);
}

#[test]
fn batches_are_handled_in_portions_and_later_requests_wait() {
    let (mut rig, at) = Rig::logged_in();
    let names: Vec<String> = (0..ITEMS).map(|number| format!("I{number}")).collect();
    let payload = to_vec(|w| {
        let mut list = ElementListWriter::new(w)?;
        list.array_ascii(":ItemList", &names)?;
        list.finish()
    });
    rig.send(at, &batch(100, RequestFlags::STREAMING, &payload.unwrap()));
    assert!(rig.hub.opens <= PORTION && rig.has_work());
    // This close comes after the batch, so it closes the last item of the batch.
    rig.close(at, 100 + ITEMS as i32);
    while rig.has_work() {
        let before = rig.hub.opens;
        rig.turn();
        assert!(rig.hub.opens - before <= PORTION);
    }
    assert_eq!((rig.hub.opens, rig.hub.closes), (ITEMS, 1));
    let received = rig.received(at);
    let images = received.iter().filter(|one| one.message().head().class == Class::Refresh).count();
    assert_eq!(images, ITEMS - 1, "the last stream was closed before its image came");
    let ids: Vec<i64> = (0..ITEMS as i64 - 1).map(|number| 101 + number).collect();
    let payload = to_vec(|w| {
        let mut list = ElementListWriter::new(w)?;
        list.array_int(":StreamIdList", 4, &ids)?;
        list.finish()
    });
    let payload = payload.unwrap();
    let close = Close {
        domain: Domain::MARKET_PRICE,
        stream: 100,
        flags: CloseFlags::BATCH,
        container: DataType::ELEMENT_LIST,
        payload: &payload,
        ..Close::default()
    };
    rig.send(at, &close.to_vec().unwrap());
    assert!(rig.hub.closes <= 1 + PORTION && rig.has_work());
    rig.request(at, 101, "LATER");
    while rig.has_work() {
        rig.turn();
    }
    assert_eq!(rig.hub.closes, ITEMS);
    assert_eq!(rig.one(at).refresh().key.unwrap().name, Some(&b"LATER"[..]));
}

#[test]
fn login_that_pauses_many_items_pauses_them_in_portions() {
    let (mut rig, at, _) = rig();
    let attributes = [("SingleOpen", 1), ("AllowSuspectData", 1)];
    let flags = RequestFlags::STREAMING | RequestFlags::PAUSE;
    rig.send(at, &login_request_on(1, flags, "user", &attributes));
    assert!(rig.has_work());
    while rig.has_work() {
        rig.turn();
    }
    rig.received(at);
    rig.push_update("I3000");
    assert_eq!(rig.received(at), []);
    rig.send(at, &login_request_on(1, RequestFlags::STREAMING, "user", &attributes));
    assert!(rig.hub.image_requests <= PORTION && rig.has_work());
    while rig.has_work() {
        rig.turn();
    }
    assert_eq!(rig.hub.image_requests, ITEMS);
}
