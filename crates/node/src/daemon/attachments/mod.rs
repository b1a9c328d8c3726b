//! Attachments.

pub(in crate::daemon) mod admission;
pub(in crate::daemon) mod attachment;
pub(in crate::daemon) mod doorbell;
pub(in crate::daemon) mod notices;
pub(in crate::daemon) mod policy;
