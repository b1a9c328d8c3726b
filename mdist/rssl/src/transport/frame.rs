//! Headers of the frames after the handshake. Spec: rssl.md §1.6

use super::{Error, Result};

/// Bytes before the payload of a plain frame.
pub const FRAME_HEADER: usize = 3;
/// A ping: a frame without payload.
pub const PING_FRAME: [u8; FRAME_HEADER] = [0, 3, DATA];

pub(super) const EXTENDED: u8 = 0x01;
pub(super) const DATA: u8 = 0x02;
pub(super) const COMPRESSED: u8 = 0x04;
/// The compressed payload continues in the next compressed frame.
pub(super) const COMPRESSED_MORE: u8 = 0x08;
pub(super) const PACKED: u8 = 0x10;

pub(super) const EXT_FRAGMENT: u8 = 0x04;
pub(super) const EXT_FIRST_FRAGMENT: u8 = 0x08;

/// Bytes that a receiver accepts beyond the agreed payload: the longest header, and the slack of stock receivers.
pub(super) const HEADER_SLACK: usize = 17;

/// Header of a plain frame around one message of `len` bytes. `len` must be at most 65,532 and is reduced to that:
/// longer messages must be fragmented (`Channel::write`).
#[must_use]
pub const fn frame_header(len: usize) -> [u8; FRAME_HEADER] {
    let whole = if len > 0xffff - FRAME_HEADER { 0xffff } else { len + FRAME_HEADER };
    [(whole >> 8) as u8, whole as u8, DATA]
}

/// Whether a frame is a whole message, the first fragment of one, or a further fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    First { id: u16, total: u32 },
    Next { id: u16 },
}

/// Splits the bytes after the flags of a frame into the extended header and the payload.
pub(super) fn extended(flags: u8, body: &[u8], wide_ids: bool) -> Result<(Part, &[u8])> {
    if flags & EXTENDED == 0 {
        return Ok((Part::Whole, body));
    }
    let short = Error::Frame { flags, what: "it ends inside its extended header" };
    let (&ext, rest) = body.split_first().ok_or(short.clone())?;
    let (total, rest) = if ext & EXT_FIRST_FRAGMENT != 0 {
        let (total, rest) = rest.split_first_chunk().ok_or(short.clone())?;
        (Some(u32::from_be_bytes(*total)), rest)
    } else if ext & EXT_FRAGMENT != 0 {
        (None, rest)
    } else {
        return Err(Error::Frame { flags, what: "its extended flags are not valid on an open connection" });
    };
    let (id, rest) = if wide_ids {
        let (id, rest) = rest.split_first_chunk().ok_or(short)?;
        (u16::from_be_bytes(*id), rest)
    } else {
        let (&id, rest) = rest.split_first().ok_or(short)?;
        (u16::from(id), rest)
    };
    Ok((total.map_or(Part::Next { id }, |total| Part::First { id, total }), rest))
}

/// Bytes before the payload of a fragment.
pub(super) const fn fragment_header(first: bool, wide_ids: bool) -> usize {
    FRAME_HEADER + 1 + if first { 4 } else { 0 } + if wide_ids { 2 } else { 1 }
}

/// Appends the header of a fragment with `payload` bytes of (possibly compressed) payload.
pub(super) fn put_fragment_header(out: &mut Vec<u8>, part: Part, flags: u8, payload: usize, wide_ids: bool) {
    let (first, id) = match part {
        Part::First { id, .. } => (true, id),
        Part::Next { id } => (false, id),
        Part::Whole => (false, 0),
    };
    let len = fragment_header(first, wide_ids) + payload;
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.push(flags | EXTENDED);
    if let Part::First { total, .. } = part {
        out.push(EXT_FIRST_FRAGMENT);
        out.extend_from_slice(&total.to_be_bytes());
    } else {
        out.push(EXT_FRAGMENT);
    }
    if wide_ids {
        out.extend_from_slice(&id.to_be_bytes());
    } else {
        out.push(id as u8);
    }
}
