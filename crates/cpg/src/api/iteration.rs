//! Iterations over groups and their members in the cluster.

use std::collections::VecDeque;
use std::ffi::c_int;

use super::{guard, name_at, put};
use crate::directory::{self, Entry};
use crate::handles;
use crate::types::{
    CpgDescription, CpgName, CsError, ITERATION_ALL, ITERATION_NAME_ONLY, ITERATION_ONE_GROUP,
};

/// `cs_error_t cpg_iteration_initialize(cpg_handle_t handle, cpg_iteration_type_t type, const struct cpg_name *group,
/// cpg_iteration_handle_t *iteration)`
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_iteration_initialize(
    handle: u64,
    kind: c_int,
    group: *const CpgName,
    iteration: *mut u64,
) -> CsError {
    guard(|| {
        // SAFETY: as the caller promises.
        let name = if group.is_null() { None } else { Some(unsafe { name_at(group) }?) };
        let known = matches!(kind, ITERATION_NAME_ONLY | ITERATION_ONE_GROUP | ITERATION_ALL);
        if iteration.is_null() || !known || (kind == ITERATION_ONE_GROUP) != name.is_some() {
            return Err(CsError::InvalidParam);
        }
        let instance = handles::get(handle)?;
        let mut entries = directory::ask(&instance.node).map_err(|_| CsError::Library)?;
        if let Some(name) = name {
            entries.retain(|entry| entry.name == name);
        }
        if kind == ITERATION_NAME_ONLY {
            entries.dedup_by(|a, b| a.name == b.name);
        }
        let number = handles::add_iteration(handle, describe(&entries, kind == ITERATION_NAME_ONLY));
        // SAFETY: as the caller promises.
        unsafe { put(iteration, number) }
    })
}

fn describe(entries: &[Entry], names_only: bool) -> VecDeque<CpgDescription> {
    let describe = |entry: &Entry| {
        let (nodeid, pid) = if names_only { (0, 0) } else { (entry.nodeid, entry.pid) };
        CpgDescription { group: entry.name.to_c(), nodeid, pid }
    };
    entries.iter().map(describe).collect()
}

/// `cs_error_t cpg_iteration_next(cpg_iteration_handle_t iteration, struct cpg_iteration_description_t *description)`
///
/// # Safety
/// `description` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_iteration_next(
    iteration: u64,
    description: *mut CpgDescription,
) -> CsError {
    guard(|| {
        if description.is_null() {
            return Err(CsError::InvalidParam);
        }
        let item = handles::next_item(iteration)?;
        // SAFETY: as the caller promises.
        unsafe { put(description, item) }
    })
}

/// `cs_error_t cpg_iteration_finalize(cpg_iteration_handle_t iteration)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cpg_iteration_finalize(iteration: u64) -> CsError {
    guard(|| handles::end_iteration(iteration))
}
