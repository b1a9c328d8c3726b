//! Discovery on one bearer: one packet in each phase of the node's address.

use utipc_core::discovery::{AddressState, Discoverer, DiscovererConfig, KnownNodes, Output, OwnAddress};
use utipc_core::{ClusterId, MediaAddr, Message, NodeAddr, NodeId, Rng, Time, View};

use crate::Seen;

struct NoKnownNodes;

impl KnownNodes for NoKnownNodes {
    fn identity_of(&self, addr: NodeAddr) -> Option<NodeId> {
        (addr.0 & 1 == 0).then(|| NodeId::from_legacy(addr))
    }
    fn address_of(&self, id: &NodeId) -> Option<NodeAddr> {
        (id.0[0] & 1 == 0).then_some(NodeAddr(5))
    }
    fn has_room(&self) -> bool {
        true
    }
}

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let Ok(view) = View::parse(data) else { return seen.note("no message") };
    let mut rng = Rng::new(1);
    let cluster = ClusterId::default();
    let identity = NodeId::from_text("fuzz");
    let trial = OwnAddress::from_identity(identity, cluster, &mut rng);
    let explicit = OwnAddress::explicit(NodeAddr::legacy(1, 1, 3), cluster, &mut rng);
    let media: [MediaAddr; 2] =
        [MediaAddr::Ethernet([2, 0, 0, 0, 0, 9]), MediaAddr::Udp(([10, 0, 0, 9], 6118).into())];
    // The message as captured, and with the address on trial.
    let mut aimed = view.to_message();
    aimed.set_word(2, trial.trial_address().0);
    for media in media {
        for (phase, own) in [&trial, &explicit].into_iter().enumerate() {
            for message in [view.to_message(), aimed.clone()] {
                one(&message, media, own.clone(), phase, seen);
            }
        }
    }
}

fn one(message: &Message, media: MediaAddr, mut own: OwnAddress, phase: usize, seen: &mut Seen) {
    let mut out = Vec::new();
    let mut now = Time::from_millis(10);
    let config = DiscovererConfig { media, domain: NodeAddr::NONE };
    let mut discoverer = Discoverer::new(now, config, &mut own, &mut out);
    for millis in [1, 500, 700, 30_000] {
        match discoverer.receive(now, message.view(), &mut own, &NoKnownNodes, &mut out) {
            Ok(()) => seen.note((phase, "accepted", message.kind())),
            Err(e) => seen.note((phase, core::mem::discriminant(&e))),
        }
        now = now.plus_millis(millis);
        while discoverer.deadline().is_some_and(|due| due <= now) {
            discoverer.handle_timeout(now, &mut own, &mut out);
        }
        for output in out.drain(..) {
            seen.note((phase, core::mem::discriminant(&output)));
            if let Output::Neighbour(neighbour) = output {
                assert!(!neighbour.addr.is_none());
                let answer = discoverer.respond(&own, &neighbour);
                seen.note((phase, "answer", answer.is_some()));
            }
        }
    }
    assert_eq!(own.state(), AddressState::Final);
    seen.note((phase, own.address() == own.trial_address()));
}
