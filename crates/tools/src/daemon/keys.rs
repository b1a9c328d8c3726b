//! Every key of the configuration, with the values that it takes.

use std::net::{IpAddr, SocketAddr};

use utipc::daemon::Limits;

/// The values that a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Choice(&'static [&'static str]),
    /// A whole number in a range, with its unit.
    Number(i64, i64, &'static str),
    /// An IP address with or without a port.
    Address,
    Addresses,
    /// Names of hosts.
    Hosts,
    /// Users, by name or number, `@group` and `*`.
    Users,
    /// A table from service types to users.
    Bindings,
    /// True or false.
    Flag,
    /// A table from identities of nodes to files.
    Files,
}

/// A key and an example of its value, as the user writes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) example: &'static str,
}

/// A table of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    /// Whether it is written `[[name]]` and may occur several times.
    pub(super) is_list: bool,
    pub(super) keys: &'static [Key],
}

const fn key(name: &'static str, kind: Kind, example: &'static str) -> Key {
    Key { name, kind, example }
}

const fn text(name: &'static str, example: &'static str) -> Key {
    key(name, Kind::Text, example)
}

/// A limit of something that is counted.
const fn limit(name: &'static str) -> Key {
    key(name, Kind::Number(1, i64::MAX, ""), "1000")
}

const NODE: &[Key] = &[
    text("socket", "\"/run/utipc/default.sock\""),
    text("state", "\"/var/lib/utipc\""),
    text("identity", "\"node-a\""),
    text("address", "\"1.1.10\""),
    key("cluster", Kind::Number(1, 9999, ""), "4711"),
    text("user", "\"utipc\""),
];

const BEARER: &[Key] = &[
    key("media", Kind::Choice(&["udp", "ethernet", "eth", "host"]), "\"udp\""),
    text("name", "\"lan\""),
    key("local", Kind::Address, "\"10.0.0.1\""),
    key("group", Kind::Address, "\"228.0.18.103:6118\""),
    key("remotes", Kind::Addresses, "[\"10.0.0.2\"]"),
    text("directory", "\"/srv/utipc-nodes\""),
    key("mtu", Kind::Number(100, 65_507, " bytes"), "1472"),
    key("tolerance_ms", Kind::Number(50, 30_000, " ms"), "1500"),
    key("priority", Kind::Number(0, 31, ""), "10"),
    key("window", Kind::Number(50, 8191, " packets"), "8191"),
];

const POLICY: &[Key] = &[
    key("attach", Kind::Users, "[\"*\"]"),
    key("manage", Kind::Users, "[\"root\"]"),
    text("socket_mode", "\"0660\""),
    key("bind", Kind::Bindings, "{ \"1000-1999\" = [\"feed\"] }"),
];

const LIMITS: &[Key] = &[
    limit("processes"),
    limit("processes_per_user"),
    limit("sockets"),
    limit("sockets_per_user"),
    limit("sockets_per_process"),
    key("bindings", Kind::Number(1, Limits::MAX_BINDINGS as i64, ""), "131072"),
    limit("bindings_per_user"),
    limit("bindings_per_process"),
    limit("subscriptions_per_user"),
    limit("lanes"),
    limit("lanes_per_user"),
    limit("descriptors"),
    limit("descriptors_per_user"),
    limit("memory_mib"),
    limit("memory_per_user_mib"),
];

const ENCRYPTION: &[Key] = &[
    text("key_file", "\"/etc/utipc/cluster.key\""),
    text("master_key_file", "\"/etc/utipc/master.key\""),
    key("node_key_files", Kind::Files, "{ \"node-a\" = \"/etc/utipc/node-a.key\" }"),
    key("strict", Kind::Flag, "true"),
    key("rekeying_minutes", Kind::Number(0, 1 << 24, " minutes"), "1440"),
];

/// All tables.
pub(super) const SECTIONS: &[Section] = &[
    Section { name: "node", is_list: false, keys: NODE },
    Section { name: "bearer", is_list: true, keys: BEARER },
    Section { name: "policy", is_list: false, keys: POLICY },
    Section { name: "limits", is_list: false, keys: LIMITS },
    Section { name: "encryption", is_list: false, keys: ENCRYPTION },
    Section {
        name: "metrics",
        is_list: false,
        keys: &[text("listen", "\"127.0.0.1:9618\""), key("hosts", Kind::Hosts, "[\"node-a.example.org\"]")],
    },
    Section { name: "log", is_list: false, keys: &[text("level", "\"info\"")] },
];

impl Key {
    /// The required form of the value.
    pub(super) fn wanted(&self) -> String {
        match self.kind {
            Kind::Text => format!("text, as in {}", self.example),
            Kind::Choice(all) => all.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", "),
            Kind::Number(least, i64::MAX, unit) => format!("a whole number of at least {least}{unit}"),
            Kind::Number(least, most, unit) => format!("{least} to {most}{unit}"),
            Kind::Address => format!("an IP address with or without a port, as in {}", self.example),
            Kind::Addresses => format!("a list of IP addresses, as in {}", self.example),
            Kind::Hosts => format!("a list of names of hosts, as in {}", self.example),
            Kind::Users => format!("a list of users, as in {}", self.example),
            Kind::Bindings | Kind::Files => format!("a table, as in {}", self.example),
            Kind::Flag => "true or false".to_owned(),
        }
    }
}

/// Whether a text is an IP address with or without a port.
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok() || text.parse::<IpAddr>().is_ok()
}

/// A remedy: the name most like `unknown`, else the list of names.
pub(super) fn nearest(unknown: &str, names: &[&str]) -> String {
    match utipc_cli::nearest(unknown, names) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("use one of {}", names.join(", ")),
    }
}
