//! States, failures and what comes after them.

use super::super::state::PORTION;
use super::super::*;
use super::models::Answer;
use super::rig::{LOST, OK, Rig, STALE, listed};
use super::sides::View;
use rssl::rdm::directory::{Action, GroupStatus, Load, Service as Listed, ServiceState};
use rssl::rwf::{DataState, OwnedState, StreamState};

fn cached() -> Options {
    Options { cache: true, ..Options::default() }
}

fn either() -> [Options; 2] {
    [Options::default(), cached()]
}

// The rows of rssl.md §6.3: the sides get the state that is true upstream.

#[test]
fn row_open_suspect_is_passed_and_the_item_requested_again_ever_more_rarely() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 2);
        let (a, b) = (rig.open(0, "A"), rig.open(1, "A"));
        rig.status("A", StreamState::Open, DataState::Suspect, 0);
        assert_eq!((rig.view(0, a).state, rig.view(1, b).state), (STALE, STALE));
        let requests = rig.models[0].requests;
        rig.models[0].answer = Answer::Stale;
        let mut after = |time| {
            rig.pass(Now::from_millis(time));
            (rig.models[0].requests - requests, rig.hub.stats().stale_requests)
        };
        // After 3, 9, 21, 45, 93, 189, 285 s and so on.
        assert_eq!((after(2_900), after(200)), ((0, 0), (1, 1)));
        assert_eq!((after(87_000), after(3_000)), ((4, 4), (5, 5)));
        assert_eq!(after(10 * 96_000), (15, 15));
        assert_eq!((rig.view(0, a).state, rig.view(1, b).state), (STALE, STALE));
        rig.models[0].answer = Answer::Image;
        // Updates of a stale item pass; the provider's own refresh makes it good.
        rig.updated("A");
        assert_eq!((rig.view(0, a).updates, rig.view(0, a).state), (1, STALE));
        let id = rig.models[0].stream_of("A").unwrap();
        rig.image(0, id, false);
        rig.run();
        rig.check_all();
    }
}

#[test]
fn item_whose_new_image_is_lost_becomes_current_again() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 1);
        let tokens: Vec<Token> = (0..600).map(|n| rig.open(0, &format!("I{n}"))).collect();
        for n in 0..600 {
            rig.models[0].status(&format!("I{n}"), StreamState::Open, DataState::Suspect, 0);
        }
        rig.run();
        rig.pass(Now::from_secs(3));
        // The pace of a recovery.
        assert_eq!(rig.hub.stats().stale_requests, 600);
        assert!(rig.models[0].requests < 1200, "{}", rig.models[0].requests);
        rig.pass(Now::from_millis(20));
        assert_eq!(rig.models[0].requests, 1200);
        for token in tokens {
            assert_eq!(rig.view(0, token).state, OK);
        }
        rig.check_all();
        rig.pass(Now::from_secs(600));
        assert_eq!((rig.models[0].requests, rig.hub.recovered()), (1200, 600));
    }
}

#[test]
fn stale_item_of_a_process_that_did_not_run_is_requested_after_the_messages_that_have_waited() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.open(0, "A");
    rig.status("A", StreamState::Open, DataState::Suspect, 0);
    rig.stand_still(Now::from_secs(10));
    assert_eq!((rig.models[0].requests, rig.hub.stats().stale_requests), (1, 0));
    rig.pass(Now::from_millis(1_500));
    assert_eq!((rig.models[0].requests, rig.hub.stats().stale_requests), (2, 1));
}

#[test]
fn item_that_was_good_in_between_counts_as_stale_from_its_last_change_on() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.open(0, "A");
    let mut becomes = |data, time| {
        rig.status("A", StreamState::Open, data, 0);
        rig.pass(Now::from_millis(time));
        rig.models[0].requests
    };
    assert_eq!(becomes(DataState::Suspect, 1_000), 1);
    assert_eq!(becomes(DataState::Ok, 1_500), 1);
    assert_eq!(becomes(DataState::Suspect, 2_900), 1);
    assert_eq!(becomes(DataState::Suspect, 200), 2);
}

#[test]
fn stale_item_is_not_requested_while_its_service_is_down() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    let a = rig.open(0, "A");
    rig.models[0].status("A", StreamState::Open, DataState::Suspect, 0);
    rig.service_state(0, false, false);
    rig.pass(Now::from_secs(100));
    assert_eq!((rig.models[0].requests, rig.hub.stats().stale_requests), (1, 0));
    rig.service_state(0, true, true);
    assert_eq!((rig.models[0].requests, rig.view(0, a).state), (2, OK));
}

#[test]
fn row_closed_recover_is_passed_and_requested_again() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 1);
        let a = rig.open(0, "A");
        rig.models[0].answer = Answer::Nothing;
        rig.status("A", StreamState::ClosedRecover, DataState::Suspect, 0);
        assert_eq!(rig.view(0, a).state, LOST);
        assert_eq!(rig.models[0].streams.len(), 1, "requested again");
        rig.updated("A");
        assert_eq!(rig.view(0, a).updates, 0, "no update before the refresh");
        let id = rig.models[0].stream_of("A").unwrap();
        rig.image(0, id, true);
        rig.run();
        rig.check_all();
    }
}

#[test]
fn lost_stream_is_closed_if_the_upstream_keeps_it() {
    for keeps in [false, true] {
        let mut rig = Rig::with_provider(Options::default(), 1);
        if keeps {
            rig.hub.upstream_recovers(UpstreamId(0));
        }
        rig.open(0, "A");
        rig.status("A", StreamState::ClosedRecover, DataState::Suspect, 0);
        rig.change(0, Action::Delete, Listed { id: 5, ..Listed::default() });
        // Of a stream that the source has reported lost nothing is left; one that it keeps ends with its service.
        assert_eq!(rig.models[0].closes, if keeps { 1 } else { 0 });
        rig.services(0, vec![listed(5, "QUOTES", true)]);
        rig.pass(Now::from_secs(10));
        rig.check_all();
    }
}

#[test]
fn request_at_which_the_upstream_ends_is_held_back_from_the_second_time_on() {
    let mut rig = Rig::with_provider(Options::default(), 2);
    rig.models[0].answer = Answer::AllBut("BAD");
    rig.open(0, "GOOD");
    let bad = rig.open(1, "BAD");
    let mut end = || {
        rig.down(0);
        rig.back(0);
        rig.pass(Now::from_secs(3));
        rig.models[0].stream_of("BAD").is_some()
    };
    assert_eq!((end(), end()), (true, false));
    let mut after = |seconds| {
        rig.pass(Now::from_secs(seconds));
        rig.models[0].stream_of("BAD").is_some()
    };
    assert_eq!((after(56), after(2)), (false, true));
    assert_eq!(rig.hub.stats().held_back, 1);
    // Several: half of them at a time.
    rig.end(1, bad);
    rig.pass(Now::from_secs(10));
    rig.models[0].answer = Answer::Nothing;
    let others: Vec<Token> = (0..8).map(|n| rig.open(1, &format!("NEW{n}"))).collect();
    for expected in [9, 5] {
        rig.down(0);
        rig.back(0);
        rig.pass(Now::from_secs(3));
        assert_eq!(rig.models[0].streams.len(), expected);
    }
    rig.models[0].answer = Answer::Image;
    rig.pass(Now::from_secs(120));
    assert!(others.iter().all(|token| rig.view(1, *token).state == OK));
    rig.check_all();
}

#[test]
fn row_new_request_while_the_service_is_down_waits() {
    for (up, accepting) in [(false, true), (false, false), (true, false)] {
        let mut rig = Rig::with_provider(Options::default(), 1);
        rig.service_state(0, up, accepting);
        let a = rig.open(0, "A");
        assert_eq!(rig.view(0, a).notices, [(StreamState::ClosedRecover, DataState::Suspect, 0)]);
        assert_eq!(rig.models[0].requests, 0);
        rig.service_state(0, true, true);
        rig.check_all();
    }
}

#[test]
fn row_service_up_but_the_item_is_stale() {
    let mut rig = Rig::with_provider(cached(), 2);
    let a = rig.open(0, "A");
    rig.status("A", StreamState::Open, DataState::Suspect, 0);
    let b = rig.open(1, "A");
    // The present state with the cached data.
    assert_eq!((rig.view(1, b).state, rig.view(1, b).images), (STALE, 1));
    assert_eq!(rig.view(1, b).fields, rig.view(0, a).fields);
    assert_eq!(rig.models[0].requests, 1);
}

#[test]
fn closed_is_final() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 2);
        let (a, b) = (rig.open(0, "A"), rig.open(1, "A"));
        rig.status("A", StreamState::Closed, DataState::Suspect, 3);
        for (side, token) in [(0, a), (1, b)] {
            let view = rig.view(side, token);
            assert_eq!(
                (view.over, view.state, view.code),
                (true, Some((StreamState::Closed, DataState::Suspect)), 3)
            );
        }
        assert_eq!((rig.hub.items(), rig.models[0].closes), (0, 0));
        let again = rig.open(0, "A");
        assert_eq!(rig.view(0, again).state, OK);
        rig.models[0].answer = Answer::NotFound;
        let never = rig.open(0, "B");
        assert_eq!(rig.view(0, never).notices, [(StreamState::Closed, DataState::Suspect, 1)]);
        assert!(rig.view(0, never).over);
        assert_eq!(rig.hub.items(), 1);
    }
}

#[test]
fn item_id_is_not_reused_before_all_sides_release_it() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    let a = rig.open(0, "A");
    let item = rig.view(0, a).item.unwrap();
    rig.models[0].status("A", StreamState::Closed, DataState::Suspect, 0);
    let message = rig.models[0].outgoing.pop_front().unwrap();
    rig.feed(0, &message);
    // The side requests an image before it learns of the end of the item.
    let b = rig.start(0, "B", true, false);
    rig.hub.handle(rig.now, HubRequest::Image { side: SideId(0), token: 999, item }, &mut rig.out);
    rig.sides[0].views.insert(999, View::default());
    rig.run();
    assert_ne!(rig.view(0, b).item, Some(item));
    assert_eq!(rig.view(0, 999).refused, Some((StreamState::Closed, 0)));
    rig.open(0, "C");
    assert_eq!(rig.hub.items(), 2);
    rig.check();
}

#[test]
fn items_recover_when_their_service_comes_up() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 2);
        let tokens: Vec<_> = (0..20).map(|n| rig.open(n % 2, &format!("N{n}"))).collect();
        let before = rig.sides[0].directories;
        rig.service_state(0, false, true);
        assert_eq!(rig.sides[0].directories, before + 1);
        let state = rig.sides[0].directory.clone().unwrap().services[0].state.clone().unwrap();
        assert!(!state.up);
        for (n, token) in tokens.iter().enumerate() {
            assert_eq!(rig.view(n % 2, *token).state, STALE);
        }
        // The provider sends no updates meanwhile; the changes are in its next images.
        for n in 0..20 {
            rig.update(&format!("N{n}"));
        }
        rig.models[0].outgoing.clear();
        rig.service_state(0, true, true);
        rig.pass(Now::from_secs(1));
        rig.check_all();
        assert_eq!((rig.models[0].streams.len(), rig.models[0].closes), (20, 0));
    }
}

#[test]
fn items_recover_when_a_deleted_service_is_offered_again() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 1);
        let a = rig.open(0, "A");
        rig.change(0, Action::Delete, Listed { id: 5, ..Listed::default() });
        rig.models[0].streams.clear();
        assert_eq!(rig.view(0, a).state, LOST);
        let directory = rig.sides[0].directory.clone().unwrap();
        assert_eq!((directory.services.len(), &directory.changes[..]), (0, &[(Action::Delete, 5)][..]));
        let b = rig.open(0, "B");
        assert_eq!(rig.view(0, b).refused, Some((StreamState::ClosedRecover, 15)));
        rig.update("A");
        rig.change(0, Action::Add, listed(9, "QUOTES", true));
        // Services are identified by name: the sides keep the old id when the source uses another.
        assert_eq!(rig.sides[0].directory.clone().unwrap().changes, [(Action::Add, 5)]);
        rig.pass(Now::from_secs(1));
        assert_eq!(rig.models[0].streams.values().map(|s| s.service).collect::<Vec<_>>(), [9]);
        assert_eq!(rig.view(0, a).state, OK);
        rig.check();
    }
}

#[test]
fn directory_refresh_removes_services_that_it_lacks() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    let a = rig.open(0, "A");
    rig.services(0, vec![listed(8, "OTHER", true)]);
    assert_eq!(rig.view(0, a).state, LOST);
    rig.models[0].streams.clear();
    rig.services(0, vec![listed(8, "OTHER", true), listed(5, "QUOTES", true)]);
    rig.pass(Now::from_secs(1));
    rig.check_all();
}

#[test]
fn items_recover_when_their_provider_restarts() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 2);
        let tokens: Vec<_> = (0..50).map(|n| rig.open(0, &format!("N{n}"))).collect();
        let dropped = rig.open(1, "DROPPED");
        rig.down(0);
        assert!(tokens.iter().all(|t| rig.view(0, *t).state == LOST));
        let state = rig.sides[0].directory.clone().unwrap().services[0].state.clone().unwrap();
        assert!(!state.up && state.accepting);
        rig.end(1, dropped);
        let late = rig.open(1, "N7");
        rig.pass(Now::from_secs(30));
        for n in 0..50 {
            rig.update(&format!("N{n}"));
        }
        rig.back(0);
        rig.pass(Now::from_secs(2));
        assert_eq!(rig.view(1, late).state, OK);
        assert_eq!(rig.models[0].streams.len(), 50, "the released item is not requested");
        rig.check_all();
    }
}

/// A request while the source is lost gets the cached image, on a stream that stays open.
#[test]
fn cached_image_of_a_lost_item_is_stale_and_open() {
    let mut rig = Rig::with_provider(cached(), 2);
    let first = rig.open(0, "A");
    rig.down(0);
    assert_eq!(rig.view(0, first).state, LOST);
    let late = rig.open(1, "A");
    rig.run();
    assert_eq!(rig.view(1, late).state, STALE);
    rig.back(0);
    rig.pass(Now::from_secs(2));
    assert_eq!(rig.view(1, late).state, OK);
    rig.check_all();
}

#[test]
fn items_move_to_another_source() {
    for options in either() {
        let mut rig = Rig::new(options, 1);
        let (first, second) = (rig.provider(), rig.provider());
        let tokens: Vec<_> = (0..50).map(|n| rig.open(0, &format!("N{n}"))).collect();
        assert_eq!((rig.models[first].streams.len(), rig.models[second].streams.len()), (50, 0));
        let directories = rig.sides[0].directories;
        for n in 0..50 {
            rig.update(&format!("N{n}"));
        }
        rig.models[first].outgoing.clear();
        rig.down(first);
        rig.pass(Now::from_secs(1));
        assert_eq!(rig.models[second].streams.len(), 50);
        rig.check_all();
        // For the sides the service stayed up.
        assert_eq!(rig.sides[0].directories, directories);
        // The first source is back: items stay where they are.
        rig.back(first);
        rig.open(0, "NEW");
        assert_eq!(rig.models[first].streams.len(), 0);
        rig.service_state(second, false, true);
        rig.pass(Now::from_secs(1));
        assert_eq!((rig.models[first].streams.len(), rig.models[second].streams.len()), (51, 0));
        rig.check_all();
        assert!(tokens.iter().all(|t| rig.view(0, *t).images == 3));
    }
}

#[test]
fn least_loaded_source_is_chosen() {
    let mut rig = Rig::new(Options::default(), 1);
    for factor in [30, 10, 20] {
        let up = rig.model(false);
        let load = Some(Load { load_factor: Some(factor), ..Load::default() });
        rig.services(up, vec![Listed { load, ..listed(5, "QUOTES", true) }]);
    }
    rig.open(0, "A");
    rig.open(0, "B");
    assert_eq!(rig.models.iter().map(|m| m.streams.len()).collect::<Vec<_>>(), [0, 2, 0]);
    rig.down(1);
    rig.pass(Now::from_secs(1));
    assert_eq!(rig.models.iter().map(|m| m.streams.len()).collect::<Vec<_>>(), [0, 0, 2]);
}

#[test]
fn recovery_is_paced_by_rate_and_window() {
    let mut rig = Rig::with_provider(Options { recovery_rate: 2_000, recovery_window: 100, ..cached() }, 1);
    for n in 0..10_000 {
        rig.start(0, &format!("N{n}"), true, false);
    }
    rig.run();
    rig.check_all();
    rig.down(0);
    for n in 0..10_000 {
        rig.update(&format!("N{n}"));
    }
    rig.models[0].answer = Answer::Nothing;
    rig.back(0);
    rig.pass(Now::from_secs(1));
    assert_eq!(rig.models[0].streams.len(), 100, "the window is full");
    rig.models[0].answer = Answer::Image;
    for id in rig.models[0].streams.keys().copied().collect::<Vec<_>>() {
        rig.image(0, id, true);
    }
    rig.run();
    rig.pass(Now::from_secs(2));
    let so_far = rig.models[0].streams.len();
    assert!((4_000..=4_200).contains(&so_far), "{so_far} after two seconds");
    // A consumer's request does not wait for the recovery.
    let new = rig.open(0, "NEW");
    assert_eq!(rig.view(0, new).state, OK);
    rig.pass(Now::from_secs(4));
    rig.check_all();
}

#[test]
fn hub_does_not_wake_for_a_recovery_that_waits_for_space() {
    for (window, limit) in [(None, Some(1)), (Some(1), None)] {
        let mut rig = Rig::with_provider(Options::default(), 1);
        rig.open(0, "A");
        rig.open(0, "B");
        rig.models[0].answer = Answer::Nothing;
        rig.down(0);
        rig.models[0].alive = true;
        rig.hub.upstream_up(rig.now, UpstreamId(0), false, &mut rig.out);
        let load = Some(Load { open_window: window, open_limit: limit, ..Load::default() });
        rig.services(0, vec![Listed { load, ..listed(5, "QUOTES", true) }]);
        rig.now += Now::from_secs(1);
        rig.hub.tick(rig.now, &mut rig.out);
        rig.run();
        assert_eq!(rig.models[0].streams.len(), 1);
        assert!(rig.hub.deadline() > Some(rig.now), "{:?}", rig.hub.deadline());
    }
}

#[test]
fn answer_that_comes_after_the_sources_own_image_is_not_passed_twice() {
    for options in either() {
        let mut rig = Rig::with_provider(options, 1);
        let a = rig.open(0, "A");
        rig.models[0].answer = Answer::Nothing;
        rig.service_state(0, false, true);
        rig.service_state(0, true, true);
        assert_eq!((rig.models[0].requests, rig.view(0, a).images), (2, 1));
        // A server upstream recovers the item itself, and answers the request too.
        let id = rig.models[0].stream_of("A").unwrap();
        rig.image(0, id, false);
        rig.image(0, id, true);
        rig.run();
        assert_eq!((rig.view(0, a).images, rig.view(0, a).state), (2, OK));
        // An image that answers no request is passed, whatever its flags.
        rig.image(0, id, true);
        rig.run();
        assert_eq!(rig.view(0, a).images, 3);
        rig.check_all();
    }
}

#[test]
fn request_without_answer_is_repeated() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.models[0].answer = Answer::Nothing;
    let a = rig.open(0, "A");
    let s = rig.snapshot(0, "S");
    rig.pass(Now::from_secs(14));
    assert_eq!(rig.models[0].requests, 2);
    rig.pass(Now::from_secs(2));
    assert_eq!(rig.view(0, a).notices, [(StreamState::ClosedRecover, DataState::Suspect, 2)]);
    assert_eq!(rig.view(0, s).refused, Some((StreamState::ClosedRecover, 2)));
    assert_eq!((rig.models[0].requests, rig.models[0].closes), (3, 2));
    rig.models[0].answer = Answer::Image;
    rig.pass(Now::from_secs(16));
    assert_eq!(rig.view(0, a).state, OK);
    rig.check();
}

#[test]
fn request_does_not_time_out_while_parts_come() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.parts = 4;
    rig.models[0].answer = Answer::Nothing;
    let a = rig.open(0, "A");
    let id = rig.models[0].stream_of("A").unwrap();
    for part in rig.image_parts(0, id, true) {
        rig.pass(Now::from_secs(10));
        rig.feed(0, &part);
        rig.run();
    }
    assert_eq!((rig.view(0, a).images, rig.hub.stats().timeouts), (1, 0));
    rig.check_all();
}

#[test]
fn requests_to_a_source_that_keeps_closing_back_off() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    rig.models[0].answer = Answer::Recover;
    rig.open(0, "A");
    assert_eq!(rig.models[0].requests, 2);
    rig.pass(Now::from_secs(10));
    let soon = rig.models[0].requests;
    rig.pass(Now::from_secs(600));
    let later = rig.models[0].requests - soon;
    assert!((4..=6).contains(&soon) && (15..=25).contains(&later), "{soon}, then {later}");
    rig.models[0].answer = Answer::Image;
    rig.pass(Now::from_secs(60));
    rig.check_all();
}

#[test]
fn group_status_applies_to_all_items_of_the_group() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    let a = rig.open(0, "A");
    let group = |group: &[u8], merged_to: Option<&[u8]>, status: Option<OwnedState>| Listed {
        id: 5,
        groups: vec![GroupStatus { group: group.to_vec(), merged_to: merged_to.map(<[u8]>::to_vec), status }],
        ..Listed::default()
    };
    let stale =
        OwnedState { stream: StreamState::Open, data: DataState::Suspect, code: 0, text: b"feed".to_vec() };
    rig.change(0, Action::Update, group(&[0, 9], None, Some(stale.clone())));
    assert_eq!(rig.view(0, a).state, OK, "another group");
    rig.change(0, Action::Update, group(&[0, 7], Some(&[0, 8]), None));
    rig.change(0, Action::Update, group(&[0, 7], None, Some(stale.clone())));
    assert_eq!(rig.view(0, a).state, OK, "it is in the group that its group was merged to");
    rig.change(0, Action::Update, group(&[0, 8], None, Some(stale)));
    assert_eq!(rig.view(0, a).state, STALE);
    let lost = OwnedState {
        stream: StreamState::ClosedRecover,
        data: DataState::Suspect,
        code: 0,
        text: Vec::new(),
    };
    rig.models[0].streams.clear();
    rig.change(0, Action::Update, group(&[0, 8], None, Some(lost)));
    rig.pass(Now::from_secs(1));
    rig.check_all();
}

#[test]
fn service_status_applies_to_items_with_an_image() {
    let mut rig = Rig::with_provider(Options::default(), 1);
    let a = rig.open(0, "A");
    rig.models[0].answer = Answer::Nothing;
    let b = rig.open(0, "B");
    let status = Some(OwnedState {
        stream: StreamState::Open,
        data: DataState::Suspect,
        code: 0,
        text: b"feed stale".to_vec(),
    });
    let state = Some(ServiceState { up: true, accepting: true, status });
    rig.change(0, Action::Update, Listed { id: 5, state, ..Listed::default() });
    assert_eq!((rig.view(0, a).state, rig.view(0, b).state, rig.view(0, b).notices.len()), (STALE, None, 0));
}

/// A small generator of random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
fn random_events_end_with_the_publishers_state() {
    for seed in 1..=120u64 {
        let options = Options {
            cache: seed % 2 == 0,
            hold: Now::from_secs(seed % 3),
            recovery_rate: [0, 50][seed as usize % 2],
            recovery_window: 7,
            ..Options::default()
        };
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut rig = Rig::new(options, 3);
        // Sweeps of one, three or all items in a portion.
        rig.hub.sweeps.portion = [1, 3, PORTION][seed as usize / 2 % 3];
        let ups = [rig.provider(), rig.provider()];
        let mut open = Vec::new();
        for _ in 0..400 {
            let name = format!("N{}", dice.roll(12));
            let side = dice.roll(3) as usize;
            let up = ups[dice.roll(2) as usize];
            match dice.roll(14) {
                0..=2 => open.push((side, rig.open(side, &name))),
                3 => drop(rig.snapshot(side, &name)),
                4 if !open.is_empty() => {
                    let (side, token) = open.swap_remove(dice.roll(open.len() as u64) as usize);
                    rig.end(side, token);
                }
                5..=7 => rig.update(&name),
                8 => {
                    rig.parts = 1 + dice.roll(3) as usize;
                    rig.run();
                }
                9 if dice.roll(4) == 0 => {
                    if rig.models[up].alive {
                        rig.down(up);
                    } else {
                        rig.back(up);
                    }
                }
                10 if rig.models[up].alive => {
                    let (is_up, accepting) = (dice.roll(2) == 0, dice.roll(3) > 0);
                    rig.run();
                    rig.service_state(up, is_up, accepting);
                }
                11 if rig.models[up]
                    .stream_of(&name)
                    .is_some_and(|id| rig.models[up].streams[&id].streaming) =>
                {
                    let kinds = [StreamState::Open, StreamState::ClosedRecover];
                    rig.models[up].status(&name, kinds[dice.roll(2) as usize], DataState::Suspect, 0);
                }
                12 => rig.pass(Now::from_millis(dice.roll(3_000))),
                13 => {
                    if let Some((side, token)) = open.get(dice.roll(8) as usize).copied()
                        && rig.view(side, token).item.is_some()
                    {
                        open.push((side, rig.join(side, token)));
                    }
                }
                _ => rig.run(),
            }
            if dice.roll(3) == 0 {
                rig.run();
                rig.pass(Now::ZERO);
                rig.check();
            }
        }
        rig.run();
        for up in ups {
            if !rig.models[up].alive {
                rig.back(up);
            }
            rig.service_state(up, false, true);
            rig.service_state(up, true, true);
        }
        rig.pass(Now::from_secs(120));
        for name in 0..12 {
            rig.update(&format!("N{name}"));
        }
        rig.run();
        rig.check_all();
        let wanted: usize = rig.models.iter().map(|m| m.streams.len()).sum();
        assert!(wanted <= 12, "seed {seed}: one stream per item, {wanted}");
        for (side, token) in open {
            rig.end(side, token);
        }
        rig.pass(Now::from_secs(60));
        assert_eq!(rig.hub.items(), 0, "seed {seed}");
        assert!(rig.models.iter().all(|m| m.streams.is_empty()), "seed {seed}");
    }
}

/// A hub whose provider has just come back, with two items of which the rate lets it request one; returns the name and
/// token of the other one, whose turn has come since.
fn waiting_for_its_turn() -> (Rig, &'static str, Token) {
    let mut rig = Rig::with_provider(Options { recovery_rate: 1, hold: Now::ZERO, ..Options::default() }, 1);
    let items = ["A", "B"].map(|name| (name, rig.open(0, name)));
    rig.service_state(0, false, true);
    rig.service_state(0, true, true);
    assert_eq!(rig.models[0].requests, 3);
    let waiting = items.into_iter().find(|(_, token)| rig.view(0, *token).state != OK).expect("one waits");
    rig.now += Now::from_secs(2);
    (rig, waiting.0, waiting.1)
}

#[test]
fn released_item_in_a_queue_gets_no_new_stream() {
    let (mut rig, name, token) = waiting_for_its_turn();
    rig.end(0, token);
    assert_eq!((rig.models[0].requests, rig.models[0].closes), (3, 1));
    assert_eq!((rig.models[0].stream_of(name), rig.hub.items()), (None, 1));
}

#[test]
fn ended_item_in_a_queue_gets_no_new_stream() {
    let (mut rig, name, _) = waiting_for_its_turn();
    rig.status(name, StreamState::Closed, DataState::Suspect, 3);
    assert_eq!(rig.models[0].requests, 3);
    assert_eq!((rig.models[0].stream_of(name), rig.hub.items()), (None, 1));
}
