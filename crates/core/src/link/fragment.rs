//! Messages larger than a packet: fragmentation and reassembly. Spec: tipc.md §5.9, §3.8.

use std::sync::Arc;

use super::accept::may_be_inside;
use super::backlog::Level;
use super::packet::Outgoing;
use crate::addr::NodeAddr;
use crate::limits::MAX_MESSAGE;
use crate::outbox::Part;
use crate::planted::{self, Fault};
use crate::pool::Pool;
use crate::wire::{BareHeader, INTERNAL_HEADER, Message, User, View};

/// Type of the first fragment.
pub(crate) const FIRST: u8 = 0;
/// Type of the fragments between the first and the last.
pub(crate) const MIDDLE: u8 = 1;
/// Type of the last fragment.
pub(crate) const LAST: u8 = 2;

/// Iterator over the fragments of a message, in the order in which they must be sent.
#[derive(Debug)]
pub(crate) struct Fragments {
    message: Arc<Message>,
    /// Offset of the next fragment.
    from: usize,
    room: usize,
    number: u16,
    /// The fields that the headers have in common.
    header: BareHeader,
}

impl Fragments {
    /// Fragments `inner` into packets of `pktmax` bytes (more than 40) from `own` to `dest` (none for broadcast).
    pub(crate) fn new(inner: Message, pktmax: usize, own: NodeAddr, dest: NodeAddr) -> Self {
        let room = pktmax.saturating_sub(INTERNAL_HEADER).max(1);
        let mut header = BareHeader::new(User::Fragmenter, MIDDLE, room);
        header.set_prev_node(own);
        header.set_origin_node(own);
        header.set_dest_node(dest);
        header.set_carried_importance(Level::of(inner.view()).number());
        Self { message: Arc::new(inner), from: 0, room, number: 0, header }
    }

    /// Number of fragments not yet returned.
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

/// Reason why a fragment was refused. On a unicast link each of them takes the link down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentFault {
    /// A middle or last fragment without a first.
    NoFirst,
    /// A first fragment although another message is unfinished.
    Unfinished,
    /// More bytes than the largest message.
    TooLarge,
    /// An unknown fragment type, or an assembled message that is malformed or may not be fragmented.
    Invalid,
}

/// A message being reassembled.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    pending: Option<Vec<u8>>,
}

impl Reassembly {
    /// Adds the payload of a FRAGMENTER packet; returns the message after its last fragment.
    ///
    /// # Errors
    /// [`FragmentFault`]; the unfinished message is dropped.
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

    /// Adds a slice; after the last one returns the message, which is structurally checked but may have any user.
    ///
    /// # Errors
    /// [`FragmentFault`]; the unfinished message is dropped.
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

    /// Adds the slice of a middle fragment if the message has room for it in its memory; false if [`Self::add_slice`]
    /// has to judge it.
    pub(crate) fn take_middle(&mut self, kind: u8, slice: &[u8]) -> bool {
        let Some(bytes) = &mut self.pending else { return false };
        let room = bytes.capacity().min(MAX_MESSAGE).saturating_sub(bytes.len());
        if kind != MIDDLE || slice.len() > room || planted::active(Fault::FragmentOrder) {
            return false;
        }
        bytes.extend_from_slice(slice);
        true
    }

    /// Memory of the unfinished message, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, Vec::capacity)
    }

    /// True if a message is unfinished.
    #[cfg(test)]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }
}

/// A buffer that starts with `slice`, with room for the whole message if the slice holds its size.
fn begin(slice: &[u8], pool: &mut Pool) -> Vec<u8> {
    let claimed = slice.first_chunk().map_or(0, |word| u32::from_be_bytes(*word) as usize & 0x1_ffff);
    let mut bytes = pool.take(claimed.min(MAX_MESSAGE).max(slice.len()));
    bytes.extend_from_slice(slice);
    bytes
}
