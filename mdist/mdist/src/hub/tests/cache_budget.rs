//! The budget of the cache: records of items that no side holds are dropped when it is exceeded.

use super::super::*;
use super::published::{open, publish, publisher};
use super::rig::{OK, Rig};

fn rig(budget: usize, hold: Now) -> Rig {
    Rig::new(Options { cache: true, cache_budget: Some(budget), hold, ..Options::default() }, 2)
}

/// Bytes of the record of an item of the model publishers.
fn record() -> usize {
    let mut rig = rig(usize::MAX, Now::ZERO);
    let up = publisher(&mut rig);
    publish(&mut rig, up, -1, "A");
    rig.hub.cache_bytes()
}

#[test]
fn flood_of_items_leaves_the_open_ones_and_stays_within_the_budget() {
    let budget = 40 * record();
    let mut rig = rig(budget, Now::ZERO);
    let up = publisher(&mut rig);
    for n in 0..10 {
        publish(&mut rig, up, -1 - n, &format!("W{n}"));
        open(&mut rig, 0, &format!("W{n}"), true);
    }
    for n in 0..1000 {
        publish(&mut rig, up, -100 - n, &format!("F{n}"));
        rig.update(&format!("F{n}"));
        rig.updated(&format!("W{}", n % 10));
        assert!(rig.hub.cache_bytes() <= budget, "{} bytes after item {n}", rig.hub.cache_bytes());
    }
    assert!((950..1000).contains(&rig.hub.stats().evictions), "{:?}", rig.hub.stats());
    assert_eq!((rig.hub.items(), rig.hub.deadline()), (1010, None), "the items stay");
    for n in 0..10 {
        let late = open(&mut rig, 1, &format!("W{n}"), true);
        assert_eq!((rig.view(1, late).state, rig.view(1, late).images), (OK, 1));
    }
    rig.check_all();
    let (newest, oldest) = (open(&mut rig, 1, "F999", false), open(&mut rig, 1, "F0", false));
    assert_eq!(rig.view(1, newest).fields, rig.table["F999"]);
    assert!(rig.view(1, newest).refused.is_none() && rig.view(1, oldest).refused.is_some());
}

#[test]
fn open_items_alone_may_exceed_the_budget() {
    let mut rig = rig(1, Now::ZERO);
    let up = publisher(&mut rig);
    for n in 0..5 {
        publish(&mut rig, up, -1 - n, &format!("W{n}"));
    }
    assert_eq!((rig.hub.cache_bytes(), rig.hub.stats().evictions), (0, 5));
    let tokens: Vec<_> = (0..5).map(|n| open(&mut rig, 0, &format!("W{n}"), true)).collect();
    assert!(tokens.iter().all(|token| rig.view(0, *token).notices.len() == 1), "each waits for an image");
    for n in 0..5 {
        publish(&mut rig, up, -1 - n, &format!("W{n}"));
    }
    assert!(rig.hub.cache_bytes() > 5 * record() / 2 && rig.hub.deadline().is_none());
    let late = open(&mut rig, 1, "W3", true);
    assert_eq!(rig.view(1, late).state, OK);
    rig.check_all();
    tokens.into_iter().for_each(|token| rig.end(0, token));
    rig.end(1, late);
    rig.pass(Now::ZERO);
    assert_eq!((rig.hub.cache_bytes(), rig.hub.stats().evictions), (0, 10));
}

#[test]
fn least_recently_used_values_go_first_and_come_back_from_upstream() {
    let mut rig = rig(3 * record() + record() / 2, Now::from_secs(60));
    rig.provider();
    for name in ["A", "B", "C"] {
        let token = rig.open(0, name);
        rig.end(0, token);
    }
    let a = rig.snapshot(1, "A");
    assert_eq!((rig.view(1, a).images, rig.models[0].requests), (1, 3));
    rig.open(0, "D");
    assert_eq!((rig.hub.stats().evictions, rig.models[0].requests), (1, 4));
    rig.open(0, "A");
    assert_eq!(rig.models[0].requests, 4, "A was used after B");
    rig.open(0, "B");
    assert_eq!(rig.models[0].requests, 5, "the values of B are gone");
    for name in ["A", "B", "D"] {
        rig.update(name);
    }
    rig.run();
    rig.check_all();
}

#[test]
fn dropped_front_of_an_image_is_not_completed_by_its_rest() {
    let mut rig = rig(1, Now::ZERO);
    let up = publisher(&mut rig);
    rig.parts = 3;
    publish(&mut rig, up, -6, "A");
    let token = open(&mut rig, 0, "A", true);
    assert_eq!((rig.view(0, token).images, rig.view(0, token).notices.len()), (0, 1));
    publish(&mut rig, up, -6, "A");
    assert_eq!(rig.view(0, token).state, OK);
    rig.check_all();
}

#[test]
fn memory_of_closed_items_is_given_back_to_the_byte() {
    let mut rig = rig(1 << 20, Now::ZERO);
    rig.provider();
    let tokens: Vec<_> = (0..50).map(|n| rig.open(0, &format!("I{n}"))).collect();
    for n in 0..500 {
        rig.update(&format!("I{}", n * 7 % 50));
    }
    rig.run();
    let all = rig.hub.cache_bytes();
    assert!(all >= 25 * record(), "{all} bytes");
    rig.down(0);
    rig.back(0);
    rig.check_all();
    tokens.into_iter().for_each(|token| rig.end(0, token));
    assert_eq!((rig.hub.items(), rig.hub.cache_bytes()), (0, 0));
}
