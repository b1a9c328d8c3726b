//! Values of fields, elements and array items. Spec: rssl.md §3.1.
//!
//! The container around a value gives its length. A value of no bytes is *blank*, which is not zero: decoders
//! return `None` for it. The same decoders read the forms of fixed size of set-defined entries.

mod date_time;
pub mod double;
mod enumeration;
pub mod float;
pub mod int;
mod real;
mod short;
pub mod uint;
mod value;

pub use date_time::{Date, DateTime, Time};
pub use enumeration::Enum;
pub use real::{Real, hint};
pub use short::Short;
pub use value::Value;
