//! Values of fields, elements and array items. Spec: rssl.md §3.1.
//!
//! The length of a value is given by what holds it. No bytes at all are a *blank* value, which is not zero: decoders
//! give `None` for it. Forms of fixed size from set-defined entries are read by the same decoders.

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
