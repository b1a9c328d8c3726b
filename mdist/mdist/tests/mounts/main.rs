//! The RSSL server side without sockets: messages to consumers for their requests and for the hub's log.

mod abuse;
mod administration;
mod hostile;
mod items;
mod model;
mod output;
mod portions;
mod posts;
mod storms;
mod support;
mod symbols;
mod trouble;
mod views;
mod with_hub;
