//! Requests about the node itself, and the few that change it.

use serde::Serialize;
use utipc_attach::{
    BearerEntry, BindingPage, Failure, MAX_AWAITED, MAX_GROUP_MEMBERS, NodeCall, NodeEntry, Reply,
};
use utipc_core::addr::{Binding, NodeAddr, PortId};
use utipc_core::group::LeaveError;
use utipc_core::names::ListPosition;
use utipc_core::{LinkInfo, LinkProperty, PeerInfo, PropertyError, Time};

use super::Dispatcher;
use super::requests::Done;
use crate::daemon::attachments::AttachmentId;
use crate::daemon::barriers::MAX_BARRIERS;
use crate::daemon::counters::DaemonCounters;
use crate::daemon::manage::{LIST_ITEMS, Page, Position};
use crate::observe::Counters;

/// Peers or links in one reply.
const LIST_PAGE: usize = 32;

/// Longest text in one reply, bytes.
const MAX_TEXT: usize = 65_536;

/// Counters as processes get them.
#[derive(Serialize)]
struct AllCounters {
    #[serde(flatten)]
    node: Counters,
    daemon: DaemonCounters,
}

impl Dispatcher {
    /// A question about the node.
    pub(super) fn node_call(&mut self, now: Time, id: AttachmentId, call: NodeCall) -> Done {
        let stack = &self.driver.stack;
        match call {
            NodeCall::Node => Ok(Reply::Node(NodeEntry {
                address: stack.own_node(),
                settled: stack.address_is_final(),
                identity: stack.identity().map(|i| i.to_string()).unwrap_or_default(),
                bearers: stack.bearers().into_iter().map(|b| BearerEntry { name: b.config.name }).collect(),
            })),
            NodeCall::Peers { skip } => self.list_peers(id, skip),
            NodeCall::Links { skip } => self.list_links(id, skip),
            NodeCall::Counters => text(&self.all_counters()).map(Reply::Counters),
            NodeCall::Bindings { skip } => self.list_bindings(id, skip),
            NodeCall::SetLink { name, property } => self.set_link(now, id, &name, property),
        }
    }

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

    /// The counters of the node, and beside them those of the daemon.
    fn all_counters(&self) -> AllCounters {
        let mut daemon = self.count();
        AllCounters { node: std::mem::take(&mut daemon.node), daemon }
    }

    /// The position at which a page begins; the first page begins at `first`.
    fn position(
        &self,
        id: AttachmentId,
        skip: u32,
        page: Page,
        first: Position,
    ) -> Result<Position, Failure> {
        if skip == 0 {
            return Ok(first);
        }
        self.management.positions.get(id, page).ok_or(Failure::State)
    }

    /// Keeps the position of the page that follows.
    fn keep_position(&mut self, id: AttachmentId, page: Page, position: Option<Position>) {
        if let Some(position) = position {
            self.management.positions.put(id, page, position);
        }
    }

    fn list_peers(&mut self, id: AttachmentId, skip: u32) -> Done {
        let first = Position::Peer(NodeAddr::NONE);
        let Position::Peer(from) = self.position(id, skip, Page::Peers(skip), first)? else {
            return Err(Failure::State);
        };
        let peers: Vec<PeerInfo> = self.driver.stack.nodes_from(from).take(LIST_PAGE).collect();
        let next = peers.last().map(|last| Position::Peer(NodeAddr(last.addr.0.saturating_add(1))));
        self.management.positions.note_visited(peers.len());
        self.keep_position(id, Page::Peers(after(skip, &peers)), next);
        text(&peers).map(Reply::Peers)
    }

    fn list_links(&mut self, id: AttachmentId, skip: u32) -> Done {
        let first = Position::Link(NodeAddr::NONE, 0);
        let Position::Link(peer, bearer) = self.position(id, skip, Page::Links(skip), first)? else {
            return Err(Failure::State);
        };
        let links: Vec<LinkInfo> = self.driver.stack.links_from((peer, bearer)).take(LIST_PAGE).collect();
        let next = links.last().map(|last| Position::Link(last.peer, last.bearer.saturating_add(1)));
        self.management.positions.note_visited(links.len());
        self.keep_position(id, Page::Links(after(skip, &links)), next);
        text(&links).map(Reply::Links)
    }

    fn list_bindings(&mut self, id: AttachmentId, skip: u32) -> Done {
        let from = match skip {
            0 => None,
            _ => match self.management.positions.get(id, Page::Bindings(skip)) {
                Some(Position::Binding(at)) => Some(at),
                _ => return Err(Failure::State),
            },
        };
        let mut all = self.driver.stack.list_bindings(from);
        let page: Vec<(ListPosition, Binding)> = all.by_ref().take(LIST_ITEMS).collect();
        let more = page.len() == LIST_ITEMS && all.next().is_some();
        drop(all);
        self.management.positions.note_visited(page.len());
        let next = page.last().map(|(at, _)| Position::Binding(*at));
        self.keep_position(id, Page::Bindings(after(skip, &page)), next);
        let bindings = page.into_iter().map(|(_, binding)| binding).collect();
        Ok(Reply::Bindings(BindingPage { bindings, more }))
    }

    fn set_link(&mut self, now: Time, id: AttachmentId, name: &str, property: LinkProperty) -> Done {
        let Some(peer) = self.attachments.peer(id) else { return Err(Failure::State) };
        if !self.rules.may_manage(&peer) {
            return Err(Failure::NotAllowed { uid: peer.uid, what: "change a link".to_owned() });
        }
        match self.driver.stack.set_link(now, name, property) {
            Ok(()) => Ok(Reply::Done),
            Err(PropertyError::NoLink(name)) => Err(Failure::NoLink(name)),
            Err(PropertyError::Range { .. }) => Err(Failure::State),
        }
    }
}

/// The number by which the request for the next page names it.
fn after<T>(skip: u32, page: &[T]) -> u32 {
    skip.saturating_add(u32::try_from(page.len()).unwrap_or(u32::MAX))
}

/// A value as JSON.
fn text(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Failure> {
    let bytes = serde_json::to_vec(value).map_err(|_| Failure::State)?;
    if bytes.len() > MAX_TEXT {
        Err(Failure::Limit(format!("{MAX_TEXT} bytes in one answer")))
    } else {
        Ok(bytes)
    }
}
