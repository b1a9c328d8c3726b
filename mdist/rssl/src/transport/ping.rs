//! The ping timers of a connection. Spec: rssl.md §1.8

use std::time::Duration;

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// No action.
    None,
    /// No bytes were sent for a third of the ping timeout: send `Channel::ping`.
    SendPing,
    /// No bytes were received for the whole ping timeout: close the connection.
    PeerSilent,
}

/// The two timers of a connection.
#[derive(Clone, Debug)]
pub(super) struct Pings {
    timeout: Duration,
    sends: bool,
    expects: bool,
    sent: Option<Duration>,
    received: Option<Duration>,
}

impl Pings {
    pub(super) fn new(timeout: u8) -> Self {
        Pings { timeout: seconds(timeout), sends: false, expects: true, sent: None, received: None }
    }

    /// Applies the agreed parameters.
    pub(super) fn agree(&mut self, timeout: u8, sends: bool, expects: bool) {
        self.timeout = seconds(timeout);
        self.sends = sends;
        self.expects = expects;
    }

    pub(super) fn sent(&mut self, now: Duration) {
        self.sent = Some(now);
    }

    pub(super) fn received(&mut self, now: Duration) {
        self.received = Some(now);
    }

    pub(super) fn tick(&mut self, now: Duration) -> Tick {
        let received = *self.received.get_or_insert(now);
        let sent = *self.sent.get_or_insert(now);
        if self.expects && now.saturating_sub(received) >= self.timeout {
            Tick::PeerSilent
        } else if self.sends && now.saturating_sub(sent) >= self.timeout / 3 {
            Tick::SendPing
        } else {
            Tick::None
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let silent = self.received.filter(|_| self.expects).map(|at| at + self.timeout);
        let ping = self.sent.filter(|_| self.sends).map(|at| at + self.timeout / 3);
        [silent, ping].into_iter().flatten().min()
    }
}

/// The timeout, of at least a second: 0 would disconnect every peer at once.
fn seconds(timeout: u8) -> Duration {
    Duration::from_secs(u64::from(timeout.max(1)))
}
