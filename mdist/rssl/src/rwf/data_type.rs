//! Ids of data types. Spec: rssl.md §3.

use core::fmt;

/// Id of a data type.
///
/// Ids below 64 are primitives, those of 64 to 127 are forms of fixed size that only set definitions use, and
/// those from 128 on are containers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataType(pub u8);

macro_rules! types {
    ($($name:ident = $id:literal,)*) => {
        impl DataType {
            $(
                #[doc = concat!("Id ", stringify!($id), ".")]
                pub const $name: Self = Self($id);
            )*

            /// The name, if the id is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($id => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

types! {
    UNKNOWN = 0,
    INT = 3,
    UINT = 4,
    FLOAT = 5,
    DOUBLE = 6,
    REAL = 8,
    DATE = 9,
    TIME = 10,
    DATETIME = 11,
    QOS = 12,
    STATE = 13,
    ENUM = 14,
    ARRAY = 15,
    BUFFER = 16,
    ASCII_STRING = 17,
    UTF8_STRING = 18,
    RMTES_STRING = 19,
    INT_1 = 64,
    UINT_1 = 65,
    INT_2 = 66,
    UINT_2 = 67,
    INT_4 = 68,
    UINT_4 = 69,
    INT_8 = 70,
    UINT_8 = 71,
    FLOAT_4 = 72,
    DOUBLE_8 = 73,
    REAL_4RB = 74,
    REAL_8RB = 75,
    DATE_4 = 76,
    TIME_3 = 77,
    TIME_5 = 78,
    DATETIME_7 = 79,
    DATETIME_9 = 80,
    DATETIME_11 = 81,
    DATETIME_12 = 82,
    TIME_7 = 83,
    TIME_8 = 84,
    NO_DATA = 128,
    OPAQUE = 130,
    XML = 131,
    FIELD_LIST = 132,
    ELEMENT_LIST = 133,
    ANSI_PAGE = 134,
    FILTER_LIST = 135,
    VECTOR = 136,
    MAP = 137,
    SERIES = 138,
    MSG = 141,
    JSON = 142,
}

impl DataType {
    /// The container that `byte` stands for in a header, where it is the id less 128. `None` for 128 and above.
    #[inline]
    #[must_use]
    pub const fn from_container_byte(byte: u8) -> Option<Self> {
        if byte < 128 { Some(Self(byte + 128)) } else { None }
    }

    /// The byte that stands for this container in headers; `None` if this is not a container.
    #[inline]
    #[must_use]
    pub const fn container_byte(self) -> Option<u8> {
        self.0.checked_sub(128)
    }

    /// Whether this is an id of containers (128 and above), which include messages, opaque bytes and "no data".
    #[inline]
    #[must_use]
    pub const fn is_container(self) -> bool {
        self.0 >= 128
    }

    /// Whether this is a form of fixed size that only set definitions use.
    #[inline]
    #[must_use]
    pub const fn is_set_type(self) -> bool {
        self.0 >= 64 && self.0 < 128
    }

    /// The type to read values of this type with: the plain type of an old id or of a form of set definitions,
    /// and otherwise this type.
    #[must_use]
    pub const fn base(self) -> Self {
        match self.0 {
            1 | 64 | 66 | 68 | 70 => Self::INT,
            2 | 65 | 67 | 69 | 71 => Self::UINT,
            7 | 74 | 75 => Self::REAL,
            72 => Self::FLOAT,
            73 => Self::DOUBLE,
            76 => Self::DATE,
            77 | 78 | 83 | 84 => Self::TIME,
            79..=82 => Self::DATETIME,
            _ => self,
        }
    }
}

impl Default for DataType {
    fn default() -> Self {
        Self::NO_DATA
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

impl fmt::Debug for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
