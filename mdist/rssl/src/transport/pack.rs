//! Several messages in one frame. Spec: rssl.md §1.6

use super::frame::{DATA, FRAME_HEADER, PACKED};

/// Collects messages for one packed frame: `push` until it returns false, then `finish` (or `Channel::write_packed`).
#[derive(Clone, Debug)]
pub struct Packer {
    /// Space for a frame header, then the list.
    frame: Vec<u8>,
    count: usize,
    limit: usize,
}

impl Packer {
    /// A packer for at most `max_payload` bytes. Each message takes its length and two bytes more. The limit is
    /// the connection's `Opened::max_message`, or less.
    #[must_use]
    pub fn new(max_payload: u16) -> Self {
        let limit = usize::from(max_payload).min(0xffff - FRAME_HEADER) + FRAME_HEADER;
        Packer { frame: vec![0; FRAME_HEADER], count: 0, limit }
    }

    /// Adds a message; false if it does not fit or is empty.
    #[must_use]
    pub fn push(&mut self, message: &[u8]) -> bool {
        if message.is_empty() || self.frame.len() + 2 + message.len() > self.limit {
            return false;
        }
        self.frame.extend_from_slice(&(message.len() as u16).to_be_bytes());
        self.frame.extend_from_slice(message);
        self.count += 1;
        true
    }

    /// Number of messages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The payload of the packed frame.
    pub(super) fn list(&self) -> &[u8] {
        self.frame.get(FRAME_HEADER..).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.frame.truncate(FRAME_HEADER);
        self.count = 0;
    }

    /// Appends the frame, uncompressed, and empties the packer. A single message becomes a plain frame; without
    /// messages nothing is appended.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self.count {
            0 => {}
            1 => {
                let message = self.frame.get(FRAME_HEADER + 2..).unwrap_or_default();
                out.extend_from_slice(&super::frame_header(message.len()));
                out.extend_from_slice(message);
            }
            _ => {
                out.extend_from_slice(&(self.frame.len() as u16).to_be_bytes());
                out.push(DATA | PACKED);
                out.extend_from_slice(self.list());
            }
        }
        self.clear();
    }
}
