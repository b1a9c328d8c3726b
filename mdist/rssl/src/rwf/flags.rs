//! Declares sets of flag bits.

/// Declares a set of flag bits, with names for some of them; bits without a name are kept.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self($bit);)*

            /// No flag.
            pub const NONE: Self = Self(0);

            /// Whether all of `other` are set.
            #[inline]
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Sets `other`.
            #[inline]
            pub const fn insert(&mut self, other: Self) {
                self.0 |= other.0;
            }

            /// Clears `other`.
            #[inline]
            pub const fn remove(&mut self, other: Self) {
                self.0 &= !other.0;
            }

            /// These flags and `other`.
            #[inline]
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These flags without `other`.
            #[inline]
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            #[inline]
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut left = self.0;
                let mut bar = "";
                $(
                    if left & $bit != 0 {
                        write!(f, "{bar}{}", stringify!($flag))?;
                        left &= !$bit;
                        bar = "|";
                    }
                )*
                match (left, self.0) {
                    (_, 0) => f.write_str("-"),
                    (0, _) => Ok(()),
                    _ => write!(f, "{bar}{left:#x}"),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(crate) use flags;
