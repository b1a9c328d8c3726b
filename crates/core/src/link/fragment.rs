//! Messages larger than a packet: cutting and reassembling. Spec: tipc.md §5.9, §3.8.

use std::sync::Arc;

use super::backlog::Level;
use super::packet::Outgoing;
use super::unpack::may_be_inside;
use crate::addr::NodeAddr;
use crate::limits::MAX_MESSAGE;
use crate::outbox::Part;
use crate::planted::{self, Fault};
use crate::pool::Pool;
use crate::wire::{BareHeader, INTERNAL_HEADER, Message, User, View};

/// Type of the first fragment of a message.
pub(crate) const FIRST: u8 = 0;
/// Type of the fragments between first and last.
pub(crate) const MIDDLE: u8 = 1;
/// Type of the last fragment.
pub(crate) const LAST: u8 = 2;

/// The fragments of one message, in the order in which they must be sent.
#[derive(Debug)]
pub(crate) struct Fragments {
    message: Arc<Message>,
    /// Where the next one starts.
    from: usize,
    room: usize,
    number: u16,
    /// What all their headers have in common.
    header: BareHeader,
}

impl Fragments {
    /// Cuts `inner` into packets of `pktmax` bytes (more than 40) from `own` to `dest` (none for broadcast).
    pub(crate) fn new(inner: Message, pktmax: usize, own: NodeAddr, dest: NodeAddr) -> Self {
        let room = pktmax.saturating_sub(INTERNAL_HEADER).max(1);
        let mut header = BareHeader::new(User::Fragmenter, MIDDLE, room);
        header.set_prev_node(own);
        header.set_origin_node(own);
        header.set_dest_node(dest);
        header.set_carried_importance(Level::of(inner.view()).number());
        Self { message: Arc::new(inner), from: 0, room, number: 0, header }
    }

    /// Fragments still to come.
    pub(crate) fn remaining(&self) -> usize {
        (self.message.bytes().len() - self.from).div_ceil(self.room)
    }
}

impl Iterator for Fragments {
    type Item = Outgoing;

    fn next(&mut self) -> Option<Outgoing> {
        let all = self.message.bytes().len();
        if self.from == all {
            return None;
        }
        let to = all.min(self.from + self.room);
        let range = self.from as u32..to as u32;
        self.from = to;
        self.number = self.number.wrapping_add(1);
        let kind = match (self.number, to == all) {
            (_, true) => LAST,
            (1, false) => FIRST,
            _ => MIDDLE,
        };
        let mut packet = self.header;
        if kind != MIDDLE {
            packet.set_kind(kind);
        }
        if range.len() != self.room {
            packet.set_data_size(range.len());
        }
        packet.set_fragment_number(self.number);
        Some(Outgoing::Fragment(packet, Part { message: Arc::clone(&self.message), range }))
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
    pub(crate) fn add(
        &mut self,
        fragment: View<'_>,
        pool: &mut Pool,
    ) -> Result<Option<Message>, FragmentFault> {
        let whole = self.add_slice(fragment.kind(), fragment.payload(), pool)?;
        if whole.as_ref().is_some_and(|whole| !may_be_inside(whole.view())) {
            return Err(FragmentFault::Invalid);
        }
        Ok(whole)
    }

    /// Adds a slice; the whole, structurally checked but of any user, after the last.
    ///
    /// # Errors
    /// [`FragmentFault`]; what was pending is dropped then.
    pub(crate) fn add_slice(
        &mut self,
        kind: u8,
        slice: &[u8],
        pool: &mut Pool,
    ) -> Result<Option<Message>, FragmentFault> {
        let pending = self.pending.take();
        match (kind, pending) {
            (FIRST, Some(_)) => Err(FragmentFault::Unfinished),
            (FIRST, None) => {
                self.pending = Some(begin(slice, pool));
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
fn begin(slice: &[u8], pool: &mut Pool) -> Vec<u8> {
    let claimed = slice.first_chunk().map_or(0, |word| u32::from_be_bytes(*word) as usize & 0x1_ffff);
    let mut bytes = pool.take(claimed.min(MAX_MESSAGE).max(slice.len()));
    bytes.extend_from_slice(slice);
    bytes
}
