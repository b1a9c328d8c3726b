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
//! | File | Change |
//! |---|---|
//! | `mdist/rssl/src/rwf/data_type.rs` | its id, in `types!` |
//! | `mdist/rssl/src/rwf/NAME.rs` | decoder, iterator and writer; `container.rs` is the base for counted entries |
//! | `mdist/rssl/src/rwf/mod.rs` | the module and its public names |
//! | `mdist/rssl/src/rwf/print/` | a method in `containers.rs`, a branch of `Printer::container_inner` in `mod.rs` |
//! | `mdist/rssl/src/dictionary/file.rs` | its name in dictionary files, in `DATA_TYPES` |
//! | `mdist/rssl/tests/common/tree.rs`, `random.rs` | a variant of `Tree`: round trips and broken bytes |
//! | `mdist/mdist/src/cache/node.rs` | a variant of `Node` with a table in a file beside it; a branch of `check` |
//! | `mdist/mdist/src/cache/image.rs` | how a large image is split into parts |
//! | `mdist/mdist/src/cache/tests/model.rs` | a variant of `Model`, which the cache is compared with |
//! | `mdist/mdist/src/mounts/view.rs` | the parts that a view keeps |
//! | `docs/spec/rssl.md` §3, §4 | its id and its form |

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
pub use sets::{ElementSets, FieldSets, GlobalSets};
pub use state::{DataState, OwnedState, State, StreamState, code};
pub use vector::{Vector, VectorAction, VectorEntries, VectorEntry, VectorFlags, VectorWriter};
