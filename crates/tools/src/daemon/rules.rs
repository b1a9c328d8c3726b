//! Rules between the values of a configuration, checked without looking at the host.

use std::collections::BTreeSet;

use super::faults::{At, Fault};
use super::file::{Bearer, File, Media};
use super::{build, identity, metrics};
use utipc_cli::log;

/// Maximum number of bearers of a node.
const MAX_BEARERS: usize = 3;

/// The faults of a file whose keys and types are right.
pub(super) fn faults(file: &File) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut check = |at: At, text: Option<String>| faults.extend(text.map(|text| Fault::new(at, text)));
    let node = &file.node;
    check(At::key("node", "identity"), node.identity.as_deref().and_then(|text| identity::check(text).err()));
    check(At::key("node", "address"), node.address.as_deref().and_then(|text| build::address(text).err()));
    let mode = file.policy.socket_mode.as_deref();
    check(At::key("policy", "socket_mode"), mode.and_then(|text| build::socket_mode(text).err()));
    for types in file.policy.bind.keys() {
        check(At::key("policy", &format!("bind.{types}")), build::service_types(types).err());
    }
    let level = file.log.level.as_deref();
    let level = level.and_then(|text| log::filter(text).err().map(|why| format!("level = {text:?}: {why}")));
    check(At::key("log", "level"), level);
    let listen = file.metrics.listen.as_deref();
    check(
        At::key("metrics", "listen"),
        listen.and_then(|text| metrics::address(text).err()).map(|e| e.to_string()),
    );
    for id in file.encryption.node_key_files.keys() {
        check(At::key("encryption", &format!("node_key_files.{id}")), identity::check(id).err());
    }
    bearers(&file.bearer, &mut faults);
    faults
}

/// The name of a bearer, as `bearer list` has it.
pub(super) fn full_name(bearer: &Bearer) -> String {
    let (media, usual) = match bearer.media {
        Media::Udp => ("udp", "UDP"),
        Media::Ethernet => ("eth", ""),
        Media::Host => ("host", "local"),
    };
    format!("{media}:{}", bearer.name.as_deref().unwrap_or(usual))
}

fn bearers(all: &[Bearer], faults: &mut Vec<Fault>) {
    let mut names = BTreeSet::new();
    for (number, bearer) in all.iter().enumerate() {
        let name = full_name(bearer);
        let (key, text) = if number >= MAX_BEARERS {
            (
                None,
                Some(format!("bearer {name} is one too many: a node has at most {MAX_BEARERS} (remove one)")),
            )
        } else if let Some((key, text)) = alone(bearer) {
            (Some(key), Some(text))
        } else if !names.insert(name.clone()) {
            let text = format!("two bearers are called {name} (give each a `name` of its own)");
            (Some("name"), Some(text))
        } else {
            (None, None)
        };
        faults.extend(text.map(|text| Fault::new(At::bearer(number, key), text)));
    }
}

/// The fault of one bearer and its key.
fn alone(bearer: &Bearer) -> Option<(&'static str, String)> {
    let fault = |key, text: &str| Some((key, text.to_owned()));
    let is_udp = bearer.media == Media::Udp;
    if let Some(name) =
        bearer.name.as_deref().filter(|name| !(1..=15).contains(&name.len()) || name.contains(':'))
    {
        return Some((
            "name",
            format!("name = {name:?}: too long, empty or with a colon (write 1 to 15 characters)"),
        ));
    }
    match bearer.media {
        Media::Udp if bearer.local.is_none() => {
            return fault(
                "local",
                "the udp bearer has no local address (write `local` = the address of the interface)",
            );
        }
        Media::Ethernet if bearer.name.is_none() => {
            return fault("name", "the ethernet bearer has no name (write `name` = its interface)");
        }
        _ => {}
    }
    for (key, is_there) in [
        ("local", bearer.local.is_some()),
        ("group", bearer.group.is_some()),
        ("remotes", !bearer.remotes.is_empty()),
        ("mtu", bearer.mtu.is_some()),
    ] {
        if is_there && !is_udp {
            return Some((key, format!("only udp bearers have {key} (remove it, or write media = \"udp\")")));
        }
    }
    if bearer.directory.is_some() && bearer.media != Media::Host {
        return fault(
            "directory",
            "only host bearers have a directory (remove it, or write media = \"host\")",
        );
    }
    if bearer.group.is_some() && !bearer.remotes.is_empty() {
        return fault("remotes", "a udp bearer has both group and remotes (keep one: multicast or unicast)");
    }
    addresses(bearer)
}

/// The fault of the addresses of a UDP bearer.
fn addresses(bearer: &Bearer) -> Option<(&'static str, String)> {
    let local = bearer.local?.socket();
    if local.ip().is_unspecified() || local.ip().is_multicast() {
        let text = format!(
            "local = \"{}\": peers cannot send to it (write the address of one interface)",
            local.ip()
        );
        return Some(("local", text));
    }
    if let Some(group) = bearer.group.map(|group| group.socket())
        && (!group.ip().is_multicast() || group.is_ipv4() != local.is_ipv4())
    {
        let text = format!(
            "group = \"{group}\": not a multicast group for {} (write one of 224.0.0.0/4 for IPv4, ff00::/8 for IPv6)",
            local.ip()
        );
        return Some(("group", text));
    }
    let wrong = bearer.remotes.iter().map(|remote| remote.socket()).find(|remote| {
        remote.is_ipv4() != local.is_ipv4() || remote.ip().is_multicast() || remote.ip().is_unspecified()
    })?;
    let text = format!(
        "remotes: {} is not reachable from {} (write unicast addresses of the same IP version)",
        wrong.ip(),
        local.ip()
    );
    Some(("remotes", text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::faults::Source;
    use super::*;

    #[test]
    fn contradictions_are_reported_with_their_lines() {
        let udp = "[[bearer]]\nmedia = \"udp\"\nlocal = \"10.0.0.1\"\n";
        let twice = udp.repeat(2);
        let four = ["a", "b", "c", "d"].map(|name| format!("{udp}name = \"{name}\"\n")).concat();
        for (text, expected) in [
            ("[[bearer]]\nmedia = \"udp\"\n", "c.toml:1: the udp bearer has no local address"),
            ("[[bearer]]\nmedia = \"ethernet\"\n", "c.toml:1: the ethernet bearer has no name"),
            (
                "[[bearer]]\nmedia = \"eth\"\nname = \"eth0\"\nlocal = \"10.0.0.1\"\n",
                "c.toml:4: only udp bearers have local",
            ),
            ("[[bearer]]\nmedia = \"host\"\nmtu = 1500\n", "c.toml:3: only udp bearers have mtu"),
            (
                "[[bearer]]\nmedia = \"eth\"\nname = \"eth0\"\ndirectory = \"/x\"\n",
                "c.toml:4: only host bearers have a directory",
            ),
            (
                &format!("{udp}group = \"228.0.18.103\"\nremotes = [\"10.0.0.2\"]\n"),
                "c.toml:5: a udp bearer has both",
            ),
            (
                &format!("{udp}group = \"10.0.0.9\"\n"),
                "c.toml:4: group = \"10.0.0.9:6118\": not a multicast group",
            ),
            (&format!("{udp}remotes = [\"::1\"]\n"), "c.toml:4: remotes: ::1 is not reachable"),
            (
                "[[bearer]]\nmedia = \"udp\"\nlocal = \"0.0.0.0\"\n",
                "c.toml:3: local = \"0.0.0.0\": peers cannot send",
            ),
            (
                &format!("{udp}name = \"seventeen letters\"\n"),
                "c.toml:4: name = \"seventeen letters\": too long",
            ),
            (&twice, "c.toml:4: two bearers are called udp:UDP (give each a `name` of its own)"),
            (&four, "c.toml:13: bearer udp:d is one too many: a node has at most 3"),
            ("[node]\naddress = \"1.1\"\n", "c.toml:2: address = \"1.1\": not a node address"),
            ("[node]\nidentity = \"seventeen letters\"\n", "c.toml:2: identity = \"seventeen letters\": "),
            ("[policy]\nsocket_mode = \"rw\"\n", "c.toml:2: socket_mode = \"rw\": not a file mode"),
            ("[policy.bind]\n\"many\" = [\"*\"]\n", "c.toml:2: bind.\"many\": not a service type"),
            (
                "[policy.bind]\n\"200-100\" = [\"*\"]\n",
                "c.toml:2: bind.\"200-100\": the range ends before it begins",
            ),
            (
                "[metrics]\nlisten = \"10.0.0.1\"\n",
                "c.toml:2: metrics: \"10.0.0.1\" is not an address with a port",
            ),
            ("[log]\nlevel = \"loud\"\n", "c.toml:2: level = \"loud\": not a log level"),
        ] {
            let source = Source::new(Some(Path::new("c.toml")), text.to_owned());
            let file = File::parse(&source).unwrap();
            let error = source.faults(&faults(&file)).to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(error.lines().count() == 1 && error.ends_with(')'), "{error}");
        }
    }
}
