//! Hostile hosts and users beside well-behaved ones: limits before the login, allowed networks, and a campaign of all
//! abuses at once.

mod admission;
mod attack;
#[path = "../backbone_common/mod.rs"]
mod backbone_common;
mod campaign;
#[path = "../client_common/mod.rs"]
mod client_common;
#[path = "../load_common/mod.rs"]
mod load_common;
mod witness;
