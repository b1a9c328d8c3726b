//! The binding table's replica: one reader beside the writer, in every interleaving and every reordering that the memory
//! model allows; and the same models with one part of the writer's care left out, which must fail.
//!
//! `cargo test -p utipc-node --release --features loom --test table_loom`

mod memory;
mod models;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use memory::{Broken, Change};
use models::Model;

/// Explores a model with at most `preemptions` switches that no thread asked for.
fn explore(model: &Model, broken: Broken, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let change = Arc::new(model.change(broken));
    let read = model.read;
    builder.check(move || run(&change, broken, read));
}

fn run(change: &Arc<Change>, broken: Broken, read: models::Read) {
    if broken == Broken::Fence {
        beside::<false>(change, broken, read);
    } else {
        beside::<true>(change, broken, read);
    }
}

/// The change is made while the question is asked; and answered as if nothing had been when all is over.
fn beside<const FENCES: bool>(change: &Arc<Change>, broken: Broken, read: models::Read) {
    let table = loom::sync::Arc::new(memory::Table::new(change, broken));
    let writer = table.clone();
    let replayed = Arc::clone(change);
    let thread = loom::thread::spawn(move || writer.replay(&replayed.stores));
    read.ask(&memory::View::with_grace(table.areas::<FENCES>(), models::GRACE), false);
    thread.join().unwrap();
    read.ask(&memory::View::with_grace(table.areas::<FENCES>(), models::GRACE), true);
}

fn fails(model: &Model, broken: Broken) {
    let result = catch_unwind(AssertUnwindSafe(|| explore(model, broken, 3)));
    assert!(result.is_err(), "nobody noticed {broken:?}");
}

#[test]
fn who_stays_is_found_while_others_come() {
    let model = models::insert();
    explore(&model, Broken::No, 3);
    fails(&model, Broken::Stores);
    fails(&model, Broken::Fence);
    fails(&model, Broken::RootFirst);
}

#[test]
fn a_higher_end_is_known_above_only_when_it_is_there_below() {
    let model = models::raise();
    explore(&model, Broken::No, 3);
    fails(&model, Broken::ParentFirst);
}

#[test]
fn who_is_withdrawn_is_believed_in_until_nothing_leads_there() {
    let model = models::withdraw();
    explore(&model, Broken::No, 3);
    fails(&model, Broken::TagEarly);
}

#[test]
fn memory_is_used_again_only_when_its_readers_begin_again() {
    let model = models::reuse();
    explore(&model, Broken::No, 2);
    fails(&model, Broken::NoVersionStep);
    fails(&model, Broken::EarlyReuse);
}

#[test]
fn a_table_that_moves_is_whole_in_one_place_or_the_other() {
    models::explore_growth(Broken::No, 3);
    let early = catch_unwind(AssertUnwindSafe(|| models::explore_growth(Broken::SupersededEarly, 3)));
    assert!(early.is_err(), "nobody noticed that the new place was named before it was ready");
}

/// Sequentially: wherever in a long ring a reader is when its start is withdrawn, it comes out.
#[test]
fn whoever_walks_a_ring_whose_start_has_gone_begins_again() {
    let stuck = |broken| models::walk_a_ring(broken);
    assert_eq!(stuck(Broken::No), 0);
    assert!(stuck(Broken::RingCheck) > 0, "nobody noticed that the start is not looked at");
}
