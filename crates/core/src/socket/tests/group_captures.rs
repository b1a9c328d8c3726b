//! What sockets in groups send, beside captures of a kernel's. Spec: tipc.md §9.

use super::*;
use crate::group::GroupRequest;

/// The group messages of the capture, without the link's stamps, and without what a kernel leaves in unicasts.
fn captured(name: &str) -> VecDeque<String> {
    let all = crate::vectors::messages(name)
        .into_iter()
        .filter(|m| m.user() == User::GroupProtocol || m.is_data() && m.message_type() != MessageType::Conn);
    all.map(normal).collect()
}

fn normal(mut msg: Message) -> String {
    msg.set_bcast_ack(0);
    msg.set_ack(0);
    msg.set_seqno(0);
    if msg.is_data() && msg.message_type() == MessageType::GroupUcast {
        let seqno = msg.group_seqno();
        msg.set_name_instance(0);
        msg.set_word(10, 0);
        msg.set_group_seqno(seqno);
    }
    let size = msg.size();
    msg.bytes()[..size].iter().map(|b| format!("{b:02x}")).collect()
}

fn sent_to_others(c: &mut Cluster) -> impl Iterator<Item = Message> {
    let goes_out = |m: &Message| m.dest_node().is_some_and(|to| !to.is_none() && to != m.prev_node());
    c.take_log().into_iter().filter(goes_out)
}

/// Compares what these sockets have sent to the other node with the next messages of the capture.
fn compare(c: &mut Cluster, captured: &mut VecDeque<String>, what: &str) {
    // A kernel sends larger ones in fragments.
    for msg in sent_to_others(c).filter(|m| m.size() <= 1428) {
        assert_eq!(normal(msg), captured.pop_front().unwrap_or_default(), "{what}");
    }
}

#[test]
fn group_pcap_is_what_these_sockets_send() {
    let mut rest = captured("group");
    assert!(rest.len() > 140, "{}", rest.len());
    let mut c = Cluster::new();
    let a1 = c.open_as(A, SocketKind::Rdm, 0x83b7_ff21);
    let b1 = c.open_as(B, SocketKind::Rdm, 0xea50_94ed);
    let b2 = c.open_as(B, SocketKind::Rdm, 0xb229_6411);
    let all = [b1, b2, a1];
    c.join(a1, GroupRequest::new(4300, 1));
    c.join(b1, GroupRequest::new(4300, 2));
    c.run();
    compare(&mut c, &mut rest, "b1 joins");
    c.join(b2, GroupRequest::new(4300, 2).with_loopback());
    c.run();
    // Here the binding reached a1 before the JOIN left.
    let mut next: Vec<_> = rest.drain(..4).collect();
    next.sort();
    let mut sent: Vec<_> = sent_to_others(&mut c).map(normal).collect();
    sent.sort();
    assert_eq!(sent, next, "b2 joins");

    let step = |c: &mut Cluster, what: &str, rest: &mut VecDeque<String>, from, data: &[u8], to| {
        let sent = c.on(from, |s, now, up| s.send(now, data, to, up));
        assert_eq!(sent, Ok(data.len()), "{what}");
        c.run();
        for at in all {
            c.drain(at);
        }
        c.run();
        compare(c, rest, what);
    };
    step(&mut c, "broadcast", &mut rest, a1, b"broadcast", None);
    let fragments: Vec<u8> = vec![7; 3000];
    step(&mut c, "fragments", &mut rest, b1, &fragments, None);
    let two = Destination::Range(ServiceRange::new(4300, 2, 2));
    step(&mut c, "multicast", &mut rest, a1, b"multicast to 2", Some(two));
    step(&mut c, "anycast", &mut rest, a1, b"anycast to 2", Some(Destination::service(4300, 2)));
    step(&mut c, "unicast", &mut rest, a1, b"unicast", Some(b1.into()));
    step(&mut c, "back", &mut rest, b1, b"back", Some(a1.into()));
    let all_captured = crate::vectors::messages("group").into_iter();
    let long = all_captured
        .filter(|m| m.is_data() && m.message_type() == MessageType::GroupBcast && m.size() == 1044);
    for (i, captured) in long.enumerate() {
        let data = captured.data().get(..1000).unwrap().to_vec();
        step(&mut c, &format!("broadcast {i}"), &mut rest, a1, &data, None);
    }
    c.leave(b1);
    c.leave(b2);
    compare(&mut c, &mut rest, "both leave");
    assert_eq!(rest.len(), 0, "all of the capture was compared");
}

#[test]
fn group_reclaim_pcap_is_what_these_sockets_send() {
    let mut c = Cluster::new();
    let data: Vec<_> =
        crate::vectors::messages("group-reclaim").into_iter().filter(Message::is_data).collect();
    let a = c.open_as(A, SocketKind::Rdm, data[0].dest_port());
    c.join(a, GroupRequest::new(4300, 1));
    let mut senders = Vec::new();
    for (i, msg) in (0..).zip(&data).take(14) {
        let sender = c.open_as(B, SocketKind::Rdm, msg.origin().port);
        c.join(sender, GroupRequest::new(4300, 2 + i));
        c.run();
        senders.push(sender);
    }
    // The order in which bindings and JOIN arrive differs.
    c.take_log();
    let rest = captured("group-reclaim");
    let mut rest: VecDeque<_> = rest.into_iter().skip_while(|line| line.len() < 2 * data[0].size()).collect();
    for (i, captured) in data.iter().enumerate() {
        let from = senders[i % senders.len()];
        assert_eq!(c.send_to(from, captured.data().get(..505).unwrap(), a.into()), Ok(505));
        c.run();
        assert_eq!(c.drain(a).len(), 1);
        c.run();
        compare(&mut c, &mut rest, &format!("message {i}"));
    }
    for sender in senders {
        c.leave(sender);
    }
    compare(&mut c, &mut rest, "all leave");
    assert_eq!(rest.len(), 0, "all of the capture was compared");
}
