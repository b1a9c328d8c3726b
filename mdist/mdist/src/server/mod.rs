//! What the programs run: hub, sides and upstreams wired together.

mod bus;
mod clients;
mod core;
pub mod demo;
mod dialled;
mod link;
mod listeners;
mod mend;
pub mod p2ps;
pub mod program;
mod publishers;
pub mod quotes;
mod running;
mod shown;
mod side;
pub mod src_dist;
mod turns;
mod workers;

pub use bus::Bus;
pub use running::Running;
