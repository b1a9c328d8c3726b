//! Lanes and doorbells under every interleaving and reordering that the memory model allows; the same models with one
//! part left out must fail, because a model that cannot fail shows nothing.
//!
//! `cargo test -p utipc-lanes --release --features loom --test lane_loom`

mod memory;
mod models;

use std::panic::{AssertUnwindSafe, catch_unwind};

use memory::Broken;
use utipc_os::shm::Fence;

type Model = fn(Broken);

/// Runs `model` in all interleavings with at most `preemptions` involuntary switches.
fn explore(model: Model, broken: Broken, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || model(broken));
}

fn fails(model: Model, broken: Broken) {
    let result = catch_unwind(AssertUnwindSafe(|| explore(model, broken, 3)));
    assert!(result.is_err(), "{broken:?} was not detected");
}

#[test]
fn committed_records_are_whole_and_in_order() {
    explore(models::polled, Broken::No, 6);
    for broken in [Broken::Stores, Broken::Loads, Broken::Clear] {
        fails(models::polled, broken);
    }
}

#[test]
fn changing_the_ring_loses_nothing() {
    explore(models::grow, Broken::No, 3);
    fails(models::grow, Broken::Stores);
    fails(models::grow, Broken::Loads);
}

#[test]
fn armed_reader_is_always_woken() {
    explore(models::arm, Broken::No, 6);
    for fence in [Fence::Commit, Fence::Arm, Fence::Park, Fence::Ring] {
        fails(models::arm, Broken::Fence(fence));
    }
}

#[test]
fn two_lanes_of_one_bitmap_word_are_both_reported() {
    explore(models::bitmap, Broken::No, 4);
}

#[test]
fn daemon_is_told_of_a_reader_that_waits_by_its_descriptor() {
    explore(models::descriptor, Broken::No, 6);
    for fence in [Fence::Commit, Fence::Arm] {
        fails(models::descriptor, Broken::Fence(fence));
    }
    explore(models::writable, Broken::No, 4);
    for fence in [Fence::Release, Fence::WantRoom] {
        fails(models::writable, Broken::Fence(fence));
    }
}

#[test]
fn daemon_that_waits_by_its_eventfd_is_told() {
    explore(models::knock, Broken::No, 6);
    for fence in [Fence::Park, Fence::Ring] {
        fails(models::knock, Broken::Fence(fence));
    }
}

#[test]
fn writer_that_waits_for_room_is_always_woken() {
    explore(models::room, Broken::No, 4);
    for fence in [Fence::Release, Fence::WantRoom, Fence::Park, Fence::Ring] {
        fails(models::room, Broken::Fence(fence));
    }
}

#[test]
fn record_sent_while_the_reader_dies_has_one_owner() {
    explore(models::gone, Broken::No, 6);
    fails(models::gone, Broken::Fence(Fence::Ring));
    fails(models::gone, Broken::Fence(Fence::Commit));
}

#[test]
fn frozen_lane_is_read_to_its_end() {
    explore(models::freeze, Broken::No, 6);
}

#[test]
fn frozen_lane_wakes_an_armed_reader() {
    explore(models::freeze_armed, Broken::No, 4);
    for fence in [Fence::Park, Fence::Ring] {
        fails(models::freeze_armed, Broken::Fence(fence));
    }
}

#[test]
fn order_is_kept_when_a_sender_changes_to_its_own_lane() {
    explore(models::order, Broken::No, 3);
    fails(models::order, Broken::Open);
}
