//! A service by its type and instances, valid by construction.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Destination, Error, ServiceAddress, ServiceRange};

/// Lowest service type that applications may use. Spec: tipc.md §1.2.
const FIRST_TYPE: u32 = 64;

/// A named service of an application: a type with one instance, or with a range of them.
///
/// Declare the services of a program as constants, which the compiler checks. A service is valid: its type is not
/// reserved, and its first instance is not above its last. Wherever a call takes an address to bind or to subscribe to,
/// or a destination, it takes a service: a message to one instance goes to one of the sockets bound to it, a message to
/// several instances to all of them.
///
/// The text form is `TYPE:INSTANCE` or `TYPE:FIRST-LAST`.
///
/// ```
/// use utipc::{Node, Scope, Service};
///
/// const CLOCK: Service = Service::new(2001, 1);
/// const ALL_CLOCKS: Service = Service::of_instances(2001, 0..=99);
///
/// # fn main() -> utipc::Result<()> {
/// let node = Node::builder().isolated().start()?;
/// let server = node.rdm()?;
/// server.bind(CLOCK, Scope::Cluster)?;
/// node.rdm()?.send_to(b"to one clock", CLOCK)?;
/// node.rdm()?.send_to(b"to all clocks", ALL_CLOCKS)?;
/// assert_eq!(server.receive()?.data, b"to one clock");
/// assert_eq!(server.receive()?.data, b"to all clocks");
///
/// assert_eq!("2001:0-99".parse::<Service>()?, ALL_CLOCKS);
/// assert_eq!(CLOCK.to_string(), "2001:1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service(ServiceRange);

impl Service {
    /// One instance.
    ///
    /// # Panics
    /// If the type is below 64, which is reserved; in a constant, at compile time.
    #[must_use]
    pub const fn new(service_type: u32, instance: u32) -> Self {
        assert!(service_type >= FIRST_TYPE, "service types below 64 are reserved");
        Self(ServiceRange::new(service_type, instance, instance))
    }

    /// A range of instances.
    ///
    /// # Panics
    /// As [`Service::new`], and if the range is inverted.
    #[must_use]
    pub const fn of_instances(service_type: u32, instances: RangeInclusive<u32>) -> Self {
        assert!(service_type >= FIRST_TYPE, "service types below 64 are reserved");
        let range = ServiceRange::new(service_type, *instances.start(), *instances.end());
        assert!(range.is_valid(), "the first instance is above the last");
        Self(range)
    }

    /// All instances of a type.
    ///
    /// # Panics
    /// As [`Service::new`].
    #[must_use]
    pub const fn of_type(service_type: u32) -> Self {
        Self::of_instances(service_type, 0..=u32::MAX)
    }

    /// The type.
    #[must_use]
    pub const fn service_type(self) -> u32 {
        self.0.service
    }

    /// The instances, from the first to the last.
    #[must_use]
    pub const fn instances(self) -> RangeInclusive<u32> {
        self.0.lower..=self.0.upper
    }

    /// The address, if the service has one instance.
    #[must_use]
    pub const fn address(self) -> Option<ServiceAddress> {
        if self.0.lower == self.0.upper {
            Some(ServiceAddress::new(self.0.service, self.0.lower))
        } else {
            None
        }
    }

    /// One instance of this service; `None` if it does not belong to it.
    #[must_use]
    pub const fn instance(self, instance: u32) -> Option<Self> {
        if self.0.lower <= instance && instance <= self.0.upper {
            Some(Self::new(self.0.service, instance))
        } else {
            None
        }
    }
}

impl From<Service> for ServiceRange {
    fn from(service: Service) -> Self {
        service.0
    }
}

impl From<Service> for Destination {
    /// One instance: one of its sockets; several: all of their sockets.
    fn from(service: Service) -> Self {
        service.address().map_or(Self::Range(service.0), Self::from)
    }
}

impl TryFrom<ServiceRange> for Service {
    type Error = Error;

    /// # Errors
    /// [`Error::OutOfRange`] for a reserved type or an inverted range.
    fn try_from(range: ServiceRange) -> Result<Self, Error> {
        if range.service < FIRST_TYPE {
            return Err(Error::OutOfRange { what: "the service type", remedy: "64 or more" });
        }
        if !range.is_valid() {
            let remedy = "the first instance is not above the last";
            return Err(Error::OutOfRange { what: "the range of instances", remedy });
        }
        Ok(Self(range))
    }
}

impl TryFrom<ServiceAddress> for Service {
    type Error = Error;

    /// # Errors
    /// [`Error::OutOfRange`] for a reserved type.
    fn try_from(address: ServiceAddress) -> Result<Self, Error> {
        ServiceRange::from(address).try_into()
    }
}

impl FromStr for Service {
    type Err = Error;

    /// Parses `TYPE:INSTANCE` or `TYPE:FIRST-LAST`; numbers are decimal, or hexadecimal after `0x`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    fn from_str(text: &str) -> Result<Self, Error> {
        let form = || {
            let remedy = "write TYPE:INSTANCE or TYPE:FIRST-LAST, numbers of 32 bits";
            Error::OutOfRange { what: "the text of a service", remedy }
        };
        let number = |text: &str| {
            let parsed = match text.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => text.parse(),
            };
            parsed.map_err(|_| form())
        };
        let (service_type, instances) = text.split_once(':').ok_or_else(form)?;
        let (first, last) = instances.split_once('-').unwrap_or((instances, instances));
        ServiceRange::new(number(service_type)?, number(first)?, number(last)?).try_into()
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceRange { service, lower, upper } = self.0;
        write!(f, "{service}:{lower}")?;
        if lower == upper { Ok(()) } else { write!(f, "-{upper}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_one_instance_or_a_range() {
        for text in ["64:0", "1000:7", "1000:1-5", "4294967295:0-4294967295"] {
            assert_eq!(text.parse::<Service>().unwrap().to_string(), text);
        }
        assert_eq!("0x40:0x10".parse::<Service>().unwrap(), Service::new(64, 16));
        for text in [
            "",
            "1000",
            "1000:",
            ":1",
            "1000:1:2",
            "1000:x",
            "63:1",
            "1000:5-1",
            "1000:-1",
            "1000:4294967296",
        ] {
            let error = text.parse::<Service>().unwrap_err();
            assert!(matches!(error, Error::OutOfRange { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn destination_of_one_instance_is_an_address() {
        let all = Service::of_instances(1000, 1..=5);
        assert_eq!(Destination::from(all), Destination::Range(ServiceRange::new(1000, 1, 5)));
        let one = all.instance(3).unwrap();
        assert_eq!(Destination::from(one), Destination::from(ServiceAddress::new(1000, 3)));
        assert_eq!((all.address(), all.instance(6)), (None, None));
        assert_eq!(Service::of_type(1000).instances(), 0..=u32::MAX);
    }

    #[test]
    fn reserved_types_are_refused() {
        assert!(Service::try_from(ServiceAddress::new(1, 1)).is_err());
        assert!(std::panic::catch_unwind(|| Service::new(1, 1)).is_err());
    }
}
