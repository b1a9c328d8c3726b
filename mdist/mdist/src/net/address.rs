//! Host names and ports in text form.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Resolves `host:port` to its first address; a host without a port gets `port`.
///
/// # Errors
/// The host is unknown, or the text is not a valid address; the error quotes it.
pub fn resolve(text: &str, port: u16) -> io::Result<SocketAddr> {
    let failed =
        |why: &dyn std::fmt::Display| io::Error::other(format!("'{text}' is not a valid address: {why}"));
    let found =
        if text.rsplit_once(':').is_some_and(|(host, port)| is_whole(host) && port.parse::<u16>().is_ok()) {
            text.to_socket_addrs()
        } else {
            (text.trim_matches(['[', ']']), port).to_socket_addrs()
        };
    found.map_err(|why| failed(&why))?.next().ok_or_else(|| failed(&"the host has no address"))
}

/// Whether the text before a colon is a host, not the first part of an IPv6 address.
fn is_whole(host: &str) -> bool {
    !host.contains(':') || (host.starts_with('[') && host.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn hosts_resolve_with_and_without_a_port() {
        for (text, want) in [
            ("127.0.0.1", "127.0.0.1:14002"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("::1", "[::1]:14002"),
            ("[::1]", "[::1]:14002"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(resolve(text, 14_002).unwrap().to_string(), want, "{text}");
        }
        assert!(resolve("127.0.0.1:port", 1).unwrap_err().to_string().contains("127.0.0.1:port"));
    }
}
