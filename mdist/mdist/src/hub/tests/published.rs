//! Items that a non-interactive provider publishes: the hub is the cache of record.

use super::super::*;
use super::models::{Fields, Stream, class_of, encode, price_key, update_message};
use super::rig::{OK, Rig, STALE, listed};
use rssl::rdm::directory::{Action, Service as Listed, ServiceState};
use rssl::rwf::{Ack, Class, DataState, DataType, Domain, Post, PostFlags, PostUser, StreamState, nak};

/// A publisher that offers service 5 under its own id 1.
pub(super) fn publisher(rig: &mut Rig) -> usize {
    let up = rig.model(true);
    rig.services(up, vec![listed(1, "QUOTES", true)]);
    up
}

pub(super) fn publish(rig: &mut Rig, up: usize, stream: i32, name: &str) {
    let opened = Stream {
        name: name.into(),
        domain: Domain::MARKET_PRICE,
        streaming: true,
        private: false,
        service: 1,
    };
    rig.models[up].streams.insert(stream, opened);
    rig.image(up, stream, false);
    rig.run();
}

/// Opens an item; the hub uses the publisher's service id.
pub(super) fn open(rig: &mut Rig, side: usize, name: &str, streaming: bool) -> Token {
    let token = rig.start_in(1, side, name, streaming, false);
    rig.run();
    token
}

#[test]
fn items_are_available_once_published() {
    let mut rig = Rig::new(Options::default(), 2);
    let up = publisher(&mut rig);
    let early = open(&mut rig, 0, "A", false);
    assert_eq!(
        rig.view(0, early).refused,
        Some((StreamState::Closed, 1)),
        "a snapshot request gets one response"
    );
    publish(&mut rig, up, -6, "A");
    rig.updated("A");
    let a = open(&mut rig, 0, "A", true);
    let b = open(&mut rig, 1, "A", false);
    assert_eq!(rig.view(0, a).state, OK);
    assert_eq!(rig.view(1, b).state, Some((StreamState::NonStreaming, DataState::Ok)));
    assert_eq!(rig.view(1, b).fields, rig.table["A"]);
    rig.updated("A");
    assert_eq!(rig.view(0, a).updates, 1);
    // A whole image again, unsolicited.
    publish(&mut rig, up, -6, "A");
    assert_eq!((rig.view(0, a).state, rig.view(0, a).images), (OK, 2));
    rig.check();
    assert!(rig.models[up].seen.is_empty(), "publishers get no requests");
    rig.end(0, a);
    rig.pass(Now::from_secs(60));
    assert_eq!(rig.hub.items(), 1, "it stays without holders");
}

#[test]
fn items_of_a_lost_publisher_are_stale_until_published_again() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    for n in 0..20 {
        publish(&mut rig, up, -10 - n, &format!("N{n}"));
    }
    let tokens: Vec<_> = (0..20).map(|n| open(&mut rig, 0, &format!("N{n}"), true)).collect();
    rig.down(up);
    assert!(tokens.iter().all(|t| rig.view(0, *t).state == STALE));
    let late = open(&mut rig, 0, "N3", true);
    assert_eq!((rig.view(0, late).state, rig.view(0, late).images), (STALE, 1));
    let unknown = open(&mut rig, 0, "N99", true);
    assert_eq!(rig.view(0, unknown).notices.len(), 1, "it may be published after a reconnect");
    for n in 0..20 {
        rig.update(&format!("N{n}"));
    }
    rig.models[up].alive = true;
    rig.hub.upstream_up(rig.now, UpstreamId(up as u16), true, &mut rig.out);
    rig.services(up, vec![listed(1, "QUOTES", true)]);
    // Other stream ids than before.
    for n in 0..20 {
        publish(&mut rig, up, -500 - n, &format!("N{n}"));
    }
    publish(&mut rig, up, -7, "N99");
    rig.check_all();
    rig.update("N5");
    rig.updated("N99");
    rig.check_all();
}

#[test]
fn published_items_recover_from_the_cache_when_their_service_is_up() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let a = open(&mut rig, 0, "A", true);
    for is_up in [false, true] {
        let state = Listed { info: None, ..listed(1, "QUOTES", is_up) };
        rig.change(up, Action::Update, state);
        rig.updated("A");
        assert_eq!(rig.view(0, a).state, if is_up { OK } else { STALE });
    }
    rig.check_all();
}

#[test]
fn first_publisher_of_an_item_owns_it_until_lost() {
    let mut rig = Rig::new(Options::default(), 1);
    let (first, second) = (publisher(&mut rig), publisher(&mut rig));
    publish(&mut rig, first, -6, "A");
    publish(&mut rig, second, -9, "A");
    let a = open(&mut rig, 0, "A", true);
    rig.updated("A");
    assert_eq!(rig.view(0, a).updates, 1, "the update of one of the two publishers");
    rig.down(first);
    assert_eq!(rig.view(0, a).state, STALE);
    publish(&mut rig, second, -9, "A");
    rig.updated("A");
    rig.check_all();
}

#[test]
fn item_closed_by_its_publisher_ends() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let a = open(&mut rig, 0, "A", true);
    rig.models[up].status("A", StreamState::Closed, DataState::Suspect, 0);
    rig.run();
    assert!(rig.view(0, a).over);
    assert_eq!(rig.hub.items(), 0);
    let again = open(&mut rig, 0, "A", true);
    assert_eq!(rig.view(0, again).notices.len(), 1);
    publish(&mut rig, up, -6, "A");
    assert_eq!(rig.view(0, again).state, OK);
}

#[test]
fn early_requests_wait_until_the_item_is_published() {
    let mut rig = Rig::new(Options::default(), 2);
    let up = publisher(&mut rig);
    let first = open(&mut rig, 0, "A", true);
    let second = open(&mut rig, 1, "A", true);
    let third = rig.join(1, second);
    let all = [(0, first), (1, second), (1, third)];
    for (side, token) in all {
        let waits = vec![(StreamState::Open, DataState::Suspect, 0)];
        assert_eq!(rig.view(side, token).notices, waits, "it stays open and gets the cause");
    }
    let once = open(&mut rig, 0, "A", false);
    assert_eq!(rig.view(0, once).refused, Some((StreamState::Closed, 1)), "a snapshot cannot wait");
    rig.pass(Now::from_secs(300));
    assert!(rig.models[up].seen.is_empty(), "publishers get no requests");
    publish(&mut rig, up, -6, "A");
    for (side, token) in all {
        let view = rig.view(side, token);
        assert_eq!((view.state, view.images, view.notices.len()), (OK, 1, 1));
    }
    rig.updated("A");
    rig.check_all();
    assert!(all.iter().all(|(side, token)| rig.view(*side, *token).updates == 1));
    let late = open(&mut rig, 0, "A", true);
    assert_eq!(rig.view(0, late).state, OK);
}

#[test]
fn waiting_request_gets_each_part_of_the_first_image_once() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    let early = open(&mut rig, 0, "A", true);
    rig.parts = 3;
    publish(&mut rig, up, -6, "A");
    assert_eq!((rig.view(0, early).state, rig.view(0, early).images), (OK, 1));
    rig.check_all();
}

#[test]
fn number_of_awaited_items_is_limited() {
    let mut rig = Rig::new(Options { max_awaited: 3, ..Options::default() }, 1);
    let up = publisher(&mut rig);
    let tokens: Vec<_> = (0..4).map(|n| open(&mut rig, 0, &format!("N{n}"), true)).collect();
    let refused = |rig: &Rig, token| rig.view(0, token).refused.map(|r| r.0);
    let of = |rig: &Rig| tokens.iter().map(|t| refused(rig, *t)).collect::<Vec<_>>();
    assert_eq!(of(&rig), [None, None, None, Some(StreamState::ClosedRecover)]);
    // One is published, one is closed: two more may wait.
    publish(&mut rig, up, -6, "N0");
    rig.end(0, tokens[1]);
    let more: Vec<_> = (5..8).map(|n| open(&mut rig, 0, &format!("N{n}"), true)).collect();
    let of: Vec<_> = more.iter().map(|t| refused(&rig, *t)).collect();
    assert_eq!(of, [None, None, Some(StreamState::ClosedRecover)]);
    let known = open(&mut rig, 0, "N0", true);
    assert_eq!(rig.view(0, known).state, OK, "published items do not count");
}

#[test]
fn closed_awaited_items_do_not_accumulate() {
    let mut rig = Rig::new(Options { max_awaited: 3, ..Options::default() }, 1);
    let up = publisher(&mut rig);
    let waits = open(&mut rig, 0, "A", true);
    for n in 0..5_000 {
        let token = open(&mut rig, 0, &format!("N{n}"), true);
        assert!(rig.view(0, token).refused.is_none());
        rig.end(0, token);
    }
    assert_eq!(rig.hub.items(), 1);
    assert!(rig.hub.services.list[0].consumer_queue.len() <= 1024 + 1);
    publish(&mut rig, up, -6, "A");
    assert_eq!(rig.view(0, waits).state, OK);
}

#[test]
fn awaited_items_survive_a_reconnect_of_the_publisher() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    let early = open(&mut rig, 0, "A", true);
    rig.down(up);
    let later = open(&mut rig, 0, "B", true);
    let once = open(&mut rig, 0, "C", false);
    assert_eq!(rig.view(0, once).refused.map(|r| r.0), Some(StreamState::ClosedRecover));
    rig.pass(Now::from_secs(60));
    rig.models[up].alive = true;
    rig.hub.upstream_up(rig.now, UpstreamId(up as u16), true, &mut rig.out);
    rig.services(up, vec![listed(1, "QUOTES", true)]);
    rig.pass(Now::from_secs(60));
    publish(&mut rig, up, -9, "A");
    publish(&mut rig, up, -3, "B");
    rig.updated("A");
    assert_eq!((rig.view(0, early).images, rig.view(0, later).images), (1, 1));
    rig.check_all();
    assert!(rig.models[up].seen.is_empty());
}

#[test]
fn provider_of_the_same_service_gets_requests_for_unpublished_items() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    let early = open(&mut rig, 0, "A", true);
    let other = rig.model(false);
    rig.services(other, vec![listed(77, "QUOTES", true)]);
    assert_eq!((rig.view(0, early).state, rig.models[other].requests), (OK, 1));
    publish(&mut rig, up, -6, "B");
    let b = open(&mut rig, 0, "B", true);
    assert_eq!((rig.view(0, b).state, rig.models[other].requests), (OK, 1));
}

#[test]
fn publisher_that_accepts_no_requests_is_served() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = rig.model(true);
    let state = Some(ServiceState { up: true, accepting: false, status: None });
    rig.services(up, vec![Listed { state: state.clone(), ..listed(1, "QUOTES", true) }]);
    let shown = |rig: &Rig| rig.hub.services().services[0].state.clone().map(|s| (s.up, s.accepting));
    assert_eq!(shown(&rig), Some((true, true)));
    let early = open(&mut rig, 0, "A", true);
    publish(&mut rig, up, -6, "A");
    let late = open(&mut rig, 0, "A", true);
    assert_eq!((rig.view(0, early).state, rig.view(0, late).state), (OK, OK));
    let mut rig = Rig::new(Options::default(), 1);
    let up = rig.model(false);
    rig.services(up, vec![Listed { state, ..listed(1, "QUOTES", true) }]);
    assert_eq!(shown(&rig), Some((true, false)), "it holds for an interactive provider");
}

#[test]
fn posts_reach_the_publisher_on_its_login_stream() {
    let mut rig = Rig::new(Options { posts: super::super::Posts::Publisher, ..Options::default() }, 1);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let a = open(&mut rig, 0, "A", true);
    let flags = PostFlags::ACK | PostFlags::COMPLETE;
    let post = Post { domain: Domain::MARKET_PRICE, stream: 3, flags, post_id: Some(5), ..Post::default() };
    let message = post.to_vec().unwrap();
    let to = Target::Item(rig.view(0, a).item.unwrap());
    rig.handle(HubRequest::SendUpstream { side: SideId(0), token: a, to, message });
    let seen = rig.models[up].seen.clone();
    let post = Post::decode(&seen[0]).unwrap();
    let key = post.key.expect("which item it is for");
    assert_eq!((post.stream, key.service, key.name), (1, Some(1), Some(&b"A"[..])));
    assert_eq!(rig.view(0, a).replies.len(), 1);
    assert_eq!(class_of(&rig.view(0, a).replies[0]), Class::Ack);
}

/// Posts to the item `name` of the service, off its stream; returns the nak code of the answer.
fn contribute(rig: &mut Rig, token: Token, name: &str, container: DataType, payload: &[u8]) -> Option<u8> {
    let post = Post {
        domain: Domain::MARKET_PRICE,
        stream: 1,
        flags: PostFlags::ACK | PostFlags::COMPLETE,
        container,
        post_user: PostUser { addr: 7, id: 9 },
        post_id: Some(5),
        seq: Some(3),
        key: Some(price_key(name)),
        payload,
        ..Post::default()
    };
    let message = post.to_vec().unwrap();
    rig.handle(HubRequest::SendUpstream { side: SideId(0), token, to: Target::Service(1), message });
    let replies = &rig.view(0, token).replies;
    let ack = Ack::decode(replies.last().expect("an answer")).unwrap();
    assert_eq!((ack.ack_id, ack.seq), (5, Some(3)));
    ack.nak
}

#[test]
fn posts_change_the_cached_item_and_reach_all_streams() {
    let mut rig = Rig::new(Options::default(), 2);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let (a, b) = (open(&mut rig, 0, "A", true), open(&mut rig, 1, "A", true));
    let fields = Fields::from([(22, vec![9; 4]), (77, vec![1])]);
    let bare = encode(&fields);
    assert_eq!(contribute(&mut rig, a, "A", DataType::FIELD_LIST, &bare), None);
    let inner = update_message(3, Domain::MARKET_PRICE, &Fields::from([(3, vec![8; 2])]));
    assert_eq!(contribute(&mut rig, a, "A", DataType::MSG, &inner), None);
    let row = rig.table.get_mut("A").unwrap();
    row.extend(fields);
    row.insert(3, vec![8; 2]);
    assert_eq!((rig.view(0, a).updates, rig.view(1, b).updates), (2, 2));
    let late = open(&mut rig, 1, "A", true);
    assert_eq!(rig.view(1, late).images, 1);
    rig.check_all();
    // An image.
    rig.table.insert("A".into(), Fields::from([(1, vec![4])]));
    let image = rig.image_parts(up, -6, false).remove(0);
    assert_eq!(contribute(&mut rig, a, "A", DataType::MSG, &image), None);
    assert_eq!(rig.view(0, a).images, 2);
    assert!(rig.models[up].seen.is_empty(), "stock publishers do not take posts");
}

#[test]
fn posts_are_refused_where_the_settings_say_so() {
    let mut rig = Rig::new(Options { posts: super::super::Posts::Refuse, ..Options::default() }, 1);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let a = open(&mut rig, 0, "A", true);
    let fields = encode(&Fields::from([(22, vec![9; 4])]));
    assert_eq!(contribute(&mut rig, a, "A", DataType::FIELD_LIST, &fields), Some(nak::ACCESS_DENIED));
    assert_eq!(rig.view(0, a).updates, 0);
    rig.check_all();
}

#[test]
fn inapplicable_post_is_refused_and_changes_nothing() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let a = open(&mut rig, 0, "A", true);
    open(&mut rig, 0, "B", true);
    let good = encode(&Fields::from([(22, vec![9; 4])]));
    let list = DataType::FIELD_LIST;
    for name in ["B", "C"] {
        assert_eq!(contribute(&mut rig, a, name, list, &good), Some(nak::SYMBOL_UNKNOWN));
    }
    assert_eq!(contribute(&mut rig, a, "A", list, &good[..6]), Some(nak::INVALID_CONTENT));
    assert_eq!(contribute(&mut rig, a, "A", DataType::MAP, &[0, 0, 0, 0]), Some(nak::INVALID_CONTENT));
    assert_eq!(contribute(&mut rig, a, "A", DataType::MSG, &good), Some(nak::INVALID_CONTENT));
    rig.check();
    assert_eq!(rig.view(0, a).updates, 0);
    rig.down(up);
    assert_eq!(contribute(&mut rig, a, "A", list, &good), Some(nak::SOURCE_DOWN));
}

#[test]
fn forbidden_publisher_messages_are_errors() {
    let mut rig = Rig::new(Options::default(), 1);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -6, "A");
    let mut foreign = rig.image_parts(up, -6, false).remove(0);
    rig.models[up].streams.get_mut(&-6).unwrap().service = 77;
    let unknown = rig.image_parts(up, -6, false).remove(0);
    let mut elsewhere = unknown.clone();
    elsewhere[4..8].copy_from_slice(&(-7i32).to_be_bytes());
    foreign[3] = 7;
    let request = {
        let r = rssl::rwf::Request { domain: Domain::MARKET_PRICE, stream: -6, ..Default::default() };
        r.to_vec().unwrap()
    };
    let mut keyless = update_message(-6, Domain::MARKET_PRICE, &Fields::new());
    keyless.truncate(5);
    for (message, wanted) in [
        (foreign, "has another domain than the stream"),
        (elsewhere, "which the publisher's directory does not have"),
        (request, "of a class that only consumers send"),
        (keyless, "malformed message"),
    ] {
        let error = rig.hub.message(rig.now, UpstreamId(up as u16), &message, &mut rig.out).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn malformed_messages_do_not_panic() {
    let mut rig = Rig::with_provider(Options { cache: true, ..Options::default() }, 1);
    rig.open(0, "A");
    let id = rig.models[0].stream_of("A").unwrap();
    let good = [
        rig.image_parts(0, id, true).remove(0),
        update_message(id, Domain::MARKET_PRICE, &Fields::from([(22, vec![1; 9])])),
    ];
    let mut dice = 0x1234_5678_9ABC_DEFFu64;
    let mut roll = |n: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice as usize % n
    };
    for _ in 0..20_000 {
        let mut message = good[roll(2)].clone();
        for _ in 0..1 + roll(4) {
            let at = roll(message.len());
            message[at] = roll(256) as u8;
        }
        message.truncate(message.len() - roll(3) * roll(message.len()) / 3);
        let _ = rig.hub.message(rig.now, UpstreamId(0), &message, &mut rig.out);
        rig.out.clear();
        if rig.hub.items() == 0 {
            let spec = ItemSpec::new(5, Domain::MARKET_PRICE, &price_key("A"), None, false).unwrap();
            let ask = HubRequest::Open { side: SideId(0), token: 1, spec, worst_qos: None, streaming: true };
            rig.hub.handle(rig.now, ask, &mut rig.out);
        }
    }
}
