//! Addresses on the command line: `tcp:HOST:PORT`, `unix:PATH`, `service:TYPE:INSTANCE`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use utipc::{ServiceAddress, ServiceRange};

/// One end of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Host and port, as written; a name may have several addresses.
    Tcp(String),
    Unix(PathBuf),
    Service(ServiceRange),
}

const FORMS: &str = "tcp:HOST:PORT, unix:PATH or service:TYPE:INSTANCE";

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("tcp", rest)) => tcp(rest),
            Some(("unix", "")) => Err("the path is missing (unix:PATH)".to_owned()),
            Some(("unix", path)) => Ok(Self::Unix(path.into())),
            Some(("service", rest)) => service(rest).map(Self::Service),
            _ => Err(format!("not an address (use {FORMS})")),
        }
    }
}

fn tcp(rest: &str) -> Result<Address, String> {
    let (host, port) = rest.rsplit_once(':').ok_or("the port is missing (tcp:HOST:PORT)")?;
    if port.parse::<u16>().is_err() {
        return Err(format!("{port:?} is not a port (0 to 65535)"));
    }
    if host.is_empty() {
        return Err("the host is missing (tcp:127.0.0.1:PORT, or tcp:[::]:PORT for all addresses)".to_owned());
    }
    if host.contains(':') && !host.starts_with('[') {
        return Err(format!("write the IPv6 address in brackets (tcp:[{host}]:{port})"));
    }
    Ok(Address::Tcp(rest.to_owned()))
}

fn service(rest: &str) -> Result<ServiceRange, String> {
    let form = "use service:TYPE:INSTANCE or service:TYPE:FIRST-LAST";
    let (kind, instances) =
        rest.split_once(':').ok_or_else(|| format!("the instance is missing ({form})"))?;
    let (first, last) = instances.split_once('-').unwrap_or((instances, instances));
    let number = |text: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| format!("{text:?} is not a number of 32 bits ({form})"))
    };
    let range = ServiceRange::new(number(kind)?, number(first)?, number(last)?);
    if range.service < 64 {
        return Err(format!("service type {} is reserved (use 64 or more)", range.service));
    }
    if !range.is_valid() {
        return Err("the first instance is above the last (swap them)".to_owned());
    }
    Ok(range)
}

impl Address {
    /// The service of a backend: a single instance.
    pub(crate) fn instance(&self) -> Option<ServiceAddress> {
        match self {
            Self::Service(range) if range.lower == range.upper => {
                Some(ServiceAddress::new(range.service, range.lower))
            }
            _ => None,
        }
    }

    pub(crate) fn is_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Service(ServiceRange { service, lower, upper }) => {
                write!(f, "service:{service}:{lower}")?;
                if lower == upper { Ok(()) } else { write!(f, "-{upper}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_they_are_written() {
        for text in [
            "tcp:127.0.0.1:8080",
            "tcp:[::1]:0",
            "tcp:localhost:80",
            "unix:/run/x.sock",
            "service:1000:1",
            "service:1000:1-5",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let hex: Address = "service:0x100:0".parse().unwrap();
        assert_eq!(hex.instance(), Some(ServiceAddress::new(256, 0)));
        assert_eq!("service:1000:1-5".parse::<Address>().unwrap().instance(), None);
    }

    #[test]
    fn wrong_addresses_are_refused_with_a_remedy() {
        for (text, why) in [
            ("8080", "not an address"),
            ("udp:1.2.3.4:5", "not an address"),
            ("tcp:8080", "port is missing"),
            ("tcp::8080", "host is missing"),
            ("tcp:h:99999", "not a port"),
            ("tcp:::1:80", "brackets"),
            ("unix:", "path is missing"),
            ("service:1000", "instance is missing"),
            ("service:x:1", "not a number"),
            ("service:7:1", "reserved"),
            ("service:1000:5-1", "swap"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(why) && error.contains('('), "{text}: {error}");
        }
    }
}
