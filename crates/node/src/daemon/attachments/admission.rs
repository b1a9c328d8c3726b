//! How a process comes in: greeting, version, policy.

use utipc_attach::{Greeting, Hello, Refusal, Welcome, agree, decode, encode};
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::{Got, Put};
use utipc_os::reactor::Interest;

use std::io::IoSlice;
use std::os::fd::AsFd;

use crate::daemon::attachments::attachment::{Attachment, AttachmentId, Stage};
use crate::daemon::attachments::doorbell::Bell;
use crate::daemon::counters::Cut;
use crate::daemon::dispatcher::{Dispatcher, token};

/// A process that has connected says who it is within this time, milliseconds: on a loaded machine it may wait for its turn
/// between the two calls.
const SILENCE_MS: u64 = 10_000;

/// So long when others wait for its place, milliseconds.
const PRESSED_MS: u64 = 500;

/// Connections that have said nothing yet, at most.
const MAX_SILENT: usize = 256;

/// Newcomers that one turn takes.
const BATCH: usize = 8;

/// Pause when the system has no descriptor for a newcomer, milliseconds.
const NO_DESCRIPTOR_MS: u64 = 50;

/// Bytes of a program's name that are kept.
const MAX_PROGRAM: usize = 64;

/// The version that has [`utipc_attach::Notice::NodeLane`].
const NODE_LANES_SINCE: u16 = 2;

/// The release that processes are told.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Dispatcher {
    /// Takes those who stand at the doorway.
    pub(in crate::daemon) fn admit(&mut self, now: Time) {
        for _ in 0..BATCH {
            let channel = match self.doorway.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("a process cannot attach: {error}");
                    // It would be reported again at once.
                    let _ = self.reactor.remove(&self.doorway);
                    self.reopen = Some(now.plus_millis(NO_DESCRIPTOR_MS));
                    return;
                }
            };
            // More who say nothing than this is a flood. Whoever is turned away in it comes again.
            let Some(peer) = channel.peer().ok().filter(|_| self.has_place(now)) else {
                self.counters.count_end(Cut::TooMany);
                continue;
            };
            let id = self.next_attachment;
            if self.reactor.add(&channel, token::ATTACHMENT | u64::from(id), Interest::Read).is_err() {
                self.counters.count_end(Cut::System);
                continue;
            }
            self.next_attachment += 1;
            self.attachments.insert(id, Attachment::new(channel, peer));
            self.silent.push_back((now.plus_millis(SILENCE_MS), id));
        }
    }

    /// Whether one more may be silent, if need be in the place of the one that has been for longest.
    fn has_place(&mut self, now: Time) -> bool {
        if self.silent.len() < MAX_SILENT {
            return true;
        }
        let patience = SILENCE_MS - PRESSED_MS;
        match self.silent.front().copied() {
            Some((at, id)) if at <= now.plus_millis(patience) => self.cut_silent(now, id),
            _ => return false,
        }
        self.silent.len() < MAX_SILENT
    }

    /// It has said something, or is gone.
    pub(in crate::daemon) fn is_heard(&mut self, id: AttachmentId) {
        if let Some(at) = self.silent.iter().position(|(_, silent)| *silent == id) {
            self.silent.remove(at);
        }
    }

    /// Its time is over, unless it has spoken and it was the daemon that had no time.
    fn cut_silent(&mut self, now: Time, id: AttachmentId) {
        self.serve(now, id);
        if self.silent.iter().any(|(_, silent)| *silent == id) {
            self.is_heard(id);
            self.ended.push((id, Cut::Silent));
        }
    }

    /// Cuts those who have been silent for too long; opens the doorway again.
    pub(in crate::daemon) fn silence(&mut self, now: Time) {
        while let Some((_, id)) = self.silent.front().copied().filter(|(at, _)| *at <= now) {
            self.cut_silent(now, id);
        }
        if self.reopen.is_some_and(|at| at <= now) {
            self.reopen = None;
            if self.reactor.add(&self.doorway, token::DOORWAY, Interest::Read).is_err() {
                self.reopen = Some(now.plus_millis(NO_DESCRIPTOR_MS));
            }
        }
    }

    /// The first packet of a process.
    pub(in crate::daemon) fn greet(&mut self, id: AttachmentId, packet: &[u8]) {
        self.is_heard(id);
        let refused = match self.check(id, packet) {
            Ok((version, hello)) => match self.welcome(id, version, hello) {
                Ok(()) => return,
                Err(cut) => (cut, None),
            },
            Err(refused) => refused,
        };
        let (cut, refusal) = refused;
        if let (Some(refusal), Some(attachment)) = (refusal, self.attachments.get(&id)) {
            let mut bytes = self.versions.to_bytes().to_vec();
            encode(&Err::<Welcome, _>(refusal), &[], &mut bytes);
            // It is cut anyway.
            let _ = attachment.channel.send(&[IoSlice::new(&bytes)], &[], false);
        }
        self.ended.push((id, cut));
    }

    fn check(&self, id: AttachmentId, packet: &[u8]) -> Result<(u16, Hello), (Cut, Option<Refusal>)> {
        let (theirs, rest) = Greeting::from_bytes(packet).ok_or((Cut::Foreign, None))?;
        let version = agree(self.versions, theirs)
            .ok_or_else(|| (Cut::Version, Some(Refusal::Version { release: RELEASE.to_owned() })))?;
        let (mut hello, _) = decode::<Hello>(rest).map_err(|_| (Cut::Garbage, None))?;
        let peer = self.attachments.get(&id).map(|a| a.peer).ok_or((Cut::Closed, None))?;
        if !self.policy.may_attach(&peer, self.own_user) {
            return Err((Cut::NotAllowed, Some(Refusal::NotAllowed { uid: peer.uid })));
        }
        let of_user = self.users.get(&peer.uid).copied().unwrap_or(0);
        let user_full = peer.uid != 0 && of_user >= self.limits.attachments_per_user;
        if user_full || self.users.values().sum::<usize>() >= self.limits.attachments {
            return Err((Cut::TooMany, Some(Refusal::TooMany)));
        }
        while hello.program.len() > MAX_PROGRAM {
            hello.program.pop();
        }
        Ok((version, hello))
    }

    fn welcome(&mut self, id: AttachmentId, version: u16, hello: Hello) -> Result<(), Cut> {
        let attachment = self.attachments.get_mut(&id).ok_or(Cut::Closed)?;
        let (bell, bell_fd) = Bell::new().map_err(|_| Cut::System)?;
        let is_final = self.driver.stack.address_is_final();
        let welcome = Welcome {
            version,
            attachment: id,
            node: if is_final { self.driver.stack.own_node() } else { NodeAddr::NONE },
            release: RELEASE.to_owned(),
        };
        let mut bytes = self.versions.to_bytes().to_vec();
        encode(&Ok::<_, Refusal>(welcome), &[], &mut bytes);
        match attachment.channel.send(&[IoSlice::new(&bytes)], &[bell_fd.as_fd()], false) {
            Ok(Put::Sent) => {}
            Ok(Put::Full) => return Err(Cut::Unread),
            Ok(Put::Gone) => return Err(Cut::Closed),
            Err(_) => return Err(Cut::System),
        }
        attachment.process = attachment.channel.peer_process();
        if let Some(process) = &attachment.process {
            let watched = self.reactor.add(process, token::PROCESS | u64::from(id), Interest::Read);
            watched.map_err(|_| Cut::System)?;
        }
        attachment.program = hello.program;
        attachment.version = version;
        attachment.takes_lanes = hello.takes_lanes;
        attachment.takes_node_lanes = hello.takes_lanes && version >= NODE_LANES_SINCE;
        attachment.stage = Stage::Served { bell };
        *self.users.entry(attachment.peer.uid).or_default() += 1;
        self.counters.attached_ever += 1;
        Ok(())
    }

    /// What a process has sent: one packet a turn, so that nobody gets more turns than others.
    pub(in crate::daemon) fn serve(&mut self, now: Time, id: AttachmentId) {
        let Some(attachment) = self.attachments.get(&id) else { return };
        let mut packet = std::mem::take(&mut self.packet);
        let mut passed = Vec::new();
        let most = usize::from(attachment.is_served());
        let received = attachment.channel.receive(&mut packet, &mut passed, most, false);
        self.passed = passed.pop();
        match received {
            Ok(Got::Packet(len)) => {
                let bytes = packet.get(..len).unwrap_or_default();
                if attachment.is_served() { self.execute(now, id, bytes) } else { self.greet(id, bytes) }
            }
            Ok(Got::Nothing) => {}
            Ok(Got::End) => self.hung_up(id, Cut::Closed),
            Err(_) => self.hung_up(id, Cut::Garbage),
        }
        self.packet = packet;
        self.passed = None;
    }

    fn hung_up(&mut self, id: AttachmentId, cut: Cut) {
        self.is_heard(id);
        self.ended.push((id, cut));
    }
}
