//! `media list|get|set`.

use utipc_manage::{Entry, Properties, Request};

use super::call::{Call, Ended, Failure, needed};
use super::property::Subject;
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

/// Media, for `get` and `set` of the properties of new bearers.
pub(super) struct Media;

impl Subject for Media {
    fn name(call: &mut Call, udp_only: bool) -> Result<String, Failure> {
        let keys = call.keys(&KEYS)?;
        let media = needed(keys.get("media"), "the medium")?;
        if udp_only && media != "udp" {
            return Err(Failure::Words(format!("only medium udp has an MTU, {media} has none")));
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

    fn print(call: &mut Call, _: &str, value: u32) {
        call.out.raw(&format!("{value}\n"));
    }
}
