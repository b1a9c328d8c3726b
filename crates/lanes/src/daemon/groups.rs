//! Lanes between the members of a group. Decision 50.
//!
//! A socket's messages use lanes while there is one to each member of its group; otherwise all go through the node. So
//! each member gets all messages of this socket by one path, which keeps their order.

use utipc_attach::{Failure, LaneId, Reply};
use utipc_core::addr::ServiceAddr;
use utipc_core::socket::Endpoint;

use super::{Context, EndCause, Lanes, ProcessId};

/// Maximum number of members of a group whose messages use lanes: each member writes a lane to each other.
pub(super) const MAX_MEMBERS: usize = 256;

/// The two members at the ends of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members {
    /// The writer's address in the group.
    pub(super) writer: ServiceAddr,
    /// The reader's.
    pub(super) reader: ServiceAddr,
    /// Messages that the reader receives before those in the lane, see [`Endpoint::taken`].
    pub(super) after: u64,
}

impl Members {
    /// Queues messages that will not be read in the lane; returns how many are malformed.
    pub(super) fn adopt(
        &mut self,
        context: &mut Context<'_>,
        [from, to]: [u32; 2],
        bodies: Vec<Vec<u8>>,
        read: usize,
    ) -> u64 {
        let taken = context.stack.endpoint(to).map_or(0, Endpoint::taken);
        let skip = usize::try_from(self.after.saturating_sub(taken)).unwrap_or(usize::MAX);
        let (dropped, end) =
            context.stack.adopt_of_member(context.now, (from, self.writer), to, bodies, (skip, read));
        // The next state that is adopted.
        self.after = end;
        dropped as u64
    }
}

impl Lanes {
    /// Lets a member of a group, which process `id` alone holds, write lanes to all other members, if each takes lanes,
    /// and read theirs; the result is 1 if its messages use lanes from now on. Otherwise those that it writes end, and
    /// the result is 0. Also returns the members that may use lanes from this call on.
    pub fn want_for_group(
        &mut self,
        context: &mut Context<'_>,
        id: ProcessId,
        port: u32,
    ) -> (Result<Reply, Failure>, Vec<u32>) {
        let address =
            context.stack.endpoint(port).and_then(|endpoint| Some(endpoint.group()?.request().member));
        let (Some(address), true) = (address, self.takes_lanes(id)) else {
            return (Err(Failure::State), Vec::new());
        };
        let Some(socket) = self.sockets.get_mut(&port) else { return (Err(Failure::State), Vec::new()) };
        let is_new = socket.user.replace(id).is_none();
        let members = context.stack.members_here(port, MAX_MEMBERS);
        let others = members.as_ref().filter(|_| is_new).into_iter().flatten().map(|(other, _)| *other);
        let others = others.filter(|other| *other != port).collect();
        let has_all = members.is_some_and(|members| {
            !members.is_empty() && self.open_to_members(context, (port, address), &members)
        });
        if !has_all {
            self.stop_group_lanes(context, port);
        }
        (Ok(Reply::Number(has_all.into())), others)
    }

    /// Opens the lanes that are missing; false if one cannot be opened.
    fn open_to_members(
        &mut self,
        context: &mut Context<'_>,
        (port, address): (u32, ServiceAddr),
        members: &[(u32, ServiceAddr)],
    ) -> bool {
        let is_missing = |(to, _): &&(u32, ServiceAddr)| !self.connects(port, *to);
        let missing: Vec<_> = members.iter().filter(is_missing).copied().collect();
        // No lane is opened for nothing.
        missing.iter().all(|(to, _)| self.may_open(port, *to))
            && missing.into_iter().all(|(to, reader)| {
                let members = Members { writer: address, reader, after: 0 };
                self.make(context, port, to, Some(members))
            })
    }

    /// The messages of a member go through the node from now on: the lanes that it writes end, and what follows waits
    /// until they are read.
    pub fn stop_group_lanes(&mut self, context: &mut Context<'_>, port: u32) {
        let mut last: Option<LaneId> = None;
        // A socket has a lane to each member, and to no others.
        for _ in 0..=MAX_MEMBERS {
            let next = self.sockets.get(&port).and_then(|socket| socket.group_lanes.next_after(last));
            let Some(id) = next else { return };
            last = Some(id);
            self.end_writing(context, id, port, EndCause::Hosted(None));
        }
    }
}
