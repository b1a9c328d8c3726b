//! Requests about the node itself.

use serde::Serialize;
use utipc_attach::{Failure, MAX_AWAITED, MAX_GROUP_MEMBERS, Reply};
use utipc_core::Time;
use utipc_core::addr::PortId;
use utipc_core::group::LeaveError;

use super::Dispatcher;
use super::requests::Done;
use crate::daemon::attachments::AttachmentId;
use crate::daemon::barriers::MAX_BARRIERS;
use crate::daemon::counters::DaemonCounters;
use crate::observe::Counters;

/// Maximum number of bytes of the counters as text: an attribute has at most 64 KiB.
const MAX_TEXT: usize = 65_000;

/// Counters as processes get them.
#[derive(Serialize)]
struct AllCounters {
    #[serde(flatten)]
    node: Counters,
    daemon: DaemonCounters,
}

impl Dispatcher {
    pub(super) fn group_members(&self, port: u32, after: Option<PortId>) -> Done {
        let endpoint = self.endpoint(port, Failure::State)?;
        let Some(group) = endpoint.group() else { return Err(Failure::Leave(LeaveError::NotJoined)) };
        let members = group.members_from(after.unwrap_or_default());
        let members = members.filter(|member| Some(member.port) != after);
        Ok(Reply::GroupMembers(members.take(MAX_GROUP_MEMBERS).collect()))
    }

    pub(super) fn barrier(&mut self, now: Time, id: AttachmentId, number: Option<u32>, last: bool) -> Done {
        let number = match number {
            Some(number) => number,
            None if self.barriers.is_full(id) => {
                return Err(Failure::Limit(format!("{MAX_BARRIERS} barriers of one process at a time")));
            }
            None => self.barriers.insert(id, self.driver.stack.begin_barrier(now)),
        };
        let barrier = self.barriers.get_mut(id, number).ok_or(Failure::State)?;
        let mut nodes = self.driver.stack.awaited(now, barrier);
        if last || nodes.is_empty() {
            self.barriers.remove(id, number);
        }
        nodes.truncate(MAX_AWAITED);
        Ok(Reply::Awaited { number, nodes })
    }

    /// The counters of the node and of the daemon, as JSON; `None` if that is too long.
    pub(super) fn counters_as_text(&self) -> Option<Vec<u8>> {
        let mut daemon = self.count();
        let all = AllCounters { node: std::mem::take(&mut daemon.node), daemon };
        serde_json::to_vec(&all).ok().filter(|text| text.len() <= MAX_TEXT)
    }
}
