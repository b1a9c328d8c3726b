//! Encrypted frames: a message sealed behind its outer header. Spec: tipc.md §12.2, §12.3.

use super::aead::{Aead, TAG};
use super::key::Mode;
use crate::addr::NodeAddr;
use crate::wire::{Encrypted, EncryptedSource};

/// Bytes that encryption adds to a frame on a link: outer header and tag, without padding to a multiple of 4.
pub const OVERHEAD: usize = 16 + TAG;

/// The address that varies the salt: the source of a cluster key, the destination of a node's own key.
#[must_use]
pub fn variation(mode: Mode, header: &Encrypted<'_>, dest: NodeAddr) -> u32 {
    match (mode, header.source) {
        (Mode::Cluster, EncryptedSource::Node(node)) => node.0,
        (Mode::Cluster, EncryptedSource::Identity(id)) => {
            id.0.first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
        }
        (Mode::PerNode, _) if header.destined => dest.0,
        (Mode::PerNode, _) => 0,
    }
}

/// Appends a frame: the header, the message in `pieces` encrypted and padded with zeros to a multiple of 4 bytes, what
/// follows the message (a multiple of 4 bytes, which Linux ignores), the tag.
pub fn seal(
    aead: &Aead,
    mode: Mode,
    header: &Encrypted<'_>,
    dest: NodeAddr,
    pieces: [&[u8]; 2],
    after: &[u8],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    header.write_header(out);
    let text = out.len();
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    out.resize(text + (out.len() - text).next_multiple_of(4), 0);
    out.extend_from_slice(after);
    let nonce = aead.nonce(variation(mode, header, dest), header.seqno);
    let (head, text) = out.split_at_mut(text);
    let tag = aead.seal(nonce, head.get(start..).unwrap_or_default(), text);
    match tag {
        Some(tag) => out.extend_from_slice(&tag),
        None => out.truncate(start),
    }
}

/// Decrypts a frame into `text`; false if key, header or content do not match the tag.
#[must_use]
pub fn open(
    aead: &Aead,
    mode: Mode,
    header: &Encrypted<'_>,
    dest: NodeAddr,
    frame: &[u8],
    text: &mut Vec<u8>,
) -> bool {
    let Some((sealed, tag)) = header.ciphertext.split_last_chunk::<TAG>() else { return false };
    let head = frame.get(..frame.len() - header.ciphertext.len()).unwrap_or_default();
    text.clear();
    text.extend_from_slice(sealed);
    let nonce = aead.nonce(variation(mode, header, dest), header.seqno);
    aead.open(nonce, head, text, *tag)
}
