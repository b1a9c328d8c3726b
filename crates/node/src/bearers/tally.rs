//! Counters of a bearer, and the logging of its errors.

use std::io;

use utipc_os::mmsg::{Received, SendReport};

use super::BearerError;

/// Traffic of a bearer since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Frames that the system accepted; each copy of a replicast counts.
    pub tx_frames: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Frames that the system refused, or for which it had no room in time.
    pub tx_dropped: u64,
    /// Frames not sent: above the MTU, empty, or for an address of another medium.
    pub tx_refused: u64,
    /// Runs of equal frames sent by one call.
    pub tx_runs: u64,
    /// System calls for sending.
    pub tx_calls: u64,
    /// Frames passed to the node.
    pub rx_frames: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Own frames that the medium returned; they are not passed to the node.
    pub rx_own: u64,
    /// Datagrams too long for any frame of this bearer.
    pub rx_truncated: u64,
    /// Temporary errors of the medium, such as an interface that is down.
    pub rx_errors: u64,
    /// Reports that an earlier frame has not reached its host, or that no program receives it there.
    pub rx_unreachable: u64,
    /// System calls for receiving.
    pub rx_calls: u64,
}

/// The counters of a bearer and the last errors that it logged.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counters: Counters,
    last_send_error: Option<i32>,
    last_receive_error: Option<i32>,
}

impl Tally {
    /// Counts a batch that was sent. An error is logged unless it is the same as the last one.
    pub(crate) fn sent(&mut self, bearer: &str, report: &SendReport) {
        let counters = &mut self.counters;
        counters.tx_frames += report.frames;
        counters.tx_bytes += report.bytes;
        counters.tx_dropped += report.dropped;
        counters.tx_runs += report.runs;
        counters.tx_calls += report.calls;
        let Some(error) = &report.error else { return };
        if self.last_send_error != error.raw_os_error() {
            self.last_send_error = error.raw_os_error();
            tracing::warn!(bearer, %error, dropped = report.dropped, "frames could not be sent");
        }
    }

    /// Counts a frame passed to the node.
    pub(crate) fn frame(&mut self, len: usize) {
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += len as u64;
    }

    /// Counts a read. Temporary errors are counted, and logged once each time they change.
    ///
    /// # Errors
    /// Any other error of the read.
    pub(crate) fn received(
        &mut self,
        bearer: &str,
        result: io::Result<Received>,
    ) -> Result<Received, BearerError> {
        self.counters.rx_calls += 1;
        let cause = match result {
            Ok(received) => {
                self.counters.rx_truncated += received.truncated as u64;
                return Ok(received);
            }
            Err(cause) => cause,
        };
        if !is_temporary(&cause) {
            return Err(utipc_os::OsError::new("receive on bearer", bearer, cause).into());
        }
        let is_new = self.last_receive_error != cause.raw_os_error();
        self.last_receive_error = cause.raw_os_error();
        if is_report(&cause) {
            self.counters.rx_unreachable += 1;
            if is_new {
                tracing::info!(bearer, report = %cause, "a frame did not reach its node, which has ended or is unreachable");
            }
            return Ok(Received::default());
        }
        self.counters.rx_errors += 1;
        if is_new {
            tracing::warn!(bearer, error = %cause, "receive error");
        }
        Ok(Received::default())
    }
}

/// Whether an error of a read reports the fate of an earlier frame (ICMP) and not a fault of this host.
fn is_report(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
    )
}

/// Whether an error is one of the medium and not of the socket: interface down, unreachable, out of memory.
fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::ConnectionRefused
            | ErrorKind::OutOfMemory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_an_unreachable_peer_is_not_an_error_of_the_interface() {
        let mut tally = Tally::default();
        use io::ErrorKind as K;
        for kind in [K::ConnectionRefused, K::HostUnreachable, K::NetworkUnreachable, K::NetworkDown] {
            assert!(tally.received("udp:U", Err(kind.into())).is_ok());
        }
        assert_eq!((tally.counters.rx_unreachable, tally.counters.rx_errors), (3, 1));
        assert!(tally.received("udp:U", Err(K::InvalidInput.into())).is_err());
    }
}
