//! Clean-up that may be long: sockets of a process that has ended, and sockets with many bindings. A part of it is done
//! in each turn, the small ones in the turn in which they begin.

use std::collections::VecDeque;

use utipc_attach::Reply;
use utipc_core::Time;

use super::{Answer, Dispatcher};
use crate::daemon::attachments::{AttachmentId, Outgoing};
use crate::daemon::descriptors::NearEnd;
use crate::daemon::sockets::Holder;

/// Items of clean-up in one turn: a socket is one, each of its bindings too, each of its lanes [`LANE_ITEMS`]. Ours:
/// about 2 ms without lanes.
pub(super) const RELEASE_ITEMS: usize = 1024;

/// Items of a lane: what is unread in it is read or returned.
const LANE_ITEMS: usize = 64;

/// Most sockets that end together: within such a batch all names go before the first message goes back, and all
/// messages before the first connection ends.
const RELEASE_BATCH: usize = 256;

/// Clean-up in progress.
#[derive(Debug)]
pub(super) enum Release {
    /// A holder is gone, and leaves these sockets.
    Left {
        holder: Holder,
        ports: VecDeque<u32>,
        /// The process that has ended.
        process: Option<AttachmentId>,
    },
    /// A socket loses its bindings, and is closed then or not.
    Unbind {
        port: u32,
        closes: bool,
        /// The attachment that waits for the end.
        reply_to: Option<AttachmentId>,
    },
}

impl Dispatcher {
    /// Releases these sockets for a holder that is gone.
    pub(super) fn release_left(
        &mut self,
        ports: impl IntoIterator<Item = u32>,
        holder: Holder,
        process: Option<AttachmentId>,
    ) {
        self.releases.push_back(Release::Left { holder, ports: ports.into_iter().collect(), process });
    }

    /// Closes a socket that its last holder has closed, or withdraws all its bindings (`closes` false). True if that is
    /// done; if not, `reply_to` gets its reply later.
    pub(super) fn begin_unbind(
        &mut self,
        now: Time,
        port: u32,
        closes: bool,
        reply_to: Option<AttachmentId>,
    ) -> bool {
        if self.sockets.bindings(port) <= RELEASE_ITEMS {
            self.end_unbind(now, port, closes);
            return true;
        }
        self.releases.push_back(Release::Unbind { port, closes, reply_to });
        false
    }

    /// As [`Self::begin_unbind`], for a request whose reply is `answer`.
    pub(super) fn unbind_all(
        &mut self,
        now: Time,
        port: u32,
        closes: bool,
        (id, answer): (AttachmentId, &mut Answer),
    ) {
        answer.comes_later = !self.begin_unbind(now, port, closes, Some(id));
    }

    /// Goes on with the clean-up, up to this many items. What is left is first in line after the others.
    pub(super) fn run_releases(&mut self, now: Time, items: &mut usize) {
        for _ in 0..self.releases.len() {
            if *items == 0 {
                return self.turns.note_cut();
            }
            let Some(release) = self.releases.pop_front() else { return };
            if let Some(rest) = self.run_release(now, release, items) {
                self.releases.push_back(rest);
            }
        }
        if !self.releases.is_empty() {
            self.turns.note_cut();
        }
    }

    /// Ends all clean-up: the daemon stops.
    pub(super) fn end_releases(&mut self, now: Time) {
        while !self.releases.is_empty() {
            let mut all = usize::MAX;
            self.run_releases(now, &mut all);
        }
    }

    /// Returns what is left.
    fn run_release(&mut self, now: Time, release: Release, items: &mut usize) -> Option<Release> {
        match release {
            Release::Left { holder, mut ports, process } => {
                while *items > 0 && !ports.is_empty() {
                    let batch = self.next_batch(now, &mut ports, holder, items);
                    self.release_all(now, batch, holder);
                }
                if !ports.is_empty() {
                    return Some(Release::Left { holder, ports, process });
                }
                if let Some(id) = process {
                    self.with_lanes(now, |lanes, context| lanes.drop_pairs_of(context, id));
                    self.with_lanes(now, |lanes, context| lanes.forget_writer(context, id));
                }
                None
            }
            Release::Unbind { port, closes, reply_to } => {
                let bindings = self.sockets.bindings(port);
                if bindings > *items {
                    self.unbind_some(now, port, items);
                    return Some(Release::Unbind { port, closes, reply_to });
                }
                *items -= bindings;
                if self.sockets.contains(port) {
                    self.end_unbind(now, port, closes);
                }
                if let Some(to) = reply_to {
                    let (payload, fds) = (Vec::new(), Vec::new());
                    self.replies.push(Outgoing { to, reply: Reply::Done, payload, fds });
                }
                None
            }
        }
    }

    /// Takes the sockets that end next. A socket with more bindings than there are items loses some of them, and stays.
    fn next_batch(
        &mut self,
        now: Time,
        ports: &mut VecDeque<u32>,
        holder: Holder,
        items: &mut usize,
    ) -> Vec<u32> {
        let mut batch = Vec::new();
        while *items > 0
            && batch.len() < RELEASE_BATCH
            && let Some(port) = ports.front().copied()
        {
            let bindings = self.sockets.bindings(port);
            let ends = self.sockets.is_last(port, holder)
                && matches!(self.descriptors.near_end(port), NearEnd::Closed);
            if ends && bindings > *items {
                self.unbind_some(now, port, items);
                break;
            }
            let cost = 1 + LANE_ITEMS * self.lanes.count_of(port) + if ends { bindings } else { 0 };
            *items = items.saturating_sub(cost);
            batch.push(port);
            ports.pop_front();
        }
        batch
    }

    /// Withdraws the newest bindings of a socket, as many as there are items.
    fn unbind_some(&mut self, now: Time, port: u32, items: &mut usize) {
        let stack = &mut self.driver.stack;
        let newest: Vec<_> = stack.bindings_of(port).take(*items).map(|b| (b.range, b.scope)).collect();
        for which in newest {
            // It was in the list.
            let _ = stack.unbind(now, port, Some(which));
            self.sockets.remove_bindings(port, false);
        }
        *items = 0;
    }

    fn end_unbind(&mut self, now: Time, port: u32, closes: bool) {
        if closes {
            return self.close_socket(now, port);
        }
        // A socket without bindings has none to withdraw.
        let _ = self.driver.stack.unbind(now, port, None);
        self.sockets.remove_bindings(port, true);
    }
}
