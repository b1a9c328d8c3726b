//! Management: requests of the family TIPCv2 over the daemon's protocol.

use std::collections::BTreeSet;

use utipc_attach::{Failure, Reply as Answered, Request as Command, SocketCall};
use utipc_core::addr::{NodeAddr, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest, JoinError, SlowMember};
use utipc_core::socket::SocketKind;
use utipc_manage::{
    Entry, Errno, Group, Header, KeyChange, Properties, Quota, REKEY_NOW, Refusal, Reply, Request, Secret,
    Udp, family, replies,
};
use utipc_node::daemon::{FixedName, Policy};

use crate::client::{Client, Host, LIMIT};

/// The answer to a request: entries, the refusal if any, and the number of packets.
struct Answer {
    entries: Vec<Entry>,
    refusal: Option<Refusal>,
    packets: usize,
}

fn ask(client: &mut Client, request: &Request) -> Answer {
    let header = Header { family: 30, sequence: 9, version: family::EXTENDED, ..Header::default() };
    let bytes = request.to_bytes(&header);
    let (mut from, mut answer) = (0, Answer { entries: Vec::new(), refusal: None, packets: 0 });
    let mut done = false;
    loop {
        let (reply, payload) = client.try_call(&Command::Manage { from }, &bytes).unwrap();
        let Answered::Managed { next } = reply else { panic!("{reply:?}") };
        answer.packets += 1;
        assert!(payload.len() < 64 * 1024);
        for reply in replies(&payload) {
            assert!(!done, "an entry behind the end");
            match reply.unwrap() {
                Reply::Entry(entry) => answer.entries.push(entry),
                Reply::Refused(refusal) => (answer.refusal, done) = (Some(refusal), true),
                Reply::Done => done = true,
            }
        }
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(done, "no end");
    answer
}

fn refusal(client: &mut Client, request: &Request) -> Errno {
    ask(client, request).refusal.expect("a refusal").errno
}

fn done(client: &mut Client, request: &Request) {
    assert_eq!(ask(client, request).refusal, None, "{request:?}");
}

#[test]
fn sockets_are_listed_with_their_process_in_bounded_packets() {
    let host = Host::new();
    let mut client = host.client();
    let ports: BTreeSet<u32> = (0..10_000).map(|_| client.open(SocketKind::Rdm)).collect();
    let bound = *ports.first().unwrap();
    client.bind(bound, ServiceRange::new(1000, 1, 10));
    client.bind(bound, ServiceRange::new(1000, 20, 20));
    let answer = ask(&mut client, &Request::Sockets);
    assert!(answer.packets > 1);
    let mut seen = BTreeSet::new();
    for entry in answer.entries {
        let Entry::Socket(socket) = entry else { panic!("{entry:?}") };
        assert!(seen.insert(socket.port), "twice: {}", socket.port);
        if ports.contains(&socket.port) {
            let process = socket.process.unwrap();
            assert_eq!((process.pid, process.program.as_str()), (std::process::id(), "a test"));
            assert_eq!((socket.bound, socket.kind), (socket.port == bound, Some(4)));
        }
    }
    assert!(seen.is_superset(&ports));
    let answer = ask(&mut client, &Request::Bindings { port: bound });
    let lowers: Vec<u32> = answer
        .entries
        .iter()
        .map(|entry| match entry {
            Entry::Binding(binding) => binding.lower,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lowers, [20, 1], "the newest first");
    let free = (1..).find(|port| !seen.contains(port)).unwrap();
    assert_eq!(refusal(&mut client, &Request::Bindings { port: free }), Errno::INVALID);
}

#[test]
fn users_that_may_not_manage_may_list() {
    let host = Host::new();
    let mut client = host.client();
    let own_user = Policy { manage: utipc_node::daemon::Users::root_and_own(), ..Policy::default() };
    host.daemon().change(own_user, utipc_node::daemon::Limits::default());
    assert_eq!(ask(&mut client, &Request::Net).refusal, None);
    // The test is the daemon's own user, who may.
    done(&mut client, &Request::MonitorSet { threshold: Some(40) });
    let answer = ask(&mut client, &Request::MonitorGet);
    assert_eq!(answer.entries, [Entry::Threshold(40)]);
}

#[test]
fn identity_and_address_are_set_before_the_first_bearer() {
    let host = Host::with(|config| config.fixed_name = FixedName::Nothing);
    let mut client = host.client();
    let server = client.server(SocketKind::Rdm, ServiceRange::new(1000, 1, 1));
    let identity = *b"beta\0\0\0\0\0\0\0\0\0\0\0\0";
    done(&mut client, &Request::NetSet { id: Some(4712), address: None, identity: Some(identity) });
    let answer = ask(&mut client, &Request::Net);
    let Entry::Net(net) = &answer.entries[0] else { panic!("{:?}", answer.entries) };
    assert_eq!((net.id, net.identity, net.address), (4712, identity, Some(0x6265_7461)));
    // Earlier bindings, and the node's own, have the new address.
    let answer = ask(&mut client, &Request::Names);
    let rows: Vec<_> = answer
        .entries
        .iter()
        .map(|entry| match entry {
            Entry::Name(p) => (p.service, p.lower, p.node),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rows, [(0, 0x6265_7461, 0x6265_7461), (1, 1, 0x6265_7461), (1000, 1, 0x6265_7461)]);
    // The socket still works, by its service name.
    let to = utipc_core::Destination::service(1000, 1);
    assert_eq!(client.send(server, Some(to), b"hello").unwrap(), 5);
    assert_eq!(client.receive_soon(server).1, b"hello");
    // The second identity is ignored, as in the kernel; the cluster may still change.
    done(&mut client, &Request::NetSet { id: Some(4713), address: None, identity: Some([7; 16]) });
    assert!(
        matches!(&ask(&mut client, &Request::Net).entries[0], Entry::Net(net) if net.identity == identity)
    );
    let settled = Host::new();
    let mut client = settled.client();
    let set = Request::NetSet { id: Some(1), address: None, identity: None };
    assert_eq!(refusal(&mut client, &set), Errno::NOT_PERMITTED);
}

fn enable(name: &str, local: &str, remote: &str, priority: Option<u32>) -> Request {
    let udp = Udp { local: local.parse().unwrap(), remote: remote.parse().unwrap(), replicast: false };
    Request::BearerEnable { name: name.to_owned(), domain: 0, priority, udp: Some(udp) }
}

/// Waits until the only link is up or down; returns its entry.
fn link(client: &mut Client, up: bool) -> utipc_manage::Link {
    let begun = std::time::Instant::now();
    loop {
        let answer = ask(client, &Request::Links { broadcast: false });
        let found = answer.entries.into_iter().find_map(|entry| match entry {
            Entry::Link(link) if !link.broadcast && link.up == up => Some(link),
            _ => None,
        });
        if let Some(link) = found {
            return link;
        }
        assert!(begun.elapsed() < LIMIT, "no link is {}", if up { "up" } else { "down" });
        std::thread::yield_now();
    }
}

/// Two daemons on separate addresses, linked by bearers that are enabled while they run.
#[test]
fn bearers_are_enabled_and_disabled_while_the_daemon_runs() {
    let (one, two) = (Host::new(), Host::with(|c| c.node.stack.address = Some(NodeAddr(0x1002))));
    let (mut a, mut b) = (one.client(), two.client());
    let net = (std::process::id() % 200) as u8 + 20;
    let (local, remote) = (format!("127.77.{net}.1:6118"), format!("127.77.{net}.2:6118"));
    done(&mut a, &enable("udp:U", &local, &remote, Some(12)));
    done(&mut b, &enable("udp:U", &remote, &local, None));
    assert_eq!(refusal(&mut a, &enable("udp:U", &local, &remote, None)), Errno::INVALID);
    assert_eq!(refusal(&mut a, &enable("xyz:U", &local, &remote, None)), Errno::INVALID);
    assert_eq!(refusal(&mut a, &enable("udp:V", "203.0.113.1:6118", &remote, None)), Errno::NO_DEVICE);
    let up = link(&mut a, true);
    assert!(up.active && up.down.is_none());
    assert_eq!(up.properties.priority, Some(12));

    let get = Request::BearerGet { name: "udp:U".to_owned() };
    let set = |p: Properties| Request::BearerSet { name: "udp:U".to_owned(), properties: p };
    done(&mut a, &set(Properties { tolerance: Some(900), window: Some(100), ..Properties::default() }));
    let answer = ask(&mut a, &get);
    let Entry::Bearer(bearer) = &answer.entries[0] else { panic!("{:?}", answer.entries) };
    assert_eq!((bearer.properties.tolerance, bearer.properties.window), (Some(900), Some(100)));
    let udp = bearer.udp.unwrap();
    assert_eq!(
        (udp.local, udp.remote, udp.replicast),
        (local.parse().unwrap(), remote.parse().unwrap(), true)
    );
    assert_eq!(link(&mut a, true).properties.tolerance, Some(900));
    let wrong = Properties { tolerance: Some(49), ..Properties::default() };
    assert_eq!(refusal(&mut a, &set(wrong)), Errno::INVALID);
    let other = format!("127.77.{net}.3:6118");
    let add = Request::BearerAdd { name: "udp:U".to_owned(), remote: Some(other.parse().unwrap()) };
    done(&mut a, &add);
    let answer = ask(&mut a, &Request::Remotes { name: "udp:U".to_owned() });
    assert_eq!(answer.entries.len(), 2);
    let remove = |at: &str| Request::BearerRemove { name: "udp:U".to_owned(), remote: at.parse().unwrap() };
    done(&mut a, &remove(&other));
    assert_eq!(refusal(&mut a, &remove(&other)), Errno::INVALID, "it is no longer a remote");
    assert_eq!(ask(&mut a, &Request::Remotes { name: "udp:U".to_owned() }).entries.len(), 1);
    link(&mut a, true);

    let properties = Properties { tolerance: Some(3000), window: Some(60), ..Properties::default() };
    done(&mut a, &Request::LinkSet { name: up.name.clone(), properties });
    assert_eq!(link(&mut a, true).properties.tolerance, Some(3000));
    done(&mut a, &Request::LinkReset { name: up.name.clone() });
    assert_eq!(refusal(&mut a, &Request::LinkReset { name: "no".to_owned() }), Errno::INVALID);

    let remove = |address| Request::PeerRemove { address: Some(address), identity: None };
    assert_eq!(refusal(&mut a, &remove(0x1002)), Errno::BUSY);
    assert_eq!(refusal(&mut a, &remove(0x1001)), Errno::OWN_NODE);
    assert_eq!(refusal(&mut a, &remove(0x1003)), Errno::NO_DEVICE_OR_ADDRESS);

    done(&mut b, &Request::BearerDisable { name: "udp:U".to_owned() });
    assert!(ask(&mut b, &Request::Bearers).entries.is_empty());
    let down = link(&mut a, false);
    let cause = down.down.expect("the reason");
    assert!(!cause.reason.is_empty() && cause.time > 1_600_000_000_000, "{cause:?}");
    let history = ask(&mut a, &Request::LinkHistory).entries;
    assert!(matches!(&history[..], [Entry::History(link)] if link.name == up.name), "{history:?}");
    done(&mut a, &remove(0x1002));
    assert!(ask(&mut a, &Request::Nodes).entries.is_empty());

    // The same address is free again, and the link comes back.
    done(&mut b, &enable("udp:U", &remote, &local, None));
    link(&mut a, true);
    done(&mut a, &Request::BearerDisable { name: "udp:U".to_owned() });
}

fn join(client: &mut Client, request: GroupRequest) -> u32 {
    let port = client.open(SocketKind::Rdm);
    client.call(&SocketCall::MakeHosted { partly: None }.on(port)).unwrap();
    client.call(&SocketCall::Join { request, policy: GroupPolicy::LINUX }.on(port)).unwrap();
    port
}

#[test]
fn groups_are_listed_with_their_members_in_bounded_packets() {
    const MEMBERS: u32 = 300;
    let host = Host::new();
    let mut client = host.client();
    let none = ask(&mut client, &Request::Groups);
    assert_eq!((none.entries, none.refusal), (Vec::new(), None));
    let outside = client.open(SocketKind::Rdm);
    assert_eq!(refusal(&mut client, &Request::GroupMembers { port: outside }), Errno::INVALID);
    let sockets: BTreeSet<u32> =
        (0..MEMBERS).map(|at| join(&mut client, GroupRequest::new(4300, at).with_events())).collect();
    let alone = join(&mut client, GroupRequest::new(4299, 7).on_this_node().with_loopback());
    let list = ask(&mut client, &Request::Groups);
    let groups: Vec<Group> = list
        .entries
        .into_iter()
        .map(|entry| if let Entry::Group(group) = entry { group } else { panic!("{entry:?}") })
        .collect();
    assert!(list.packets > 1, "a list that one packet holds tests nothing");
    let first = &groups[0];
    assert_eq!((first.port, first.service, first.instance, first.scope), (alone, 4299, 7, 3));
    assert_eq!((first.loopback, first.events, first.members), (true, false, 1));
    assert_eq!(first.pid, std::process::id());
    assert_eq!(groups[1..].iter().map(|group| group.port).collect::<BTreeSet<_>>(), sockets);
    assert!(groups[1..].iter().all(|group| (group.service, group.members) == (4300, MEMBERS - 1)));
    let one = groups[1].port;
    let list = ask(&mut client, &Request::GroupMembers { port: one });
    assert!(list.packets > 1);
    let mut known = BTreeSet::new();
    for entry in list.entries {
        let Entry::GroupMember(member) = entry else { panic!("{entry:?}") };
        assert_eq!((member.state.as_str(), member.granted, member.unread), ("joined", 65, 0));
        assert!(known.insert(member.port) && member.instance < MEMBERS);
    }
    assert_eq!(known, sockets.into_iter().filter(|port| *port != one).collect());
}

#[test]
fn policies_and_what_slow_members_missed_are_listed() {
    const DROP: GroupPolicy = GroupPolicy::new(SlowMember::Drop);
    let host = Host::new();
    let mut client = host.client();
    let port = client.open(SocketKind::Rdm);
    client.call(&SocketCall::MakeHosted { partly: None }.on(port)).unwrap();
    let request = GroupRequest::new(4300, 1);
    let invalid = GroupPolicy::new(SlowMember::Evict { after_ms: 0 });
    let refused = client.call(&SocketCall::Join { request, policy: invalid }.on(port));
    assert_eq!(refused, Err(Failure::Join(JoinError::Policy)));
    client.call(&SocketCall::Join { request, policy: DROP }.on(port)).unwrap();
    let slow = join(&mut client, GroupRequest::new(4300, 2));
    for _ in 0..30 {
        let keyed = SocketCall::SendKeyed { to: None, key: 7 }.on(port);
        let (sent, _) = client.try_call(&keyed, &[7; 60_000]).unwrap();
        assert!(matches!(sent, Answered::Sent { bytes: 60_000, .. }), "{sent:?}");
    }
    let members = match client.call(&SocketCall::GroupMembers { after: None }.on(port)) {
        Ok(Answered::GroupMembers(members)) => members,
        other => panic!("{other:?}"),
    };
    let [member] = &members[..] else { panic!("{members:?}") };
    assert!(member.port.port == slow && member.slow.dropped > 10);
    let after = Some(member.port);
    assert_eq!(
        client.call(&SocketCall::GroupMembers { after }.on(port)),
        Ok(Answered::GroupMembers(Vec::new()))
    );
    let list = ask(&mut client, &Request::Groups).entries;
    let policies: Vec<_> = list
        .into_iter()
        .map(|entry| if let Entry::Group(group) = entry { group.policy } else { panic!("{entry:?}") })
        .collect();
    assert!(policies.contains(&None), "the default is not shown");
    assert!(policies.contains(&Some("drop, ignores sockets that never join".to_owned())), "{policies:?}");
    let list = ask(&mut client, &Request::GroupMembers { port }).entries;
    let [Entry::GroupMember(listed)] = &list[..] else { panic!("{list:?}") };
    assert_eq!((listed.dropped, listed.conflated, listed.kept), (member.slow.dropped, 0, 0));
    // A socket outside groups has no key.
    let outside = client.open(SocketKind::Rdm);
    let keyed = SocketCall::SendKeyed { to: None, key: 7 }.on(outside);
    assert_eq!(client.try_call(&keyed, b"x").unwrap().0, Answered::Failed(Failure::State));
    let unknown = client.call(&SocketCall::GroupMembers { after: None }.on(outside));
    assert!(matches!(unknown, Err(Failure::Leave(_))), "{unknown:?}");
}

#[test]
fn counters_are_shown_as_json() {
    let host = Host::new();
    let mut client = host.client();
    client.open(SocketKind::Rdm);
    let [Entry::Counters(text)] = &ask(&mut client, &Request::Counters).entries[..] else { panic!() };
    let counters: serde_json::Value = serde_json::from_slice(text).unwrap();
    assert_eq!((&counters["daemon"]["sockets"], &counters["links_down"]), (&1.into(), &0.into()));
}

#[test]
fn quotas_are_listed_by_user() {
    let host = Host::with(|config| (config.limits.sockets, config.limits.sockets_per_user) = (1000, 3));
    let mut client = host.client();
    let mut others: Vec<_> = (0..150).map_while(|user| host.client_of(64_200 + user)).collect();
    for other in &mut others {
        other.open(SocketKind::Rdm);
    }
    let quotas = ask(&mut client, &Request::Quotas).entries;
    let quotas: Vec<Quota> = quotas
        .into_iter()
        .filter_map(|e| if let Entry::Quota(quota) = e { Some(quota) } else { None })
        .collect();
    let named = |quota: &Quota, name| quota.resources.iter().find(|r| r.name == name).cloned();
    assert_eq!((quotas[0].user, named(&quotas[0], "sockets").unwrap().limit), (None, 1000));
    let users: Vec<u32> = quotas.iter().filter_map(|quota| quota.user).collect();
    let known = others.len() as u32;
    let attached = quotas[0].resources[0].used;
    assert_eq!((users.len() as u32, attached), (known + 1, u64::from(known) + 1));
    assert!(users.is_sorted());
    if known > 0 {
        let sockets = named(&quotas[quotas.len() - 1], "sockets").unwrap();
        assert_eq!((sockets.used, sockets.limit), (1, 3));
    }
}

#[test]
fn malformed_management_requests_are_answered_or_refused() {
    let host = Host::new();
    let mut client = host.client();
    let mut bytes = Request::Nodes.to_bytes(&Header { family: 30, ..Header::default() });
    for at in 0..bytes.len() {
        for value in [0, 0xff] {
            let kept = std::mem::replace(&mut bytes[at], value);
            let (reply, _) = client.try_call(&Command::Manage { from: u64::MAX }, &bytes).unwrap();
            assert!(matches!(reply, Answered::Managed { .. } | Answered::Failed(_)), "{reply:?}");
            bytes[at] = kept;
        }
    }
    assert!(client.try_call(&Command::Manage { from: 0 }, &[]).is_some());
}

#[test]
fn keys_are_set_and_flushed_or_refused_with_the_reason() {
    let host = Host::new();
    let mut client = host.client();
    let secret =
        |algorithm: &str, len| Secret { algorithm: algorithm.to_owned(), bytes: vec![7; len].into() };
    let key = |secret| Request::KeySet(KeyChange { key: Some(secret), ..KeyChange::default() });
    assert_eq!(refusal(&mut client, &key(secret("ccm(aes)", 20))), Errno::NO_DEVICE);
    assert_eq!(refusal(&mut client, &key(secret("gcm(aes)", 21))), Errno::KEY_REJECTED);
    let rekeying = |minutes| Request::KeySet(KeyChange { rekeying: Some(minutes), ..KeyChange::default() });
    assert_eq!(refusal(&mut client, &rekeying(REKEY_NOW)), Errno::INVALID, "there is no key yet");
    done(&mut client, &key(secret("gcm(aes)", 20)));
    done(&mut client, &rekeying(10));
    assert_eq!(refusal(&mut client, &rekeying(REKEY_NOW)), Errno::BUSY, "a key is being introduced");
    let master = KeyChange { key: Some(secret("gcm(aes)", 28)), master: true, ..KeyChange::default() };
    let peer = KeyChange {
        key: Some(secret("gcm(aes)", 36)),
        identity: Some(*b"another node\0\0\0\0"),
        ..KeyChange::default()
    };
    for change in [master, peer] {
        done(&mut client, &Request::KeySet(change));
    }
    done(&mut client, &Request::KeyFlush);
    assert_eq!(refusal(&mut client, &rekeying(REKEY_NOW)), Errno::INVALID);
}
