//! Reasons to refuse a request: the kernel's errno for the case, and a text.

use core::fmt;

/// An errno of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// EPERM: not permitted, or no longer.
    pub const NOT_PERMITTED: Self = Self(1);
    /// ENOENT.
    pub const NO_ENTRY: Self = Self(2);
    /// ENXIO: the node does not exist.
    pub const NO_DEVICE_OR_ADDRESS: Self = Self(6);
    /// ENOMEM.
    pub const NO_MEMORY: Self = Self(12);
    /// EACCES.
    pub const NO_ACCESS: Self = Self(13);
    /// EBUSY: the node is reachable.
    pub const BUSY: Self = Self(16);
    /// EEXIST.
    pub const EXISTS: Self = Self(17);
    /// ENODEV: the interface or local address does not exist.
    pub const NO_DEVICE: Self = Self(19);
    /// EINVAL: malformed, out of range, or does not exist.
    pub const INVALID: Self = Self(22);
    /// ERANGE: an attribute has the wrong length.
    pub const RANGE: Self = Self(34);
    /// ENODATA: an attribute is missing.
    pub const NO_DATA: Self = Self(61);
    /// ENOPROTOOPT: the node has no broadcast link.
    pub const NO_PROTOCOL_OPTION: Self = Self(92);
    /// EOPNOTSUPP: unknown command, or not supported.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// EADDRINUSE.
    pub const ADDRESS_IN_USE: Self = Self(98);
    /// EADDRNOTAVAIL.
    pub const ADDRESS_NOT_AVAILABLE: Self = Self(99);
    /// EKEYREJECTED: not a usable key.
    pub const KEY_REJECTED: Self = Self(129);
    /// 524 (ENOTSUPP), the kernel's errno for a peer that is the node itself.
    pub const OWN_NODE: Self = Self(524);

    /// Its meaning as text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self.0 {
            1 => "not permitted",
            2 => "not found",
            6 => "no such node",
            12 => "out of memory",
            13 => "access denied",
            16 => "in use",
            17 => "exists already",
            19 => "no such device or local address",
            22 => "invalid, or no such thing",
            34 => "out of range",
            61 => "nothing given to set",
            92 => "no such link",
            95 => "not supported",
            98 => "address in use",
            99 => "address not available",
            129 => "not a usable key",
            524 => "this is the node itself",
            _ => "refused",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (errno {})", self.text(), self.0)
    }
}

/// The reason why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel's errno for it.
    pub errno: Errno,
    /// The cause in a few words without a full stop; empty if the errno is enough.
    pub text: String,
}

impl Refusal {
    /// A refusal with a text.
    #[must_use]
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, text: String::new() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() { write!(f, "{}", self.errno) } else { f.write_str(&self.text) }
    }
}

impl std::error::Error for Refusal {}
