//! A primitive value of any type.

use core::fmt;

use super::{Date, DateTime, Enum, Real, Time, double, float, int, uint};
use crate::Result;
use crate::rwf::array::Array;
use crate::rwf::{DataType, Qos, State};

/// A value of a type that is known only at run time.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the variants are the types")]
pub enum Value<'a> {
    /// Blank.
    Blank,
    Int(i64),
    UInt(u64),
    Float(f32),
    Double(f64),
    Real(Real),
    Date(Date),
    Time(Time),
    DateTime(DateTime),
    Qos(Qos),
    State(State<'a>),
    Enum(Enum),
    Array(Array<'a>),
    Buffer(&'a [u8]),
    Ascii(&'a [u8]),
    Utf8(&'a [u8]),
    Rmtes(&'a [u8]),
    /// Bytes of a container, or of an unknown type.
    Other(DataType, &'a [u8]),
}

impl<'a> Value<'a> {
    /// Reads a value of type `data_type`; forms of set definitions count as their plain type.
    ///
    /// # Errors
    /// The bytes are not a value of this type.
    pub fn decode(data_type: DataType, bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::Blank);
        }
        let value = match data_type.base() {
            DataType::INT => int::decode(bytes)?.map(Self::Int),
            DataType::UINT => uint::decode(bytes)?.map(Self::UInt),
            DataType::FLOAT => float::decode(bytes)?.map(Self::Float),
            DataType::DOUBLE => double::decode(bytes)?.map(Self::Double),
            DataType::REAL => Real::decode(bytes)?.map(Self::Real),
            DataType::DATE => Date::decode(bytes)?.map(Self::Date),
            DataType::TIME => Time::decode(bytes)?.map(Self::Time),
            DataType::DATETIME => DateTime::decode(bytes)?.map(Self::DateTime),
            DataType::QOS => Qos::decode(bytes)?.map(Self::Qos),
            DataType::STATE => State::decode(bytes)?.map(Self::State),
            DataType::ENUM => Enum::decode(bytes)?.map(Self::Enum),
            DataType::ARRAY => Some(Self::Array(Array::decode(bytes)?)),
            DataType::BUFFER => Some(Self::Buffer(bytes)),
            DataType::ASCII_STRING => Some(Self::Ascii(bytes)),
            DataType::UTF8_STRING => Some(Self::Utf8(bytes)),
            DataType::RMTES_STRING => Some(Self::Rmtes(bytes)),
            other => Some(Self::Other(other, bytes)),
        };
        Ok(value.unwrap_or(Self::Blank))
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("(blank)"),
            Self::Int(v) => v.fmt(f),
            Self::UInt(v) => v.fmt(f),
            Self::Float(v) => v.fmt(f),
            Self::Double(v) => v.fmt(f),
            Self::Real(v) => v.fmt(f),
            Self::Date(v) => v.fmt(f),
            Self::Time(v) => v.fmt(f),
            Self::DateTime(v) => v.fmt(f),
            Self::Qos(v) => v.fmt(f),
            Self::State(v) => v.fmt(f),
            Self::Enum(v) => v.fmt(f),
            Self::Array(v) => v.fmt(f),
            Self::Ascii(v) => write!(f, "\"{}\"", v.escape_ascii()),
            Self::Utf8(v) => write!(f, "\"{}\"", crate::rwf::rmtes::Utf8(v)),
            Self::Rmtes(v) => write!(f, "\"{}\"", crate::rwf::rmtes::Text(v)),
            Self::Buffer(v) | Self::Other(_, v) => {
                f.write_str("0x")?;
                v.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}
