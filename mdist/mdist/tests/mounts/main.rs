//! The RSSL server side without sockets: what clients hear for what they ask, and for what the hub tells.

mod administration;
mod hostile;
mod items;
mod model;
mod output;
mod posts;
mod support;
mod symbols;
mod trouble;
mod views;
mod with_hub;
