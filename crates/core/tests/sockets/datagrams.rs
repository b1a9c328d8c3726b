use utipc_core::socket::{OptionValue, SendError, SocketOption};
use utipc_core::wire::ErrorCode;
use utipc_core::{Destination, Importance, RecvOptions, ServiceAddr, ServiceRange, SocketKind};

use crate::lan::{Faults, LOSSY, Lan, PERFECT, Sock, pattern};

fn visible(lan: &mut Lan, service: u32, count: usize) {
    lan.until(20_000, |lan| {
        lan.nodes.iter().all(|n| n.bindings().iter().filter(|b| b.range.service == service).count() == count)
    });
}

#[test]
fn datagrams_of_all_sizes_arrive_once_and_in_order() {
    let mut lan = Lan::new(2, LOSSY, 41);
    let receiver = lan.bound(0, SocketKind::Rdm, ServiceRange::new(5000, 1, 1));
    visible(&mut lan, 5000, 1);
    let sender = lan.open(1, SocketKind::Rdm);
    let sizes = [1, 100, 1400, 1440, 1500, 2900, 20_000, 66_000];
    let (mut sent, mut received) = (0usize, 0usize);
    let total = 200;
    lan.until(200_000, |lan| {
        while sent < total && sent < received + 20 {
            match lan.send_to(sender, &pattern(sent, sizes[sent % 8]), Destination::service(5000, 1)) {
                Ok(_) => sent += 1,
                Err(e) => {
                    assert_eq!(e, SendError::WouldBlock);
                    break;
                }
            }
        }
        while let Some(data) = lan.recv(receiver, 66_000) {
            assert!(data == pattern(received, sizes[received % 8]), "message {received}");
            received += 1;
        }
        received == total
    });
    lan.assert_stable();
}

#[test]
fn anycast_is_round_robin_over_the_cluster() {
    let mut lan = Lan::new(3, LOSSY, 43);
    let servers = [0, 1, 1, 2].map(|node| lan.bound(node, SocketKind::Rdm, ServiceRange::new(5000, 1, 1)));
    visible(&mut lan, 5000, 4);
    let client = lan.open(2, SocketKind::Rdm);
    for _ in 0..40 {
        lan.send_to(client, b"x", Destination::service(5000, 1)).unwrap();
    }
    lan.run(5000);
    for server in servers {
        let mut got = 0;
        while lan.recv(server, 10).is_some() {
            got += 1;
        }
        assert_eq!(got, 10);
    }
}

#[test]
fn undeliverable_messages_are_returned_by_the_other_node() {
    let mut lan = Lan::new(2, LOSSY, 47);
    let gone = lan.open(0, SocketKind::Rdm);
    let to = Destination::Port(lan.id(gone));
    lan.close(gone);
    let sender = lan.open(1, SocketKind::Rdm);
    let off = OptionValue::Number(0);
    lan.nodes[1].set_option(lan.now, sender.port, SocketOption::DestDroppable, off).unwrap();
    lan.send_to(sender, &pattern(0, 3000), to).unwrap();
    let domain = lan.nodes[0].own_node();
    let named = Destination::Service { addr: ServiceAddr { service: 4000, instance: 1 }, domain };
    lan.send_to(sender, b"no such name", named).unwrap();
    for (code, data) in [(ErrorCode::NoPort, pattern(0, 1024)), (ErrorCode::NoName, b"no such name".to_vec())]
    {
        let mut buffer = [0; 100];
        let mut got = None;
        lan.until(5000, |lan| {
            got = lan.nodes[1].recv(lan.now, sender.port, &mut buffer, RecvOptions::default()).ok();
            got.is_some()
        });
        let returned = got.unwrap().returned.unwrap();
        assert_eq!((returned.code, returned.data), (code, data));
    }
}

#[test]
fn receiver_that_does_not_read_rejects_with_overload() {
    let mut lan = Lan::new(2, LOSSY, 53);
    let receiver = lan.open(0, SocketKind::Rdm);
    let small = OptionValue::Number(0);
    lan.nodes[0].set_option(lan.now, receiver.port, SocketOption::ReceiveBuffer, small).unwrap();
    let sender = lan.open(1, SocketKind::Rdm);
    lan.nodes[1].set_option(lan.now, sender.port, SocketOption::DestDroppable, small).unwrap();
    let to = Destination::Port(lan.id(receiver));
    let mut sent = 0;
    lan.until(60_000, |lan| {
        while sent < 100 && lan.send_to(sender, &[1; 20_000], to).is_ok() {
            sent += 1;
        }
        sent == 100
    });
    lan.run(5000);
    let queued =
        lan.nodes[0].endpoint(receiver.port).unwrap().option(SocketOption::ReceiveQueueDepth).unwrap();
    let mut back = 0;
    let mut buffer = [0; 10];
    while let Ok(got) = lan.nodes[1].recv(lan.now, sender.port, &mut buffer, RecvOptions::default()) {
        assert_eq!(got.returned.unwrap().code, ErrorCode::Overload);
        back += 1;
    }
    assert_eq!(queued + back, 100);
    assert_eq!(queued, 512 * 1024 / (20_000 + 32 + 128));
}

/// Sends `total` multicasts of 60,000 bytes as fast as the node takes them to `readers`, which read 480,000 bytes every
/// 5 ms, and to sockets that do not read. Returns what each reader has got, and the time until the last message was
/// accepted, milliseconds.
fn burst(lan: &mut Lan, sender: Sock, readers: &[Sock], total: usize) -> (Vec<usize>, u64) {
    let mut got = vec![0; readers.len()];
    let began = lan.now;
    let mut sent = 0;
    let mut all_sent = None;
    for _ in 0..20_000 {
        let to = Destination::Range(ServiceRange::new(5000, 0, 100));
        while sent < total && lan.send_to(sender, &[1; 60_000], to).is_ok() {
            sent += 1;
        }
        if sent == total && all_sent.is_none() {
            all_sent = Some(lan.now.since(began).as_millis() as u64);
        }
        lan.run(5);
        for (reader, got) in readers.iter().zip(&mut got) {
            *got += (0..8).take_while(|_| lan.recv(*reader, 66_000).is_some()).count();
        }
        if got.iter().all(|got| *got == total) {
            break;
        }
    }
    (got, all_sent.unwrap_or(u64::MAX))
}

#[test]
fn fast_sender_waits_for_readers_on_its_node_and_on_others() {
    for (node, faults) in [(0, LOSSY), (1, LOSSY), (1, PERFECT)] {
        let mut lan = Lan::new(2, faults, 59);
        let readers = [1, 2, 3].map(|at| lan.bound(node, SocketKind::Rdm, ServiceRange::new(5000, at, at)));
        visible(&mut lan, 5000, 3);
        let sender = lan.open(0, SocketKind::Rdm);
        assert_eq!(burst(&mut lan, sender, &readers, 300).0, [300; 3]);
        lan.assert_stable();
    }
}

#[test]
fn receiver_that_does_not_read_delays_the_others_once() {
    for node in [0, 1] {
        let spent = [0, 1].map(|silent| {
            let mut lan = Lan::new(2, PERFECT, 61);
            let readers = [1, 2].map(|at| lan.bound(node, SocketKind::Rdm, ServiceRange::new(5000, at, at)));
            for at in 0..silent {
                lan.bound(node, SocketKind::Rdm, ServiceRange::new(5000, 10 + at, 10 + at));
            }
            visible(&mut lan, 5000, 2 + silent as usize);
            let sender = lan.open(0, SocketKind::Rdm);
            let (got, spent) = burst(&mut lan, sender, &readers, 300);
            assert_eq!(got, [300; 2]);
            spent
        });
        assert!(spent[1] <= spent[0] + 50, "{spent:?}");
    }
}

/// Numbers in the messages that a socket received.
fn numbers(lan: &mut Lan, at: Sock) -> Vec<u32> {
    let mut out = Vec::new();
    while let Some(data) = lan.recv(at, 66_000) {
        out.push(u32::from_be_bytes(data[..4].try_into().unwrap()));
    }
    out
}

#[test]
fn multicast_stays_in_order_while_its_method_changes() {
    for seed in 0..3 {
        let mut lan = Lan::new(4, LOSSY, 300 + seed);
        let receivers =
            [0, 1, 2, 3, 3].map(|node| lan.bound(node, SocketKind::Rdm, ServiceRange::new(5000, 0, 99)));
        visible(&mut lan, 5000, 5);
        let sender = lan.open(0, SocketKind::Rdm);
        let to = Destination::Range(ServiceRange::new(5000, 50, 50));
        let mut sent = 0u32;
        lan.until(100_000, |lan| {
            if sent.is_multiple_of(10) {
                let method = [SocketOption::MulticastBroadcast, SocketOption::MulticastReplicast]
                    [sent as usize / 10 % 2];
                lan.nodes[0].set_option(lan.now, sender.port, method, OptionValue::None).unwrap();
            }
            let size = [4, 700, 4000][sent as usize % 3];
            let mut data = vec![0; size];
            data[..4].copy_from_slice(&sent.to_be_bytes());
            sent += u32::from(lan.send_to(sender, &data, to).is_ok());
            sent == 200
        });
        lan.run(10_000);
        for at in receivers {
            let got = numbers(&mut lan, at);
            assert!(got.iter().copied().eq(0..200), "seed {seed} at {at:?}: {got:?}");
        }
        lan.assert_stable();
    }
}

#[test]
fn congested_link_blocks_its_own_traffic_and_wakes_the_sender() {
    let mut lan = Lan::new(3, Faults { loss: 0, duplicate: 0, delay: (20_000, 0) }, 59);
    let (near, far) = (lan.open(0, SocketKind::Rdm), lan.open(1, SocketKind::Rdm));
    let sender = lan.open(2, SocketKind::Rdm);
    let (to_near, to_far) = (Destination::Port(lan.id(near)), Destination::Port(lan.id(far)));
    let mut sent = 0u32;
    let blocked = loop {
        assert!(sent < 10_000, "the link is never congested");
        let mut data = vec![0; 1400];
        data[..4].copy_from_slice(&sent.to_be_bytes());
        match lan.send_to(sender, &data, to_far) {
            Ok(_) => sent += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(blocked, SendError::WouldBlock);
    let reason = lan.nodes[2].endpoint(sender.port).unwrap().wait_reason().unwrap();
    assert!(reason.to_string().starts_with("waiting for the link to node"), "{reason}");
    lan.send_to(sender, &[0, 0, 0, 9], to_near).unwrap();
    lan.until(10_000, |lan| lan.nodes[2].endpoint(sender.port).unwrap().readiness().writable);
    lan.send_to(sender, &sent.to_be_bytes(), to_far).unwrap();
    lan.run(5000);
    assert_eq!(numbers(&mut lan, near), [9]);
    let got = numbers(&mut lan, far);
    assert!(got.iter().copied().eq(0..=sent), "{} of {sent}", got.len());
}

#[test]
fn importance_arrives() {
    let mut lan = Lan::new(2, LOSSY, 61);
    let receiver = lan.open(0, SocketKind::Dgram);
    let sender = lan.open(1, SocketKind::Dgram);
    let to = Destination::Port(lan.id(receiver));
    for n in 0..4 {
        lan.nodes[1]
            .set_option(lan.now, sender.port, SocketOption::Importance, OptionValue::Number(n))
            .unwrap();
        lan.send_to(sender, &[9; 5000], to).unwrap();
        let mut buffer = [0; 6000];
        let mut importance = None;
        lan.until(5000, |lan| {
            let got = lan.nodes[0].recv(lan.now, receiver.port, &mut buffer, RecvOptions::default());
            importance = got.ok().map(|g| g.importance);
            importance.is_some()
        });
        assert_eq!(importance, Importance::from_number(n));
    }
}

#[test]
fn returned_multicast_reaches_only_its_sender() {
    let mut lan = Lan::new(2, LOSSY, 67);
    let range = ServiceRange::new(5000, 0, 99);
    let refuses = lan.bound(0, SocketKind::SeqPacket, range);
    let other = lan.bound(1, SocketKind::Rdm, range);
    visible(&mut lan, 5000, 2);
    let sender = lan.open(1, SocketKind::Rdm);
    let off = OptionValue::Number(0);
    lan.nodes[1].set_option(lan.now, sender.port, SocketOption::DestDroppable, off).unwrap();
    lan.send_to(sender, b"to all", Destination::Range(range)).unwrap();
    lan.run(5000);
    assert_eq!(lan.recv(other, 10).as_deref(), Some(&b"to all"[..]));
    assert_eq!(lan.recv(other, 10), None);
    let mut buffer = [0; 10];
    let got = lan.nodes[1].recv(lan.now, sender.port, &mut buffer, RecvOptions::default()).unwrap();
    assert_eq!(got.source, lan.id(refuses));
    assert_eq!(got.returned.unwrap().data, b"to all");
}
