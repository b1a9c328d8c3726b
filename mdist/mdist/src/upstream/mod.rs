//! Sessions towards what supplies data: providers, point-to-point servers, publishers that dialled us.

mod consumer;
mod publisher;
mod session;

pub use crate::hub::LOGIN_STREAM;
pub use consumer::{Consumer, DIRECTORY_STREAM, Login};
pub use publisher::{Publisher, Publishes};
pub use session::{Event, Session, SessionError, Wire, is_wanted};
