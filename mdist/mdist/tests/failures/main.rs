//! What happens when a part of the chain dies, hangs or lies: the programs as processes, killed for real; afterwards every
//! field of every item is what the publisher made it.

mod backbone;
mod chain;
#[path = "../load_common/mod.rs"]
mod load_common;

mod consumers;
mod daemon;
mod server;
mod sources;
