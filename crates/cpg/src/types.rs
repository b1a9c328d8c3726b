//! Types and constants of `corosync/cpg.h` and `corosync/corotypes.h`.

use std::ffi::{c_int, c_uint, c_void};

use crate::name::MAX_NAME;

/// Members that a list can hold.
pub(crate) const MEMBERS_MAX: usize = 128;
/// Longest message. Corosync's own limit lies at about the same length.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;
/// What `cpg_max_atomic_msgsize_get` returns, as Corosync does.
pub(crate) const MAX_ATOMIC: u32 = (1 << 20) - 1024;

pub(crate) const DISPATCH_ONE: c_int = 1;
pub(crate) const DISPATCH_ALL: c_int = 2;
pub(crate) const DISPATCH_BLOCKING: c_int = 3;
pub(crate) const DISPATCH_ONE_NONBLOCKING: c_int = 4;

pub(crate) const ITERATION_NAME_ONLY: c_int = 1;
pub(crate) const ITERATION_ONE_GROUP: c_int = 2;
pub(crate) const ITERATION_ALL: c_int = 3;

pub(crate) const MODEL_V1: c_int = 1;
pub(crate) const DELIVER_INITIAL_TOTEM_CONF: c_uint = 1;

pub(crate) const TYPE_SAFE: c_int = 3;

/// `cs_error_t`, the values that this library returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum CsError {
    /// The call succeeded.
    Ok = 1,
    /// The group's transport has ended, or a bug.
    Library = 2,
    /// Try again later.
    TryAgain = 6,
    /// An argument is out of range or a null pointer, or a message has more than 1 MiB.
    InvalidParam = 7,
    /// No memory.
    NoMemory = 8,
    /// The handle does not exist.
    BadHandle = 9,
    /// The membership does not exist.
    NotExist = 12,
    /// A group name above 128 bytes.
    NameTooLong = 13,
    /// Joined already.
    Exist = 14,
    /// The iteration is at its end.
    NoSections = 27,
}

/// Why a process is in a list of joined or left ones: `cpg_reason_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    #[default]
    Undefined = 0,
    Join = 1,
    Leave = 2,
    NodeDown = 3,
    NodeUp = 4,
    ProcDown = 5,
}

/// `struct cpg_address`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct CpgAddress {
    pub(crate) nodeid: u32,
    pub(crate) pid: u32,
    pub(crate) reason: u32,
}

/// `struct cpg_name`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CpgName {
    pub(crate) length: u32,
    pub(crate) value: [u8; MAX_NAME],
}

/// `struct cpg_iteration_description_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CpgDescription {
    pub(crate) group: CpgName,
    pub(crate) nodeid: u32,
    pub(crate) pid: u32,
}

/// `struct cpg_ring_id`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct CpgRingId {
    pub(crate) nodeid: u32,
    pub(crate) seq: u64,
}

/// `cpg_deliver_fn_t`
pub(crate) type DeliverFn = unsafe extern "C" fn(u64, *const CpgName, u32, u32, *mut c_void, usize);
/// `cpg_confchg_fn_t`
pub(crate) type ConfchgFn = unsafe extern "C" fn(
    u64,
    *const CpgName,
    *const CpgAddress,
    usize,
    *const CpgAddress,
    usize,
    *const CpgAddress,
    usize,
);
/// `cpg_totem_confchg_fn_t`
pub(crate) type TotemFn = unsafe extern "C" fn(u64, CpgRingId, u32, *const u32);

/// `cpg_callbacks_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CpgCallbacks {
    pub(crate) deliver: Option<DeliverFn>,
    pub(crate) confchg: Option<ConfchgFn>,
}

/// `cpg_model_v1_data_t`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct CpgModelV1 {
    pub(crate) model: c_int,
    pub(crate) deliver: Option<DeliverFn>,
    pub(crate) confchg: Option<ConfchgFn>,
    pub(crate) totem: Option<TotemFn>,
    pub(crate) flags: c_uint,
}

const _: () = {
    assert!(size_of::<CpgName>() == 132 && size_of::<CpgAddress>() == 12);
    assert!(size_of::<CpgDescription>() == 140 && size_of::<CpgRingId>() == 16);
    assert!(size_of::<usize>() != 8 || size_of::<CpgModelV1>() == 40);
};
