//! The fields that every message except discovery and encrypted ones has. Spec: tipc.md §2.1, §3.

use super::{Message, User, View};
use crate::addr::{ClusterId, NodeAddr};

/// Header size, link stamps and nodes of a message.
///
/// Some users give the stamp bits another meaning in messages that no link stamps. The value type of such a user has a
/// field for that meaning, which takes precedence when the message is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Size of the header, bytes.
    pub header: usize,
    /// Takes the path of discovery or broadcast, not a link's sequence.
    pub non_sequenced: bool,
    /// Acknowledged broadcast packet.
    pub bcast_ack: u16,
    /// Acknowledged link packet.
    pub ack: u16,
    /// Number of this packet on its link.
    pub seqno: u16,
    /// Node that sent this hop.
    pub prev_node: NodeAddr,
    /// Node of the sender; the previous node if the header has no field for it.
    pub origin_node: NodeAddr,
    /// Node of the receiver; none if the header has no field for it.
    pub dest_node: NodeAddr,
    /// Cluster of a non-sequenced message, in place of the destination port.
    pub cluster: Option<ClusterId>,
}

impl Envelope {
    /// The envelope of a message.
    #[must_use]
    pub fn of(view: View<'_>) -> Self {
        Self {
            header: view.header_size(),
            non_sequenced: view.non_sequenced(),
            bcast_ack: view.bcast_ack(),
            ack: view.ack(),
            seqno: view.seqno(),
            prev_node: view.prev_node(),
            origin_node: view.origin_node(),
            dest_node: view.dest_node().unwrap_or(NodeAddr::NONE),
            cluster: view.non_sequenced().then(|| view.cluster_id()),
        }
    }

    /// The envelope of a message from node to node, before a link stamps it.
    #[must_use]
    pub fn between(own: NodeAddr, peer: NodeAddr, header: usize) -> Self {
        Self { header, prev_node: own, origin_node: own, dest_node: peer, ..Self::default() }
    }

    /// A message in this envelope; the fields of its user are still 0.
    pub(super) fn message(&self, user: User, kind: u8, data: &[u8]) -> Message {
        let mut m = Message::build(user, kind, self.header, data);
        m.set_non_sequenced(self.non_sequenced);
        m.set_bcast_ack(self.bcast_ack);
        m.set_ack(self.ack);
        m.set_seqno(self.seqno);
        m.set_prev_node(self.prev_node);
        m.set_origin_node(self.origin_node);
        m.set_dest_node(self.dest_node);
        if let Some(cluster) = self.cluster {
            m.set_cluster_id(cluster);
        }
        m
    }
}
