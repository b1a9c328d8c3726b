//! Replays captures: a link in the place of a kernel's gets what that kernel received and must report the same.

use std::collections::VecDeque;

use super::super::{ReceiveQueue, State, TransmitQueue};
use super::pair::{Side, config};
use crate::NodeAddr;
use crate::time::Time;
use crate::vectors::messages;
use crate::wire::{GapRecord, LinkProtocolType, Message, User, seq};

const A: NodeAddr = NodeAddr::legacy(1, 1, 1);
const B: NodeAddr = NodeAddr::legacy(1, 1, 2);

type Report = (u16, u16, Vec<(u16, u16)>);

struct Replay {
    side: Side,
    /// Number of gap reports that the kernel sent.
    reports: u32,
}

fn report(side: &Side) -> Report {
    (
        side.link.rcv_nxt().wrapping_sub(1),
        side.link.session.receive.gap(),
        side.link.session.receive.gap_blocks(),
    )
}

/// Node a's end of a capture that starts with the link up; the first `count` frames.
fn replay(name: &str, count: usize) -> Replay {
    let frames: Vec<Message> =
        messages(name).into_iter().take(count).filter(|m| !m.non_sequenced()).collect();
    let first = |node, f: fn(&Message) -> bool| {
        frames
            .iter()
            .find(|m| m.prev_node() == node && f(m))
            .unwrap_or_else(|| panic!("{name}: no such frame"))
    };
    let is_state = |m: &Message| m.user() == User::LinkProtocol && m.link_type() == LinkProtocolType::State;
    let mut side = Side::new(config(A, B));
    side.link.state = State::Established;
    side.link.session.is_joined = true;
    side.link.peer_session = first(B, is_state).session();
    side.link.session.state_rcv_nxt = first(B, is_state).seqno();
    side.link.session.receive = ReceiveQueue::new(first(A, |_| true).ack().wrapping_add(1));
    side.link.session.transmit = TransmitQueue::new(first(A, is_state).next_sent());
    let mut replay = Replay { side, reports: 0 };
    // The kernel sends a little later than the capture shows what it received: each report of the kernel must equal the
    // link's state at some earlier frame, and never at one before its previous report.
    let mut history = VecDeque::from([report(&replay.side)]);
    for (n, frame) in frames.iter().enumerate() {
        if frame.prev_node() == B {
            replay.side.hear(Time::from_millis(n as u64), frame.bytes());
            assert!(replay.side.signals.is_empty(), "{name}: frame {n}");
            history.push_back(report(&replay.side));
            continue;
        }
        let link = &mut replay.side.link;
        if frame.user() != User::LinkProtocol && frame.seqno() == link.snd_nxt() {
            link.session.transmit.push(frame.clone(), (), Time::ZERO);
        }
        let blocks =
            if is_state(frame) { GapRecord::parse(frame.data()).unwrap().unicast } else { Vec::new() };
        replay.reports += u32::from(!blocks.is_empty());
        let said = |(ack, gap, known): &Report| {
            let as_far = if blocks.is_empty() { seq::le(frame.ack(), *ack) } else { frame.ack() == *ack };
            as_far && (blocks.is_empty() || (*gap, known) == (frame.seq_gap(), &blocks))
        };
        while !history.front().is_some_and(said) {
            assert!(
                history.pop_front().is_some(),
                "{name}: frame {n} {} {} {blocks:?}",
                frame.ack(),
                frame.seq_gap()
            );
        }
    }
    assert_eq!(replay.side.link.stats().refused, 0, "{name}");
    replay
}

#[test]
fn gaps_are_reported_like_the_kernel() {
    // After these, packets that the kernel received are missing in the capture.
    let replay = replay("loss5", 203);
    let payload = replay.side.delivered.iter().filter(|m| m.is_data());
    assert_eq!(payload.filter(|m| m.data().len() == 400).count(), 90, "packets 3 to 92, once each");
    assert!(replay.reports >= 3, "{}", replay.reports);
    let stats = replay.side.link.stats();
    assert!(stats.rx_deferred > 0);
}

#[test]
fn kernel_bundles_are_opened() {
    let replay = replay("bundle", usize::MAX);
    let payload = replay.side.delivered.iter().filter(|m| m.is_data());
    assert_eq!(payload.filter(|m| m.data().len() == 40).count(), 400);
    assert!(replay.side.link.stats().rx_bundles > 0);
}

#[test]
fn kernel_fragments_are_reassembled() {
    // After these, packets that the kernel received are missing in the capture.
    let replay = replay("rdm-fragments", 58);
    let lengths: Vec<usize> =
        replay.side.delivered.iter().filter(|m| m.is_data()).map(|m| m.data().len()).collect();
    assert_eq!(lengths, [1460, 1500, 2900, 5000]);
    assert_eq!(replay.side.link.stats().rx_fragmented, 4);
}
