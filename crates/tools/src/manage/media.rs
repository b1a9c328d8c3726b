//! `media list|get|set`.

use utipc_manage::{Entry, Properties, Request};

use super::call::{Call, Ended, Failure, needed};
use super::property::Subject;
use super::words::Key;

const KEYS: [Key; 1] = [("media", true)];

pub(super) fn list(call: &mut Call) -> Ended {
    let reply = call.ask(&Request::Media)?;
    call.begin();
    for entry in reply {
        if let Entry::Media(media) = entry {
            call.out.object("", |out| out.any("media", media.name.as_str(), &format!("{}\n", media.name)));
        }
    }
    call.out.end();
    Ok(())
}

/// Media, for `get` and `set` of the properties of new bearers.
pub(super) struct Media;

impl Subject for Media {
    fn name(call: &mut Call, udp_only: bool) -> Result<String, Failure> {
        let keys = call.keys(&KEYS)?;
        let media = needed(keys.get("media"), "the medium")?;
        if udp_only && media != "udp" {
            return Err(Failure::Words(format!("medium {media} has no MTU (medium udp has)")));
        }
        Ok(media.to_owned())
    }

    fn properties(call: &Call, name: String) -> Result<Properties, Failure> {
        let reply = call.ask(&Request::MediaGet { name })?;
        let found =
            reply.into_iter().find_map(|e| if let Entry::Media(m) = e { Some(m.properties) } else { None });
        needed(found, "the medium in the node's answer")
    }

    fn change(name: String, properties: Properties) -> Request {
        Request::MediaSet { name, properties }
    }

    fn print(call: &mut Call, property: &str, value: u32) {
        call.print(property, value, &format!("{value}\n"));
    }
}
