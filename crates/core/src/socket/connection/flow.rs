//! Flow control of a connection: the send window, and the acknowledgements that are due. Spec: tipc.md §8.5.

use crate::limits::capability;
use crate::planted::{self, Fault};
use crate::wire::blocks;

/// Window of both sides until another one is advertised, blocks: 512 KiB / 1024 / 4.
pub(in crate::socket) const INITIAL_WINDOW: u32 = 128;
/// Window of peers that count messages instead of blocks. Spec: tipc.md §8.5.
pub(in crate::socket) const LEGACY_WINDOW: u32 = 512;
/// Maximum number of bytes of the receive buffer that a block costs: a message of 1023 bytes plus the overhead in
/// `queue::charge`.
const BLOCK_COST: usize = 1152;
/// Maximum number of blocks by which a sender may exceed the window: a message of the largest size, and data collected
/// by Nagle before.
const OVERSHOOT: usize = 130;
/// An acknowledgement is due when this fraction of the window has been consumed (one part in `ACK_RATE`).
const ACK_RATE: u32 = 4;

/// Both directions of one connection.
#[derive(Debug)]
pub(super) struct Flow {
    by_message: bool,
    unacked: u32,
    send_window: u32,
    consumed: u32,
    receive_window: u32,
    /// Consumption to come that must not be acknowledged, because the peer did not count those messages.
    prepaid: u32,
}

impl Flow {
    /// With a peer whose node has these capabilities.
    pub(super) const fn new(capabilities: u16) -> Self {
        let by_message = capabilities & capability::BLOCK_FLOWCTL == 0;
        let window = if by_message { LEGACY_WINDOW } else { INITIAL_WINDOW };
        Self { by_message, unacked: 0, send_window: window, consumed: 0, receive_window: window, prepaid: 0 }
    }

    /// A message of `bytes` arrived over another path: the peer did not count it.
    pub(super) fn prepay(&mut self, bytes: usize) {
        self.prepaid = self.prepaid.saturating_add(self.cost(bytes));
    }

    /// True if the peer counts messages.
    pub(super) const fn is_legacy(&self) -> bool {
        self.by_message
    }

    /// Cost of a message of `bytes`, header included.
    pub(super) const fn cost(&self, bytes: usize) -> u32 {
        if self.by_message { 1 } else { blocks(bytes) }
    }

    /// True if the window is used up; one message may exceed it.
    pub(super) fn is_congested(&self) -> bool {
        !planted::active(Fault::WindowIgnored) && self.unacked > self.send_window
    }

    pub(super) const fn unacked(&self) -> u32 {
        self.unacked
    }

    pub(super) const fn send_window(&self) -> u32 {
        self.send_window
    }

    /// Counts `cost` as sent.
    pub(super) const fn sent(&mut self, cost: u32) {
        self.unacked = self.unacked.saturating_add(cost);
    }

    /// The peer consumed `acked` and advertises `window`; false if it acknowledges more than was sent.
    pub(super) fn acknowledged(&mut self, acked: u16, window: u16) -> bool {
        let Some(rest) = self.unacked.checked_sub(u32::from(acked)) else {
            return false;
        };
        self.unacked = rest;
        if !self.by_message {
            self.send_window = u32::from(window);
        }
        true
    }

    /// The application consumed a message of `bytes`; true if an acknowledgement is due.
    pub(super) fn consume(&mut self, bytes: usize) -> bool {
        if bytes < 1024 && planted::active(Fault::FlowControlLeak) {
            return false;
        }
        let cost = self.cost(bytes);
        let prepaid = cost.min(self.prepaid);
        self.prepaid -= prepaid;
        self.consumed = self.consumed.saturating_add(cost - prepaid);
        self.consumed >= self.receive_window / ACK_RATE
    }

    /// Takes the acknowledgement to send: amount consumed, and the window for a receive buffer of `buffer` bytes.
    pub(super) fn take_ack(&mut self, buffer: usize) -> (u16, u16) {
        let consumed = u16::try_from(self.consumed).unwrap_or(u16::MAX);
        self.consumed -= u32::from(consumed);
        if self.by_message {
            return (consumed, 0);
        }
        // Linux advertises a quarter of its buffer, because its bookkeeping costs more than the bytes; here it does
        // not.
        let window = u16::try_from((buffer / BLOCK_COST).saturating_sub(OVERSHOOT)).unwrap_or(u16::MAX);
        self.receive_window = u32::from(window);
        (consumed, window)
    }

    /// The acknowledgement of `consumed` could not be sent; adds it to the next one.
    pub(super) const fn defer_ack(&mut self, consumed: u16) {
        self.consumed = self.consumed.saturating_add(consumed as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CAPABILITIES;

    #[test]
    fn one_message_may_exceed_the_initial_window() {
        // stream.pcap: 2 + 65 + 65 blocks were sent before the writer stopped; 18,000 bytes waited for the ack of 67
        let mut flow = Flow::new(CAPABILITIES);
        for bytes in [27, 27, 66_024, 66_024] {
            assert!(!flow.is_congested());
            flow.sent(flow.cost(bytes));
        }
        assert_eq!(flow.unacked(), 132);
        assert!(flow.is_congested());
        assert!(flow.acknowledged(67, 512));
        assert!(!flow.is_congested());
    }

    #[test]
    fn acks_are_due_when_the_kernel_sends_them() {
        // seqpacket.pcap: messages of 20,000 bytes are acknowledged after 2, then, with the window at 512, after 7
        let buffer = (512 + OVERSHOOT) * BLOCK_COST;
        let mut flow = Flow::new(CAPABILITIES);
        assert!(!flow.consume(20_024));
        assert!(flow.consume(20_024));
        assert_eq!(flow.take_ack(buffer), (40, 512));
        for _ in 0..6 {
            assert!(!flow.consume(20_024));
        }
        assert!(flow.consume(20_024));
        assert_eq!(flow.take_ack(buffer), (140, 512));
    }

    #[test]
    fn messages_within_the_window_fit_the_buffer() {
        use crate::limits::MAX_USER_DATA;
        use crate::socket::queue::charge;
        use crate::wire::{Message, SHORT_HEADER, User};
        for buffer in [512 << 10, 2 << 20, 16 << 20] {
            let window = usize::from(Flow::new(CAPABILITIES).take_ack(buffer).1);
            assert!(window > buffer / 1024 / 2);
            for data in [1, 999, 1000, 20_000, MAX_USER_DATA] {
                let message = Message::build(User::Low, 0, SHORT_HEADER, &vec![0; data]);
                // The last message may exceed the window.
                let messages = window / blocks(message.size()) as usize + 1;
                assert!(messages * charge(&message) < buffer, "{data} bytes, buffer {buffer}");
            }
        }
    }

    #[test]
    fn ack_beyond_what_was_sent_is_ignored() {
        let mut flow = Flow::new(CAPABILITIES);
        flow.sent(3);
        assert!(!flow.acknowledged(4, 0));
        assert_eq!((flow.unacked(), flow.send_window()), (3, INITIAL_WINDOW));
    }

    #[test]
    fn messages_over_other_paths_are_not_acknowledged() {
        let mut flow = Flow::new(CAPABILITIES);
        flow.prepay(40_000);
        assert!(!flow.consume(40_000));
        assert!(flow.consume(40_000));
        assert_eq!(flow.take_ack((512 + OVERSHOOT) * BLOCK_COST), (40, 512));
    }

    #[test]
    fn legacy_peers_count_messages_in_fixed_windows() {
        let mut flow = Flow::new(0);
        assert_eq!(flow.cost(66_000), 1);
        flow.sent(513);
        assert!(flow.is_congested());
        assert!(flow.acknowledged(1, 0), "the advertised window of 0 is ignored");
        assert!(!flow.is_congested());
        for _ in 0..127 {
            assert!(!flow.consume(66_000));
        }
        assert!(flow.consume(1));
        assert_eq!(flow.take_ack(2 << 20), (128, 0));
    }
}
