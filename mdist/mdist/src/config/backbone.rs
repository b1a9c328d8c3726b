//! Settings of the backbone: those of every carrier, and a table of options for each.

use serde::{Deserialize, Serialize};

use super::{OwnNode, Rrcp};

/// What carries the backbone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// TIPC, with the options of `[backbone.tipc]`.
    #[default]
    Tipc,
}

rssl::with_defaults! {
    /// The network between source distributors and point-to-point servers.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct Backbone {
        /// What carries it.
        pub carrier: Carrier = Carrier::default(),
        /// Recent packets that a sink keeps to bring images up to date, MiB per source distributor.
        pub history_mib: u32 = 32,
        /// Options of TIPC.
        pub tipc: Tipc = Tipc::default(),
        /// Parameters of the vendor's protocol, from `rmds.cnf`-style files.
        pub rrcp: Rrcp = Rrcp::default(),
        // The former places of the options of TIPC: see `Backbone::move_former`.
        #[serde(skip_serializing)]
        source_type: Option<u32> = None,
        #[serde(skip_serializing)]
        feed_type: Option<u32> = None,
        #[serde(skip_serializing)]
        receive_buffer_kib: Option<u32> = None,
        #[serde(skip_serializing)]
        send_buffer_kib: Option<u32> = None,
        #[serde(skip_serializing)]
        node: Option<OwnNode> = None,
    }
}

impl Backbone {
    /// Moves options of TIPC from their former place, directly below `[backbone]`, to [`Backbone::tipc`]. Returns the
    /// keys of those that were there.
    pub(super) fn move_former(&mut self) -> Vec<&'static str> {
        fn moved<T>(from: &mut Option<T>, to: impl FnOnce(T)) -> bool {
            from.take().map(to).is_some()
        }
        let Self { tipc, .. } = self;
        let keys = [
            ("source-type", moved(&mut self.source_type, |value| tipc.source_type = value)),
            ("feed-type", moved(&mut self.feed_type, |value| tipc.feed_type = value)),
            (
                "receive-buffer-kib",
                moved(&mut self.receive_buffer_kib, |value| tipc.receive_buffer_kib = Some(value)),
            ),
            ("send-buffer-kib", moved(&mut self.send_buffer_kib, |value| tipc.send_buffer_kib = Some(value))),
            ("node", moved(&mut self.node, |value| tipc.node = Some(value))),
        ];
        keys.into_iter().filter(|(_, moved)| *moved).map(|(key, _)| key).collect()
    }
}

rssl::with_defaults! {
    /// Options of a backbone over TIPC.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    pub struct Tipc {
        /// TIPC service type of source distributors.
        pub source_type: u32 = 18_500,
        /// TIPC service type of the multicast feeds.
        pub feed_type: u32 = 18_501,
        /// Receive buffer of the feeds' socket, KiB; unset: the largest.
        pub receive_buffer_kib: Option<u32> = None,
        /// Send buffer, KiB; has no effect.
        pub send_buffer_kib: Option<u32> = None,
        /// A node of the program's own, instead of the host's utipcd.
        pub node: Option<OwnNode> = None,
    }
}
