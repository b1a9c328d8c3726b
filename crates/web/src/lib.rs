//! The HTTP server of `utipcd --metrics`, `p2ps` and `src_dist`, and the files of the web page.
//!
//! A program gives the server a [`Site`], which answers requests for its metrics and its JSON. The server itself bounds
//! what clients may do, refuses requests that another web site has caused, and serves the page:
//!
//! | Question | File |
//! |---|---|
//! | How long may a client take? | `server.rs` |
//! | How many clients may connect, and which one is evicted? | `connections.rs` |
//! | Which requests are refused before the site sees them? | `guard.rs` |
//! | Which headers has a response? | `response.rs` |
//! | Where are the files of the page? | `page.rs`, and the folder `page` next to `src` |
//!
//! Decision 18 explains why it does not use a server crate.

mod connections;
mod guard;
mod page;
mod response;
mod server;

pub use guard::Hosts;
pub use response::{Request, Response};
pub use server::{Bound, Server, Site};
