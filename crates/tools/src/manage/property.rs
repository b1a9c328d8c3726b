//! `get` and `set` of a property of bearers, links and media.

use utipc_manage::{Properties, Request};

use super::call::{Call, Ended, Failure, needed};

/// A kind of things with properties: bearers, links or media.
pub(super) trait Subject {
    /// Parses the name of one property. `udp_only`: the property exists only for medium udp.
    fn name(call: &mut Call, udp_only: bool) -> Result<String, Failure>;

    /// The properties of one object, from the node.
    fn properties(call: &Call, name: String) -> Result<Properties, Failure>;

    /// The request that sets the given properties.
    fn change(name: String, properties: Properties) -> Request;

    /// Prints a property.
    fn print(call: &mut Call, property: &str, value: u32);
}

/// One property.
pub(super) trait Property {
    const NAME: &'static str;
    const UDP_ONLY: bool = false;

    fn of(properties: &mut Properties) -> &mut Option<u32>;
}

pub(super) struct Priority;
pub(super) struct Tolerance;
pub(super) struct Window;
pub(super) struct Mtu;

impl Property for Priority {
    const NAME: &'static str = "priority";

    fn of(properties: &mut Properties) -> &mut Option<u32> {
        &mut properties.priority
    }
}

impl Property for Tolerance {
    const NAME: &'static str = "tolerance";

    fn of(properties: &mut Properties) -> &mut Option<u32> {
        &mut properties.tolerance
    }
}

impl Property for Window {
    const NAME: &'static str = "window";

    fn of(properties: &mut Properties) -> &mut Option<u32> {
        &mut properties.window
    }
}

impl Property for Mtu {
    const NAME: &'static str = "mtu";
    const UDP_ONLY: bool = true;

    fn of(properties: &mut Properties) -> &mut Option<u32> {
        &mut properties.mtu
    }
}

pub(super) fn get<S: Subject, P: Property>(call: &mut Call) -> Ended {
    let name = S::name(call, P::UDP_ONLY)?;
    let value = *P::of(&mut S::properties(call, name)?);
    S::print(call, P::NAME, needed(value, "the property in the node's answer")?);
    Ok(())
}

pub(super) fn set<S: Subject, P: Property>(call: &mut Call) -> Ended {
    let mut properties = Properties::default();
    *P::of(&mut properties) = Some(call.number()?);
    let name = S::name(call, P::UDP_ONLY)?;
    call.order(&S::change(name, properties))
}
