//! Tokens of the main poller, which tell the source of an event. Listeners have 0, 1, 2 and so on.

/// The backbone's descriptor.
pub(super) const BACKBONE: u64 = (1 << 16) - 1;
/// The first connector; its number is added.
pub(super) const FIRST_CONNECTOR: u64 = 1 << 16;
/// The first publisher; its slot is added.
pub(super) const FIRST_PUBLISHER: u64 = 1 << 24;
/// The first client of a poller; its slot is added. Workers use it for pollers of their own.
pub(super) const FIRST_CLIENT: u64 = 1 << 32;
