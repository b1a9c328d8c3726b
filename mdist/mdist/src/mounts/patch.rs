//! Edits of encoded messages in place that leave the other bytes as they are. Spec: rssl.md §2.2

/// The class byte of a message, without the bits that are reserved.
#[inline]
pub(crate) fn class(message: &[u8]) -> u8 {
    message.get(2).map_or(0, |byte| byte & 0x1f)
}

/// The stream id of a message. Spec: rssl.md §2.1
#[inline]
pub(crate) fn stream(message: &[u8]) -> i32 {
    message.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |id| i32::from_be_bytes(*id))
}

pub(crate) const REFRESH: u8 = 2;
pub(crate) const STATUS: u8 = 3;
pub(crate) const UPDATE: u8 = 4;

const SOLICITED: u8 = 0x20;
const COMPLETE: u8 = 0x40;
const SEQUENCE: u8 = 0x10;

/// Stream states as they stand in the upper bits of a state. Spec: rssl.md §2.10
pub(crate) const OPEN: u8 = 1;
pub(crate) const NON_STREAMING: u8 = 2;
pub(crate) const CLOSED_RECOVER: u8 = 3;
const SUSPECT: u8 = 2;

/// Offsets of the parts of a refresh's header that can change in place, and their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefreshView {
    /// Offset of the byte with the flags below 0x80.
    low_flags: usize,
    state: usize,
    pub(crate) complete: bool,
    pub(crate) stream_state: u8,
    pub(crate) suspect: bool,
}

impl RefreshView {
    /// Reads the header of a refresh without a frame; `None`: it is too short.
    #[inline]
    pub(crate) fn of(message: &[u8]) -> Option<Self> {
        let first = *message.get(8)?;
        let low_flags = if first & 0x80 == 0 { 8 } else { 9 };
        // One-byte flags have bit 7, the marker, clear.
        let flags = *message.get(low_flags)?;
        let state = low_flags + 2 + if flags & SEQUENCE == 0 { 0 } else { 4 };
        let byte = *message.get(state)?;
        Some(Self {
            low_flags,
            state,
            complete: flags & COMPLETE != 0,
            stream_state: byte >> 3,
            suspect: byte & 7 == SUSPECT,
        })
    }

    /// Sets or clears the flag SOLICITED: the refresh answers a request.
    pub(crate) fn set_solicited(&self, message: &mut [u8], solicited: bool) {
        if let Some(flags) = message.get_mut(self.low_flags) {
            *flags = if solicited { *flags | SOLICITED } else { *flags & !SOLICITED };
        }
    }

    /// Makes the state OPEN/SUSPECT.
    pub(crate) fn set_stale(&self, message: &mut [u8]) {
        if let Some(state) = message.get_mut(self.state) {
            *state = OPEN << 3 | SUSPECT;
        }
    }

    /// Replaces the stream part of the state.
    pub(crate) fn set_stream_state(&self, message: &mut [u8], stream: u8) {
        if let Some(state) = message.get_mut(self.state) {
            *state = stream << 3 | *state & 7;
        }
    }

    /// Replaces the code of the state.
    pub(crate) fn set_code(&self, message: &mut [u8], code: u8) {
        if let Some(byte) = message.get_mut(self.state + 1) {
            *byte = code;
        }
    }
}

/// Replaces the stream id of a message.
#[inline]
pub(crate) fn set_stream(message: &mut [u8], stream: i32) {
    if let Some(id) = message.get_mut(4..8) {
        id.copy_from_slice(&stream.to_be_bytes());
    }
}
