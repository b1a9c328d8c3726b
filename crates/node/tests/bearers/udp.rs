//! The UDP bearer.

use std::net::SocketAddr;
use std::time::Duration;

use utipc_core::outbox::Target;
use utipc_core::wire::MediaAddr;
use utipc_node::bearers::{Bearer, DEFAULT_PORT, UdpConfig, UdpMode};

use crate::conformance::{Rig, batch_of, frame};
use crate::fixtures::{self, fresh_v4, open};

const SOON: Duration = Duration::from_millis(60);

fn config(remotes: Vec<SocketAddr>) -> UdpConfig {
    let local = SocketAddr::new(fresh_v4().into(), DEFAULT_PORT);
    UdpConfig { name: "t".into(), local, mode: UdpMode::Replicast { remotes }, mtu: None, offloads: true }
}

#[test]
fn remotes_are_added_and_removed_while_the_bearer_runs() {
    let (mut one, two, three) = (open(&config(vec![])), open(&config(vec![])), open(&config(vec![])));
    let address = |bearer: &dyn Bearer| match bearer.local_address() {
        MediaAddr::Udp(address) => address,
        MediaAddr::Ethernet(_) => unreachable!("a UDP bearer"),
    };
    let all = Target::Broadcast;
    one.send(2, &batch_of(&[(all, frame(0, 1, 64))]));
    assert_eq!(one.counters().tx_frames, 0, "no remote");
    for _ in 0..2 {
        one.add_remote(address(&two)).unwrap();
        one.add_remote(address(&three)).unwrap();
    }
    assert_eq!(one.remotes().len(), 2);
    one.send(2, &batch_of(&[(all, frame(0, 2, 64))]));
    assert!(one.remove_remote(address(&two)) && !one.remove_remote(address(&two)));
    one.send(2, &batch_of(&[(all, frame(0, 3, 64))]));
    let mut others = Rig::new(vec![Box::new(two), Box::new(three)]);
    assert_eq!(others.take(1, 2).len(), 2);
    let got = others.gather(0, 2, SOON);
    assert_eq!(got.iter().map(|(_, frame)| frame[4]).collect::<Vec<_>>(), [2]);
    assert_eq!(one.counters().tx_frames, 3);
}

#[test]
fn remotes_are_bounded_and_refused_in_multicast_mode() {
    let mut bearer = open(&config(vec![]));
    for port in 0..256 {
        bearer.add_remote(([127, 0, 0, 9], 10_000 + port).into()).unwrap();
    }
    let error = bearer.add_remote(([127, 0, 0, 9], 9).into()).unwrap_err().to_string();
    assert!(error.contains("256 remotes"), "{error}");
    let mut config = UdpConfig::multicast("t", fresh_v4().into(), 4711).unwrap();
    config.local.set_port(0);
    let mut bearer = open(&config);
    let error = bearer.add_remote(([127, 0, 0, 9], 9).into()).unwrap_err().to_string();
    assert!(error.contains("multicast"), "{error}");
    assert_eq!(bearer.broadcast_targets(), [MediaAddr::Udp("228.0.18.103:6118".parse().unwrap())]);
}

#[test]
fn default_mtu_fits_the_interface() {
    let made = std::thread::spawn(|| {
        fixtures::veth_pair()?;
        fixtures::add_addresses(&["10.9.9.1", "fd09::1"]);
        let mtu = |local: &str| {
            let local = SocketAddr::new(local.parse().unwrap(), 0);
            let mode = UdpMode::Replicast { remotes: vec![] };
            open(&UdpConfig { name: "t".into(), local, mode, mtu: None, offloads: true }).mtu()
        };
        let found = ["10.9.9.1", "fd09::1"].map(mtu);
        Ok::<_, String>(found)
    });
    match made.join().unwrap() {
        Ok(found) => assert_eq!(found, [1500 - 28, 1500 - 48]),
        Err(reason) => fixtures::skipped("udp mtu", &reason),
    }
    // The loopback interface allows 64 KiB, but then a few frames would fill the buffers.
    assert_eq!(open(&config(vec![])).mtu(), 14_000);
}

/// The offload refuses segments above the interface's MTU: the frames are sent one by one, and IP fragments them.
fn larger_than_the_path(one: &str, two: &str) -> Result<(), String> {
    fixtures::veth_pair()?;
    fixtures::add_addresses(&[one, two]);
    let status = std::process::Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status();
    assert!(status.is_ok_and(|status| status.success()), "ip link set lo mtu");
    let at = |local: &str| {
        let local = SocketAddr::new(local.parse().unwrap(), DEFAULT_PORT);
        let mode = UdpMode::Replicast { remotes: vec![] };
        open(&UdpConfig { name: "t".into(), local, mode, mtu: Some(9000), offloads: true })
    };
    let mut rig = Rig::new(vec![Box::new(at(one)), Box::new(at(two))]);
    let to = rig.to(1);
    let frames: Vec<_> = (0..5).map(|number| (to, frame(0, number, 9000))).collect();
    rig.send_all(0, &frames);
    let got = rig.take(1, 5);
    assert!(got.iter().map(|(_, got)| got).eq(frames.iter().map(|(_, sent)| sent)));
    assert!(rig[0].description().contains("gso off"), "{}", rig[0].description());
    Ok(())
}

#[test]
fn runs_larger_than_the_path_still_arrive() {
    for (one, two) in [("10.9.8.1", "10.9.8.2"), ("fd08::1", "fd08::2")] {
        let made = std::thread::spawn(move || larger_than_the_path(one, two));
        if let Err(reason) = made.join().unwrap() {
            fixtures::skipped("udp above the path MTU", &reason);
        }
    }
}
