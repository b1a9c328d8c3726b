//! Refuses requests that another web site has caused in an operator's browser.
//!
//! A site may give its own name the address of this server (DNS rebinding), and then read responses as its own. The
//! browser then sends the site's name as `Host`. So a request for any path, `/metrics` included, must name the server
//! by an address or by a name that belongs to it.

use std::net::IpAddr;

use crate::Response;

/// The names by which clients may address the server: addresses, `localhost`, the name of this host, and configured
/// names.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Also allows the configured `names`.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let short = own.split('.').next().unwrap_or_default().to_owned();
        let names = names.iter().cloned().chain([own, short, "localhost".to_owned()]);
        Self(names.filter(|name| !name.is_empty()).map(|name| name.to_ascii_lowercase()).collect())
    }

    fn includes(&self, host: &str) -> bool {
        let name = without_port(host).trim_end_matches('.').to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
        address.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The refusal of a request with these headers; `None` if it is allowed.
pub(crate) fn refusal(hosts: &Hosts, headers: &[httparse::Header<'_>]) -> Option<Response> {
    let all = |name: &'static str| {
        let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| String::from_utf8_lossy(header.value).into_owned())
    };
    if let Some(host) = all("host").find(|host| !hosts.includes(host)) {
        return Some(Response::error(
            "421 Misdirected Request",
            format!(
                "{host:?} is not a name of this server (use its address, or add the name to `metrics.hosts`)"
            ),
        ));
    }
    let host = all("host").next().unwrap_or_default();
    let foreign = |origin: &String| origin.split_once("://").is_none_or(|(_, from)| from != host);
    let by_link = all("sec-fetch-mode").any(|mode| mode == "navigate");
    let crosses = all("sec-fetch-site").any(|site| site == "cross-site" || site == "same-site");
    (all("origin").any(|origin| foreign(&origin)) || crosses && !by_link).then(|| {
        Response::error("403 Forbidden", "another site requests this (open the page itself in the browser)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(headers: &[(&str, &str)]) -> bool {
        let hosts = Hosts::new(&["Node1.example.org".to_owned()]);
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| httparse::Header { name, value: value.as_bytes() }).collect();
        refusal(&hosts, &headers).is_some()
    }

    #[test]
    fn names_of_other_sites_are_refused() {
        for host in [
            "127.0.0.1:9618",
            "127.0.0.1",
            "[::1]:9618",
            "[::1]",
            "localhost",
            "LOCALHOST:9",
            "node1.example.org:80",
            "node1.example.org.",
        ] {
            assert!(!is_refused(&[("Host", host)]), "{host}");
        }
        for host in
            ["attacker.example:9618", "127.0.0.1.attacker.example", "localhost.attacker.example", "", "[::1"]
        {
            assert!(is_refused(&[("host", host)]), "{host}");
        }
        let two = [("Host", "127.0.0.1"), ("Host", "attacker.example")];
        assert!(is_refused(&two), "one of two names");
    }

    #[test]
    fn requests_from_other_sites_are_refused() {
        let host = ("Host", "127.0.0.1:9618");
        assert!(!is_refused(&[host, ("Origin", "http://127.0.0.1:9618")]));
        for origin in ["http://127.0.0.1:80", "https://attacker.example", "null"] {
            assert!(is_refused(&[host, ("Origin", origin)]), "{origin}");
        }
        let (cross, same) = (("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-origin"));
        assert!(is_refused(&[host, cross, ("Sec-Fetch-Mode", "no-cors")]));
        assert!(!is_refused(&[host, cross, ("Sec-Fetch-Mode", "navigate")]), "a link to the page");
        assert!(!is_refused(&[host, same, ("Sec-Fetch-Mode", "cors")]));
    }
}
