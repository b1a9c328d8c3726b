//! `cpg_dispatch`: calls the program's callbacks.

use std::ffi::{c_int, c_void};

use super::guard;
use crate::handles::{self, Instance};
use crate::inbox::{End, Next};
use crate::layer::Event;
use crate::name::Name;
use crate::types::{
    CpgAddress, CpgRingId, CsError, DISPATCH_ALL, DISPATCH_BLOCKING, DISPATCH_ONE, DISPATCH_ONE_NONBLOCKING,
    MEMBERS_MAX,
};

/// `cs_error_t cpg_dispatch(cpg_handle_t handle, cs_dispatch_flags_t dispatch_types)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cpg_dispatch(handle: u64, how: c_int) -> CsError {
    guard(|| {
        let instance = handles::get(handle)?;
        let (waits, once) = match how {
            DISPATCH_ONE => (true, true),
            DISPATCH_ALL => (false, false),
            DISPATCH_BLOCKING => (true, false),
            DISPATCH_ONE_NONBLOCKING => (false, true),
            _ => return Err(CsError::InvalidParam),
        };
        loop {
            let (group, event) = match instance.inbox.next(waits) {
                Next::Event(group, event) => (group, event),
                Next::Empty if once => return Err(CsError::TryAgain),
                // Another thread has finalized the handle, as Corosync does.
                Next::Empty | Next::End(End::Finalized) => return Ok(()),
                Next::End(End::Failed) => return Err(CsError::Library),
            };
            call(handle, &instance, &group, event);
            if instance.inbox.is_finalized() {
                return Err(CsError::BadHandle);
            }
            if once {
                return Ok(());
            }
        }
    })
}

/// A list as passed to programs: at most as many entries as they have room for. Even an empty list has a non-null
/// pointer, as in Corosync, whose Rust binding makes slices of the lists.
fn passed(list: &[CpgAddress]) -> (*const CpgAddress, usize) {
    static NO_ENTRY: CpgAddress = CpgAddress { nodeid: 0, pid: 0, reason: 0 };
    let entries = if list.is_empty() { &raw const NO_ENTRY } else { list.as_ptr() };
    (entries, list.len().min(MEMBERS_MAX))
}

/// Calls the callback of an event, if the program has it. No lock is held: it may call this library.
fn call(handle: u64, instance: &Instance, group: &Name, event: Event) {
    let group = group.to_c();
    let callbacks = &instance.callbacks;
    match event {
        Event::Deliver { nodeid, pid, mut data } => {
            let Some(deliver) = callbacks.deliver else { return };
            let len = data.len();
            // Programs print messages as text; a zero byte behind each does not change its length.
            data.push(0);
            // SAFETY: the program's function for this event; the arguments live during the call.
            unsafe {
                deliver(handle, &raw const group, nodeid, pid, data.as_mut_ptr().cast::<c_void>(), len)
            };
        }
        Event::Change { members, left, joined } => {
            let Some(confchg) = callbacks.confchg else { return };
            let group = &raw const group;
            let ((m, n), (l, o), (j, p)) = (passed(&members), passed(&left), passed(&joined));
            // SAFETY: the program's function for this event; the lists live during the call.
            unsafe { confchg(handle, group, m, n, l, o, j, p) };
        }
        Event::Ring { nodeid, seq, nodes } => {
            let Some(totem) = callbacks.totem else { return };
            let count = nodes.len().min(MEMBERS_MAX) as u32;
            // SAFETY: the program's function for this event; the list lives during the call.
            unsafe { totem(handle, CpgRingId { nodeid, seq }, count, nodes.as_ptr()) };
        }
    }
}
