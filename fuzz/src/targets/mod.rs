//! The targets: one function each.

pub(crate) mod backbone;
pub(crate) mod discovery;
pub(crate) mod encrypted;
pub(crate) mod groups;
pub(crate) mod link;
pub(crate) mod manage;
pub(crate) mod monitor;
pub(crate) mod names;
pub(crate) mod ordered;
mod pair;
pub(crate) mod records;
pub(crate) mod rssl_channel;
pub(crate) mod rwf;
pub(crate) mod stack;
pub(crate) mod topology;
pub(crate) mod wire;
