//! Ends of consumers' connections.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The end of one connection, as its consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Number of the mount.
    pub mount: usize,
    /// Address of the consumer, by which the server's log names it; `None`: it never had one.
    pub local: Option<SocketAddr>,
    /// Address of the server.
    pub server: SocketAddr,
    /// Time since the start of the consumers.
    pub at: Duration,
    /// The error that ended the connection.
    pub reason: String,
    /// Bytes that had arrived and that the consumer had not handled.
    pub unread: u64,
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mount, local, server, at, reason, unread } = self;
        write!(f, "{server}: {reason} (mount {mount}")?;
        if let Some(local) = local {
            write!(f, " at {local}")?;
        }
        write!(f, ", after {:.3} s, {unread} bytes unread)", at.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_reason_mount_time_and_unread_bytes() {
        let server = SocketAddr::from(([127, 0, 0, 1], 14_002));
        let mut end = Disconnect {
            mount: 3,
            local: Some(SocketAddr::from(([127, 0, 0, 1], 4_711))),
            server,
            at: Duration::from_millis(12_345),
            reason: "the server closed the connection".into(),
            unread: 99,
        };
        assert_eq!(
            end.to_string(),
            "127.0.0.1:14002: the server closed the connection (mount 3 at 127.0.0.1:4711, after 12.345 s, 99 bytes unread)"
        );
        end.local = None;
        assert!(end.to_string().contains("(mount 3, after"), "{end}");
    }
}
