//! Turns packets in order into messages: opens bundles, reassembles fragments. Spec: tipc.md §3.3, §5.9, §5.10.

use std::collections::VecDeque;

use super::accept::{may_be_inside, may_be_top};
use super::fragment::{FragmentFault, Reassembly};
use crate::pool::Pool;
use crate::wire::{Message, SHORT_HEADER, User, View};

/// A packet in order: borrowed from the frame just received, or owned because it was deferred.
#[derive(Debug)]
pub(crate) enum Carrier<'a> {
    /// Directly from a received frame.
    Borrowed(View<'a>),
    /// From a deferred queue.
    Owned(Message),
}

impl Carrier<'_> {
    /// The packet.
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Self::Borrowed(v) => *v,
            Self::Owned(m) => m.view(),
        }
    }

    fn into_message(self) -> Message {
        match self {
            Self::Borrowed(v) => v.to_message(),
            Self::Owned(m) => m,
        }
    }
}

/// Unpacking counters since the last reset of the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnpackStats {
    /// Bundles.
    pub(crate) bundles: u64,
    /// Messages from bundles.
    pub(crate) bundled: u64,
    /// Fragments.
    pub(crate) fragments: u64,
    /// Messages reassembled from fragments.
    pub(crate) fragmented: u64,
    /// Messages dropped because they may not arrive this way.
    pub(crate) refused: u64,
}

/// Turns the packets of one sender, in order, into messages.
#[derive(Debug, Default)]
pub(crate) struct Unpacker {
    /// The message being reassembled.
    pub(crate) reassembly: Reassembly,
    /// Counters.
    pub(crate) stats: UnpackStats,
}

impl Unpacker {
    /// Appends the messages that `packet` completes to `out`.
    ///
    /// # Errors
    /// [`FragmentFault`] if a fragment is refused; the unfinished message is dropped.
    pub(crate) fn unpack(
        &mut self,
        packet: Carrier<'_>,
        pool: &mut Pool,
        out: &mut VecDeque<Message>,
    ) -> Result<(), FragmentFault> {
        let view = packet.view();
        match view.user() {
            User::Fragmenter if view.header_fits() => {
                self.stats.fragments += 1;
                if let Some(whole) = self.reassembly.add(view, pool)? {
                    self.stats.fragmented += 1;
                    out.push_back(whole);
                }
            }
            User::Bundler if view.header_fits() => self.unbundle(view, out),
            _ if may_be_top(view) => out.push_back(packet.into_message()),
            _ => self.stats.refused += 1,
        }
        Ok(())
    }

    /// Adds a fragment from the middle of a message; false if [`Self::unpack`] has to judge it.
    pub(crate) fn take_middle(&mut self, packet: View<'_>) -> bool {
        let taken = packet.user() == User::Fragmenter && packet.header_fits();
        let taken = taken && self.reassembly.take_middle(packet.kind(), packet.payload());
        self.stats.fragments += u64::from(taken);
        taken
    }

    /// Extracts the messages of a bundle; everything after the first malformed one is lost. Spec: tipc.md §5.10.
    fn unbundle(&mut self, bundle: View<'_>, out: &mut VecDeque<Message>) {
        self.stats.bundles += 1;
        let mut rest = bundle.payload();
        while rest.len() >= SHORT_HEADER {
            let Ok(inner) = View::parse(rest) else {
                self.stats.refused += 1;
                return;
            };
            self.stats.bundled += 1;
            if may_be_inside(inner) {
                out.push_back(inner.to_message());
            } else {
                self.stats.refused += 1;
            }
            rest = rest.get(inner.size().next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
