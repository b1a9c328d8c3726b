//! Management of the node by requests of the kernel's family TIPCv2 (decision 12).
//!
//! | Question | File |
//! |---|---|
//! | Which requests exist, and how is a long list split into parts? | here |
//! | Where do the values of an entry come from? | `show.rs` |
//! | Where does the next part of a list begin? | `positions.rs` |
//! | What is in the lists of groups? | `groups.rs` |
//! | How are changes made? | `change.rs`, `bearers.rs` |
//! | Which default properties do new bearers have? | `media.rs` |

mod bearers;
mod change;
mod groups;
mod keys;
mod media;
mod positions;
mod quotas;
mod show;

use std::os::fd::OwnedFd;

use utipc_core::Time;
use utipc_lanes::daemon::Lanes;
use utipc_manage::capture::CaptureRequest;
use utipc_manage::{Entry, Errno, Header, Refusal, ReplyWriter, Request};
use utipc_os::fdpass::{Peer, own_user};
use utipc_os::reactor::Reactor;

use super::attachments::{AttachmentId, Attachments, Policy};
use super::config::{DaemonConfig, FixedName};
use super::holders::Holders;
use super::orders;
use crate::driver::NodeDriver;

use media::Defaults;

use positions::Positions;

/// A part of a list ends with the entry that goes beyond this, bytes.
const PART: usize = 48 * 1024;

/// Maximum number of entries that one request visits: the work of a part does not depend on the length of the list.
/// Each process gets one request per turn.
const LIST_ITEMS: usize = 256;

/// The number for the owner's lists; no attachment has it.
const OWNER: AttachmentId = 0;

/// The parts of the node's name that are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// No part.
    Open,
    /// The identity; the cluster may still change.
    Identified,
    /// All of it is fixed: an address was chosen, or there was a bearer.
    Final,
}

impl Naming {
    fn new(config: &DaemonConfig) -> Self {
        match config.fixed_name {
            _ if !config.node.bearers.is_empty() => Self::Final,
            FixedName::All => Self::Final,
            FixedName::Identity => Self::Identified,
            FixedName::Nothing => Self::Open,
        }
    }
}

/// Entries of one part of a list, each with the position after it.
type Part = Vec<(u64, Entry)>;

/// State outside the management that a request may touch.
pub(super) struct Access<'a> {
    pub(super) now: Time,
    pub(super) driver: &'a mut NodeDriver,
    pub(super) reactor: &'a Reactor,
    pub(super) policy: &'a Policy,
    pub(super) holders: &'a Holders,
    pub(super) attachments: &'a Attachments,
    pub(super) lanes: &'a Lanes,
    /// The counters of the node and its daemon as text, if the request is for them.
    pub(super) counters: Option<Vec<u8>>,
}

/// The answer to a request.
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    /// The position of the next part of a list.
    pub(super) next: Option<u64>,
    pub(super) descriptor: Option<OwnedFd>,
}

/// Management of a node, and the settings that apply to later bearers.
#[derive(Debug)]
pub(super) struct Management {
    /// Default properties of new bearers.
    media: Defaults,
    naming: Naming,
    /// Where lists continue.
    positions: Positions,
}

impl Management {
    pub(super) fn new(config: &DaemonConfig) -> Self {
        Self { media: Defaults::default(), naming: Naming::new(config), positions: Positions::default() }
    }

    /// Forgets a process that is gone.
    pub(super) fn forget(&mut self, id: AttachmentId) {
        self.positions.forget(id);
    }

    /// List entries visited so far.
    pub(super) fn visited(&self) -> u64 {
        self.positions.visited()
    }

    /// Carries out one request of the family. An error of the request is part of the answer.
    pub(super) fn execute(
        &mut self,
        access: &mut Access<'_>,
        (id, peer): (AttachmentId, &Peer),
        from: u64,
        (header, request): (Header, Result<Request, Refusal>),
    ) -> Answer {
        let mut answer = ReplyWriter::new(header);
        let (mut next, mut descriptor) = (None, None);
        match request.and_then(|request| permit(access.policy, peer, &request).map(|()| request)) {
            Err(refusal) => answer.refuse(&refusal),
            Ok(request) if header.is_dump() => match self.show(access, id, &request, from) {
                Err(refusal) => answer.refuse(&refusal),
                Ok(part) => {
                    self.positions.note_visited(part.len());
                    next = fill(&mut answer, part);
                    if next.is_none() {
                        answer.done();
                    }
                }
            },
            Ok(Request::Capture(capture)) => match access.begin_capture(id, capture) {
                Err(refusal) => answer.refuse(&refusal),
                Ok(reader) => {
                    descriptor = Some(reader);
                    answer.done();
                }
            },
            Ok(request) => match self.carry_out(access, &request) {
                Err(refusal) => answer.refuse(&refusal),
                Ok(entry) => {
                    if let Some(entry) = entry {
                        answer.entry(&entry);
                    }
                    answer.done();
                }
            },
        }
        Answer { bytes: answer.into_bytes(), next, descriptor }
    }

    /// A part of a list from `from` on, for the daemon's owner.
    pub(super) fn list(
        &mut self,
        access: &Access<'_>,
        request: &Request,
        from: u64,
    ) -> Result<orders::Part, Refusal> {
        let part = self.show(access, OWNER, request, from)?;
        self.positions.note_visited(part.len());
        let next = part.last().map(|(after, _)| *after).filter(|_| part.len() >= LIST_ITEMS);
        Ok((part.into_iter().map(|(_, entry)| entry).collect(), next))
    }

    /// A list from `from` on: [`LIST_ITEMS`] entries at most. Lists without their own position are short.
    fn show(
        &mut self,
        access: &Access<'_>,
        id: AttachmentId,
        request: &Request,
        from: u64,
    ) -> Result<Part, Refusal> {
        let all = |entries: Vec<Entry>| -> Part {
            let skip = usize::try_from(from).unwrap_or(usize::MAX);
            (1u64..).zip(entries).skip(skip).take(LIST_ITEMS).collect()
        };
        Ok(match request {
            Request::Bearers => all(access.show_bearers()),
            Request::Remotes { name } => all(access.show_remotes(name)?),
            Request::Sockets => access.show_sockets(from),
            Request::Bindings { port } => access.show_bindings(*port, from)?,
            Request::Links { broadcast } => access.show_links(*broadcast, from),
            Request::LinkHistory => all(access.show_history()),
            Request::Counters => {
                let text = access.counters.clone().ok_or(Errno::NOT_SUPPORTED)?;
                all(vec![Entry::Counters(text)])
            }
            Request::Quotas => quotas::list(access.driver.stack.ledger(), from),
            Request::Keys => all(keys::list(&access.driver.stack, access.now)),
            Request::Groups => access.show_groups(from),
            Request::GroupMembers { port } => access.show_group_members(*port, from)?,
            Request::Media => all(self.media.show()),
            Request::Nodes => access.show_nodes(from),
            Request::Net => all(vec![access.show_net()]),
            Request::Names => access.show_names(&mut self.positions, id, from)?,
            Request::Monitors => all(access.show_monitors()),
            Request::MonitorPeers { bearer } => access.show_monitor_peers(*bearer, from)?,
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    /// Carries out a request that does not ask for a list; the answer may have an entry.
    fn carry_out(&mut self, access: &mut Access<'_>, request: &Request) -> Result<Option<Entry>, Refusal> {
        match request {
            Request::BearerGet { name } => {
                let all = access.show_bearers().into_iter();
                let found = { all }.find(|entry| matches!(entry, Entry::Bearer(b) if b.name == *name));
                return found.map(Some).ok_or_else(bearers::not_found);
            }
            Request::LinkGet { name } => {
                return access.show_link(name).map(Some).ok_or_else(|| change::no_link(name));
            }
            Request::MediaGet { name } => return self.media.get(name).map(Some),
            Request::MonitorGet => {
                let nodes = access.driver.stack.monitor_threshold();
                return Ok(Some(Entry::Threshold(u32::try_from(nodes).unwrap_or(u32::MAX))));
            }
            Request::LegacyAddress => {
                return Ok(Some(Entry::LegacyAddress(access.driver.stack.is_legacy())));
            }
            Request::BearerEnable { name, domain, priority, udp } => {
                access.enable_bearer((&self.media, &mut self.naming), name, *domain, *priority, *udp)?;
            }
            Request::BearerDisable { name } => access.disable_bearer(name)?,
            Request::BearerSet { name, properties } => access.set_bearer(name, properties)?,
            Request::BearerAdd { name, remote } => access.add_remote(name, *remote)?,
            Request::BearerRemove { name, remote } => access.remove_remote(name, *remote)?,
            Request::LinkSet { name, properties } => access.set_link_properties(name, properties)?,
            Request::LinkReset { name } => access.reset_link(name)?,
            Request::MediaSet { name, properties } => self.media.set(name, properties)?,
            Request::MonitorSet { threshold } => access.set_threshold(*threshold)?,
            Request::PeerRemove { address, identity } => access.remove_peer(*address, *identity)?,
            Request::NetSet { id, address, identity } => {
                access.set_net(&mut self.naming, *id, *address, *identity)?;
            }
            Request::KeySet(change) => access.change_keys(change)?,
            Request::KeyFlush => access.driver.stack.flush_keys(),
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        }
        Ok(None)
    }
}

impl Access<'_> {
    fn begin_capture(&mut self, id: AttachmentId, capture: CaptureRequest) -> Result<OwnedFd, Refusal> {
        if let Some(name) = &capture.bearer {
            self.bearer_named(name)
                .map_err(|_| invalid(format!("there is no bearer {name} (see `bearer list`)")))?;
        }
        let system = |error: utipc_os::OsError| Refusal::new(Errno::NO_MEMORY, error.to_string());
        self.driver.captures.begin(id, capture).map_err(system)?.ok_or_else(|| {
            Refusal::new(Errno::BUSY, "the daemon has its maximum number of captures (end one of them)")
        })
    }
}

fn invalid(text: impl Into<String>) -> Refusal {
    Refusal::new(Errno::INVALID, text)
}

/// Writes a part of a list; the position of the next part, if there may be more.
fn fill(answer: &mut ReplyWriter, part: Part) -> Option<u64> {
    let is_cut = part.len() >= LIST_ITEMS;
    let mut last = None;
    for (after, entry) in part {
        answer.entry(&entry);
        last = Some(after);
        if answer.bytes().len() > PART {
            return last;
        }
    }
    last.filter(|_| is_cut)
}

/// Whether the policy allows a process this request.
fn permit(policy: &Policy, peer: &Peer, request: &Request) -> Result<(), Refusal> {
    if !request.changes() || policy.may_manage(peer, own_user()) {
        return Ok(());
    }
    let text = format!(
        "the daemon's policy does not allow user {} to change the node (see `policy.manage` in its configuration)",
        peer.uid
    );
    Err(Refusal::new(Errno::NOT_PERMITTED, text))
}
