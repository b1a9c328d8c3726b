//! Load tools: publishers and consumers that send and count messages at any rate, and their measurements.

pub mod consumer;
pub mod control;
mod default_data;
pub mod items;
pub mod message_set;
pub mod msgdata;
pub mod names;
pub mod pace;
pub mod provider;
pub mod timer;
pub mod values;
