//! Messages larger than a packet: cutting and reassembling. Spec: tipc.md §5.9, §3.8.

use super::backlog::Level;
use super::unpack::may_be_inside;
use crate::addr::NodeAddr;
use crate::limits::MAX_MESSAGE;
use crate::planted::{self, Fault};
use crate::wire::{INTERNAL_HEADER, Message, User, View};

/// Type of the first fragment of a message.
pub(crate) const FIRST: u8 = 0;
/// Type of the fragments between first and last.
pub(crate) const MIDDLE: u8 = 1;
/// Type of the last fragment.
pub(crate) const LAST: u8 = 2;

/// The fragments of one message, in the order in which they must be sent.
#[derive(Debug)]
pub(crate) struct Fragments<'a> {
    rest: &'a [u8],
    room: usize,
    number: u16,
    level: Level,
    own: NodeAddr,
    dest: NodeAddr,
}

impl<'a> Fragments<'a> {
    /// Cuts `inner` into packets of `pktmax` bytes (more than 40) from `own` to `dest` (none for broadcast).
    pub(crate) fn new(inner: &'a Message, pktmax: usize, own: NodeAddr, dest: NodeAddr) -> Self {
        let room = pktmax.saturating_sub(INTERNAL_HEADER).max(1);
        Self { rest: inner.bytes(), room, number: 0, level: Level::of(inner.view()), own, dest }
    }

    /// Fragments still to come.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len().div_ceil(self.room)
    }
}

impl Iterator for Fragments<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.rest.is_empty() {
            return None;
        }
        let (slice, rest) = self.rest.split_at(self.room.min(self.rest.len()));
        self.rest = rest;
        self.number = self.number.wrapping_add(1);
        let kind = match (self.number, rest.is_empty()) {
            (_, true) => LAST,
            (1, false) => FIRST,
            _ => MIDDLE,
        };
        let mut packet = Message::build(User::Fragmenter, kind, INTERNAL_HEADER, slice);
        packet.set_prev_node(self.own);
        packet.set_origin_node(self.own);
        packet.set_dest_node(self.dest);
        packet.set_fragment_number(self.number);
        packet.set_carried_importance(self.level.number());
        Some(packet)
    }
}

/// Why a fragment could not be used. On a unicast link every one of them ends the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentFault {
    /// A middle or last fragment without a first.
    NoFirst,
    /// A first fragment while another message is unfinished.
    Unfinished,
    /// More bytes than a message may have.
    TooLarge,
    /// An unknown fragment type, or a whole that is no message or one that may not be fragmented.
    Invalid,
}

/// One message that is being put together.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    pending: Option<Vec<u8>>,
}

impl Reassembly {
    /// Adds the slice in a FRAGMENTER packet; the whole message after its last fragment.
    ///
    /// # Errors
    /// [`FragmentFault`]; what was pending is dropped then.
    pub(crate) fn add(&mut self, fragment: View<'_>) -> Result<Option<Message>, FragmentFault> {
        let whole = self.add_slice(fragment.kind(), fragment.payload())?;
        if whole.as_ref().is_some_and(|whole| !may_be_inside(whole.view())) {
            return Err(FragmentFault::Invalid);
        }
        Ok(whole)
    }

    /// Adds a slice; the whole, structurally checked but of any user, after the last.
    ///
    /// # Errors
    /// [`FragmentFault`]; what was pending is dropped then.
    pub(crate) fn add_slice(&mut self, kind: u8, slice: &[u8]) -> Result<Option<Message>, FragmentFault> {
        let pending = self.pending.take();
        match (kind, pending) {
            (FIRST, Some(_)) => Err(FragmentFault::Unfinished),
            (FIRST, None) => {
                self.pending = Some(begin(slice));
                Ok(None)
            }
            (MIDDLE | LAST, None) => Err(FragmentFault::NoFirst),
            (MIDDLE | LAST, Some(mut bytes)) => {
                if bytes.len() + slice.len() > MAX_MESSAGE {
                    return Err(FragmentFault::TooLarge);
                }
                if planted::active(Fault::FragmentOrder) && kind == MIDDLE {
                    let at = bytes.len() / 2;
                    bytes.splice(at..at, slice.iter().copied());
                } else {
                    bytes.extend_from_slice(slice);
                }
                if kind == LAST {
                    return Message::from_vec(bytes).map(Some).map_err(|_| FragmentFault::Invalid);
                }
                self.pending = Some(bytes);
                Ok(None)
            }
            _ => Err(FragmentFault::Invalid),
        }
    }

    /// True while a message is unfinished.
    #[cfg(test)]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }
}

/// Starts a message with room for all of it, if the first slice tells its size.
fn begin(slice: &[u8]) -> Vec<u8> {
    let claimed = slice.first_chunk().map_or(0, |word| u32::from_be_bytes(*word) as usize & 0x1_ffff);
    let mut bytes = Vec::with_capacity(claimed.min(MAX_MESSAGE).max(slice.len()));
    bytes.extend_from_slice(slice);
    bytes
}
