//! Long messages in pieces.
//!
//! A member that joins between two pieces has only the later ones. At that place all members drop the pieces they have,
//! and the sender sends the message again from the beginning. A sender sends no other message before it has received
//! its own long message, so the order of its messages stays.

use utipc::PortId;

use super::Layer;
use crate::types::MAX_MESSAGE;
use crate::wire::{MAX_PIECE, MAX_WHOLE, Message};

/// A message with some pieces received.
#[derive(Debug)]
pub(super) struct Assembly {
    number: u32,
    total: usize,
    data: Vec<u8>,
}

/// The long message that this member sends.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    message: Option<Long>,
    number: u32,
}

#[derive(Debug)]
struct Long {
    data: Vec<u8>,
    sent: usize,
    safe: bool,
}

impl Cutter {
    /// Whether a message has not come back.
    pub(super) fn is_busy(&self) -> bool {
        self.message.is_some()
    }

    pub(super) fn is_safe(&self) -> bool {
        self.message.as_ref().is_some_and(|long| long.safe)
    }

    /// The next piece to send.
    pub(super) fn next(&self) -> Option<Message<'_>> {
        let long = self.message.as_ref()?;
        let rest = long.data.get(long.sent..).filter(|rest| !rest.is_empty())?;
        let bytes = rest.get(..MAX_PIECE).unwrap_or(rest);
        let (offset, total) = (long.sent as u32, long.data.len() as u32);
        Some(Message::Piece { number: self.number, offset, total, bytes })
    }

    /// The next piece has been sent.
    pub(super) fn advance(&mut self) {
        if let Some(long) = &mut self.message {
            long.sent = (long.sent + MAX_PIECE).min(long.data.len());
        }
    }

    fn restart(&mut self) {
        self.number = self.number.wrapping_add(1);
        if let Some(long) = &mut self.message {
            long.sent = 0;
        }
    }
}

impl Layer {
    /// Sends a message: returns it as the group's message if it needs no pieces. The caller asks
    /// [`Layer::can_send`] before.
    pub(crate) fn submit(&mut self, data: Vec<u8>, safe: bool) -> Option<Vec<u8>> {
        if data.len() <= MAX_WHOLE {
            return Some(Message::Whole(&data).encode());
        }
        self.cutter.restart();
        self.cutter.message = Some(Long { data, sent: 0, safe });
        None
    }

    /// A piece at its place; returns the whole message with the last one.
    pub(super) fn piece(
        &mut self,
        from: PortId,
        number: u32,
        offset: u32,
        total: u32,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let (offset, total) = (offset as usize, total as usize);
        if total > MAX_MESSAGE || bytes.is_empty() || offset + bytes.len() > total {
            self.refused += 1;
            self.assemblies.remove(&from);
            return None;
        }
        if offset == 0 {
            self.assemblies.insert(from, Assembly { number, total, data: Vec::new() });
        }
        let assembly = self.assemblies.get_mut(&from)?;
        if (assembly.number, assembly.total, assembly.data.len()) != (number, total, offset) {
            // The rest of a message whose beginning was dropped.
            return None;
        }
        assembly.data.extend_from_slice(bytes);
        if assembly.data.len() < total {
            return None;
        }
        if from == self.me {
            self.cutter.message = None;
        }
        self.assemblies.remove(&from).map(|assembly| assembly.data)
    }

    /// Handles joins: drops pieces, which the joiners lack.
    pub(super) fn restart_pieces(&mut self) {
        // Without a piece here, all were sent after the view, and everyone has them.
        if self.assemblies.contains_key(&self.me) {
            self.cutter.restart();
        }
        self.assemblies.clear();
    }
}
