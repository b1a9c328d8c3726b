//! The daemon, by the bytes of its protocol.

mod anycasts;
mod client;
mod congestion;
mod death;
mod descriptors;
mod entrance;
mod far_ends;
mod fuse;
mod group_lanes;
mod hosted;
mod hostile;
mod in_flight;
mod lanes;
mod lists;
mod manage;
mod mapped;
mod names;
mod node_lanes;
mod orphans;
mod own_death;
mod passed;
mod quotas;
mod steps;
mod stops;
mod traced;
mod turns;
