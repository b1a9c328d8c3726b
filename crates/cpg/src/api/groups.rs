//! Groups: joined, left, sent to, and asked for their members.

use std::ffi::{c_int, c_uint, c_void};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use libc::iovec;
use utipc_os::lock;

use super::{guard, name_at, put};
use crate::directory;
use crate::handles::{self, Instance};
use crate::membership::Membership;
use crate::node;
use crate::types::{
    CpgAddress, CpgName, CsError, DELIVER_INITIAL_TOTEM_CONF, MAX_MESSAGE, MEMBERS_MAX, Reason, TYPE_SAFE,
};

/// How long `cpg_join` waits for the end of an earlier membership of the handle.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// `cs_error_t cpg_join(cpg_handle_t handle, const struct cpg_name *group)`
///
/// # Safety
/// `group` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_join(handle: u64, group: *const CpgName) -> CsError {
    guard(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { name_at(group) }?;
        let instance = handles::get(handle)?;
        if let Some(other) = handles::membership(&name).or_else(|| instance.group()) {
            if !other.is_leaving() {
                return Err(CsError::Exist);
            }
            if !other.wait_ended(LEAVE_LIMIT) {
                return Err(CsError::TryAgain);
            }
        }
        let mut own = lock(&instance.group);
        if own.as_ref().is_some_and(|group| !group.is_leaving()) {
            return Err(CsError::Exist);
        }
        let initial_ring = instance.callbacks.flags & DELIVER_INITIAL_TOTEM_CONF != 0;
        let joined = Membership::join(&instance.node, name, initial_ring, Arc::clone(&instance.inbox));
        let joined = joined.map_err(|error| {
            node::report("cpg_join", &error);
            if error.is_temporary() { CsError::TryAgain } else { CsError::Library }
        })?;
        *own = Some(joined);
        Ok(())
    })
}

/// `cs_error_t cpg_leave(cpg_handle_t handle, const struct cpg_name *group)`
///
/// # Safety
/// `group` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_leave(handle: u64, group: *const CpgName) -> CsError {
    guard(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { name_at(group) }?;
        let own = joined(&*handles::get(handle)?)?;
        if *own.name() != name {
            return Err(CsError::NotExist);
        }
        own.leave(Reason::Leave);
        Ok(())
    })
}

fn joined(instance: &Instance) -> Result<Arc<Membership>, CsError> {
    instance.group().filter(|group| !group.is_leaving()).ok_or(CsError::NotExist)
}

fn multicast(
    handle: u64,
    guarantee: c_int,
    data: impl FnOnce() -> Result<Vec<u8>, CsError>,
) -> Result<(), CsError> {
    let instance = handles::get(handle)?;
    if !(0..=TYPE_SAFE).contains(&guarantee) {
        return Err(CsError::InvalidParam);
    }
    let own = joined(&instance)?;
    if !own.can_send() {
        // Without a copy of the message.
        own.pause();
        return Err(CsError::TryAgain);
    }
    own.multicast(data()?, guarantee == TYPE_SAFE)
}

/// `cs_error_t cpg_mcast_joined(cpg_handle_t handle, cpg_guarantee_t guarantee, const struct iovec *iovec,
/// unsigned int iov_len)`
///
/// # Safety
/// `iovec` points to `iov_len` valid entries.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_mcast_joined(
    handle: u64,
    guarantee: c_int,
    pieces: *const iovec,
    count: c_uint,
) -> CsError {
    guard(|| {
        if pieces.is_null() && count != 0 {
            return Err(CsError::InvalidParam);
        }
        let pieces: &[iovec] = match count {
            0 => &[],
            // SAFETY: the caller guarantees this number of entries.
            _ => unsafe { slice::from_raw_parts(pieces, count as usize) },
        };
        let total = pieces.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.iov_len));
        if total > MAX_MESSAGE {
            // Corosync's cpgbound checks for this one.
            return Err(CsError::InvalidParam);
        }
        multicast(handle, guarantee, || {
            let mut data = Vec::with_capacity(total);
            for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
                if piece.iov_base.is_null() {
                    return Err(CsError::InvalidParam);
                }
                // SAFETY: the caller guarantees that the entry refers to this many bytes.
                data.extend_from_slice(unsafe {
                    slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                });
            }
            Ok(data)
        })
    })
}

/// `cs_error_t cpg_zcb_alloc(cpg_handle_t handle, size_t size, void **buffer)`
///
/// # Safety
/// `buffer` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_zcb_alloc(handle: u64, size: usize, buffer: *mut *mut c_void) -> CsError {
    guard(|| {
        handles::get(handle)?;
        if buffer.is_null() {
            return Err(CsError::InvalidParam);
        }
        // SAFETY: any size may be requested; 0 becomes one byte, so that null means no memory.
        let memory = unsafe { libc::malloc(size.max(1)) };
        if memory.is_null() {
            return Err(CsError::NoMemory);
        }
        // SAFETY: as the caller promises.
        unsafe { put(buffer, memory) }
    })
}

/// `cs_error_t cpg_zcb_free(cpg_handle_t handle, void *buffer)`
///
/// # Safety
/// `buffer` is null or came from `cpg_zcb_alloc`, and is not used again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_zcb_free(_: u64, buffer: *mut c_void) -> CsError {
    // SAFETY: as the caller promises.
    unsafe { libc::free(buffer) };
    CsError::Ok
}

/// `cs_error_t cpg_zcb_mcast_joined(cpg_handle_t handle, cpg_guarantee_t guarantee, void *msg, size_t msg_len)`
///
/// # Safety
/// `message` points to `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_zcb_mcast_joined(
    handle: u64,
    guarantee: c_int,
    message: *mut c_void,
    len: usize,
) -> CsError {
    let piece = iovec { iov_base: message, iov_len: len };
    // SAFETY: one entry, whose bytes the caller guarantees.
    unsafe { cpg_mcast_joined(handle, guarantee, &raw const piece, 1) }
}

/// `cs_error_t cpg_membership_get(cpg_handle_t handle, struct cpg_name *group, struct cpg_address *member_list,
/// int *member_list_entries)`
///
/// # Safety
/// Each pointer is null or valid; the list has room for 128 entries.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_membership_get(
    handle: u64,
    group: *const CpgName,
    list: *mut CpgAddress,
    entries: *mut c_int,
) -> CsError {
    guard(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { name_at(group) }?;
        if list.is_null() || entries.is_null() {
            return Err(CsError::InvalidParam);
        }
        let instance = handles::get(handle)?;
        let members = match handles::membership(&name).filter(|own| !own.is_leaving()) {
            Some(own) => own.members(),
            None => {
                let all = directory::ask(&instance.node).map_err(|_| CsError::Library)?;
                let of_group = all.iter().filter(|entry| entry.name == name);
                of_group.map(|e| CpgAddress { nodeid: e.nodeid, pid: e.pid, reason: 0 }).collect()
            }
        };
        let count = members.len().min(MEMBERS_MAX);
        for (at, member) in members.iter().take(count).enumerate() {
            // SAFETY: the caller guarantees room for this many entries.
            unsafe { list.add(at).write(*member) };
        }
        // SAFETY: as the caller promises.
        unsafe { put(entries, count as c_int) }
    })
}

/// `cs_error_t cpg_flow_control_state_get(cpg_handle_t handle, cpg_flow_control_state_t *state)`
///
/// # Safety
/// `state` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_flow_control_state_get(handle: u64, state: *mut c_int) -> CsError {
    guard(|| {
        let group = handles::get(handle)?.group();
        let waits = group.is_some_and(|group| !group.is_leaving() && !group.can_send());
        // SAFETY: as the caller promises.
        unsafe { put(state, c_int::from(waits)) }
    })
}
