//! The application's state for members that join, as it is at the start of their first view.

use std::collections::BTreeMap;

use super::{Member, SendError, Target};
use crate::config::{CHUNK_WINDOW, MAX_CHUNK};
use crate::event::{Event, Payload};
use crate::planted::{Fault, active};
use crate::state::{Event as Step, State};
use crate::view::{MemberId, View, ViewId};
use crate::wire::Message;

/// A transfer in the current view, at its donor and at a joiner.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    /// At the donor: the joiners, and the pieces that each has taken.
    taken: BTreeMap<MemberId, u64>,
    /// At the donor: the application has not been asked yet.
    pub(super) ask: bool,
    /// At the donor: the application may provide pieces.
    open: bool,
    /// Pieces sent, or received.
    pieces: u64,
    /// At a joiner: the member that has the state.
    donor: Option<MemberId>,
    /// At a joiner: pieces that the application has taken.
    pub(super) consumed: u64,
}

impl Member {
    /// The transfer of a new view.
    pub(super) fn start_transfer(&mut self, view: &View, joining: &[MemberId]) {
        self.transfer = Transfer::default();
        if !self.config.state_transfer || joining.is_empty() {
            return;
        }
        let donor = view.members().find(|id| !joining.contains(id));
        if donor == Some(self.me) {
            self.transfer.ask = true;
            self.transfer.open = true;
            self.transfer.taken = joining.iter().map(|id| (*id, 0)).collect();
        } else if joining.contains(&self.me) {
            self.transfer.donor = donor;
        }
    }

    /// The transport no longer reaches a joiner.
    pub(super) fn transfer_lost(&mut self, peer: MemberId) {
        self.transfer.taken.remove(&peer);
    }

    /// Gives a piece of the state that the application had at [`Event::StateWanted`]. A transfer of a view that has
    /// ended takes pieces and drops them; the next view asks again if it has to.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if a joiner has to take earlier pieces first, [`SendError::TooLong`].
    pub fn provide_state(&mut self, view: ViewId, piece: &[u8], last: bool) -> Result<(), SendError> {
        if piece.len() > MAX_CHUNK {
            return Err(SendError::TooLong(piece.len()));
        }
        if view != self.view_id() || !self.transfer.open {
            return Ok(());
        }
        let slowest = self.transfer.taken.values().min().copied().unwrap_or(self.transfer.pieces);
        if self.transfer.pieces - slowest >= CHUNK_WINDOW {
            return Err(SendError::WouldBlock);
        }
        let index = self.transfer.pieces;
        self.transfer.pieces += 1;
        self.transfer.open = !last;
        let joiners: Vec<MemberId> = self.transfer.taken.keys().copied().collect();
        for joiner in joiners {
            self.transmit(Target::One(joiner), &Message::Chunk { view, index, last, bytes: piece });
        }
        Ok(())
    }

    pub(super) fn receive_chunk_ack(&mut self, from: MemberId, view: ViewId, taken: u64) {
        let pieces = self.transfer.pieces;
        if view == self.view_id()
            && let Some(count) = self.transfer.taken.get_mut(&from)
        {
            *count = (*count).max(taken.min(pieces));
        }
    }

    pub(super) fn receive_chunk(
        &mut self,
        from: MemberId,
        view: ViewId,
        index: u64,
        last: bool,
        bytes: &[u8],
    ) {
        let current =
            view == self.view_id() && self.transfer.donor == Some(from) && index == self.transfer.pieces;
        if self.state != State::Transferring || !current {
            return;
        }
        if index - self.transfer.consumed.min(index) > CHUNK_WINDOW {
            self.stats.refused += 1;
            return;
        }
        self.transfer.pieces += 1;
        let Some(epoch) = self.history.last_mut() else { return };
        let bytes = Payload::new(bytes.into(), 0..bytes.len());
        epoch.before.push_back(Event::State { bytes, first: index == 0, last });
        if last {
            epoch.ready = true;
            if active(Fault::JoinerSkips) && epoch.log.turn(false).is_some() {
                epoch.log.delivered_one();
            }
            self.has_state = true;
            self.hello_due = true;
            let stepped = self.step(Step::StateComplete);
            debug_assert!(stepped);
        }
    }

    /// The application has taken a piece: the donor may send another one.
    pub(super) fn piece_taken(&mut self) {
        self.transfer.consumed += 1;
        let (view, taken) = (self.view_id(), self.transfer.consumed);
        if let Some(donor) = self.transfer.donor {
            self.transmit(Target::One(donor), &Message::ChunkAck { view, taken });
        }
    }
}
