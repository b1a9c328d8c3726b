//! Limits of received sizes, each with its source.

/// Maximum number of bytes of a message that this crate builds, or assembles from fragments. The wire allows 4 GiB; a
/// whole field dictionary in one part is below 2 MiB.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Maximum number of levels of nested containers. Spec: rssl.md §4.8.
pub const MAX_DEPTH: usize = 16;

/// Maximum number of local set definitions of one container: ids 0 to 15. Spec: rssl.md §4.3.
pub const MAX_LOCAL_SETS: usize = 16;

/// Maximum number of bytes of one primitive value or container entry, as the three-byte form of its length allows.
pub const MAX_ENTRY: usize = 0xFFFF;

/// Maximum number of bytes of a part whose two-byte length has a reserved bit: names, keys, permission data, summaries.
pub const MAX_BUF15: usize = 0x7FFF;
