//! The programs of ours between a publisher and its consumers.

use serde::Serialize;

/// What is between publisher and consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Between {
    /// Nothing: the consumer connects to the publisher.
    Nothing,
    /// `p2ps`.
    P2ps,
    /// `src_dist`, the backbone and `p2ps`.
    Chain,
}

impl Between {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::P2ps, Self::Chain];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "direct",
            Self::P2ps => "through p2ps",
            Self::Chain => "through the chain",
        }
    }
}
