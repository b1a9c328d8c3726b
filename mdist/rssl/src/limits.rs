//! Limits of received sizes, each with its source.

/// Bytes of a message that this crate builds, or assembles from fragments. The wire allows 4 GiB; a whole field
/// dictionary in one part is below 2 MiB.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Levels of nested containers. Spec: rssl.md §4.8.
pub const MAX_DEPTH: usize = 16;

/// Local set definitions of one container: ids 0 to 15. Spec: rssl.md §4.3.
pub const MAX_LOCAL_SETS: usize = 16;

/// Bytes of one primitive value or container entry: the three-byte form of its length.
pub const MAX_ENTRY: usize = 0xFFFF;

/// Bytes of a part whose two-byte length has a reserved bit: names, keys, permission data, summaries.
pub const MAX_BUF15: usize = 0x7FFF;
