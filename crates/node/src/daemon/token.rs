//! Tokens of the event loop: the upper byte is the kind of the source, the lower four bytes its number. Bearers
//! have 0.

pub(super) const DOORWAY: u64 = 1 << 56;
pub(super) const ATTACHMENT: u64 = 2 << 56;
pub(super) const PROCESS: u64 = 3 << 56;
pub(super) const DESCRIPTORS: u64 = 4 << 56;
pub(super) const LANES: u64 = 5 << 56;
pub(super) const INHERITANCE: u64 = 6 << 56;
/// The event loop of a user, which reports [`ATTACHMENT`], [`PROCESS`], [`DESCRIPTORS`], [`LANES`] and
/// [`INHERITANCE`].
pub(super) const USER: u64 = 7 << 56;

/// The bits that tell the kinds apart.
pub(super) const KIND: u64 = 0xff << 56;

/// The number in a token.
pub(super) const fn number(token: u64) -> u32 {
    (token & 0xffff_ffff) as u32
}
