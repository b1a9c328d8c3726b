//! Host names and ports in text form.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Resolves `host:port` to its first address; a host without a port gets `port`.
///
/// # Errors
/// The host is unknown, or the text is not a valid address; the error quotes it.
pub fn resolve(text: &str, port: u16) -> io::Result<SocketAddr> {
    let failed = |why: &dyn std::fmt::Display| {
        io::Error::other(format!("'{text}' is not a valid address: {why} (write HOST:PORT, or a port alone)"))
    };
    let (host, own_port) = split(text).map_err(|why| failed(&why))?;
    if is_number(host) {
        return Err(failed(&"a number is not a host"));
    }
    let found = (host, own_port.unwrap_or(port)).to_socket_addrs();
    found.map_err(|why| failed(&why))?.next().ok_or_else(|| failed(&"the host has no address"))
}

/// Resolves an address of this host to listen at, or to connect to: as [`resolve`], and a number alone is a port of
/// 127.0.0.1.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_local(text: &str, port: u16) -> io::Result<SocketAddr> {
    if is_number(text) { resolve(&format!("127.0.0.1:{text}"), port) } else { resolve(text, port) }
}

/// Whether the text is a number, which systems accept as an address: 14002 is 0.0.54.178.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a connection to `to` reaches a listener at `listener` of this host.
#[must_use]
pub fn reaches(to: SocketAddr, listener: SocketAddr) -> bool {
    if to.port() != listener.port() {
        return false;
    }
    let is_own = || std::net::UdpSocket::bind((to.ip(), 0)).is_ok();
    to.ip() == listener.ip() || to.ip().is_unspecified() || (listener.ip().is_unspecified() && is_own())
}

/// Checks the text form of an address to connect to: a host, and a port from 1 to 65535.
///
/// # Errors
/// What is wrong with the text, quoted.
pub fn check_peer(text: &str) -> Result<(), String> {
    match split(text) {
        Ok(("", _)) => Err(format!("'{text}' has no host")),
        Ok((host, None)) if is_number(host) => Err(format!("'{text}' has no host")),
        Ok((_, None)) => Err(format!("'{text}' has no port")),
        Ok((_, Some(0))) => Err(format!("'{text}' has port 0")),
        Ok(_) => Ok(()),
        Err(why) => Err(format!("'{text}': {why}")),
    }
}

/// Splits an address into host and port; an IPv6 host loses its brackets.
fn split(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| is_whole(host)) else {
        return Ok((text.trim_matches(['[', ']']), None));
    };
    let port = port.parse().map_err(|_| "the port must be a number from 0 to 65535")?;
    Ok((host.trim_matches(['[', ']']), Some(port)))
}

/// Whether the text before a colon is a host, not the first part of an IPv6 address.
fn is_whole(host: &str) -> bool {
    !host.contains(':') || (host.starts_with('[') && host.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::{check_peer, reaches, resolve, resolve_local};

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
    }

    #[test]
    fn bad_port_is_refused_with_the_range() {
        for text in ["127.0.0.1:port", "0.0.0.0:99999", "[::1]:65536", "127.0.0.1:-1", "127.0.0.1:"] {
            let why = resolve(text, 1).unwrap_err().to_string();
            let want = format!(
                "'{text}' is not a valid address: the port must be a number from 0 to 65535 (write HOST:PORT, or a port alone)"
            );
            assert_eq!(why, want);
        }
    }

    #[test]
    fn number_alone_is_a_port_of_this_host() {
        assert_eq!(resolve_local("14002", 1).unwrap().to_string(), "127.0.0.1:14002");
        assert_eq!(resolve_local("127.0.0.2:7", 1).unwrap().to_string(), "127.0.0.2:7");
        let why = resolve_local("99999", 1).unwrap_err().to_string();
        assert!(why.contains("the port must be a number from 0 to 65535"), "{why}");
        assert!(resolve("14002", 1).unwrap_err().to_string().contains("a number is not a host"));
    }

    #[test]
    fn own_listeners_are_recognised() {
        for (to, listener, want) in [
            ("127.0.0.1:5", "127.0.0.1:5", true),
            ("127.0.0.1:5", "0.0.0.0:5", true),
            ("127.0.0.1:5", "127.0.0.1:6", false),
            ("127.0.0.2:5", "127.0.0.1:5", false),
            ("192.0.2.1:5", "0.0.0.0:5", false),
            ("0.0.0.0:5", "127.0.0.1:5", true),
        ] {
            assert_eq!(reaches(to.parse().unwrap(), listener.parse().unwrap()), want, "{to} {listener}");
        }
    }

    #[test]
    fn address_to_connect_to_needs_host_and_port() {
        for (text, want) in [
            ("feed1:14002", Ok(())),
            ("[::1]:7", Ok(())),
            ("feed1", Err("'feed1' has no port")),
            ("::1", Err("'::1' has no port")),
            ("14002", Err("'14002' has no host")),
            (":14002", Err("':14002' has no host")),
            ("feed1:0", Err("'feed1:0' has port 0")),
            ("feed1:99999", Err("'feed1:99999': the port must be a number from 0 to 65535")),
        ] {
            assert_eq!(check_peer(text), want.map_err(str::to_owned));
        }
    }
}
