//! Load: publishers and clients that make and count as many messages as asked, and what they measure.

pub mod consumer;
pub mod control;
mod default_data;
pub mod items;
pub mod message_set;
pub mod msgdata;
pub mod names;
pub mod pace;
pub mod plot;
pub mod provider;
pub mod stats;
pub mod timer;
pub mod values;
