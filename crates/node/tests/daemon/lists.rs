//! Lists of the node: each request visits a bounded number of entries, however long the list is.

use std::collections::BTreeSet;

use utipc_attach::{Reply, Request as Command, SocketCall};
use utipc_core::addr::{NodeAddr, ServiceRange};
use utipc_core::discovery::{DiscoveryKind, DiscoveryMessage};
use utipc_core::socket::SocketKind;
use utipc_core::{BearerConfig, ClusterId, MediaAddr, NodeId, limits};
use utipc_manage::{Entry, Errno, Header, Request, entries, family};

use crate::client::{Client, Host};

/// Maximum number of entries that one request visits; as in `daemon::manage`.
const LIST_ITEMS: u64 = 256;

/// Fetches one part of a list, and checks how many entries that has visited.
fn part(host: &Host, client: &mut Client, request: &Request, from: u64) -> (Vec<Entry>, Option<u64>) {
    let header = Header { family: 30, sequence: 9, version: family::EXTENDED, ..Header::default() };
    let before = host.daemon().counters().list_entries;
    let (reply, payload) = client.try_call(&Command::Manage { from }, &request.to_bytes(&header)).unwrap();
    let visited = host.daemon().counters().list_entries - before;
    assert!(visited <= LIST_ITEMS, "{visited} entries for one part of {request:?}");
    let Reply::Managed { next } = reply else { panic!("{reply:?}") };
    (entries(&payload).unwrap(), next)
}

/// Fetches a list in parts.
fn whole(host: &Host, client: &mut Client, request: &Request) -> Vec<Entry> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let (entries, next) = part(host, client, request, from);
        all.extend(entries);
        let Some(next) = next else { return all };
        assert!(next > from, "{request:?} does not advance");
        from = next;
    }
}

fn is_rising(keys: &[(u32, u32, u32)]) -> bool {
    keys.is_sorted_by_key(|(service, lower, _)| (service % 1024, *service, *lower))
}

#[test]
fn bindings_are_listed_in_parts_of_bounded_cost() {
    let host = Host::new();
    let mut client = host.client();
    let socket = client.open(SocketKind::Rdm);
    for n in 0..3000 {
        client.bind(socket, ServiceRange::new(1000 + n % 1500 * 7, n, n));
    }
    // The same range by many sockets.
    for _ in 0..600 {
        let other = client.open(SocketKind::Rdm);
        client.bind(other, ServiceRange::new(99, 1, 1));
    }
    let names: Vec<(u32, u32, u32)> = whole(&host, &mut client, &Request::Names)
        .into_iter()
        .map(|entry| match entry {
            Entry::Name(p) => (p.service, p.lower, p.key),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(is_rising(&names));
    let of_users = names.iter().filter(|(service, ..)| *service >= 64);
    assert_eq!(of_users.collect::<BTreeSet<_>>().len(), 3600);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "twice");

    let keys: Vec<u32> = whole(&host, &mut client, &Request::Bindings { port: socket })
        .into_iter()
        .map(|entry| match entry {
            Entry::Binding(p) => p.key,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(keys.len(), 3000);
    assert!(keys.is_sorted_by(|a, b| a > b), "not the newest first");
}

/// Bindings change between the parts of a list: what stays is listed once.
#[test]
fn list_continues_where_its_last_binding_was_withdrawn() {
    let host = Host::new();
    let mut client = host.client();
    let socket = client.open(SocketKind::Rdm);
    let range = |n| ServiceRange::new(5000, n, n);
    for n in 0..1000 {
        client.bind(socket, range(n));
    }
    let (entries, next) = part(&host, &mut client, &Request::Names, 0);
    let lower = |entry: &Entry| match entry {
        Entry::Name(p) if p.service == 5000 => Some(p.lower),
        _ => None,
    };
    let last = entries.iter().filter_map(lower).max().unwrap();
    for n in [last - 1, last, last + 1] {
        let which = Some((range(n), utipc_core::addr::Scope::Cluster));
        client.call(&SocketCall::Unbind { which }.on(socket)).unwrap();
    }
    let (entries, _) = part(&host, &mut client, &Request::Names, next.unwrap());
    assert_eq!(entries.iter().filter_map(lower).min(), Some(last + 2));
}

#[test]
fn sockets_are_listed_in_parts_of_bounded_cost() {
    let host = Host::new();
    let mut client = host.client();
    for _ in 0..2000 {
        client.open(SocketKind::Rdm);
    }
    let sockets = whole(&host, &mut client, &Request::Sockets);
    assert!(sockets.len() >= 2000);
}

/// A part must follow a fetched one: finding any other part would cost a walk through the list.
#[test]
fn part_in_the_middle_of_the_bindings_is_refused() {
    let host = Host::new();
    let mut client = host.client();
    let header = Header { family: 30, sequence: 9, version: family::EXTENDED, ..Header::default() };
    let request = Request::Names.to_bytes(&header);
    let (_, payload) = client.try_call(&Command::Manage { from: 7 }, &request).unwrap();
    assert_eq!(entries(&payload).unwrap_err().errno, Errno::INVALID);
}

fn neighbour(n: u32) -> DiscoveryMessage {
    let source = NodeAddr::legacy(1, 2, 1 + n);
    DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source,
        cluster: ClusterId::default(),
        capabilities: limits::CAPABILITIES,
        signature: 0x1235,
        media: MediaAddr::Udp(format!("10.0.1.{}:6118", n % 250).parse().unwrap()),
        net_hash: 99,
        suggestion: NodeAddr::NONE,
        identity: NodeId::from_legacy(source),
    }
}

#[test]
fn links_and_nodes_are_listed_in_parts_of_bounded_cost() {
    const NODES: u32 = 500;
    let host = Host::new();
    let mut client = host.client();
    let linked = host.daemon().with(|stack, now| {
        let media = MediaAddr::Udp("10.0.0.1:6118".parse().unwrap());
        let id = stack.enable_bearer(now, BearerConfig::new("udp:U", media, 1472)).unwrap();
        for n in 0..NODES {
            stack.receive(now, id, neighbour(n).build().bytes());
        }
        stack.links().len()
    });
    assert_eq!(linked, Some(NODES as usize));
    assert_eq!(whole(&host, &mut client, &Request::Nodes).len(), NODES as usize);
    let names = |entries: Vec<Entry>| -> Vec<String> {
        let name = |entry| match entry {
            Entry::Link(link) => link.name,
            other => panic!("{other:?}"),
        };
        entries.into_iter().map(name).collect()
    };
    let links = names(whole(&host, &mut client, &Request::Links { broadcast: false }));
    assert_eq!(links.len(), 1 + NODES as usize);
    assert_eq!(links.iter().collect::<BTreeSet<_>>().len(), links.len());
    let all = names(whole(&host, &mut client, &Request::Links { broadcast: true }));
    assert_eq!(all.len(), 1 + 2 * NODES as usize);
    let without: Vec<&String> = all.iter().filter(|name| !name.contains("link:")).collect();
    assert!(without.into_iter().eq(&links), "in the same order");
    // Every link is found by its name.
    for name in [&all[0], &all[1], &all[2], all.last().unwrap()] {
        let get = Request::LinkGet { name: name.clone() };
        let found = names(whole(&host, &mut client, &get));
        assert_eq!(found, std::slice::from_ref(name));
    }
}
