//! `link list|get|set|statistics`.

use utipc_manage::family::BROADCAST_LINK;
use utipc_manage::{Entry, Errno, Link, Properties, Refusal, Request};

use super::call::{Call, Ended, Failure, needed, number};
use super::property::Subject;
use super::statistics;
use super::when::utc;
use super::words::Key;

const KEYS: [Key; 1] = [("link", true)];
/// Methods of the broadcast link, by the kernel's number.
const METHODS: [(&str, u32); 3] = [("BROADCAST", 1), ("REPLICAST", 2), ("AUTOSELECT", 4)];

fn links(call: &Call, request: &Request) -> Result<Vec<Link>, Failure> {
    let reply = call.ask(request)?.into_iter();
    Ok(reply.filter_map(|e| if let Entry::Link(link) = e { Some(link) } else { None }).collect())
}

pub(super) fn list(call: &mut Call) -> Ended {
    let reply = links(call, &Request::Links { broadcast: false })?;
    if call.options.why && call.options.json {
        return list_reasons(call, reply);
    }
    call.begin();
    call.out.open_object("");
    for link in &reply {
        let state = if link.up { "up" } else { "down" };
        call.out.any(&link.name, state, &format!("{}: {state}\n", link.name));
        if call.options.why
            && let Some(down) = &link.down
        {
            call.out.text(&format!("  went down {}: {}\n", utc(down.time), down.reason));
        }
    }
    call.out.close_object();
    call.out.end();
    if call.options.why {
        for link in gone(call, &reply)? {
            if let Some(down) = &link.down {
                let name = &link.name;
                call.out.raw(&format!("{name}: gone\n  went down {}: {}\n", utc(down.time), down.reason));
            }
        }
    }
    Ok(())
}

/// Prints all links with the reason of their last end, as JSON.
fn list_reasons(call: &mut Call, listed: Vec<Link>) -> Ended {
    let gone = gone(call, &listed)?;
    call.begin();
    let states = listed.iter().map(|link| (link, if link.up { "up" } else { "down" }));
    for (link, state) in states.chain(gone.iter().map(|link| (link, "gone"))) {
        call.out.object("", |out| {
            out.any("link", link.name.as_str(), "");
            out.any("state", state, "");
            if let Some(down) = &link.down {
                out.any("went down", utc(down.time).as_str(), "");
                out.any("reason", down.reason.to_string().as_str(), "");
            }
        });
    }
    call.out.end();
    Ok(())
}

/// Links that went down and no longer exist.
fn gone(call: &Call, listed: &[Link]) -> Result<Vec<Link>, Failure> {
    let history = match call.ask(&Request::LinkHistory) {
        Err(Failure::Refused(Refusal { errno: Errno::NOT_SUPPORTED, .. })) => {
            return Err(Failure::Unable(
                "this node does not report why links went down (the kernel logs it: `dmesg`)".to_owned(),
            ));
        }
        reply => reply?,
    };
    let ended = history.into_iter().filter_map(|entry| match entry {
        Entry::History(link) => Some(link),
        _ => None,
    });
    Ok(ended.filter(|gone| !listed.iter().any(|link| link.name == gone.name)).collect())
}

/// Links, for `get` and `set`.
pub(super) struct Links;

impl Subject for Links {
    fn name(call: &mut Call, _: bool) -> Result<String, Failure> {
        named(call)
    }

    fn properties(call: &Call, name: String) -> Result<Properties, Failure> {
        let reply = links(call, &Request::LinkGet { name })?;
        Ok(needed(reply.first(), "the link in the node's answer")?.properties)
    }

    fn change(name: String, properties: Properties) -> Request {
        Request::LinkSet { name, properties }
    }

    fn print(call: &mut Call, property: &str, value: u32) {
        call.print(property, value, &format!("{value}\n"));
    }
}

fn named(call: &mut Call) -> Result<String, Failure> {
    Ok(needed(call.keys(&KEYS)?.get("link"), "the link")?.to_owned())
}

pub(super) fn get_broadcast(call: &mut Call) -> Ended {
    let reply = links(call, &Request::LinkGet { name: BROADCAST_LINK.to_owned() })?;
    let properties = needed(reply.first(), "the broadcast link in the node's answer")?.properties;
    let method = METHODS.iter().find(|(_, number)| properties.broadcast == Some(*number));
    let (method, number) = method.copied().unwrap_or(("UNKNOWN", 0));
    call.begin();
    if number == 4 {
        let ratio = properties.ratio.unwrap_or(0);
        call.out.object("", |out| out.any("method", method, method));
        call.out.object("", |out| out.any("ratio", ratio, &format!(" ratio:{ratio}\n")));
    } else {
        call.out.object("", |out| out.any("method", method, &format!("{method}\n")));
    }
    call.out.end();
    Ok(())
}

pub(super) fn set_broadcast(call: &mut Call) -> Ended {
    const KEYS: [Key; 4] =
        [("BROADCAST", false), ("REPLICAST", false), ("AUTOSELECT", false), ("ratio", true)];
    let keys = call.keys(&KEYS)?;
    let broadcast = METHODS.iter().find(|(name, _)| keys.get(name).is_some()).map(|(_, number)| *number);
    let ratio = keys.get("ratio").map(number).transpose()?;
    if broadcast.is_none() && ratio.is_none() {
        return Err(Failure::Words(
            "BROADCAST, REPLICAST, AUTOSELECT or ratio is missing (see `--help`)".to_owned(),
        ));
    }
    let properties = Properties { broadcast, ratio, ..Properties::default() };
    call.order(&Request::LinkSet { name: BROADCAST_LINK.to_owned(), properties })
}

pub(super) fn reset(call: &mut Call) -> Ended {
    let keys = call.keys(&KEYS)?;
    if keys.len() != 1 {
        return Err(Failure::Words("name one link (`link LINK`)".to_owned()));
    }
    let name = needed(keys.get("link"), "the link")?.to_owned();
    call.order(&Request::LinkReset { name })
}

pub(super) fn statistics(call: &mut Call) -> Ended {
    let keys = call.keys(&KEYS)?;
    let part = keys.get("link").filter(|link| *link != "all");
    let reply = links(call, &Request::Links { broadcast: keys.get("link").is_some() })?;
    call.begin();
    for link in reply.iter().filter(|link| part.is_none_or(|part| link.name.contains(part))) {
        if link.broadcast {
            statistics::broadcast(&mut call.out, link);
        } else {
            statistics::unicast(&mut call.out, link);
        }
    }
    call.out.end();
    Ok(())
}
