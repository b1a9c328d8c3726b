//! Communication groups.

use std::ffi::c_int;

use utipc::{GroupMessage, GroupMessageKind, GroupRequest, NodeAddr};

use crate::address::TipcAddr;
use crate::call::{Fault, status};
use crate::table;

/// The value of `*err` for a member that has left.
const LEFT: c_int = -1;

/// The sending member, or the one that an event is about.
pub(crate) fn member(group: GroupMessage) -> TipcAddr {
    TipcAddr::new(group.member.service, group.member.instance, 0)
}

/// The value of `*err`: of two events, which return 0 bytes, it tells one from the other.
pub(crate) fn event_code(group: GroupMessage) -> c_int {
    if group.kind == GroupMessageKind::Left { LEFT } else { 0 }
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

/// `int tipc_leave(int sd)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tipc_leave(sd: c_int) -> c_int {
    status(|| Ok(table::get(sd)?.socket.leave()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_of_the_member_is_the_scope_of_the_group() {
        let own = NodeAddr(0x0100_1005);
        let asked = |node| request(TipcAddr::new(4300, 7, node), own, true, false).map_err(drop);
        assert_eq!(asked(0), Ok(GroupRequest::new(4300, 7).with_events()));
        assert_eq!(asked(own.0), Ok(GroupRequest::new(4300, 7).with_events().on_this_node()));
        assert_eq!(asked(9), Err(()));
    }
}
