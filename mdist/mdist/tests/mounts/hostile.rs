//! Malformed bytes at any point disconnect that mount, with a reason, and no other.

use mdist::mounts::Reason;
use rssl::rwf::Domain;

use crate::support::*;

/// A small generator of random numbers, the same in each run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

/// A rig with a good consumer and a hostile one.
fn pair(stage: usize) -> (Rig, usize, usize) {
    let mut rig = Rig::new();
    let good = rig.login();
    rig.request(good, 5, "A");
    rig.received(good);
    let bad = match stage {
        0 => {
            let mount = rig.worker.open(rig.now, "192.0.2.2:1".into());
            let at = rig.connect();
            rig.worker.closed(rig.consumers[at].mount, Reason::PeerClosed);
            rig.consumers[at].mount = mount;
            at
        }
        1 => rig.connect(),
        _ => {
            let at = rig.login();
            rig.open(at, 7, "A");
            at
        }
    };
    (rig, good, bad)
}

fn still_served(rig: &mut Rig, good: usize) {
    rig.run();
    rig.push_update("A");
    assert_eq!(rig.one(good).stream(), 5);
    rig.request(good, 6, "B");
    assert_eq!(rig.one(good).refresh().stream, 6);
    rig.close(good, 6);
}

/// Feeds bytes to the hostile consumer's mount, and closes it; returns the reason of the disconnect, if there was one.
fn feed_hostile(rig: &mut Rig, bad: usize, bytes: &[u8]) -> Option<Reason> {
    let mount = rig.consumers[bad].mount;
    rig.consumers[bad].reads = false;
    rig.worker.input(mount, bytes, rig.now);
    rig.run();
    let reason = rig
        .disconnects
        .iter()
        .find(|disconnect| disconnect.mount == mount)
        .map(|disconnect| disconnect.reason.clone());
    assert!(rig.disconnects.iter().all(|disconnect| disconnect.mount == mount), "{:?}", rig.disconnects);
    rig.disconnects.clear();
    rig.worker.closed(mount, Reason::PeerClosed).unwrap();
    rig.run();
    reason
}

#[test]
fn garbage_disconnects_only_its_mount() {
    for (stage, bytes) in [
        (0, &b"GET / HTTP/1.1\r\n\r\n"[..]),
        (0, &[0xff; 64]),
        (1, &[0xff; 64]),
        (2, &[0x00, 0x05, 0x02, 0xff, 0xff]),
        (2, &[0x00, 0x0b, 0x02, 0x00, 0x06, 0x1f, 0x06, 0, 0, 0, 9]),
        (2, &[0x00, 0x10, 0x02, 0x00, 0x40, 0x01, 0x06, 0, 0, 0, 9, 0, 0, 0, 0, 0]),
    ] {
        let (mut rig, good, bad) = pair(stage);
        let reason =
            feed_hostile(&mut rig, bad, bytes).unwrap_or_else(|| panic!("stage {stage}, {bytes:x?}"));
        assert!(matches!(reason, Reason::Protocol(_) | Reason::Refused(_)), "{reason}");
        assert!(reason.to_string().len() > 20, "{reason}");
        still_served(&mut rig, good);
    }
}

#[test]
fn mutated_requests_disconnect_only_their_mount() {
    let mut dice = Dice(1);
    let mut reasons = 0;
    for round in 0..3000 {
        let (mut rig, good, bad) = pair(2);
        let mut message = match round % 3 {
            0 => request(9, "IBM.N", rssl::rwf::RequestFlags::STREAMING),
            1 => login_request("user", &[("SingleOpen", 1)]),
            _ => update(Domain::MARKET_PRICE),
        };
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(message.len());
            match dice.roll(3) {
                0 => message[at] = dice.roll(256) as u8,
                1 => message.truncate(at.max(1)),
                _ => message.insert(at, dice.roll(256) as u8),
            }
        }
        let mut bytes = rssl::transport::frame_header(message.len()).to_vec();
        bytes.extend_from_slice(&message);
        reasons += usize::from(feed_hostile(&mut rig, bad, &bytes).is_some());
        if round % 50 == 0 {
            still_served(&mut rig, good);
        }
    }
    assert!(reasons > 500, "{reasons} disconnects in 3000 mutations");
}

#[test]
fn requests_arrive_byte_by_byte() {
    let (mut rig, at) = Rig::logged_in();
    let message = request(5, "A", rssl::rwf::RequestFlags::STREAMING);
    let mut bytes = rssl::transport::frame_header(message.len()).to_vec();
    bytes.extend_from_slice(&message);
    for byte in bytes {
        rig.bytes(at, &[byte]);
    }
    assert_eq!(rig.one(at).refresh().stream, 5);
}
