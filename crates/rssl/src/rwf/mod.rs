//! RWF: the messages, containers and values that RSSL carries.
//!
//! Decoding borrows and does not allocate; encoding writes into a [`crate::wire::Writer`]. Spec: rssl.md §2 to §4.

mod data_type;
mod domain;
mod flags;
mod key;
mod message;
mod qos;
mod state;

pub use data_type::DataType;
pub use domain::Domain;
pub use key::{Attrib, Key, name_type};
pub use message::{
    Ack, AckFlags, Class, Close, CloseFlags, Conflation, Generic, GenericFlags, Head, Message, Post,
    PostFlags, PostUser, Priority, Refresh, RefreshFlags, Request, RequestFlags, Status, StatusFlags, Update,
    UpdateFlags, nak, peek, peek_payload, rights, set_stream, update_kind,
};
pub use qos::{Qos, Rate, Timeliness};
pub use state::{DataState, OwnedState, State, StreamState, code};
