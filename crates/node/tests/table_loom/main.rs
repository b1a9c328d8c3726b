//! The binding table's replica: one reader and the writer, in every interleaving and reordering that the memory model
//! allows; the same models with one rule of the writer broken must fail.
//!
//! `cargo test -p utipc-node --release --features loom --test table_loom`

mod memory;
mod models;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use memory::{Broken, Change};
use models::{Model, Way};

/// Explores a model with at most `preemptions` preemptions, in both ways of the reader.
fn explore(model: &Model, broken: Broken, preemptions: usize) {
    Way::ALL.into_iter().for_each(|way| explore_one(way, model, broken, preemptions));
}

fn explore_one(way: Way, model: &Model, broken: Broken, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let change = Arc::new(model.change(broken));
    let read = model.read;
    builder.check(move || run(way, &change, broken, read));
}

fn run(way: Way, change: &Arc<Change>, broken: Broken, read: models::Read) {
    if broken == Broken::Fence {
        beside::<false>(way, change, broken, read);
    } else {
        beside::<true>(way, change, broken, read);
    }
}

/// Looks up while the change is made, and again after it.
fn beside<const FENCES: bool>(way: Way, change: &Arc<Change>, broken: Broken, read: models::Read) {
    let table = loom::sync::Arc::new(memory::Table::new(change, broken));
    let writer = table.clone();
    let replayed = Arc::clone(change);
    let thread = loom::thread::spawn(move || writer.replay(&replayed.stores));
    read.ask(way, &memory::View::with_grace(table.areas::<FENCES>(), models::GRACE), false);
    thread.join().unwrap();
    read.ask(way, &memory::View::with_grace(table.areas::<FENCES>(), models::GRACE), true);
}

fn fails(model: &Model, broken: Broken) {
    for way in Way::ALL {
        let result = catch_unwind(AssertUnwindSafe(|| explore_one(way, model, broken, 3)));
        assert!(result.is_err(), "the model does not detect {broken:?} by {way:?}");
    }
}

#[test]
fn bound_socket_is_found_while_others_are_bound() {
    let model = models::insert();
    explore(&model, Broken::No, 3);
    fails(&model, Broken::Stores);
    fails(&model, Broken::Fence);
    fails(&model, Broken::RootFirst);
}

#[test]
fn branch_reaches_further_only_after_its_leaf() {
    let model = models::raise();
    explore(&model, Broken::No, 3);
    fails(&model, Broken::ParentFirst);
}

#[test]
fn record_of_a_withdrawn_binding_is_valid_until_no_link_leads_to_it() {
    let model = models::withdraw();
    explore(&model, Broken::No, 3);
    fails(&model, Broken::TagEarly);
}

#[test]
fn memory_is_reused_only_after_its_readers_restart() {
    let model = models::reuse();
    explore(&model, Broken::No, 2);
    fails(&model, Broken::NoVersionStep);
    fails(&model, Broken::EarlyReuse);
}

#[test]
fn moved_table_is_complete_in_the_old_or_the_new_place() {
    for way in Way::ALL {
        models::explore_growth(way, Broken::No, 3);
        let early =
            catch_unwind(AssertUnwindSafe(|| models::explore_growth(way, Broken::SupersededEarly, 3)));
        assert!(
            early.is_err(),
            "{way:?} does not detect a new place that is announced before it is complete"
        );
    }
}

/// Sequential: a reader of a ring whose start is withdrawn ends, wherever it is at that time.
#[test]
fn reader_of_a_ring_whose_start_is_withdrawn_restarts() {
    let stuck = |broken| models::walk_a_ring(broken);
    assert_eq!(stuck(Broken::No), 0);
    assert!(stuck(Broken::RingCheck) > 0, "the model does not detect a missing check of the start");
}
