//! Handles: made, finalized, and asked for their properties.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use super::{guard, put};
use crate::handles::{self, Instance};
use crate::node;
use crate::types::{CpgCallbacks, CpgModelV1, CsError, DELIVER_INITIAL_TOTEM_CONF, MAX_ATOMIC, MODEL_V1};

fn initialize(handle: *mut u64, callbacks: CpgModelV1, context: *mut c_void) -> Result<(), CsError> {
    if handle.is_null() || callbacks.flags & !DELIVER_INITIAL_TOTEM_CONF != 0 {
        return Err(CsError::InvalidParam);
    }
    // Programs that find no Corosync try again.
    let node = node::own().map_err(|error| {
        node::report("cpg_initialize", &error);
        CsError::TryAgain
    })?;
    let number = handles::add(Instance::new(node, callbacks, context)?);
    // SAFETY: `handle` is the program's, which passes null or a valid pointer.
    unsafe { put(handle, number) }
}

/// `cs_error_t cpg_initialize(cpg_handle_t *handle, cpg_callbacks_t *callbacks)`
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_initialize(handle: *mut u64, callbacks: *const CpgCallbacks) -> CsError {
    guard(|| {
        let mut model = CpgModelV1 { model: MODEL_V1, ..CpgModelV1::default() };
        if !callbacks.is_null() {
            // SAFETY: it is not null, and valid as the caller promises.
            let CpgCallbacks { deliver, confchg } = unsafe { callbacks.read() };
            model = CpgModelV1 { deliver, confchg, ..model };
        }
        initialize(handle, model, null_mut())
    })
}

/// `cs_error_t cpg_model_initialize(cpg_handle_t *handle, cpg_model_t model, cpg_model_data_t *data, void *context)`
///
/// # Safety
/// Each pointer is null or valid; `data` points to the structure of the model.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_model_initialize(
    handle: *mut u64,
    model: c_int,
    data: *const CpgModelV1,
    context: *mut c_void,
) -> CsError {
    guard(|| {
        if model != MODEL_V1 {
            return Err(CsError::InvalidParam);
        }
        let mut callbacks = CpgModelV1 { model, ..CpgModelV1::default() };
        if !data.is_null() {
            // SAFETY: it is not null, and points to this model's structure as the caller promises.
            callbacks = unsafe { data.read() };
        }
        initialize(handle, callbacks, context)
    })
}

/// `cs_error_t cpg_finalize(cpg_handle_t handle)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cpg_finalize(handle: u64) -> CsError {
    guard(|| handles::finalize(handle))
}

/// `cs_error_t cpg_fd_get(cpg_handle_t handle, int *fd)`
///
/// # Safety
/// `fd` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_fd_get(handle: u64, fd: *mut c_int) -> CsError {
    guard(|| {
        let own = handles::get(handle)?.inbox.descriptor();
        // SAFETY: as the caller promises.
        unsafe { put(fd, own) }
    })
}

/// `cs_error_t cpg_max_atomic_msgsize_get(cpg_handle_t handle, uint32_t *size)`
///
/// # Safety
/// `size` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_max_atomic_msgsize_get(handle: u64, size: *mut u32) -> CsError {
    guard(|| {
        handles::get(handle)?;
        // SAFETY: as the caller promises.
        unsafe { put(size, MAX_ATOMIC) }
    })
}

/// `cs_error_t cpg_context_get(cpg_handle_t handle, void **context)`
///
/// # Safety
/// `context` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_context_get(handle: u64, context: *mut *mut c_void) -> CsError {
    guard(|| {
        let own = handles::get(handle)?.context.load(Relaxed);
        // SAFETY: as the caller promises.
        unsafe { put(context, own) }
    })
}

/// `cs_error_t cpg_context_set(cpg_handle_t handle, void *context)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cpg_context_set(handle: u64, context: *mut c_void) -> CsError {
    guard(|| {
        handles::get(handle)?.context.store(context, Relaxed);
        Ok(())
    })
}

/// `cs_error_t cpg_local_get(cpg_handle_t handle, unsigned int *nodeid)`
///
/// # Safety
/// `nodeid` is null or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cpg_local_get(handle: u64, nodeid: *mut c_uint) -> CsError {
    guard(|| {
        let own = handles::get(handle)?.node.address().0;
        if own == 0 {
            // A kernel node without a bearer.
            return Err(CsError::TryAgain);
        }
        // SAFETY: as the caller promises.
        unsafe { put(nodeid, own) }
    })
}
