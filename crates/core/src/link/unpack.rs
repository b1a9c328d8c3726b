//! From packets in order to messages: bundles are opened, fragments put together. Spec: tipc.md §3.3, §5.9, §5.10.

use std::collections::VecDeque;

use super::fragment::{FragmentFault, Reassembly};
use crate::pool::Pool;
use crate::wire::{Message, MessageType, SHORT_HEADER, User, View};

/// A packet in order: borrowed from the frame just received, or kept since it came too early.
#[derive(Debug)]
pub(crate) enum Carrier<'a> {
    /// Straight from the wire.
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

/// What was unpacked since the last reset of the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnpackStats {
    /// Bundles.
    pub(crate) bundles: u64,
    /// Messages out of bundles.
    pub(crate) bundled: u64,
    /// Fragments.
    pub(crate) fragments: u64,
    /// Messages made of fragments.
    pub(crate) fragmented: u64,
    /// Messages that may not arrive this way, dropped.
    pub(crate) refused: u64,
}

/// Turns the packets of one sender, in order, into messages.
#[derive(Debug, Default)]
pub(crate) struct Unpacker {
    /// The message that is being put together.
    pub(crate) reassembly: Reassembly,
    /// Counters.
    pub(crate) stats: UnpackStats,
}

impl Unpacker {
    /// Appends the messages that `packet` completes to `out`.
    ///
    /// # Errors
    /// [`FragmentFault`] if a fragment does not fit; the unfinished message is dropped then.
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

    /// Takes the messages out of a bundle; the first malformed one loses the rest. Spec: tipc.md §5.10.
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

/// True for a message that a link may deliver from the inside of a bundle or from fragments. Spec: tipc.md §14.2.
pub(crate) fn may_be_inside(message: View<'_>) -> bool {
    let user = message.user();
    let known = match user {
        User::ConnManager | User::GroupProtocol | User::NameDistributor => true,
        _ => user.is_data() && message.message_type() != MessageType::GroupEvent,
    };
    known && message.header_fits()
}

fn may_be_top(message: View<'_>) -> bool {
    may_be_inside(message) || message.user() == User::BcastProtocol && message.header_fits()
}
