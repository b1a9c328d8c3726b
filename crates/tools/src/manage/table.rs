//! The list of commands: for running, help, completion and the manual page.

use super::bearer::Bearers;
use super::call::{Call, Ended};
use super::link::Links;
use super::media::Media;
use super::property::{Mtu, Priority, Tolerance, Window, get, set};
use super::{bearer, group, keys, link, media, monitor, nametable, node, peer, quotas, socket};

/// A word of the command line.
pub(super) struct Word {
    pub(super) name: &'static str,
    /// Its description, in a line.
    pub(super) about: &'static str,
    /// The words that follow it, as help shows them.
    pub(super) follows: &'static str,
    pub(super) then: Then,
    /// Words that may follow it, for completion.
    pub(super) keys: &'static [&'static str],
}

/// The effect of a word: further words, or a command.
pub(super) enum Then {
    Words(&'static [Word]),
    Run(fn(&mut Call) -> Ended),
}

const fn branch(name: &'static str, about: &'static str, words: &'static [Word]) -> Word {
    Word { name, about, follows: "COMMAND", then: Then::Words(words), keys: &[] }
}

const fn run(
    name: &'static str,
    about: &'static str,
    follows: &'static str,
    keys: &'static [&'static str],
    run: fn(&mut Call) -> Ended,
) -> Word {
    Word { name, about, follows, then: Then::Run(run), keys }
}

const BEARER: &str = "media udp name NAME | media eth device DEVICE";
const BEARER_KEYS: &[&str] = &["media", "name", "device"];
const UDP_KEYS: &[&str] = &["udp", "name", "localip", "localport", "remoteip", "remoteport"];
const ENABLE: &str = "media udp name NAME {localip IP | device DEVICE} [localport PORT] [remoteip IP] [remoteport PORT] \
                      [domain DOMAIN] [priority PRIORITY]\n   or: bearer enable media eth device DEVICE [domain DOMAIN] \
                      [priority PRIORITY]";

/// The commands.
pub(super) const COMMANDS: &[Word] = &[
    branch(
        "bearer",
        "Show or modify bearers",
        &[
            branch(
                "add",
                "Add data to an existing bearer",
                &[run(
                    "media",
                    "Add a remote to which a UDP bearer copies its broadcasts",
                    "udp name NAME remoteip IP [remoteport PORT]",
                    UDP_KEYS,
                    bearer::add,
                )],
            ),
            run("disable", "Disable a bearer", BEARER, BEARER_KEYS, bearer::disable),
            run(
                "enable",
                "Enable a bearer",
                ENABLE,
                &[
                    "media",
                    "name",
                    "device",
                    "localip",
                    "localport",
                    "remoteip",
                    "remoteport",
                    "domain",
                    "priority",
                ],
                bearer::enable,
            ),
            branch(
                "get",
                "Get bearer properties",
                &[
                    run("priority", "Priority of its links", BEARER, BEARER_KEYS, get::<Bearers, Priority>),
                    run(
                        "tolerance",
                        "Tolerance of its links, ms",
                        BEARER,
                        BEARER_KEYS,
                        get::<Bearers, Tolerance>,
                    ),
                    run(
                        "window",
                        "Window of its links, packets",
                        BEARER,
                        BEARER_KEYS,
                        get::<Bearers, Window>,
                    ),
                    run("mtu", "Largest packet, bytes (udp)", BEARER, BEARER_KEYS, get::<Bearers, Mtu>),
                    run(
                        "media",
                        "An address of a UDP bearer",
                        "udp name NAME {localip | localport | remoteip | remoteport}",
                        UDP_KEYS,
                        bearer::get_address,
                    ),
                ],
            ),
            run("list", "List bearers", "", &[], bearer::list),
            branch(
                "remove",
                "Remove data from an existing bearer",
                &[run(
                    "media",
                    "Remove a remote of a UDP bearer, and end the link to it",
                    "udp name NAME remoteip IP [remoteport PORT]",
                    UDP_KEYS,
                    bearer::remove,
                )],
            ),
            branch(
                "set",
                "Set bearer properties",
                &[
                    run(
                        "priority",
                        "Priority of new links, 0 to 31",
                        "PRIORITY BEARER",
                        BEARER_KEYS,
                        set::<Bearers, Priority>,
                    ),
                    run(
                        "tolerance",
                        "Tolerance, 50 to 30000 ms",
                        "TOLERANCE BEARER",
                        BEARER_KEYS,
                        set::<Bearers, Tolerance>,
                    ),
                    run(
                        "window",
                        "Window of new links, packets",
                        "WINDOW BEARER",
                        BEARER_KEYS,
                        set::<Bearers, Window>,
                    ),
                    run("mtu", "Largest packet, bytes (udp)", "MTU BEARER", BEARER_KEYS, set::<Bearers, Mtu>),
                ],
            ),
        ],
    ),
    branch(
        "group",
        "Show communication groups",
        &[run(
            "list",
            "List the sockets in groups, and the members that each of them knows",
            "",
            &[],
            group::list,
        )],
    ),
    branch(
        "link",
        "Show or modify links",
        &[
            branch(
                "get",
                "Get link properties",
                &[
                    run("priority", "Priority", "link LINK", &["link"], get::<Links, Priority>),
                    run("tolerance", "Tolerance, ms", "link LINK", &["link"], get::<Links, Tolerance>),
                    run("window", "Window, packets", "link LINK", &["link"], get::<Links, Window>),
                    run("broadcast", "How multicasts travel", "", &[], link::get_broadcast),
                ],
            ),
            run(
                "list",
                "List links; with --why when and why each went down last",
                "[--why]",
                &["--why"],
                link::list,
            ),
            branch(
                "set",
                "Set link properties",
                &[
                    run(
                        "priority",
                        "Priority, 0 to 31",
                        "PRIORITY link LINK",
                        &["link"],
                        set::<Links, Priority>,
                    ),
                    run(
                        "tolerance",
                        "Tolerance, 50 to 30000 ms",
                        "TOLERANCE link LINK",
                        &["link"],
                        set::<Links, Tolerance>,
                    ),
                    run("window", "Window, packets", "WINDOW link LINK", &["link"], set::<Links, Window>),
                    run(
                        "broadcast",
                        "How multicasts travel",
                        "{BROADCAST | REPLICAST | AUTOSELECT} [ratio PERCENT]",
                        &["BROADCAST", "REPLICAST", "AUTOSELECT", "ratio"],
                        link::set_broadcast,
                    ),
                ],
            ),
            branch(
                "statistics",
                "Show or reset statistics",
                &[
                    run("reset", "Set the counters of a link to zero", "link LINK", &["link"], link::reset),
                    run(
                        "show",
                        "Show the counters",
                        "[link {LINK | PART | all}]",
                        &["link"],
                        link::statistics,
                    ),
                ],
            ),
            branch(
                "monitor",
                "Show or set link supervision",
                &[
                    branch(
                        "set",
                        "Set monitor properties",
                        &[run(
                            "threshold",
                            "Number of nodes above which the ring is used",
                            "NODES",
                            &[],
                            monitor::set_threshold,
                        )],
                    ),
                    branch(
                        "get",
                        "Get monitor properties",
                        &[run(
                            "threshold",
                            "Number of nodes above which the ring is used",
                            "",
                            &[],
                            monitor::get_threshold,
                        )],
                    ),
                    run("list", "List all nodes", "[media MEDIA name NAME]", BEARER_KEYS, monitor::list),
                    run("summary", "Show the monitor of each bearer", "", &[], monitor::summary),
                ],
            ),
        ],
    ),
    branch(
        "media",
        "Show or modify media",
        &[
            branch(
                "get",
                "Get the defaults of new bearers",
                &[
                    run("priority", "Priority", "media MEDIA", &["media"], get::<Media, Priority>),
                    run("tolerance", "Tolerance, ms", "media MEDIA", &["media"], get::<Media, Tolerance>),
                    run("window", "Window, packets", "media MEDIA", &["media"], get::<Media, Window>),
                    run("mtu", "Largest packet, bytes (udp)", "media udp", &["media"], get::<Media, Mtu>),
                ],
            ),
            run("list", "List media", "", &[], media::list),
            branch(
                "set",
                "Set the defaults of new bearers",
                &[
                    run("priority", "Priority", "PRIORITY media MEDIA", &["media"], set::<Media, Priority>),
                    run(
                        "tolerance",
                        "Tolerance, ms",
                        "TOLERANCE media MEDIA",
                        &["media"],
                        set::<Media, Tolerance>,
                    ),
                    run("window", "Window, packets", "WINDOW media MEDIA", &["media"], set::<Media, Window>),
                    run("mtu", "Largest packet, bytes (udp)", "MTU media udp", &["media"], set::<Media, Mtu>),
                ],
            ),
        ],
    ),
    branch(
        "nametable",
        "Show the binding table",
        &[run(
            "show",
            "Show the binding table, or the bindings that match all given values",
            "[type TYPE] [instance INSTANCE] [scope {cluster | node}] [node {IDENTITY | ADDRESS}] [port PORT]",
            &["type", "instance", "scope", "node", "port"],
            nametable::show,
        )],
    ),
    branch(
        "node",
        "Show or modify node related parameters",
        &[
            run("list", "List remote nodes", "", &[], node::list),
            run("quotas", "Show each user's use of the limits", "", &[], quotas::show),
            run(
                "counters",
                "Counters of the node and its daemon, with its longest turn",
                "",
                &[],
                node::counters,
            ),
            branch(
                "get",
                "Get local node parameters",
                &[
                    run("address", "Address of the node", "", &[], node::get_address),
                    run("identity", "Identity of the node", "", &[], node::get_identity),
                    run("netid", "Number of the cluster", "", &[], node::get_cluster),
                    run("clusterid", "Number of the cluster", "", &[], node::get_cluster),
                    run(
                        "key",
                        "State, slot, age and origin of all keys, without the keys",
                        "",
                        &[],
                        keys::show,
                    ),
                ],
            ),
            branch(
                "set",
                "Set local node parameters, before the first bearer",
                &[
                    run("address", "An explicit address", "Z.C.N", &[], node::set_address),
                    run("identity", "Identity of the node", "IDENTITY", &[], node::set_identity),
                    run("netid", "Number of the cluster, 1 to 9999", "NUMBER", &[], node::set_cluster),
                    run("clusterid", "Number of the cluster, 1 to 9999", "NUMBER", &[], node::set_cluster),
                    run(
                        "key",
                        "Key: 16, 24 or 32 bytes and 4 of salt, in a file, as text or 0x and hexadecimal digits; or \
                         the interval of session keys, minutes",
                        "{file PATH | KEY} [algname NAME] [master | nodeid IDENTITY] [rekeying MINUTES|now] | rekeying MINUTES|now",
                        &["algname", "master", "nodeid", "rekeying"],
                        node::set_key,
                    ),
                ],
            ),
            branch(
                "flush",
                "Forget node parameters",
                &[run("key", "Forget all keys", "", &[], node::flush_keys)],
            ),
        ],
    ),
    branch(
        "peer",
        "Peer related operations",
        &[branch(
            "remove",
            "Forget a peer that is down",
            &[
                run("address", "By its address", "Z.C.N", &[], peer::remove_address),
                run("identity", "By its identity", "IDENTITY", &[], peer::remove_identity),
            ],
        )],
    ),
    branch(
        "socket",
        "Show sockets",
        &[run(
            "list",
            "List sockets; with --processes also the owner and the counters of each",
            "[--processes]",
            &["--processes"],
            socket::list,
        )],
    ),
];
