//! What an administrator sees and changes, in the language of the kernel's family TIPCv2 (decision 12).
//!
//! | Question | File |
//! |---|---|
//! | What does a list hold, and how does it come in parts? | here |
//! | What does an entry say? | `show.rs` |
//! | What does a change do? | `change.rs`, `bearers.rs` |
//! | What do new bearers begin with? | `media.rs` |

mod bearers;
mod change;
mod media;
mod show;

use utipc_attach::{Failure, Reply};
use utipc_core::Time;
use utipc_manage::{Entry, Errno, Refusal, ReplyWriter, Request};

use super::{DaemonConfig, Named};
use crate::daemon::attachments::attachment::AttachmentId;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::dispatcher::commands;

pub(super) use media::Defaults;

/// A part of a list ends with the entry that goes beyond this, bytes.
const PART: usize = 48 * 1024;

/// Who has chosen the node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// Nobody yet.
    Open,
    /// An identity was chosen; the cluster may still be.
    Identified,
    /// It is settled: an address was chosen, or there was a bearer.
    Settled,
}

impl Naming {
    pub(super) fn of(config: &DaemonConfig) -> Self {
        match config.named {
            _ if !config.node.bearers.is_empty() => Self::Settled,
            Named::Wholly => Self::Settled,
            Named::ByIdentity => Self::Identified,
            Named::No => Self::Open,
        }
    }
}

/// Entries after which a part of a list ends, each with where the next part begins.
type Part = Vec<(u64, Entry)>;

impl Dispatcher {
    /// Answers one request of the family; whatever is wrong with it is part of the answer.
    pub(super) fn manage(
        &mut self,
        now: Time,
        id: AttachmentId,
        from: u64,
        payload: &[u8],
        out: &mut commands::Answer,
    ) -> Result<Reply, Failure> {
        let Some((header, request)) = Request::from_bytes(payload) else { return Err(Failure::State) };
        let mut answer = ReplyWriter::new(header);
        let mut next = None;
        match request.and_then(|request| self.permit(id, &request).map(|()| request)) {
            Err(refusal) => answer.refuse(&refusal),
            Ok(request) if header.is_dump() => match self.show(&request, from) {
                Err(refusal) => answer.refuse(&refusal),
                Ok(part) => {
                    for (after, entry) in part {
                        answer.entry(&entry);
                        if answer.bytes().len() > PART {
                            next = Some(after);
                            break;
                        }
                    }
                    if next.is_none() {
                        answer.done();
                    }
                }
            },
            Ok(request) => match self.obey_request(now, &request) {
                Err(refusal) => answer.refuse(&refusal),
                Ok(entry) => {
                    if let Some(entry) = entry {
                        answer.entry(&entry);
                    }
                    answer.done();
                }
            },
        }
        out.payload = answer.into_bytes();
        Ok(Reply::Managed { next })
    }

    fn permit(&self, id: AttachmentId, request: &Request) -> Result<(), Refusal> {
        let peer = self.attachments.get(&id).map(|a| a.peer).ok_or(Errno::NOT_PERMITTED)?;
        if request.changes() && !self.policy.may_manage(&peer, self.own_user) {
            let text = format!(
                "the daemon's policy does not allow user {} to change the node (see `policy.manage` in its configuration)",
                peer.uid
            );
            return Err(Refusal::new(Errno::NOT_PERMITTED, text));
        }
        Ok(())
    }

    /// A list from `from` on: a little more than one part of it.
    fn show(&self, request: &Request, from: u64) -> Result<Part, Refusal> {
        let all = |entries: Vec<Entry>| -> Part {
            let skip = usize::try_from(from).unwrap_or(usize::MAX);
            (1u64..).zip(entries).skip(skip).collect()
        };
        Ok(match request {
            Request::Bearers => all(self.show_bearers()),
            Request::Remotes { name } => all(self.show_remotes(name)?),
            Request::Sockets => self.show_sockets(from),
            Request::Bindings { port } => all(self.show_bindings(*port)?),
            Request::Links { broadcast } => all(self.show_links(*broadcast)),
            Request::LinkHistory => all(self.show_history()),
            Request::Media => all(self.media.show()),
            Request::Nodes => all(self.show_nodes()),
            Request::Net => all(vec![self.show_net()]),
            Request::Names => all(self.show_names()),
            Request::Monitors => all(self.show_monitors()),
            Request::MonitorPeers { bearer } => all(self.show_monitor_peers(*bearer)?),
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    /// Does what is no list; the answer may have an entry.
    fn obey_request(&mut self, now: Time, request: &Request) -> Result<Option<Entry>, Refusal> {
        match request {
            Request::BearerGet { name } => {
                let found = self
                    .show_bearers()
                    .into_iter()
                    .find(|e| matches!(e, Entry::Bearer(b) if b.name == *name));
                return found.map(Some).ok_or_else(bearers::not_found);
            }
            Request::LinkGet { name } => {
                let found = self
                    .show_links(true)
                    .into_iter()
                    .find(|e| matches!(e, Entry::Link(l) if l.name == *name));
                return found.map(Some).ok_or_else(|| change::no_link(name));
            }
            Request::MediaGet { name } => return self.media.get(name).map(Some),
            Request::MonitorGet => {
                let nodes = self.driver.stack.monitor_threshold();
                return Ok(Some(Entry::Threshold(u32::try_from(nodes).unwrap_or(u32::MAX))));
            }
            Request::LegacyAddress => return Ok(Some(Entry::LegacyAddress(self.driver.stack.is_legacy()))),
            Request::BearerEnable { name, domain, priority, udp } => {
                self.enable_bearer(now, name, *domain, *priority, *udp)?;
            }
            Request::BearerDisable { name } => self.disable_bearer(now, name)?,
            Request::BearerSet { name, properties } => self.set_bearer(now, name, properties)?,
            Request::BearerAdd { name, remote } => self.add_remote(name, *remote)?,
            Request::LinkSet { name, properties } => self.set_link_properties(now, name, properties)?,
            Request::LinkReset { name } => self.reset_link(name)?,
            Request::MediaSet { name, properties } => self.media.set(name, properties)?,
            Request::MonitorSet { threshold } => self.set_threshold(*threshold)?,
            Request::PeerRemove { address, identity } => self.remove_peer(*address, *identity)?,
            Request::NetSet { id, address, identity } => self.set_net(now, *id, *address, *identity)?,
            Request::KeySet | Request::KeyFlush => {
                let text = "this node does not encrypt yet: keys cannot be set";
                return Err(Refusal::new(Errno::NOT_SUPPORTED, text));
            }
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        }
        Ok(None)
    }
}
