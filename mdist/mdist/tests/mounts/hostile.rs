//! Malformed bytes at any point end that mount, with a reason, and touch nobody else.

use mdist::mounts::Reason;
use rssl::rwf::Domain;

use crate::support::*;

/// Small and even enough; the same numbers in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

/// A good client beside a bad one.
fn pair(stage: usize) -> (Room, usize, usize) {
    let mut room = Room::new();
    let good = room.login();
    room.request(good, 5, "A");
    room.heard(good);
    let bad = match stage {
        0 => {
            let mount = room.worker.open(room.now, "192.0.2.2:1".into());
            let at = room.connect();
            room.worker.closed(room.clients[at].mount, Reason::PeerClosed);
            room.clients[at].mount = mount;
            at
        }
        1 => room.connect(),
        _ => {
            let at = room.login();
            room.request(at, 7, "A");
            room.heard(at);
            at
        }
    };
    (room, good, bad)
}

fn still_served(room: &mut Room, good: usize) {
    room.run();
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!(room.one(good).stream(), 5);
    room.request(good, 6, "B");
    assert_eq!(room.one(good).refresh().stream, 6);
    room.close(good, 6);
}

/// Gives bytes to the bad client's mount; whatever happens, nothing is left of it after it is closed.
fn suffer(room: &mut Room, bad: usize, bytes: &[u8]) -> Option<Reason> {
    let mount = room.clients[bad].mount;
    room.clients[bad].reads = false;
    room.worker.input(mount, bytes, room.now);
    room.run();
    let reason = room.cuts.iter().find(|cut| cut.mount == mount).map(|cut| cut.reason.clone());
    assert!(room.cuts.iter().all(|cut| cut.mount == mount), "{:?}", room.cuts);
    room.cuts.clear();
    room.worker.closed(mount, Reason::PeerClosed).unwrap();
    room.run();
    reason
}

#[test]
fn garbage_at_every_stage() {
    for (stage, bytes) in [
        (0, &b"GET / HTTP/1.1\r\n\r\n"[..]),
        (0, &[0xff; 64]),
        (1, &[0xff; 64]),
        (2, &[0x00, 0x05, 0x02, 0xff, 0xff]),
        (2, &[0x00, 0x0b, 0x02, 0x00, 0x06, 0x1f, 0x06, 0, 0, 0, 9]),
        (2, &[0x00, 0x10, 0x02, 0x00, 0x40, 0x01, 0x06, 0, 0, 0, 9, 0, 0, 0, 0, 0]),
    ] {
        let (mut room, good, bad) = pair(stage);
        let reason = suffer(&mut room, bad, bytes).unwrap_or_else(|| panic!("stage {stage}, {bytes:x?}"));
        assert!(matches!(reason, Reason::Protocol(_) | Reason::Refused(_)), "{reason}");
        assert!(reason.to_string().len() > 20, "{reason}");
        still_served(&mut room, good);
    }
}

#[test]
fn mutated_requests() {
    let mut dice = Dice(1);
    let mut reasons = 0;
    for round in 0..3000 {
        let (mut room, good, bad) = pair(2);
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
        reasons += usize::from(suffer(&mut room, bad, &bytes).is_some());
        if round % 50 == 0 {
            still_served(&mut room, good);
        }
    }
    assert!(reasons > 500, "{reasons} cuts in 3000 mutations");
}

#[test]
fn bytes_one_at_a_time() {
    let mut room = Room::new();
    let at = room.login();
    let message = request(5, "A", rssl::rwf::RequestFlags::STREAMING);
    let mut bytes = rssl::transport::frame_header(message.len()).to_vec();
    bytes.extend_from_slice(&message);
    for byte in bytes {
        room.bytes(at, &[byte]);
    }
    assert_eq!(room.one(at).refresh().stream, 5);
}
