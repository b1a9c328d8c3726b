//! What clients have seen.

use std::time::Duration;

use serde::Serialize;

use crate::stats::Latency;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened so far, at one mount or at all.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counts {
            pub(super) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// What happened since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }
    };
}

counts! {
    /// Updates.
    updates,
    /// Images and parts of images.
    refreshes,
    /// Statuses of items.
    statuses,
    /// Bytes read.
    bytes,
    /// Of the updates, those with a stamp.
    stamps,
    /// Places where an item's updates are not one after the other.
    gaps,
    /// Updates missing there.
    lost,
    /// Updates that came again, or late.
    backwards,
    /// Updates before the image.
    early,
    /// Messages for streams that nobody opened.
    unknown,
    /// Data that could not be read.
    undecodable,
    /// Fields looked at.
    fields,
    /// Times that an item became suspect.
    suspect,
    /// Items refused or closed for good.
    closed,
    /// Items closed that may be asked for again.
    closed_recover,
    /// Times that the service was reported down or gone.
    service_downs,
    /// Item requests.
    requests,
    /// Logins accepted.
    logins,
    /// Bytes of dictionaries.
    dictionary_bytes,
    /// Contributions sent.
    posts,
    /// Contributions that came back as updates.
    posts_back,
    /// Contributions acknowledged.
    acks,
    /// Contributions refused.
    naks,
    /// Generic messages sent.
    generics_sent,
    /// Generic messages received.
    generics,
    /// Connections that ended or failed.
    cuts,
}

impl Counts {
    /// Whether nothing is missing and nobody was cut.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.gaps
            + self.backwards
            + self.early
            + self.unknown
            + self.undecodable
            + self.suspect
            + self.closed
            + self.closed_recover
            + self.cuts
            == 0
    }
}

/// All that is known at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Over all mounts.
    pub counts: Counts,
    /// Updates of each mount.
    pub mounts: Vec<u64>,
    /// Item streams that all mounts are to have.
    pub wanted: u64,
    /// Item streams whose image has come and is not in doubt.
    pub loaded: u64,
    /// When the last of them was loaded, since the start; `None`: some are not.
    pub startup: Option<Duration>,
    /// Of updates, since the last [`Consumer::mark`](super::Consumer::mark).
    pub latency: Latency,
    /// Of contributions, there and back.
    pub post_latency: Latency,
    /// Of generic messages, there and back.
    pub generic_latency: Latency,
}
