//! Counters of a link: everything that `link statistics show` prints. Spec: tipc.md §13.

/// Upper bounds of the length classes in the send profile, bytes.
pub const PROFILE_BOUNDS: [usize; 7] = [64, 256, 1024, 4096, 16_384, 32_768, 66_000];

/// Counters of a link since its last reset or the last clearing of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LinkStats {
    /// Packets received in order.
    pub rx_packets: u64,
    /// Fragments received.
    pub rx_fragments: u64,
    /// Messages reassembled from fragments.
    pub rx_fragmented: u64,
    /// Bundles received.
    pub rx_bundles: u64,
    /// Messages received in bundles.
    pub rx_bundled: u64,
    /// Packets sent for the first time.
    pub tx_packets: u64,
    /// Fragments sent.
    pub tx_fragments: u64,
    /// Messages fragmented.
    pub tx_fragmented: u64,
    /// Bundles sent.
    pub tx_bundles: u64,
    /// Messages sent in bundles.
    pub tx_bundled: u64,
    /// Samples in the send profile.
    pub profile_samples: u64,
    /// Sum of the sampled lengths, bytes.
    pub profile_octets: u64,
    /// Samples by length class, see [`PROFILE_BOUNDS`].
    pub profile: [u64; 7],
    /// STATE messages received.
    pub rx_states: u64,
    /// Probes received.
    pub rx_probes: u64,
    /// STATE messages received that report a gap.
    pub rx_nacks: u64,
    /// Packets received early.
    pub rx_deferred: u64,
    /// Packets received twice or outside the accept window.
    pub rx_duplicates: u64,
    /// STATE messages sent.
    pub tx_states: u64,
    /// Probes sent.
    pub tx_probes: u64,
    /// STATE messages sent that report a gap.
    pub tx_nacks: u64,
    /// STATE messages sent only as acknowledgements.
    pub tx_acks: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Messages for which the backlog was full.
    pub congestions: u64,
    /// Longest transmit queue, packets.
    pub queue_max: u64,
    /// Sum of the transmit queue's lengths over the samples.
    pub queue_sum: u64,
    /// Samples of the transmit queue's length, one per tick.
    pub queue_samples: u64,
    /// Malformed or illegal messages dropped; not part of the kernel's output.
    pub refused: u64,
}

impl LinkStats {
    /// Adds a message length to the send profile.
    pub(crate) fn profile(&mut self, length: usize) {
        self.profile_samples += 1;
        self.profile_octets += length as u64;
        let class = PROFILE_BOUNDS.iter().position(|bound| length <= *bound).unwrap_or(6);
        if let Some(count) = self.profile.get_mut(class) {
            *count += 1;
        }
    }

    /// Mean length of the transmit queue, packets.
    #[must_use]
    pub fn queue_average(&self) -> u64 {
        self.queue_sum.checked_div(self.queue_samples).unwrap_or(0)
    }

    /// Mean length in the send profile, bytes.
    #[must_use]
    pub fn profile_average(&self) -> u64 {
        self.profile_octets.checked_div(self.profile_samples).unwrap_or(0)
    }
}
