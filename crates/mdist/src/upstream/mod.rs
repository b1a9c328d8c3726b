//! Sessions towards what supplies data: providers, point-to-point servers, publishers that dialled us.

mod consumer;
mod publisher;

pub use consumer::{Consumer, DIRECTORY_STREAM, Event, LOGIN_STREAM, Login, Lost};
pub use publisher::{Publisher, Publishes};
