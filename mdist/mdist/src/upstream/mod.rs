//! Sessions towards upstreams: providers, point-to-point servers, and publishers that connect to the server.

mod consumer;
mod dictionary;
mod publisher;
mod session;

pub use crate::hub::LOGIN_STREAM;
pub use consumer::{Consumer, DIRECTORY_STREAM, Directory, Login};
pub use publisher::{Publisher, PublisherIdentity};
pub use session::{Connection, Event, Session, SessionError, is_wanted};
