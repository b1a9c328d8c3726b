//! Messages that several mounts are to get, kept once: a mount lists where they are, and they become bytes of its own on
//! their way to its socket. Copying each into every mount's output first would touch memory that no cache holds.

use rssl::transport::FRAME_HEADER;

/// Most bytes of one half: more than what one period of the flush timer brings.
const HALF: usize = 512 * 1024;
/// Set in places of the upper half.
const UPPER: u32 = 1 << 31;

/// Bytes that one copy moves at once: most updates are shorter, and a copy of fixed size is the cheaper one.
const BLOCK: usize = 128;

/// Place of the stream id in a framed message. Spec: rssl.md §2.1
const STREAM: usize = FRAME_HEADER + 4;

/// One message of a mount's list: where it is above, the mount's own stream id for it below. One word, for one store each.
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

/// The messages that lists of mounts point to, in two halves: one is filled while lists that began in the other end. As
/// mounts are written one after the other, there may always be some list.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    halves: [Half; 2],
    /// Messages go to the upper half.
    upper: bool,
}

#[derive(Debug, Default)]
struct Half {
    bytes: Vec<u8>,
    /// Lists that are not empty and began here.
    lists: usize,
}

impl Arena {
    /// Makes room for one more message of this length; `false`: lists that began in the half which must be emptied for it
    /// have to be copied first.
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

    /// The half that has to be emptied next.
    pub(crate) fn older(&self) -> bool {
        !self.upper
    }

    /// Keeps a framed message, for which there is room; where it is.
    pub(crate) fn keep(&mut self, framed: &[u8]) -> u32 {
        let bit = if self.upper { UPPER } else { 0 };
        let half = self.filling();
        let at = half.bytes.len();
        half.bytes.extend_from_slice(framed);
        at as u32 | bit
    }

    /// No list needs it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.halves.iter().all(|half| half.lists == 0)
    }

    /// A list has its first message; the half in which it began.
    #[inline]
    pub(crate) fn begun(&mut self) -> bool {
        self.filling().lists += 1;
        self.upper
    }

    /// A list that began in this half is empty again. With the last list everything is forgotten.
    pub(crate) fn ended(&mut self, upper: bool) {
        let half = &mut self.halves[usize::from(upper)];
        half.lists = half.lists.saturating_sub(1);
        if self.is_idle() {
            for half in &mut self.halves {
                half.bytes.clear();
            }
        }
    }

    /// The bytes from a message on.
    #[inline]
    fn from(&self, at: u32) -> &[u8] {
        let [lower, upper] = &self.halves;
        let half = if at & UPPER == 0 { lower } else { upper };
        half.bytes.get((at & !UPPER) as usize..).unwrap_or_default()
    }

    /// Appends what is listed.
    pub(crate) fn copy(&self, list: &[Listed], into: &mut Vec<u8>) {
        for listed in list {
            let at = into.len();
            into.extend_from_slice(frame(self.from(listed.at())));
            if let Some(id) = into.get_mut(at + STREAM..at + STREAM + 4) {
                id.copy_from_slice(&listed.stream());
            }
        }
    }

    /// Fills `into` with as much of the list as has room; how many messages that are, and how many bytes.
    pub(crate) fn gather(&self, list: &[Listed], into: &mut [u8]) -> (usize, usize) {
        let mut filled = 0;
        for (count, listed) in list.iter().enumerate() {
            let rest = self.from(listed.at());
            let frame = frame(rest);
            let Some(room) = into.get_mut(filled..) else { return (count, filled) };
            if room.len() < frame.len() {
                return (count, filled);
            }
            match (rest.first_chunk::<BLOCK>(), room.first_chunk_mut::<BLOCK>()) {
                // What is behind the frame's end is written over by the next.
                (Some(from), Some(to)) if frame.len() <= BLOCK => *to = *from,
                _ => {
                    if let Some(to) = room.get_mut(..frame.len()) {
                        to.copy_from_slice(frame);
                    }
                }
            }
            if let Some(id) = room.get_mut(STREAM..STREAM + 4) {
                id.copy_from_slice(&listed.stream());
            }
            filled += frame.len();
        }
        (list.len(), filled)
    }
}

/// The frame that the bytes begin with: it says its own length. Spec: rssl.md §1.6
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
    fn gathers_what_copying_gives() {
        let mut arena = Arena::default();
        let mut list = Vec::new();
        for len in [11, 91, 127, 128, 129, 3000, 6147, 12, 64] {
            let at = arena.keep(&framed(len, len as u8));
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
                assert!(count > 0, "a buffer has room for the longest frame");
                pieces.extend_from_slice(&into[..bytes]);
                rest = &rest[count..];
            }
            assert_eq!(pieces, whole, "buffer of {room} bytes");
        }
    }

    #[test]
    fn forgets_with_the_last_list_and_is_bounded() {
        let mut arena = Arena::default();
        let piece = framed(6147, 1);
        let fill = |arena: &mut Arena| {
            let mut count = 0;
            let upper = arena.upper;
            while arena.make_room(piece.len()) && arena.upper == upper {
                arena.keep(&piece);
                count += 1;
            }
            count
        };
        let first = arena.begun();
        assert_eq!(fill(&mut arena), HALF / piece.len());
        let second = arena.begun();
        assert!(first != second && arena.older() == first);
        fill(&mut arena);
        assert!(!arena.make_room(piece.len()), "the first list is not empty yet");
        arena.ended(first);
        assert!(arena.make_room(piece.len()) && arena.older() == second);
        assert_eq!(arena.keep(&piece) & !UPPER, 0);
        arena.ended(second);
        assert!(arena.is_idle());
        assert_eq!(arena.keep(&piece) & !UPPER, 0, "forgotten with the last list");
    }
}
