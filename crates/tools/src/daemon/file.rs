//! The configuration file of the daemon: every key, its meaning and its default.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use toml::de::DeTable;
use utipc::NodeId;
use utipc::daemon::KeyUse;

use super::faults::{Faults, Source};
use super::parse;

/// A configuration file. Every section and key may be missing; an unknown key is an error that names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) node: Node,
    pub(crate) bearer: Vec<Bearer>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) encryption: Encryption,
    pub(crate) log: Log,
    pub(crate) metrics: Metrics,
}

/// `[node]`: identity and address of the node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Node {
    /// Path of the socket that programs attach to; by default `<instance>.sock` in the user's runtime directory, or in
    /// `/run/utipc` for root.
    pub(crate) socket: Option<PathBuf>,
    /// Directory in which the node's random identity is kept across restarts; empty: nowhere. By default
    /// `/var/lib/utipc` for root and `utipc` in the user's state directory, but nowhere if `socket` is set.
    pub(crate) state: Option<PathBuf>,
    /// Identity, up to 16 characters of text; by default random, and kept in `state`.
    pub(crate) identity: Option<String>,
    /// Explicit address `Z.C.N`; by default derived from the identity.
    pub(crate) address: Option<String>,
    /// Number of the cluster, 1 to 9999; default 4711.
    pub(crate) cluster: Option<u32>,
    /// User to become after raw sockets are open (root only); by default none, with `--sandbox` `utipc`.
    pub(crate) user: Option<String>,
}

/// `[[bearer]]`: a network that carries the node's links; by default none, which serves only programs of this host.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bearer {
    pub(crate) media: Media,
    /// Name after `udp:` or `host:`, up to 15 characters; for Ethernet the interface.
    pub(crate) name: Option<String>,
    /// UDP: local address; port 6118 if it has none.
    pub(crate) local: Option<Local>,
    /// UDP: multicast group; by default the group of the cluster number, as on kernel nodes.
    pub(crate) group: Option<Local>,
    /// UDP: peers for unicast instead of multicast.
    #[serde(default)]
    pub(crate) remotes: Vec<Local>,
    /// Host: the directory of the nodes; by default one for each user and network namespace.
    pub(crate) directory: Option<PathBuf>,
    /// UDP: largest frame, bytes; by default what fits the path.
    pub(crate) mtu: Option<usize>,
    /// Tolerance: milliseconds after which a silent peer counts as down, 50 to 30000; default 1500.
    pub(crate) tolerance_ms: Option<u32>,
    /// Link priority, 0 to 31; default 10.
    pub(crate) priority: Option<u8>,
    /// Largest send window, packets, 50 to 8191; default 8191.
    pub(crate) window: Option<u16>,
}

/// Kind of network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Media {
    #[default]
    Udp,
    #[serde(alias = "eth")]
    Ethernet,
    /// Shared memory among the nodes of this user on this host.
    Host,
}

/// An address with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Local {
    WithPort(SocketAddr),
    Plain(IpAddr),
}

impl TryFrom<String> for Local {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Local {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let with_port = text.parse().map(Self::WithPort);
        with_port.or_else(|_| text.parse().map(Self::Plain)).map_err(|_| {
            "not an IP address with or without a port (write an address of this host, as in 10.0.0.1)"
                .to_owned()
        })
    }
}

impl Local {
    /// The address as the user wrote it.
    pub(crate) fn shown(self) -> String {
        match self {
            Self::WithPort(at) => at.to_string(),
            Self::Plain(ip) => ip.to_string(),
        }
    }

    /// The address, with the usual port of TIPC over UDP if it has none.
    pub(crate) fn socket(self) -> SocketAddr {
        match self {
            Self::WithPort(at) => at,
            Self::Plain(ip) => SocketAddr::new(ip, utipc::bearers::DEFAULT_PORT),
        }
    }
}

/// `[encryption]`: keys of the cluster, each in a file that only the daemon's user may read; by default none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Encryption {
    /// Key of all nodes.
    pub(crate) key_file: Option<PathBuf>,
    /// Key that nodes use only until they have handed each other session keys.
    pub(crate) master_key_file: Option<PathBuf>,
    /// Keys of single nodes by their identities, this one included.
    pub(crate) node_key_files: BTreeMap<String, PathBuf>,
    /// Whether to refuse clear text as soon as a key exists; default true if this table names a key file.
    pub(crate) strict: Option<bool>,
    /// Interval of new session keys, minutes, 0 for none; default 1440.
    pub(crate) rekeying_minutes: Option<u32>,
}

impl Encryption {
    /// Every key file with its key in the table.
    pub(crate) fn files(&self) -> impl Iterator<Item = (KeyUse, String, &Path)> {
        let cluster = self.key_file.as_deref().map(|path| (KeyUse::Cluster, "key_file".to_owned(), path));
        let master =
            self.master_key_file.as_deref().map(|path| (KeyUse::Master, "master_key_file".to_owned(), path));
        let nodes = self.node_key_files.iter().map(|(id, path)| {
            (KeyUse::Node(NodeId::from_text(id)), format!("node_key_files.{id}"), path.as_path())
        });
        cluster.into_iter().chain(master).chain(nodes)
    }
}

/// `[policy]`: permissions. Users are names, numbers or `*`; `@name` means the members of a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Policy {
    /// Users that may attach; by default all that can open the socket's file.
    pub(crate) attach: Option<Vec<String>>,
    /// Users that may bind a service type, `"1000"` or `"1000-1999"`; all users may bind types that are not
    /// listed.
    pub(crate) bind: BTreeMap<String, Vec<String>>,
    /// Users that may manage the node; by default root and the daemon's own user.
    pub(crate) manage: Option<Vec<String>>,
    /// Mode of the socket's file, octal text; default 0600, only the daemon's user, or 0660 if the daemon runs in the
    /// group `utipc`.
    pub(crate) socket_mode: Option<String>,
}

/// `[limits]`: quotas and limits of programs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// Processes attached at a time; default 4096.
    pub(crate) processes: Option<usize>,
    /// Processes of one user. This and all other limits of one user are by default half of the limit of all users
    /// together.
    pub(crate) processes_per_user: Option<usize>,
    /// Sockets of all processes together; default 262144.
    pub(crate) sockets: Option<usize>,
    /// Sockets of one user.
    pub(crate) sockets_per_user: Option<usize>,
    /// Sockets of one process; default 16384.
    pub(crate) sockets_per_process: Option<usize>,
    /// Bindings of all processes together, 1 to 262143; default 131072.
    pub(crate) bindings: Option<usize>,
    /// Bindings of one user.
    pub(crate) bindings_per_user: Option<usize>,
    /// Bindings of one process; default 65536.
    pub(crate) bindings_per_process: Option<usize>,
    /// Subscriptions at the topology server of one user; default 32767. All together may have 65535.
    pub(crate) subscriptions_per_user: Option<usize>,
    /// Lanes of all processes together; default 262144.
    pub(crate) lanes: Option<usize>,
    /// Lanes that the sockets of one user write.
    pub(crate) lanes_per_user: Option<usize>,
    /// Descriptors of sockets that programs poll, and of forks; default 65536, or what RLIMIT_NOFILE allows.
    pub(crate) descriptors: Option<usize>,
    /// The same for one user.
    pub(crate) descriptors_per_user: Option<usize>,
    /// Memory of queued messages, lanes and the daemon's tables, MiB; default half of the machine's.
    pub(crate) memory_mib: Option<u64>,
    /// The same for one user.
    pub(crate) memory_per_user_mib: Option<u64>,
}

/// `[log]`: the log on standard error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `utipc_node=debug,info`; default `info`.
    pub(crate) level: Option<String>,
}

/// `[metrics]`: the HTTP port with metrics and the web page.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Metrics {
    /// Address and port to listen on, or a port of 127.0.0.1; by default none.
    pub(crate) listen: Option<String>,
    /// Names by which browsers may request the page, besides addresses, `localhost` and the name of this host.
    pub(crate) hosts: Vec<String>,
}

impl File {
    /// Reads the file at `path`; without a path, everything has its default.
    pub(crate) fn read(path: Option<&Path>) -> Result<(Source, Self), Faults> {
        let Some(path) = path else { return Ok((Source::default(), Self::default())) };
        let text = std::fs::read_to_string(path).map_err(|error| Faults::one(unreadable(path, &error)))?;
        let source = Source::new(Some(path), text);
        let file = Self::parse(&source)?;
        Ok((source, file))
    }

    /// Parses the text of a file.
    pub(crate) fn parse(source: &Source) -> Result<Self, Faults> {
        let brief = |error: &toml::de::Error| {
            let why = error.message().lines().collect::<Vec<_>>().join(" ");
            let text = format!("not valid TOML: {why} (docs/operating/utipcd.toml has every key)");
            source.faults_at(&[(error.span().map_or(0, |span| span.start), text)])
        };
        let table = DeTable::parse(source.text()).map_err(|error| brief(&error))?;
        let faults = parse::faults(table.get_ref());
        if !faults.is_empty() {
            return Err(source.faults_at(&faults));
        }
        toml::from_str(source.text()).map_err(|error| brief(&error))
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "check the path; without --config the daemon needs no file",
        ErrorKind::PermissionDenied => "make the file readable for the user that runs utipcd",
        ErrorKind::InvalidData => "write it as UTF-8 text",
        _ => "name a file that can be read",
    };
    format!("cannot read the configuration {}: {error} ({remedy})", path.display())
}

impl File {
    /// The keys that differ from `new` and are read only at the start.
    pub(crate) fn fixed_difference(&self, new: &Self) -> Vec<&'static str> {
        let (a, b) = (&self.node, &new.node);
        let mut keys = Vec::new();
        let mut fixed = |key, same: bool| {
            if !same {
                keys.push(key);
            }
        };
        fixed("node.socket", a.socket == b.socket);
        fixed("node.state", a.state == b.state);
        fixed("node.identity", a.identity == b.identity);
        fixed("node.address", a.address == b.address);
        fixed("node.cluster", a.cluster == b.cluster);
        fixed("node.user", a.user == b.user);
        fixed("bearer", self.bearer == new.bearer);
        fixed("encryption", self.encryption == new.encryption);
        fixed("metrics", self.metrics == new.metrics);
        fixed("policy.socket_mode", self.policy.socket_mode == new.policy.socket_mode);
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, Faults> {
        File::parse(&Source::new(Some(Path::new("c.toml")), text.to_owned()))
    }

    #[test]
    fn empty_file_is_valid() {
        assert_eq!(parse("").unwrap(), File::default());
    }

    #[test]
    fn fixed_keys_that_differ_are_named() {
        let old = parse("[node]\ncluster = 5\n").unwrap();
        let new = parse("[log]\nlevel = \"debug\"\n[limits]\nprocesses = 5\n").unwrap();
        assert_eq!(old.fixed_difference(&new), ["node.cluster"]);
        assert!(old.fixed_difference(&old).is_empty());
    }

    #[test]
    fn documented_example_is_valid() {
        let file = parse(include_str!("../../../../docs/operating/utipcd.toml")).unwrap();
        assert_eq!(file, File::default(), "without an edit it is the default");
    }

    /// Uncommenting is what users do, so each line must be valid alone and all of them together.
    #[test]
    fn every_line_of_the_example_is_valid_when_uncommented() {
        let example = include_str!("../../../../docs/operating/utipcd.toml");
        let is_setting =
            |line: &str| line.starts_with("# ") && (line.contains(" = ") || line.starts_with("# ["));
        let uncommented = |line: &str| line.trim_start_matches("# ").to_owned();
        let all =
            example.lines().map(|line| if is_setting(line) { uncommented(line) } else { line.to_owned() });
        let all = all.collect::<Vec<_>>().join("\n");
        let file = parse(&all).unwrap();
        let source = Source::new(None, all.clone());
        let faults = super::super::rules::faults(&file);
        assert!(faults.is_empty(), "{}", source.faults(&faults));
        assert_eq!(file.bearer.len(), 3, "{all}");
        for section in super::super::keys::SECTIONS {
            for key in section.keys {
                assert!(all.contains(&format!("\n{} ", key.name)) || key.name == "bind", "{}", key.name);
            }
        }
    }

    #[test]
    fn installed_configuration_is_valid() {
        let text = include_str!("../../../../packaging/utipcd.toml");
        assert_eq!(parse(text).unwrap(), File::default());
        let with_bearer: String = text
            .lines()
            .map(|line| line.strip_prefix('#').unwrap_or(line))
            .filter(|line| !line.starts_with(' '))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(parse(&with_bearer).unwrap().bearer.len(), 1);
    }

    #[test]
    fn every_fault_has_its_line_and_a_remedy_in_the_users_terms() {
        for (text, expected) in [
            ("[node]\nclutser = 5\n", "c.toml:2: unknown key clutser in node (did you mean cluster?)"),
            ("[nod]\n", "c.toml:1: unknown table nod (did you mean node?)"),
            ("cluster = 5\n", "c.toml:1: cluster is outside of its table (write it below [node])"),
            ("[node]\n\ncluster = \"x\"\n", "c.toml:3: cluster = \"x\": text in quotes (write 1 to 9999)"),
            ("[node]\ncluster = 0\n", "c.toml:2: cluster = 0: out of range (write 1 to 9999)"),
            ("[node\n", "c.toml:1: not valid TOML: "),
            ("[[bearer]]\nmedia = \"pigeon\"\n", "c.toml:2: media = \"pigeon\": unknown (write \"udp\", "),
            ("[[bearer]]\nname = \"x\"\n", "c.toml:1: media is missing (write "),
            ("[bearer]\n", "c.toml:1: bearer is not a table (write [[bearer]], and its keys below)"),
            (
                "[[bearer]]\nmedia = \"udp\"\nlocal = \"10.0.0.300\"\n",
                "c.toml:3: local = \"10.0.0.300\": not an address (write an IP address with or without a port, as in",
            ),
            (
                "[[bearer]]\nmedia = \"udp\"\ntolerance_ms = 5\n",
                "c.toml:3: tolerance_ms = 5: out of range (write 50 to 30000 ms)",
            ),
            (
                "[limits]\nbindings = 300000\n",
                "c.toml:2: bindings = 300000: out of range (write 1 to 262143)",
            ),
            (
                "[limits]\nlanes_per_user = 0\n",
                "c.toml:2: lanes_per_user = 0: out of range (write a whole number of at least 1)",
            ),
            (
                "[policy]\nattach = \"root\"\n",
                "c.toml:2: attach = \"root\": text in quotes (write a list of users, as in [\"*\"])",
            ),
            (
                "[policy]\nattach = [\n\"root\",\n7]\n",
                "c.toml:4: attach: 7 is not text (write users in quotes)",
            ),
            (
                "[policy.bind]\n\"5\" = \"root\"\n",
                "c.toml:2: bind.\"5\" = \"root\": text in quotes (write a list of users",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(error.lines().count() == 1 && error.ends_with(')'), "{error}");
        }
    }

    #[test]
    fn all_faults_are_reported_in_the_order_of_their_lines() {
        let error =
            parse("[node]\ncluster = 0\nuser = 5\n[log]\nlevle = \"info\"\n").unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(lines, ["c.toml:2", "c.toml:3", "c.toml:5"], "{error}");
    }
}
