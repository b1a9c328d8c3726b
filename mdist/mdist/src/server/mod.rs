//! The programs `p2ps` and `src_dist`: a hub wired to its sides, its upstreams and their sockets.

mod assembly;
mod backbone;
mod clients;
mod connector;
pub mod demo;
mod driver;
mod feed_thread;
mod hub_log;
mod hub_metrics;
mod identity;
mod known_dictionary;
mod listeners;
pub mod p2ps;
pub mod program;
mod publishers;
pub mod quotes;
mod reconnect;
mod running;
mod side;
pub mod src_dist;
mod ticket_lock;
mod tokens;
mod turns;
mod upstream;
mod upstreams;
mod workers;

pub use backbone::Backbone;
pub use running::Running;
