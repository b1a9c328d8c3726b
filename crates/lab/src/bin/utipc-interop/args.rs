//! Arguments of requests, and refusals.

use std::fmt;
use std::time::Duration;

use nix::errno::Errno;
use serde_json::Value;
use utipc::{Destination, Error, NodeAddr, PortId, Scope, ServiceAddress, ServiceRange};

/// Reason why a request fails.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An error of utipc, shown as the name of its errno.
    Errno(i32),
    /// The request itself is wrong.
    Request(String),
}

impl Refusal {
    /// A connection that has ended.
    pub(crate) const TIMED_OUT: Self = Self::Errno(110);
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        tracing::info!(%error, "refused");
        Self::Errno(error.errno())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(number) => write!(f, "{:?}", Errno::from_raw(*number)),
            Self::Request(why) => f.write_str(why),
        }
    }
}

/// The fields of a request.
pub(crate) struct Args<'a>(&'a Value);

impl<'a> Args<'a> {
    pub(crate) fn new(request: &'a Value) -> Self {
        Self(request)
    }

    /// The field, unless it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|v| !v.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, Refusal> {
        self.maybe_text(name).ok_or_else(|| Refusal::Request(format!("{name} is missing")))
    }

    pub(crate) fn maybe_text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64, Refusal> {
        let value = self.get(name).ok_or_else(|| Refusal::Request(format!("{name} is missing")))?;
        let number = value.as_u64().or_else(|| value.as_f64().map(|f| f as u64));
        number.ok_or_else(|| Refusal::Request(format!("{name} is not a number")))
    }

    pub(crate) fn number_or(&self, name: &str, default: u64) -> Result<u64, Refusal> {
        if self.get(name).is_none() { Ok(default) } else { self.number(name) }
    }

    pub(crate) fn u32(&self, name: &str) -> Result<u32, Refusal> {
        self.u32_or(name, None)
    }

    pub(crate) fn u32_or(&self, name: &str, default: Option<u32>) -> Result<u32, Refusal> {
        match (self.get(name), default) {
            (None, Some(default)) => Ok(default),
            _ => as_u32(self.number(name)?),
        }
    }

    pub(crate) fn length(&self, name: &str) -> Result<usize, Refusal> {
        usize::try_from(self.number(name)?).map_err(|_| Refusal::Request(format!("{name} is too large")))
    }

    pub(crate) fn length_or(&self, name: &str, default: usize) -> Result<usize, Refusal> {
        if self.get(name).is_none() { Ok(default) } else { self.length(name) }
    }

    /// Whether the field is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A time in milliseconds.
    pub(crate) fn milliseconds(&self, name: &str, default: u64) -> Result<Duration, Refusal> {
        Ok(Duration::from_millis(self.number_or(name, default)?))
    }

    /// A time in microseconds, 0 if missing.
    pub(crate) fn microseconds(&self, name: &str) -> Result<Duration, Refusal> {
        Ok(Duration::from_micros(self.number_or(name, 0)?))
    }

    pub(crate) fn seed(&self) -> Result<u8, Refusal> {
        Ok((self.number_or("seed", 0)? & 255) as u8)
    }

    /// `type`, `lower`, `upper`.
    pub(crate) fn range(&self) -> Result<ServiceRange, Refusal> {
        Ok(ServiceRange::new(self.u32("type")?, self.u32("lower")?, self.u32("upper")?))
    }

    pub(crate) fn scope(&self) -> Scope {
        if self.maybe_text("scope") == Some("node") { Scope::Node } else { Scope::Cluster }
    }

    /// `to`: `{"name":[type, instance, node]}`, `{"range":[type, lower, upper]}` or `{"port":[port, node]}`.
    pub(crate) fn destination(&self) -> Result<Option<Destination>, Refusal> {
        self.get("to").map_or(Ok(None), destination)
    }

    /// `to`: as for [`Args::destination`], or a list of these, with null for none.
    pub(crate) fn destinations(&self) -> Result<Vec<Option<Destination>>, Refusal> {
        match self.get("to") {
            Some(Value::Array(all)) => all.iter().map(destination).collect(),
            _ => Ok(vec![self.destination()?]),
        }
    }
}

fn destination(to: &Value) -> Result<Option<Destination>, Refusal> {
    if to.is_null() {
        return Ok(None);
    }
    let wrong = || Refusal::Request(format!("invalid destination: {to}"));
    let (form, numbers) = to.as_object().and_then(|o| o.iter().next()).ok_or_else(wrong)?;
    let numbers = numbers.as_array().ok_or_else(wrong)?;
    let numbers =
        numbers.iter().map(|n| as_u32(n.as_u64().ok_or_else(wrong)?)).collect::<Result<Vec<u32>, _>>()?;
    match (form.as_str(), numbers.as_slice()) {
        ("name", [service, instance]) => Ok(Some(ServiceAddress::new(*service, *instance).into())),
        ("name", [service, instance, node]) => {
            let to: Destination = ServiceAddress::new(*service, *instance).into();
            Ok(Some(to.on(NodeAddr(*node))))
        }
        ("range", [service, lower, upper]) => {
            Ok(Some(Destination::Range(ServiceRange::new(*service, *lower, *upper))))
        }
        ("port", [port, node]) => Ok(Some(Destination::Port(PortId { port: *port, node: NodeAddr(*node) }))),
        _ => Err(wrong()),
    }
}

fn as_u32(number: u64) -> Result<u32, Refusal> {
    u32::try_from(number).map_err(|_| Refusal::Request(format!("{number} is too large")))
}
