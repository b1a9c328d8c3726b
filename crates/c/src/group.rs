//! Communication groups.

use std::ffi::{c_char, c_int, c_void};

use utipc::{
    Destination, GroupMessage, GroupPolicy, GroupRequest, NodeAddr, PortId, SlowCounters, SlowMember,
    WaitReason,
};

use crate::address::TipcAddr;
use crate::call::{Fault, count, guard, status};
use crate::{message, table, text};

/// The value of `*err` for a member that has left.
const LEFT: c_int = -1;

/// The sending member, or the subject of an event.
pub(crate) fn member(group: GroupMessage) -> TipcAddr {
    TipcAddr::new(group.member.service, group.member.instance, 0)
}

/// The value of `*err`: distinguishes the two events, which return 0 bytes.
pub(crate) fn event_code(group: GroupMessage) -> c_int {
    if group.kind.has_left() { LEFT } else { 0 }
}

/// The request to join as `member`, whose node is 0 for a group of the cluster, or this process's node.
fn request(member: TipcAddr, own: NodeAddr, events: bool, loopback: bool) -> Result<GroupRequest, Fault> {
    let request = GroupRequest { events, loopback, ..GroupRequest::new(member.kind, member.instance) };
    match member.node {
        0 => Ok(request),
        node if node == own.0 => Ok(request.on_this_node()),
        node => {
            let text = format!(
                "cannot join a group of node {node:x} (0 is the whole cluster, tipc_own_node() this node alone)"
            );
            Err(Fault::new(libc::EINVAL, text))
        }
    }
}

/// `int tipc_join(int sd, struct tipc_addr *member, bool events, bool loopback)`
///
/// # Safety
/// `member` is null or points to an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_join(
    sd: c_int,
    member: *mut TipcAddr,
    events: bool,
    loopback: bool,
) -> c_int {
    status(|| {
        // SAFETY: by the contract.
        let member = unsafe { TipcAddr::read(member) }.ok_or_else(|| Fault::null("the member's address"))?;
        let entry = table::get(sd)?;
        let own = entry.socket.node().address();
        Ok(entry.socket.join(request(member, own, events, loopback)?)?)
    })
}

/// `struct utipc_group_policy`. A C program may pass any bytes: every field is a number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// One of `UTIPC_SLOW_*`.
    slow: u32,
    keys: u32,
    bytes: u32,
    evict_after_ms: u32,
    wait_for_bindings: u32,
}

impl Policy {
    fn policy(self) -> Result<GroupPolicy, Fault> {
        let or = |value: u32, default: u32| if value == 0 { default } else { value };
        let SlowMember::Conflate { keys, bytes } = SlowMember::CONFLATE else {
            return Ok(GroupPolicy::LINUX);
        };
        let slow = match self.slow {
            0 => SlowMember::Wait,
            1 => SlowMember::Drop,
            2 => SlowMember::Conflate { keys: or(self.keys, keys), bytes: or(self.bytes, bytes) },
            3 => SlowMember::Evict { after_ms: self.evict_after_ms },
            other => {
                let text =
                    format!("unknown policy {other} for slow members (0 wait, 1 drop, 2 conflate, 3 evict)");
                return Err(Fault::new(libc::EINVAL, text));
            }
        };
        Ok(GroupPolicy { slow, ignores_bindings: self.wait_for_bindings == 0 })
    }
}

/// `int utipc_join(int sd, const struct tipc_addr *member, bool events, bool loopback,
/// const struct utipc_group_policy *policy)`
///
/// # Safety
/// `member` is null or points to an address, `policy` is null or points to a policy.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_join(
    sd: c_int,
    member: *const TipcAddr,
    events: bool,
    loopback: bool,
    policy: *const Policy,
) -> c_int {
    status(|| {
        // SAFETY: by the contract.
        let member = unsafe { TipcAddr::read(member) }.ok_or_else(|| Fault::null("the member's address"))?;
        // SAFETY: by the contract.
        let policy = unsafe { policy.as_ref() }.map_or(Ok(GroupPolicy::LINUX), |policy| policy.policy())?;
        let entry = table::get(sd)?;
        let own = entry.socket.node().address();
        Ok(entry.socket.join_with_policy(request(member, own, events, loopback)?, policy)?)
    })
}

/// `int utipc_send_keyed(int sd, const void *msg, size_t len, const struct tipc_addr *dst, uint64_t key)`
///
/// # Safety
/// `msg` points to `len` bytes; `dst` is null or points to an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_send_keyed(
    sd: c_int,
    msg: *const c_void,
    len: usize,
    dst: *const TipcAddr,
    key: u64,
) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let (data, to) = unsafe { (message::data(msg, len)?, TipcAddr::read(dst)) };
        Ok(count(table::get(sd)?.socket.send_keyed(data, to.map(TipcAddr::destination), key)?))
    })
}

/// `int utipc_mcast_keyed(int sd, const void *msg, size_t len, const struct tipc_addr *dst, uint64_t key)`
///
/// # Safety
/// As [`utipc_send_keyed`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_mcast_keyed(
    sd: c_int,
    msg: *const c_void,
    len: usize,
    dst: *const TipcAddr,
    key: u64,
) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let (data, to) = unsafe { (message::data(msg, len)?, TipcAddr::read(dst)) };
        let to = to.ok_or_else(|| Fault::null("the address of the multicast"))?;
        let entry = table::get(sd)?;
        let to: Destination = to.multicast(entry.socket.node().address()).into();
        Ok(count(entry.socket.send_keyed(data, Some(to), key)?))
    })
}

/// `int utipc_wait_reason(int sd, char *buf, size_t len, struct tipc_addr *member)`
///
/// # Safety
/// `buf` points to `len` bytes; `member` is null or points to memory for an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_wait_reason(
    sd: c_int,
    buf: *mut c_char,
    len: usize,
    member: *mut TipcAddr,
) -> c_int {
    guard(-1, || {
        let reason = table::get(sd)?.socket.wait_reason();
        let awaited = match reason {
            Some(WaitReason::MemberWindow { member, .. } | WaitReason::MemberAck { member }) => Some(member),
            _ => None,
        };
        let text = reason.map(|reason| reason.to_string()).unwrap_or_default();
        // SAFETY: by the contract.
        unsafe {
            text::store(&text, buf, len);
            TipcAddr::from(awaited.unwrap_or_default()).write(member);
        }
        Ok(c_int::from(reason.is_some()))
    })
}

/// `int utipc_slow_member(int sd, const struct tipc_addr *member, uint64_t *dropped, uint64_t *conflated,
/// uint32_t *kept)`
///
/// # Safety
/// `member` is null or points to an address; the others are null or point to memory of their types.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_slow_member(
    sd: c_int,
    member: *const TipcAddr,
    dropped: *mut u64,
    conflated: *mut u64,
    kept: *mut u32,
) -> c_int {
    status(|| {
        // SAFETY: by the contract.
        let member = unsafe { TipcAddr::read(member) }.ok_or_else(|| Fault::null("the member's address"))?;
        let wanted = PortId { port: member.instance, node: NodeAddr(member.node) };
        let members = table::get(sd)?.socket.group_members()?;
        let found = members.iter().find(|member| member.port == wanted).ok_or_else(|| {
            Fault::new(libc::EHOSTUNREACH, format!("{wanted} is not a member of the group (see its events)"))
        })?;
        let counted: SlowCounters = found.slow;
        // SAFETY: by the contract.
        unsafe {
            message::put(dropped, counted.dropped);
            message::put(conflated, counted.conflated);
            message::put(kept, counted.kept);
        }
        Ok(())
    })
}

/// `int tipc_leave(int sd)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_leave(sd: c_int) -> c_int {
    status(|| Ok(table::get(sd)?.socket.leave()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_the_default_of_each_value_of_a_policy() {
        let policy = |slow| Policy { slow, ..Policy::default() }.policy().map_err(drop);
        assert_eq!(policy(0), Ok(GroupPolicy::new(SlowMember::Wait)));
        assert_eq!(policy(1), Ok(GroupPolicy::new(SlowMember::Drop)));
        assert_eq!(policy(2), Ok(GroupPolicy::new(SlowMember::CONFLATE)));
        assert_eq!(policy(3), Ok(GroupPolicy::new(SlowMember::Evict { after_ms: 0 })), "refused by the node");
        assert_eq!(policy(4), Err(()));
        let waits = Policy { wait_for_bindings: 1, ..Policy::default() };
        assert_eq!(waits.policy().map_err(drop), Ok(GroupPolicy::LINUX));
    }

    #[test]
    fn node_of_the_member_is_the_scope_of_the_group() {
        let own = NodeAddr(0x0100_1005);
        let asked = |node| request(TipcAddr::new(4300, 7, node), own, true, false).map_err(drop);
        assert_eq!(asked(0), Ok(GroupRequest::new(4300, 7).with_events()));
        assert_eq!(asked(own.0), Ok(GroupRequest::new(4300, 7).with_events().on_this_node()));
        assert_eq!(asked(9), Err(()));
    }
}
