//! The quiet period: the group must be whole, and every promise must be kept.

use std::collections::BTreeSet;

use utipc_vsync::{Components, MemberId, View};

use crate::model::Broken;
use crate::world::World;

/// Virtual time in which a group recovers: members that do not answer are left out for a second at a time.
const RECOVERY_MS: u64 = 12_000;
/// Virtual time in which a message reaches all members.
const DELIVERY_MS: u64 = 1500;

pub(crate) fn check(world: &mut World) -> Result<(), Broken> {
    world.run_until(world.now.plus_millis(RECOVERY_MS))?;
    if world.config.components == Components::Primary && !has_majority(world) {
        world.outcome.majority_lost = true;
        return Ok(());
    }
    let all: Vec<MemberId> = world.processes.keys().copied().collect();
    whole(world, &all)?;
    let mut probes = Vec::new();
    for id in &all {
        let Some(probe) = world.send(*id) else {
            return Err(Broken::Stuck(format!("{id} cannot send")));
        };
        probes.push(probe);
    }
    world.run_until(world.now.plus_millis(DELIVERY_MS))?;
    for id in &all {
        if let Some(probe) = probes.iter().find(|probe| !world.model.has(*id, **probe)) {
            return Err(Broken::Stuck(format!("{id} does not receive {probe:x}")));
        }
        let own = world.processes.get(id).map(|process| process.own.clone()).unwrap_or_default();
        if let Some(lost) = own.iter().find(|own| !world.model.has(*id, **own)) {
            return Err(Broken::Stuck(format!("{id} never receives its own {lost:x}")));
        }
        if let Some(open) = world.model.open_token(*id) {
            return Err(Broken::Stuck(format!("{id} never learns the outcome of {open:x}")));
        }
    }
    if world.config.components == Components::Primary { world.model.check_all(&all) } else { Ok(()) }
}

/// All members are in one view of exactly them.
fn whole(world: &World, all: &[MemberId]) -> Result<(), Broken> {
    let expected: BTreeSet<MemberId> = all.iter().copied().collect();
    for id in all {
        let Some(process) = world.processes.get(id) else { continue };
        let members: BTreeSet<MemberId> = process.member.view().into_iter().flat_map(View::members).collect();
        if members != expected || !world.operational().contains(id) {
            let state = process.member.state();
            return Err(Broken::Stuck(format!("{id} is {state:?} with {members:?} of {expected:?}")));
        }
    }
    Ok(())
}

/// Whether the living members outvote the others in the newest view, and in each later one that some of them have
/// accepted: otherwise the group may have to wait for members that are gone.
fn has_majority(world: &World) -> bool {
    let living = || world.processes.values().map(|process| &process.member);
    let newest = living().filter_map(|member| member.view()).max_by_key(|view| view.id);
    let Some(newest) = newest.filter(|view| view.id >= world.model.newest) else { return false };
    let in_newest = |id: MemberId| {
        world.processes.get(&id).and_then(|p| p.member.view()).is_some_and(|view| view.id == newest.id)
    };
    let alive = |id: MemberId| world.processes.contains_key(&id);
    let state = living().any(|m| m.has_state() && m.view().is_some_and(|view| view.id == newest.id));
    let later = living().filter_map(|member| member.accepted()).filter(|view| view.id > newest.id);
    let outvoted = later.into_iter().any(|view| !view.is_majority(alive));
    newest.is_majority(in_newest) && state && !outvoted
}
