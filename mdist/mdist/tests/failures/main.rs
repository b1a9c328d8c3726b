//! Failures of parts of the chain: processes are killed, hang or send invalid bytes. Afterwards every field of every
//! item is what the publisher has published.

mod backbone;
mod chain;
#[path = "../load_common/mod.rs"]
mod load_common;

mod consumers;
mod daemon;
mod server;
mod sources;
mod stalls;
