//! Changes of all items of an upstream in portions, and events in the middle of them.

use rssl::rdm::directory::{Action, GroupStatus, Service as Listed, ServiceState};
use rssl::rwf::{Class, DataState, OwnedState, StreamState};

use super::super::state::PORTION;
use super::super::*;
use super::models::{Answer, class_of};
use super::rig::{LOST, OK, Rig, STALE, listed};

/// Portions of two items.
const SMALL: usize = 2;

/// A provider and its items N0, N1 and so on, with their tokens.
fn with_items(items: usize, portion: usize) -> (Rig, Vec<Token>) {
    let mut rig = Rig::new(Options::default(), 1);
    rig.hub.sweeps.portion = portion;
    rig.provider();
    let tokens = (0..items).map(|n| rig.start(0, &format!("N{n}"), true, false)).collect();
    rig.run();
    rig.pass(Now::ZERO);
    rig.check_all();
    (rig, tokens)
}

fn group(status: Option<OwnedState>, merged_to: Option<Vec<u8>>) -> Listed {
    let groups = vec![GroupStatus { group: vec![0, 7], merged_to, status }];
    Listed { id: 5, groups, ..Listed::default() }
}

fn state(stream: StreamState, data: DataState) -> OwnedState {
    OwnedState { stream, data, code: 0, text: b"feed".to_vec() }
}

/// Numbers of the views in these states, and of statuses that all views have had.
fn views(rig: &Rig, states: &[Option<(StreamState, DataState)>]) -> (Vec<usize>, u32) {
    let views = || rig.sides[0].views.values();
    let counts = states.iter().map(|state| views().filter(|view| view.state == *state).count());
    (counts.collect(), views().map(|view| view.statuses).sum())
}

#[test]
fn each_turn_changes_a_portion_of_the_items() {
    const ITEMS: usize = 5 * PORTION;
    type Event = fn(&mut Hub, Now, &mut Batch);
    fn change(hub: &mut Hub, now: Now, listed: Listed, out: &mut Batch) {
        hub.upstream_services(now, UpstreamId(0), vec![(Action::Update, listed)], false, out);
    }
    let events: [Event; 4] = [
        |hub, now, out| hub.upstream_down(now, UpstreamId(0), "test", out),
        |hub, now, out| {
            let down = ServiceState { up: false, accepting: true, status: None };
            change(hub, now, Listed { id: 5, state: Some(down), ..Listed::default() }, out);
        },
        |hub, now, out| {
            let status = Some(state(StreamState::Open, DataState::Suspect));
            let state = ServiceState { up: true, accepting: true, status };
            change(hub, now, Listed { id: 5, state: Some(state), ..Listed::default() }, out);
        },
        |hub, now, out| {
            change(hub, now, group(Some(state(StreamState::Open, DataState::Suspect)), None), out)
        },
    ];
    for event in events {
        let (mut rig, _) = with_items(ITEMS, PORTION);
        event(&mut rig.hub, rig.now, &mut rig.out);
        let (mut kinds, mut turns) = (Vec::new(), 0);
        loop {
            let statuses = rig.out.entries.iter().filter(|entry| entry.kind == Kind::Covered).count();
            assert!(statuses <= PORTION, "{statuses} in a turn");
            kinds.extend(rig.out.entries.iter().map(|entry| entry.kind));
            turns += 1;
            rig.out.clear();
            if rig.hub.deadline() != Some(Now::ZERO) {
                break;
            }
            rig.hub.tick(rig.now, &mut rig.out);
        }
        let count = |kind| kinds.iter().filter(|other| **other == kind).count();
        assert_eq!((count(Kind::Covered), count(Kind::Message)), (ITEMS, 0));
        assert_eq!((count(Kind::Announced), count(Kind::AnnouncementEnd)), (1, 1));
        assert_eq!((kinds.first(), kinds.last()), (Some(&Kind::Announced), Some(&Kind::AnnouncementEnd)));
        assert!((5..=6).contains(&turns), "{turns}");
    }
}

#[test]
fn message_of_an_item_comes_after_the_status_that_has_not_reached_it_yet() {
    let (mut rig, tokens) = with_items(10, SMALL);
    rig.change(0, Action::Update, group(Some(state(StreamState::Open, DataState::Suspect)), None));
    assert_eq!(views(&rig, &[OK, STALE]), (vec![8, 2], 2));
    let id = rig.models[0].stream_of("N9").unwrap();
    rig.image(0, id, false);
    rig.updated("N8");
    let (good, updated) = (rig.view(0, tokens[9]), rig.view(0, tokens[8]));
    assert_eq!((good.state, good.statuses), (OK, 1), "the image is newer");
    assert_eq!((updated.state, updated.statuses, updated.updates), (STALE, 1, 1));
    rig.pass(Now::ZERO);
    assert_eq!(views(&rig, &[OK, STALE]), (vec![1, 9], 10));
}

#[test]
fn later_changes_of_the_same_items_follow_in_their_order() {
    let (mut rig, tokens) = with_items(10, SMALL);
    rig.change(0, Action::Update, group(Some(state(StreamState::Open, DataState::Suspect)), None));
    rig.change(0, Action::Update, group(Some(state(StreamState::Open, DataState::Ok)), None));
    rig.change(0, Action::Update, group(None, Some(vec![0, 8])));
    // It counts as a member of its old group until the third change.
    rig.change(0, Action::Update, group(Some(state(StreamState::Open, DataState::Suspect)), None));
    rig.status("N9", StreamState::Open, DataState::Ok, 7);
    assert_eq!((rig.view(0, tokens[9]).state, rig.view(0, tokens[9]).statuses), (OK, 4));
    rig.pass(Now::ZERO);
    assert_eq!(views(&rig, &[OK]), (vec![10], 31));
}

#[test]
fn upstream_that_returns_in_the_middle_serves_all_items_again() {
    for (requests, window) in [(0, None), (3, Some(4))] {
        let (mut rig, tokens) = with_items(20, SMALL);
        rig.down(0);
        assert_eq!(views(&rig, &[OK, LOST]), (vec![18, 2], 2));
        rig.models[0].alive = true;
        rig.hub.upstream_up(rig.now, UpstreamId(0), false, &mut rig.out);
        let load = rssl::rdm::directory::Load { open_window: window, ..Default::default() };
        rig.services(0, vec![Listed { load: Some(load), ..listed(5, "QUOTES", true) }]);
        // Requests reach their item before the loss does. They use stream ids that others have had before.
        for token in &tokens[20 - requests..] {
            rig.join(0, *token);
            rig.run();
        }
        // The consumer of this one leaves.
        rig.end(0, tokens[10]);
        rig.pass(Now::from_secs(1));
        rig.check_all();
        assert_eq!((rig.models[0].streams.len(), rig.models[0].closes), (19, 0));
        for (n, token) in tokens.iter().enumerate().filter(|(n, _)| *n != 10) {
            let view = rig.view(0, *token);
            assert_eq!((view.statuses, view.images), (1, 2), "N{n}");
        }
        for n in 0..20 {
            rig.update(&format!("N{n}"));
        }
        rig.run();
        rig.check_all();
    }
}

#[test]
fn upstream_that_is_lost_again_in_the_middle_gives_one_status_for_each_connection() {
    let (mut rig, tokens) = with_items(20, SMALL);
    for _ in 0..3 {
        rig.down(0);
        rig.back(0);
    }
    assert!(rig.hub.stats().held_back == 0);
    rig.pass(Now::from_secs(10));
    rig.check_all();
    assert_eq!(rig.models[0].streams.len(), 20);
    // Items that the first loss had not reached had no stream of the other connections.
    assert!(tokens.iter().all(|token| (1..=3).contains(&rig.view(0, *token).statuses)));
}

#[test]
fn service_that_is_up_again_in_the_middle_is_requested_after_the_statuses() {
    let (mut rig, tokens) = with_items(20, SMALL);
    let streams = rig.models[0].streams.len();
    rig.service_state(0, false, true);
    rig.service_state(0, true, true);
    rig.pass(Now::from_secs(1));
    rig.check_all();
    assert!(tokens.iter().all(|token| (rig.view(0, *token).statuses, rig.view(0, *token).images) == (1, 2)));
    assert_eq!((rig.models[0].streams.len(), rig.models[0].closes), (streams, 0));
}

#[test]
fn service_that_is_offered_again_in_the_middle_has_windows_of_its_own() {
    let (mut rig, _) = with_items(20, SMALL);
    rig.models[0].answer = Answer::Nothing;
    rig.change(0, Action::Delete, Listed { id: 5, ..Listed::default() });
    rig.models[0].streams.clear();
    let load = rssl::rdm::directory::Load { open_limit: Some(8), open_window: Some(8), ..Default::default() };
    rig.change(0, Action::Add, Listed { load: Some(load), ..listed(5, "QUOTES", true) });
    rig.pass(Now::from_secs(1));
    assert_eq!(rig.models[0].streams.len(), 8, "those of the earlier offer do not count");
}

#[test]
fn consumer_that_leaves_in_the_middle_gets_no_status_and_neither_does_a_new_item_in_its_place() {
    let (mut rig, tokens) = with_items(10, SMALL);
    rig.models[0].answer = Answer::Nothing;
    rig.down(0);
    for token in &tokens[2..] {
        rig.end(0, *token);
    }
    rig.back(0);
    rig.models[0].answer = Answer::Image;
    rig.pass(Now::from_secs(10));
    assert_eq!((rig.hub.items(), rig.models[0].streams.len()), (2, 2));
    rig.down(0);
    rig.back(0);
    let new = rig.open(0, "NEW");
    rig.pass(Now::from_secs(10));
    assert_eq!(rig.view(0, new).statuses, 0);
    rig.check_all();
}

#[test]
fn items_move_to_another_source_in_portions_and_once() {
    let (mut rig, tokens) = with_items(20, SMALL);
    rig.provider();
    rig.service_state(0, false, true);
    assert_eq!(views(&rig, &[OK]).1, 2);
    rig.open(0, "NEW");
    rig.updated("N15");
    rig.pass(Now::from_secs(1));
    rig.check_all();
    assert_eq!((rig.models[0].streams.len(), rig.models[1].streams.len()), (0, 21));
    assert!(tokens.iter().all(|token| (rig.view(0, *token).statuses, rig.view(0, *token).images) == (1, 2)));
}

#[test]
fn item_of_a_distributor_gets_one_status_if_its_service_is_withdrawn() {
    for portion in [SMALL, PORTION] {
        let (mut rig, tokens) = with_items(10, portion);
        rig.hub.upstream_recovers(UpstreamId(0));
        // The distributor reports some of its items lost before its directory arrives.
        for n in 4..10 {
            let name = format!("N{n}");
            let stream = rig.models[0].stream_of(&name).unwrap();
            let kept = rig.models[0].streams[&stream].clone();
            rig.models[0].status(&name, StreamState::ClosedRecover, DataState::Suspect, 0);
            rig.models[0].streams.insert(stream, kept);
        }
        rig.run();
        rig.services(0, Vec::new());
        rig.pass(Now::ZERO);
        assert_eq!(views(&rig, &[LOST]), (vec![10], 10));
        assert_eq!((rig.models[0].streams.len(), rig.models[0].closes), (0, 10));
        rig.services(0, vec![listed(5, "QUOTES", true)]);
        rig.pass(Now::from_secs(1));
        rig.check_all();
        assert!(tokens.iter().all(|token| rig.view(0, *token).statuses == 1));
        assert!(rig.models[0].seen.iter().filter(|m| class_of(m) == Class::Request).count() == 20);
    }
}
