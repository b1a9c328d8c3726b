//! Requests about the node itself, and the few that change it.

use serde::Serialize;
use utipc_attach::{BearerEntry, BindingPage, Failure, NodeEntry, Reply, Request};
use utipc_core::Time;
use utipc_core::{LinkProperty, PropertyError};

use super::requests::Done;
use super::{Answer, Dispatcher};
use crate::daemon::attachments::AttachmentId;

/// Bindings in one reply.
const BINDINGS_PAGE: usize = 1024;

/// Sockets in one reply.
const SOCKETS_PAGE: usize = 256;

/// Peers or links in one reply.
const LIST_PAGE: usize = 32;

/// Longest text in one reply, bytes.
const MAX_TEXT: usize = 65_536;

impl Dispatcher {
    pub(super) fn query(
        &mut self,
        now: Time,
        id: AttachmentId,
        request: Request,
        answer: &mut Answer,
    ) -> Done {
        let stack = &self.driver.stack;
        match request {
            Request::Lookup { to, domain } => Ok(Reply::Found(self.driver.stack.lookup(to, domain))),
            Request::IsLocal { port } => {
                let here = port.node.is_none() || port.node == stack.own_node();
                Ok(Reply::Number(u32::from(here && stack.endpoint(port.port).is_some())))
            }
            Request::FetchTable => {
                // A process with an older version of the protocol asks for each lookup.
                if !self.attachments.reads_table(id) {
                    return Err(Failure::State);
                }
                answer.fds = self.replica.descriptors()?;
                Ok(Reply::Done)
            }
            Request::Node => Ok(Reply::Node(NodeEntry {
                address: stack.own_node(),
                settled: stack.address_is_final(),
                identity: stack.identity().map(|i| i.to_string()).unwrap_or_default(),
                bearers: stack.bearers().into_iter().map(|b| BearerEntry { name: b.config.name }).collect(),
            })),
            Request::Peers { skip } => text(page(&stack.nodes(), skip, LIST_PAGE)).map(Reply::Peers),
            Request::Links { skip } => text(page(&stack.links(), skip, LIST_PAGE)).map(Reply::Links),
            Request::Counters => text(&self.driver.counters()).map(Reply::Counters),
            Request::Bindings { skip } => {
                let all = stack.bindings();
                let bindings = page(&all, skip, BINDINGS_PAGE).to_vec();
                let more = skip as usize + bindings.len() < all.len();
                Ok(Reply::Bindings(BindingPage { bindings, more }))
            }
            Request::Sockets { skip } => {
                let ports = stack.sockets().map(|(port, _)| port).skip(skip as usize).take(SOCKETS_PAGE);
                Ok(Reply::Sockets(ports.filter_map(|port| Some((port, self.view(port)?))).collect()))
            }
            Request::SetLink { name, property } => self.set_link(now, id, &name, property),
            // Requests of a later version.
            _ => Err(Failure::State),
        }
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

/// The part of a list that fits one reply.
fn page<T>(list: &[T], skip: u32, most: usize) -> &[T] {
    let rest = list.get(skip as usize..).unwrap_or_default();
    rest.get(..rest.len().min(most)).unwrap_or_default()
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
