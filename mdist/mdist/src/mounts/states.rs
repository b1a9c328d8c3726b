//! States that the server itself sends on streams.

use rssl::rwf::{DataState, State, StreamState};

/// CLOSED/SUSPECT: the stream is over, and opening it again does not help.
pub(super) fn closed_suspect(code: u8, text: &[u8]) -> State<'_> {
    State::new(StreamState::Closed, DataState::Suspect, code, text)
}

/// CLOSED_RECOVER/SUSPECT: the stream is over, and the consumer may open it again.
pub(super) fn recover_suspect(code: u8, text: &[u8]) -> State<'_> {
    State::new(StreamState::ClosedRecover, DataState::Suspect, code, text)
}
