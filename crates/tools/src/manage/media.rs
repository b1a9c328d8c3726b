//! `media list|get|set`.

use utipc_manage::{Entry, Properties, Request};

use super::call::{Call, Ended, Failure, needed};
use super::words::Key;

const KEYS: [Key; 1] = [("media", true)];

pub(super) fn list(call: &mut Call) -> Ended {
    for entry in call.ask(&Request::Media)? {
        if let Entry::Media(media) = entry {
            call.out.raw(&format!("{}\n", media.name));
        }
    }
    Ok(())
}

fn named(call: &mut Call, mtu: bool) -> Result<String, Failure> {
    let keys = call.keys(&KEYS)?;
    let media = needed(keys.get("media"), "the medium")?;
    if mtu && media != "udp" {
        return Err(Failure::Words(format!("an MTU is a property of medium udp, not of {media}")));
    }
    Ok(media.to_owned())
}

fn get(call: &mut Call, mtu: bool, property: impl Fn(&Properties) -> Option<u32>) -> Ended {
    let name = named(call, mtu)?;
    let told = call.ask(&Request::MediaGet { name })?;
    let value =
        told.iter().find_map(|e| if let Entry::Media(m) = e { property(&m.properties) } else { None });
    call.out.raw(&format!("{}\n", needed(value, "the property in the node's answer")?));
    Ok(())
}

fn set(call: &mut Call, mtu: bool, property: impl Fn(u32) -> Properties) -> Ended {
    let properties = property(call.number()?);
    let name = named(call, mtu)?;
    call.order(&Request::MediaSet { name, properties })
}

pub(super) fn get_priority(call: &mut Call) -> Ended {
    get(call, false, |p| p.priority)
}

pub(super) fn get_tolerance(call: &mut Call) -> Ended {
    get(call, false, |p| p.tolerance)
}

pub(super) fn get_window(call: &mut Call) -> Ended {
    get(call, false, |p| p.window)
}

pub(super) fn get_mtu(call: &mut Call) -> Ended {
    get(call, true, |p| p.mtu)
}

pub(super) fn set_priority(call: &mut Call) -> Ended {
    set(call, false, |v| Properties { priority: Some(v), ..Properties::default() })
}

pub(super) fn set_tolerance(call: &mut Call) -> Ended {
    set(call, false, |v| Properties { tolerance: Some(v), ..Properties::default() })
}

pub(super) fn set_window(call: &mut Call) -> Ended {
    set(call, false, |v| Properties { window: Some(v), ..Properties::default() })
}

pub(super) fn set_mtu(call: &mut Call) -> Ended {
    set(call, true, |v| Properties { mtu: Some(v), ..Properties::default() })
}
