//! Admission of processes: the listening socket (the doorway), and the handshake, which has version and program
//! name.

use std::collections::VecDeque;

use utipc_attach::{Greeting, Hello, Refusal, Welcome, agree, decode, encode};
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::{Channel, Doorway, Peer, own_user};
use utipc_os::reactor::{Interest, Reactor};

use super::{AttachmentId, Attachments, EndReason, Policy};
use crate::daemon::token;

/// Time for the handshake, milliseconds. It is long because, on a loaded host, a process may wait for a
/// processor between connecting and the handshake.
const SILENCE_MS: u64 = 10_000;

/// Time for the handshake while the limit of connections without a handshake is reached, milliseconds.
const SILENCE_WHEN_FULL_MS: u64 = 500;

/// Maximum number of connections without a handshake.
const MAX_SILENT: usize = 256;

/// Maximum number of these of one user, except root and the daemon's own, so that others find a place at once.
const MAX_SILENT_PER_USER: usize = MAX_SILENT / 2;

/// Pause when the system has no descriptor for a new connection, milliseconds.
const NO_DESCRIPTOR_MS: u64 = 50;

/// Bytes of a program's name that are kept.
const MAX_PROGRAM: usize = 64;

/// The release that the daemon reports to processes.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The attachment number after `id`: numbers wrap after 2^32 attachments, and 0 is the daemon's.
fn following(id: AttachmentId, is_taken: impl Fn(AttachmentId) -> bool) -> AttachmentId {
    let mut next = id.wrapping_add(1);
    while next == 0 || is_taken(next) {
        next = next.wrapping_add(1);
    }
    next
}

/// The accepted handshake of a process.
pub(crate) struct Handshake {
    /// The agreed version of the protocol.
    pub(crate) version: u16,
    pub(crate) hello: Hello,
}

/// Reason why a process may not attach, and the reply to it, if any.
pub(crate) type Refused = (EndReason, Option<Refusal>);

/// The doorway and the connections that have not completed the handshake.
#[derive(Debug)]
pub(crate) struct Admission {
    doorway: Doorway,
    versions: Greeting,
    next: AttachmentId,
    /// Connections without a handshake, oldest first, with the time when they are closed and their user.
    silent: VecDeque<(Time, AttachmentId, u32)>,
    /// Time at which the doorway is watched again, after the system was out of descriptors.
    reopen: Option<Time>,
}

impl Admission {
    /// Watches the doorway.
    pub(crate) fn new(reactor: &Reactor, doorway: Doorway, versions: Greeting) -> utipc_os::Result<Self> {
        reactor.add(&doorway, token::DOORWAY, Interest::Read)?;
        Ok(Self { doorway, versions, next: 1, silent: VecDeque::new(), reopen: None })
    }

    /// Time when [`Self::overdue`] or [`Self::reopen`] has something to do.
    pub(crate) fn deadline(&self) -> Time {
        let silent = self.silent.front().map_or(Time::NEVER, |(at, ..)| *at);
        silent.min(self.reopen.unwrap_or(Time::NEVER))
    }

    /// Accepts the next connection. If the system has no descriptor for it, the doorway is not watched for a
    /// moment.
    pub(crate) fn accept(&mut self, now: Time, reactor: &Reactor) -> Option<Channel> {
        self.doorway.accept().unwrap_or_else(|error| {
            tracing::warn!("a process cannot attach: {error}");
            // The event loop would report it again at once.
            let _ = reactor.remove(&self.doorway);
            self.reopen = Some(now.plus_millis(NO_DESCRIPTOR_MS));
            None
        })
    }

    /// The number of the next attachment.
    pub(crate) fn next_id(&self) -> AttachmentId {
        self.next
    }

    /// Adds the connection with the number [`Self::next_id`]; it must complete the handshake.
    pub(crate) fn add(&mut self, now: Time, peer: &Peer, attachments: &Attachments) {
        self.silent.push_back((now.plus_millis(SILENCE_MS), self.next, peer.uid));
        self.next = following(self.next, |id| attachments.contains(id));
    }

    /// Whether the limit of connections without a handshake is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.silent.len() >= MAX_SILENT
    }

    /// Whether a user has its maximum number of connections without a handshake.
    pub(crate) fn is_full_for(&self, peer: &Peer) -> bool {
        let of_user = self.silent.iter().filter(|(.., uid)| *uid == peer.uid).count();
        peer.uid != 0 && peer.uid != own_user() && of_user >= MAX_SILENT_PER_USER
    }

    /// The oldest connection without a handshake, if a new one may replace it.
    pub(crate) fn replaceable(&self, now: Time) -> Option<AttachmentId> {
        let patience = SILENCE_MS - SILENCE_WHEN_FULL_MS;
        self.silent.front().filter(|(at, ..)| *at <= now.plus_millis(patience)).map(|(_, id, _)| *id)
    }

    /// A connection whose time for the handshake is over.
    pub(crate) fn overdue(&self, now: Time) -> Option<AttachmentId> {
        self.silent.front().filter(|(at, ..)| *at <= now).map(|(_, id, _)| *id)
    }

    /// Removes a connection that has sent its handshake or has ended; false if it was removed before.
    pub(crate) fn remove(&mut self, id: AttachmentId) -> bool {
        let at = self.silent.iter().position(|(_, silent, _)| *silent == id);
        at.is_some_and(|at| self.silent.remove(at).is_some())
    }

    /// Watches the doorway again when it is time.
    pub(crate) fn reopen(&mut self, now: Time, reactor: &Reactor) {
        if self.reopen.is_some_and(|at| at <= now) {
            let watched = reactor.add(&self.doorway, token::DOORWAY, Interest::Read);
            self.reopen = watched.is_err().then(|| now.plus_millis(NO_DESCRIPTOR_MS));
        }
    }

    /// Reads the handshake of a process, and decides whether it may attach.
    pub(crate) fn check(
        &self,
        attachments: &Attachments,
        policy: &Policy,
        id: AttachmentId,
        packet: &[u8],
    ) -> Result<Handshake, Refused> {
        let (theirs, rest) = Greeting::from_bytes(packet).ok_or((EndReason::Foreign, None))?;
        let release = || Refusal::Version { release: RELEASE.to_owned() };
        let version = agree(self.versions, theirs).ok_or_else(|| (EndReason::Version, Some(release())))?;
        let (mut hello, _) = decode::<Hello>(rest).map_err(|_| (EndReason::Garbage, None))?;
        let peer = attachments.peer(id).ok_or((EndReason::Closed, None))?;
        if !policy.may_attach(&peer, own_user()) {
            return Err((EndReason::NotAllowed, Some(Refusal::NotAllowed { uid: peer.uid })));
        }
        while hello.program.len() > MAX_PROGRAM {
            hello.program.pop();
        }
        Ok(Handshake { version, hello })
    }

    /// The answer to a process that attaches; `node` is none while the address is on trial.
    pub(crate) fn welcome(&self, id: AttachmentId, version: u16, node: NodeAddr) -> Vec<u8> {
        let welcome = Welcome { version, attachment: id, node, release: RELEASE.to_owned() };
        self.answer(&Ok(welcome))
    }

    /// The reply to a process that may not attach.
    pub(crate) fn refusal(&self, refusal: Refusal) -> Vec<u8> {
        self.answer(&Err(refusal))
    }

    fn answer(&self, answer: &Result<Welcome, Refusal>) -> Vec<u8> {
        let mut bytes = self.versions.to_bytes().to_vec();
        encode(answer, &[], &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachment_numbers_wrap_past_the_reserved_one_and_those_in_use() {
        assert_eq!(following(7, |_| false), 8);
        assert_eq!(following(u32::MAX, |_| false), 1);
        assert_eq!(following(u32::MAX - 1, |id| id == u32::MAX || id < 5), 5);
    }
}
