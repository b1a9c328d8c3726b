//! The daemon, by the bytes of its protocol.

#[path = "daemon/anycasts.rs"]
mod anycasts;
#[path = "daemon/client.rs"]
mod client;
#[path = "daemon/congestion.rs"]
mod congestion;
#[path = "daemon/death.rs"]
mod death;
#[path = "daemon/descriptors.rs"]
mod descriptors;
#[path = "daemon/entrance.rs"]
mod entrance;
#[path = "daemon/far_ends.rs"]
mod far_ends;
#[path = "daemon/fuse.rs"]
mod fuse;
#[path = "daemon/group_lanes.rs"]
mod group_lanes;
#[path = "daemon/hosted.rs"]
mod hosted;
#[path = "daemon/hostile.rs"]
mod hostile;
#[path = "daemon/in_flight.rs"]
mod in_flight;
#[path = "daemon/lanes.rs"]
mod lanes;
#[path = "daemon/lists.rs"]
mod lists;
#[path = "daemon/manage.rs"]
mod manage;
#[path = "daemon/mapped.rs"]
mod mapped;
#[path = "daemon/names.rs"]
mod names;
#[path = "daemon/node_lanes.rs"]
mod node_lanes;
#[path = "daemon/orphans.rs"]
mod orphans;
#[path = "daemon/own_death.rs"]
mod own_death;
#[path = "daemon/passed.rs"]
mod passed;
#[path = "daemon/quotas.rs"]
mod quotas;
#[path = "daemon/steps.rs"]
mod steps;
#[path = "daemon/stops.rs"]
mod stops;
#[path = "daemon/traced.rs"]
mod traced;
#[path = "daemon/turns.rs"]
mod turns;
