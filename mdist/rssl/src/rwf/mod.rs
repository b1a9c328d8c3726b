//! RWF: the messages, containers and values that RSSL carries.
//!
//! Decoding borrows and does not allocate; encoding writes into a [`crate::wire::Writer`]. Spec: rssl.md §2 to §4.
//!
//! ```
//! use rssl::rwf::{DataType, Domain, FieldList, FieldListWriter, Message, Real, Update};
//! use rssl::wire::to_vec;
//!
//! let update = Update {
//!     domain: Domain::MARKET_PRICE,
//!     stream: 5,
//!     container: DataType::FIELD_LIST,
//!     ..Update::default()
//! };
//! let bytes = to_vec(|w| {
//!     update.encode_header(w)?;
//!     let mut fields = FieldListWriter::new(w)?;
//!     fields.real(22, Real::with_decimals(3991, 2))?;
//!     fields.uint(30, 9)?;
//!     fields.finish()
//! })?;
//!
//! let Message::Update(update) = Message::decode(&bytes)? else { panic!("another class") };
//! for field in FieldList::decode(update.payload, None)?.entries() {
//!     let field = field?;
//!     if field.id == 22 {
//!         assert_eq!(Real::decode(field.data)?.unwrap().to_string(), "39.91");
//!     }
//! }
//! # Ok::<(), rssl::Error>(())
//! ```
//!
//! # Adding a container
//!
//! "Worked example" in `mdist/README.md` lists the files.

pub mod array;
mod container;
mod data_type;
mod domain;
mod element_list;
mod field_list;
mod filter_list;
mod flags;
mod key;
mod map;
mod message;
mod primitive;
mod print;
mod qos;
pub mod rmtes;
mod series;
pub mod sets;
mod state;
mod vector;

pub use array::{Array, ArrayWriter};
pub use container::{Entries, EntryContainer, EntryContainerWriter};
pub use data_type::DataType;
pub use domain::Domain;
pub use element_list::{Element, ElementList, ElementListWriter, Elements};
pub use field_list::{Field, FieldList, FieldListInfo, FieldListWriter, Fields};
pub use filter_list::{
    FilterAction, FilterEntries, FilterEntry, FilterList, FilterListFlags, FilterListWriter,
};
pub use key::{Attrib, Key, name_type};
pub use map::{Map, MapAction, MapEntries, MapEntry, MapFlags, MapWriter};
pub use message::{
    Ack, AckFlags, Class, Close, CloseFlags, Conflation, Generic, GenericFlags, Head, Message, Post,
    PostFlags, PostUser, Priority, Refresh, RefreshFlags, Request, RequestFlags, Status, StatusFlags, Update,
    UpdateFlags, nak, peek, peek_payload, rights, set_stream, update_kind,
};
pub use primitive::{Date, DateTime, Enum, Real, Short, Time, Value, double, float, hint, int, uint};
pub use print::{FieldName, Names, NoNames, Printed};
pub use qos::{Qos, Rate, Timeliness};
pub use series::{Series, SeriesEntries, SeriesFlags, SeriesWriter};
pub use sets::{ElementSets, FieldSets};
pub use state::{DataState, OwnedState, State, StreamState, code};
pub use vector::{Vector, VectorAction, VectorEntries, VectorEntry, VectorFlags, VectorWriter};
