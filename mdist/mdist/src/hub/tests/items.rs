//! Opening, sharing and closing.

use super::super::state::PORTION;
use super::super::*;
use super::models::{Answer, Fields, class_of, price_key, update_message};
use super::rig::{OK, Rig, listed};
use super::sides::View;
use rssl::rwf::{
    Ack, Class, DataState, Domain, Message, Post, PostFlags, Refresh, RefreshFlags, StreamState, nak,
};

#[test]
fn sides_share_one_upstream_stream() {
    let mut rig = Rig::with_provider(Options::default(), 3);
    let tokens: Vec<_> = (0..3).map(|side| rig.open(side, "A")).collect();
    assert_eq!(rig.models[0].streams.len(), 1);
    rig.updated("A");
    for (side, token) in tokens.iter().enumerate() {
        let view = rig.view(side, *token);
        assert_eq!((view.state, view.images, view.updates), (OK, 1, 1));
    }
    // The image for a later request comes from upstream, and only for that request.
    assert_eq!(rig.models[0].requests, 3);
    let more = rig.join(0, tokens[0]);
    assert_eq!((rig.view(0, more).images, rig.view(0, tokens[0]).images), (1, 1));
    rig.check_all();
}

#[test]
fn simultaneous_requests_are_merged() {
    let mut rig = Rig::with_provider(Options::default(), 3);
    for side in 0..3 {
        rig.start(side, "A", true, false);
        rig.start(side, "A", false, false);
    }
    rig.run();
    assert_eq!(rig.models[0].requests, 1);
    rig.updated("A");
    rig.check_all();
    let over: Vec<_> = rig.sides.iter().flat_map(|s| s.views.values()).filter(|v| v.snapshot).collect();
    assert!(over.len() == 3 && over.iter().all(|v| v.over && v.images == 1 && v.updates == 0));
}

#[test]
fn request_between_parts_gets_a_whole_image() {
    let mut rig = Rig::with_provider(Options::default(), 2);
    rig.parts = 3;
    rig.models[0].answer = Answer::Nothing;
    let a = rig.open(0, "A");
    let id = rig.models[0].stream_of("A").unwrap();
    let parts = rig.image_parts(0, id, true);
    rig.feed(0, &parts[0]);
    rig.deliver();
    let b = rig.open(1, "A");
    assert_eq!(rig.view(1, b).images, 0);
    rig.updated("A");
    // Streams with the first part get the update between the parts, the others do not.
    assert_eq!((rig.view(0, a).updates, rig.view(1, b).updates), (1, 0));
    rig.models[0].answer = Answer::Image;
    rig.feed(0, &parts[1]);
    rig.feed(0, &parts[2]);
    rig.run();
    assert_eq!((rig.view(0, a).images, rig.view(1, b).images), (1, 1));
    assert_eq!(rig.models[0].requests, 2);
    rig.updated("A");
    assert_eq!(rig.view(1, b).fields, rig.table["A"]);
}

/// The vendor's example provider sends price points like this, with an update between two parts.
#[test]
fn unnumbered_parts_that_all_clear_the_cache_are_one_image() {
    let mut rig = Rig::with_provider(Options { cache: true, ..Options::default() }, 2);
    rig.parts = 3;
    rig.models[0].answer = Answer::Nothing;
    let a = rig.open(0, "A");
    let id = rig.models[0].stream_of("A").unwrap();
    let unnumbered = |bytes: &Vec<u8>| {
        let Ok(Message::Refresh(refresh)) = Message::decode(bytes) else { panic!("a refresh") };
        let flags = refresh.flags.with(RefreshFlags::CLEAR_CACHE);
        Refresh { part: None, flags, ..refresh.clone() }.to_vec().unwrap()
    };
    let parts: Vec<_> = rig.image_parts(0, id, true).iter().map(unnumbered).collect();
    rig.feed(0, &parts[0]);
    rig.deliver();
    rig.updated("A");
    rig.feed(0, &parts[1]);
    rig.feed(0, &parts[2]);
    rig.run();
    assert_eq!((rig.view(0, a).images, rig.view(0, a).updates), (1, 1));
    let b = rig.open(1, "A");
    rig.updated("A");
    assert_eq!(rig.models[0].requests, 1, "the cache has the whole image");
    assert_eq!(rig.view(1, b).fields, rig.table["A"]);
}

#[test]
fn pending_updates_are_in_the_next_cached_image() {
    for count in [1, 2, 31, 32, 33, 64, 150] {
        let mut rig = Rig::with_provider(Options { cache: true, ..Options::default() }, 2);
        for name in ["A", "B", "C"] {
            rig.open(0, name);
        }
        for n in 0..count {
            rig.update(["A", "B", "A", "C"][n % 4]);
        }
        rig.run();
        for name in ["A", "B", "C"] {
            rig.open(1, name);
        }
        rig.check_all();
        assert_eq!(rig.models[0].requests, 3, "the cache has the images");
    }
}

#[test]
fn pending_updates_do_not_reach_the_next_item_in_the_place() {
    let options = Options { cache: true, hold: Now::ZERO, ..Options::default() };
    let mut rig = Rig::with_provider(options, 2);
    let a = rig.open(0, "A");
    let place = rig.view(0, a).item;
    for _ in 0..5 {
        rig.update("A");
    }
    rig.run();
    rig.end(0, a);
    let b = rig.open(0, "B");
    assert_eq!(rig.view(0, b).item, place, "the id is reused");
    rig.updated("B");
    rig.open(1, "B");
    rig.check_all();
}

#[test]
fn uncacheable_update_uncaches_only_its_item() {
    let mut rig = Rig::with_provider(Options { cache: true, ..Options::default() }, 2);
    let (a, _) = (rig.open(0, "A"), rig.open(0, "B"));
    let id = rig.models[0].stream_of("A").unwrap();
    for n in 0..40 {
        rig.update(if n % 2 == 0 { "A" } else { "B" });
        if n == 10 {
            // Field 0 switches dictionaries.
            let switch = update_message(id, Domain::MARKET_PRICE, &[(0, vec![1])].into());
            rig.models[0].outgoing.push_back(switch);
        }
    }
    rig.run();
    assert_eq!(rig.view(0, a).updates, 21, "all updates passed");
    let (c, d) = (rig.open(1, "A"), rig.open(1, "B"));
    assert_eq!((rig.hub.stats().cache_errors, rig.models[0].requests), (1, 3), "only A is requested again");
    assert_eq!((&rig.view(1, c).fields, &rig.view(1, d).fields), (&rig.table["A"], &rig.table["B"]));
}

#[test]
fn refreshes_without_flags_are_accepted() {
    let mut rig = Rig::with_provider(Options::default(), 2);
    rig.models[0].answer = Answer::Plain;
    for parts in [1, 4] {
        rig.parts = parts;
        let name = format!("A{parts}");
        rig.open(0, &name);
        rig.open(1, &name);
        rig.updated(&name);
        rig.check_all();
    }
}

#[test]
fn item_is_held_after_its_last_close() {
    let mut rig = Rig::with_provider(Options::default(), 2);
    let a = rig.open(0, "A");
    let b = rig.open(1, "A");
    rig.end(0, a);
    rig.pass(Now::from_secs(60));
    assert_eq!(rig.models[0].closes, 0, "the other side holds it");
    rig.end(1, b);
    rig.pass(Now::from_secs(4));
    assert_eq!(rig.models[0].closes, 0);
    rig.updated("A");
    // Opened again within the hold: an image is requested on the stream, which is still open.
    let a = rig.open(0, "A");
    rig.pass(Now::from_secs(4));
    assert_eq!((rig.models[0].closes, rig.models[0].streams.len()), (0, 1));
    rig.check_all();
    rig.end(0, a);
    rig.pass(Now::from_secs(6));
    assert_eq!((rig.models[0].closes, rig.models[0].streams.len(), rig.hub.items()), (1, 0, 0));
}

#[test]
fn without_hold_items_are_closed_at_once() {
    let mut rig = Rig::with_provider(Options { hold: Now::ZERO, ..Options::default() }, 1);
    for _ in 0..5 {
        let a = rig.open(0, "A");
        rig.updated("A");
        rig.check_all();
        rig.end(0, a);
        assert_eq!((rig.models[0].streams.len(), rig.hub.items()), (0, 0));
    }
}

#[test]
fn open_under_way_keeps_an_item_that_is_being_closed() {
    let mut rig = Rig::with_provider(Options { hold: Now::ZERO, ..Options::default() }, 1);
    let a = rig.open(0, "A");
    let item = rig.view(0, a).item.unwrap();
    // The side gives back the first hold before it learns of the second.
    rig.start(0, "A", true, false);
    rig.hub.handle(rig.now, HubRequest::Close { side: SideId(0), item, holds: 1 }, &mut rig.out);
    rig.forget(0, a);
    rig.run();
    rig.updated("A");
    assert_eq!(rig.models[0].streams.len(), 1);
    rig.check_all();
}

#[test]
fn late_messages_of_a_closed_stream_are_dropped() {
    let mut rig = Rig::with_provider(Options { hold: Now::ZERO, ..Options::default() }, 1);
    let a = rig.open(0, "A");
    let old = rig.models[0].stream_of("A").unwrap();
    let late_image = rig.image_parts(0, old, true).remove(0);
    rig.end(0, a);
    let b = rig.open(0, "B");
    let new = rig.models[0].stream_of("B").unwrap();
    assert_ne!(old, new, "the stream id is not reused yet");
    let item = rig.view(0, b).item.unwrap();
    assert_eq!(item, ItemId(0), "the item id is reused at once");
    rig.feed(0, &update_message(old, Domain::MARKET_PRICE, &Fields::from([(22, vec![9; 9])])));
    rig.feed(0, &late_image);
    assert!(rig.out.is_empty());
    assert_eq!(rig.hub.stats().late, 2);
    rig.check_all();
    rig.end(0, b);
    rig.pass(Now::from_secs(11));
    rig.open(0, "C");
    assert_eq!(rig.models[0].stream_of("C"), Some(old));
    rig.check_all();
}

#[test]
fn burst_of_100_000_opens_is_served() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    for n in 0..100_000 {
        rig.start(0, &format!("N{n}"), true, false);
    }
    rig.run();
    assert_eq!((rig.models[0].streams.len(), rig.hub.items()), (100_000, 100_000));
    rig.check_all();
    rig.down(0);
    assert_eq!(rig.models[0].streams.len(), 0);
}

#[test]
fn ends_of_many_holds_and_queued_requests_are_spread_over_ticks() {
    const ITEMS: usize = 5_000;
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.service_state(0, false, true);
    let tokens: Vec<_> = (0..ITEMS).map(|n| rig.start(0, &format!("N{n}"), true, false)).collect();
    rig.run();
    // The service comes up, and all requests that wait may be sent.
    rig.service_state(0, true, true);
    let mut requested = rig.models[0].requests;
    assert!(requested <= PORTION && rig.hub.deadline() == Some(Now::ZERO), "{requested}");
    while rig.hub.deadline() == Some(Now::ZERO) {
        rig.hub.tick(rig.now, &mut rig.out);
        rig.run();
        assert!(rig.models[0].requests - requested <= PORTION);
        requested = rig.models[0].requests;
    }
    assert_eq!(requested, ITEMS);
    rig.check_all();
    for token in tokens {
        rig.end(0, token);
    }
    assert_eq!(rig.hub.items(), ITEMS);
    rig.now += Now::from_secs(6);
    let mut ticks = 0;
    while rig.hub.items() > 0 {
        assert!(rig.hub.deadline().is_some_and(|due| due <= rig.now), "the rest is due at once");
        let before = rig.hub.items();
        rig.hub.tick(rig.now, &mut rig.out);
        rig.run();
        assert!(before - rig.hub.items() <= PORTION);
        ticks += 1;
    }
    assert_eq!((ticks, rig.models[0].closes), (ITEMS.div_ceil(PORTION), ITEMS));
}

#[test]
fn open_window_is_respected() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.window(0, Some(10), None);
    rig.models[0].answer = Answer::Nothing;
    for n in 0..25 {
        rig.open(0, &format!("N{n}"));
    }
    assert_eq!(rig.models[0].streams.len(), 10);
    rig.models[0].answer = Answer::Image;
    let first = *rig.models[0].streams.keys().next().unwrap();
    rig.image(0, first, true);
    rig.run();
    // Each answer lets one more request through.
    assert_eq!(rig.models[0].streams.len(), 25);
    rig.window(0, Some(0), None);
    let stopped = rig.open(0, "STOPPED");
    assert_eq!(rig.view(0, stopped).notices.len(), 1);
    rig.window(0, Some(10), None);
    assert_eq!(rig.view(0, stopped).state, OK);
}

#[test]
fn open_limit_is_respected() {
    let mut rig = Rig::with_provider(Options { hold: Now::ZERO, ..Options::default() }, 1);
    rig.window(0, None, Some(2));
    let a = rig.open(0, "A");
    rig.open(0, "B");
    let c = rig.open(0, "C");
    assert_eq!(rig.models[0].streams.len(), 2);
    assert_eq!(rig.view(0, c).notices, [(StreamState::ClosedRecover, DataState::Suspect, 13)]);
    rig.end(0, a);
    rig.pass(Now::from_secs(1));
    assert_eq!(rig.view(0, c).state, OK);
    rig.check_all();
}

#[test]
fn snapshots_leave_no_items() {
    let mut rig = Rig::with_provider(Options::default(), 2);
    let a = rig.snapshot(0, "A");
    assert_eq!(rig.view(0, a).state, Some((StreamState::NonStreaming, DataState::Ok)));
    assert_eq!((rig.hub.items(), rig.models[0].closes), (0, 0));
    rig.parts = 3;
    let b = rig.snapshot(1, "A");
    assert_eq!((rig.view(1, b).images, rig.view(1, b).over, rig.hub.items()), (1, true, 0));
    rig.models[0].answer = Answer::NotFound;
    let c = rig.snapshot(0, "A");
    assert_eq!((rig.view(0, c).refused, rig.hub.items()), (Some((StreamState::Closed, 1)), 0));
}

#[test]
fn private_streams_are_not_shared_and_end_with_their_source() {
    let mut rig = Rig::with_provider(Options { cache: true, ..Options::default() }, 2);
    let a = rig.start(0, "A", true, true);
    let b = rig.start(1, "A", true, true);
    rig.run();
    assert_eq!(rig.models[0].streams.values().filter(|s| s.private).count(), 2);
    rig.updated("A");
    rig.check_all();
    rig.end(0, a);
    assert_eq!((rig.models[0].streams.len(), rig.models[0].closes), (1, 1));
    rig.down(0);
    assert!(rig.view(1, b).over);
    assert_eq!(rig.view(1, b).state, Some((StreamState::Closed, DataState::Suspect)));
    assert_eq!(rig.hub.items(), 0);
}

#[test]
fn requests_that_cannot_be_met_are_refused() {
    let mut rig = Rig::new(Options { max_items: 2, ..Options::default() }, 1);
    let early = rig.open(0, "A");
    assert_eq!(rig.view(0, early).refused, Some((StreamState::ClosedRecover, 15)));
    rig.provider();
    let ask = |token, domain, qos| HubRequest::Open {
        side: SideId(0),
        token,
        spec: ItemSpec::new(5, domain, &price_key("A"), qos, false).unwrap(),
        worst_qos: None,
        streaming: true,
    };
    let delayed =
        rssl::rwf::Qos { timeliness: rssl::rwf::Timeliness::DelayedUnknown, ..rssl::rwf::Qos::REALTIME_TICK };
    for (token, domain, qos) in [(900, Domain::HEADLINE, None), (901, Domain::MARKET_PRICE, Some(delayed))] {
        rig.sides[0].views.insert(token, Default::default());
        rig.handle(ask(token, domain, qos));
        assert_eq!(rig.view(0, token).refused, Some((StreamState::Closed, 5)));
    }
    // The default QoS means the same item as none.
    rig.sides[0].views.insert(902, Default::default());
    rig.handle(ask(902, Domain::MARKET_PRICE, Some(rssl::rwf::Qos::REALTIME_TICK)));
    rig.open(0, "A");
    assert_eq!(rig.hub.items(), 1);
    rig.open(0, "B");
    let third = rig.open(0, "C");
    assert_eq!(rig.view(0, third).refused, Some((StreamState::ClosedRecover, 13)));
}

fn post(id: u32, complete: bool) -> Vec<u8> {
    let flags = if complete { PostFlags::ACK | PostFlags::COMPLETE } else { PostFlags::ACK };
    let part = if complete { None } else { Some(0) };
    let post =
        Post { domain: Domain::MARKET_PRICE, stream: 77, flags, post_id: Some(id), part, ..Post::default() };
    post.to_vec().unwrap()
}

fn acks(view: &View) -> Vec<(u32, Option<u8>)> {
    let ack = |m: &Vec<u8>| Ack::decode(m).map(|a| (a.ack_id, a.nak)).unwrap();
    view.replies.iter().map(ack).collect()
}

#[test]
fn acknowledgements_reach_their_poster() {
    let mut rig = Rig::with_provider(Options::default(), 2);
    let (a, b) = (rig.open(0, "A"), rig.open(1, "A"));
    let item = Target::Item(rig.view(0, a).item.unwrap());
    let up = |side, token, to, message| HubRequest::SendUpstream { side: SideId(side), token, to, message };
    // Both use the same post id.
    rig.hub.handle(rig.now, up(0, a, item, post(9, true)), &mut rig.out);
    rig.hub.handle(rig.now, up(1, b, Target::Service(5), post(9, true)), &mut rig.out);
    rig.run();
    let posts: Vec<_> = rig.models[0].seen.iter().filter(|m| class_of(m) == Class::Post).collect();
    let posts: Vec<_> = posts.iter().map(|m| Post::decode(m).unwrap()).collect();
    assert_ne!(posts[0].post_id, posts[1].post_id);
    assert_eq!((posts[0].stream, posts[1].stream), (rig.models[0].stream_of("A").unwrap(), 1));
    assert_eq!(acks(rig.view(0, a)), [(9, None)]);
    assert_eq!(acks(rig.view(1, b)), [(9, None)]);
    // Parts share the id, each is answered.
    rig.handle(up(0, a, item, post(10, false)));
    rig.handle(up(0, a, item, post(10, true)));
    assert_eq!(acks(rig.view(0, a)), [(9, None), (10, None), (10, None)]);
    // No answer, a lost source, an unknown service.
    rig.models[0].answer = Answer::Nothing;
    rig.handle(up(0, a, item, post(11, true)));
    rig.pass(Now::from_secs(16));
    rig.handle(up(0, a, item, post(12, true)));
    rig.down(0);
    rig.handle(up(0, a, item, post(13, true)));
    rig.handle(up(0, a, Target::Service(6), post(14, true)));
    let lost = Some(nak::SOURCE_DOWN);
    let wanted = [(11, Some(nak::NO_RESPONSE)), (12, lost), (13, lost), (14, Some(nak::SOURCE_UNKNOWN))];
    assert_eq!(acks(rig.view(0, a))[3..], wanted);
    assert_eq!(acks(rig.view(1, b)).len(), 1);
}

#[test]
fn services_of_two_upstreams_with_one_id_are_distinct() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    let other = rig.model(false);
    rig.services(other, vec![listed(5, "OTHER", true)]);
    let directory = rig.sides[0].directory.clone().unwrap();
    let ids: Vec<_> =
        directory.services.iter().map(|s| (s.id, s.info.as_ref().unwrap().name.as_str())).collect();
    assert_eq!(ids, [(5, "QUOTES"), (6, "OTHER")]);
    let spec = ItemSpec::new(6, Domain::MARKET_PRICE, &price_key("A"), None, false).unwrap();
    rig.sides[0].views.insert(500, View { name: "A".into(), ..Default::default() });
    rig.handle(HubRequest::Open { side: SideId(0), token: 500, spec, worst_qos: None, streaming: true });
    assert_eq!((rig.models[0].streams.len(), rig.models[other].streams.len()), (0, 1));
    assert_eq!(rig.models[other].streams.values().next().unwrap().service, 5);
    rig.updated("A");
    rig.check_all();
}

#[test]
fn snapshot_is_refused_if_the_source_delays_its_image() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.models[0].answer = Answer::Nothing;
    let (a, early) = (rig.open(0, "A"), rig.snapshot(0, "A"));
    assert!(rig.view(0, early).refused.is_none(), "the image may come any moment");
    rig.status("A", StreamState::Open, DataState::Suspect, 0);
    let late = rig.snapshot(0, "A");
    for token in [early, late] {
        assert_eq!(rig.view(0, token).refused.map(|r| r.0), Some(StreamState::ClosedRecover));
    }
    rig.pass(Now::from_secs(300));
    assert_eq!(rig.models[0].requests, 1, "the source has the stream open");
    let id = rig.models[0].stream_of("A").unwrap();
    rig.image(0, id, true);
    rig.run();
    assert_eq!(rig.view(0, a).state, OK);
}
