//! Memory for messages that several mounts get, stored once.
//!
//! Each mount keeps a list of offsets of its messages. When its socket is written, they are copied from here
//! with the mount's own stream ids. Copying each message into the output of every mount at once would touch
//! memory that is in no cache.

use rssl::transport::FRAME_HEADER;

/// Maximum number of bytes of one half: more than one period of the flush timer brings.
const HALF: usize = 512 * 1024;
/// Set in offsets of the upper half.
const UPPER: u32 = 1 << 31;

/// Size of a copy of fixed length, in bytes: most updates are shorter, and a fixed length is cheaper.
const BLOCK: usize = 128;

/// Offset of the stream id in a framed message. Spec: rssl.md §2.1
const STREAM: usize = FRAME_HEADER + 4;

/// One message of a mount's list: its offset in the high half, the mount's stream id for it in the low half.
/// Both are in one word, so that one store adds them to a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed(u64);

impl Listed {
    #[inline]
    pub(crate) fn new(at: u32, stream: i32) -> Self {
        Self(u64::from(at) << 32 | u64::from(stream.cast_unsigned()))
    }

    #[inline]
    fn at(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn stream(self) -> [u8; 4] {
        (self.0 as u32).to_be_bytes()
    }
}

/// The messages that lists of mounts point to, in two halves.
///
/// One half is filled until the lists that began in the other have ended. A single half might never be emptied:
/// mounts are written one after the other, so there may always be some list.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    halves: [Half; 2],
    /// Whether the upper half is being filled.
    upper: bool,
}

#[derive(Debug, Default)]
struct Half {
    bytes: Vec<u8>,
    /// Number of lists that began here and have not ended.
    lists: usize,
}

impl Arena {
    /// Makes space for one more message of this length. `false`: the lists that began in the [`older`](Self::older)
    /// half have to be copied first.
    #[inline]
    pub(crate) fn make_room(&mut self, len: usize) -> bool {
        self.filling().bytes.len() + len <= HALF || self.swap()
    }

    #[cold]
    fn swap(&mut self) -> bool {
        let other = &mut self.halves[usize::from(!self.upper)];
        if other.lists > 0 {
            return false;
        }
        other.bytes.clear();
        self.upper = !self.upper;
        true
    }

    fn filling(&mut self) -> &mut Half {
        &mut self.halves[usize::from(self.upper)]
    }

    /// The half that is not being filled, and has to be emptied next.
    pub(crate) fn older(&self) -> bool {
        !self.upper
    }

    /// Stores a framed message for which space was made; returns its offset.
    pub(crate) fn store(&mut self, framed: &[u8]) -> u32 {
        let bit = if self.upper { UPPER } else { 0 };
        let half = self.filling();
        let at = half.bytes.len();
        half.bytes.extend_from_slice(framed);
        at as u32 | bit
    }

    /// Whether no mount has a list.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.halves.iter().all(|half| half.lists == 0)
    }

    /// Counts a list that gets its first message; returns the half in which it begins.
    #[inline]
    pub(crate) fn list_begins(&mut self) -> bool {
        self.filling().lists += 1;
        self.upper
    }

    /// Counts a list that began in this half as ended. With the last list the arena is cleared.
    pub(crate) fn list_ends(&mut self, upper: bool) {
        let half = &mut self.halves[usize::from(upper)];
        half.lists = half.lists.saturating_sub(1);
        if self.is_idle() {
            for half in &mut self.halves {
                half.bytes.clear();
            }
        }
    }

    /// The bytes from an offset on.
    #[inline]
    fn from(&self, at: u32) -> &[u8] {
        let [lower, upper] = &self.halves;
        let half = if at & UPPER == 0 { lower } else { upper };
        half.bytes.get((at & !UPPER) as usize..).unwrap_or_default()
    }

    /// Appends the listed messages to `into`, with their stream ids.
    pub(crate) fn copy(&self, list: &[Listed], into: &mut Vec<u8>) {
        for listed in list {
            let at = into.len();
            into.extend_from_slice(frame(self.from(listed.at())));
            if let Some(id) = into.get_mut(at + STREAM..at + STREAM + 4) {
                id.copy_from_slice(&listed.stream());
            }
        }
    }

    /// Fills `into` with as many messages of the list as fit; returns their number, and the number of bytes.
    pub(crate) fn gather(&self, list: &[Listed], into: &mut [u8]) -> (usize, usize) {
        let mut filled = 0;
        for (count, listed) in list.iter().enumerate() {
            let rest = self.from(listed.at());
            let frame = frame(rest);
            let Some(space) = into.get_mut(filled..) else { return (count, filled) };
            if space.len() < frame.len() {
                return (count, filled);
            }
            match (rest.first_chunk::<BLOCK>(), space.first_chunk_mut::<BLOCK>()) {
                // Bytes beyond the frame's end are overwritten by the next one.
                (Some(from), Some(to)) if frame.len() <= BLOCK => *to = *from,
                _ => {
                    if let Some(to) = space.get_mut(..frame.len()) {
                        to.copy_from_slice(frame);
                    }
                }
            }
            if let Some(id) = space.get_mut(STREAM..STREAM + 4) {
                id.copy_from_slice(&listed.stream());
            }
            filled += frame.len();
        }
        (list.len(), filled)
    }
}

/// The frame at the start of the bytes, which begins with its length. Spec: rssl.md §1.6
#[inline]
fn frame(bytes: &[u8]) -> &[u8] {
    let len = bytes.first_chunk().map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
    bytes.get(..len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(len: u16, fill: u8) -> Vec<u8> {
        let mut frame = len.to_be_bytes().to_vec();
        frame.push(2);
        frame.resize(len.into(), fill);
        frame
    }

    #[test]
    fn gathering_and_copying_give_the_same_bytes() {
        let mut arena = Arena::default();
        let mut list = Vec::new();
        for len in [11, 91, 127, 128, 129, 3000, 6147, 12, 64] {
            let at = arena.store(&framed(len, len as u8));
            list.push(Listed::new(at, -i32::from(len)));
        }
        list.extend_from_within(..);
        let mut whole = Vec::new();
        arena.copy(&list, &mut whole);
        assert_eq!(whole.get(3..12).unwrap(), [11, 11, 11, 11, 0xff, 0xff, 0xff, 0xf5, 0]);
        for room in [6147, 6200, 9000, 100_000] {
            let mut pieces = Vec::new();
            let mut rest = list.as_slice();
            while !rest.is_empty() {
                let mut into = vec![0; room];
                let (count, bytes) = arena.gather(rest, &mut into);
                assert!(count > 0, "the buffer fits the longest frame");
                pieces.extend_from_slice(&into[..bytes]);
                rest = &rest[count..];
            }
            assert_eq!(pieces, whole, "buffer of {room} bytes");
        }
    }

    #[test]
    fn arena_is_bounded_and_cleared_with_the_last_list() {
        let mut arena = Arena::default();
        let piece = framed(6147, 1);
        let fill = |arena: &mut Arena| {
            let mut count = 0;
            let upper = arena.upper;
            while arena.make_room(piece.len()) && arena.upper == upper {
                arena.store(&piece);
                count += 1;
            }
            count
        };
        let first = arena.list_begins();
        assert_eq!(fill(&mut arena), HALF / piece.len());
        let second = arena.list_begins();
        assert!(first != second && arena.older() == first);
        fill(&mut arena);
        assert!(!arena.make_room(piece.len()), "the first list is not empty yet");
        arena.list_ends(first);
        assert!(arena.make_room(piece.len()) && arena.older() == second);
        assert_eq!(arena.store(&piece) & !UPPER, 0);
        arena.list_ends(second);
        assert!(arena.is_idle());
        assert_eq!(arena.store(&piece) & !UPPER, 0, "cleared with the last list");
    }
}
