//! Random consumers and a random hub against a model of the messages that a consumer may get.

use std::collections::HashMap;

use mdist::hub::{Batch, ItemId, Kind, SideId};
use mdist::mounts::{AllowAll, Config, Limits, Reason};
use rssl::rwf::{DataState, Domain, Message, RequestFlags, State, StreamState};

use crate::hostile::Dice;
use crate::support::*;

const NAMES: [&str; 5] = ["A", "B", "C", "D", "E"];

/// The state of a consumer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// Requested, no image yet.
    Requested,
    /// Has its image.
    Live,
}

#[derive(Default)]
struct Model {
    streams: HashMap<(usize, i32), Open>,
}

impl Model {
    fn check(&mut self, at: usize, received: &Received) {
        let head = received.message().head();
        if head.domain == Domain::LOGIN {
            return;
        }
        let key = (at, head.stream);
        let open = self.streams.get(&key).copied();
        match received.message() {
            Message::Update(_) => assert_eq!(open, Some(Open::Live), "an update on {key:?}: {received:?}"),
            Message::Refresh(_) | Message::Status(_) => {
                assert!(open.is_some(), "{received:?} on {key:?}, which is not open");
                let Some(state) = received.state() else { return };
                assert!(!matches!(state.stream, StreamState::Unspecified), "{state}");
                if state.is_final() {
                    self.streams.remove(&key);
                } else if matches!(received.message(), Message::Refresh(_)) {
                    self.streams.insert(key, Open::Live);
                }
            }
            _ => panic!("{received:?}"),
        }
    }
}

fn turn(rig: &mut Rig, model: &mut Model, dice: &mut Dice) {
    let at = dice.roll(rig.consumers.len());
    let stream = 5 + dice.roll(6) as i32;
    let name = NAMES[dice.roll(NAMES.len())];
    let open = model.streams.get(&(at, stream)).copied();
    match dice.roll(12) {
        0..=3 => {
            let streaming = if dice.roll(5) > 0 { RequestFlags::STREAMING } else { RequestFlags::NONE };
            let mut flags = streaming;
            for (sides, flag) in
                [(8, RequestFlags::KEY_IN_UPDATES), (9, RequestFlags::PRIVATE), (6, RequestFlags::PAUSE)]
            {
                if dice.roll(sides) == 0 {
                    flags.insert(flag);
                }
            }
            // The answer comes before `request_with` returns.
            if open.is_none() {
                model.streams.insert((at, stream), Open::Requested);
            }
            rig.request_with(at, stream, name, flags);
        }
        4..=5 => {
            rig.close(at, stream);
            // Drain the messages from before the close.
            for received in rig.received(at) {
                model.check(at, &received);
            }
            model.streams.remove(&(at, stream));
        }
        6..=8 => {
            let item = ItemId(dice.roll(rig.hub.items.len() + 1) as u32);
            if rig.hub.items.get(item.index()).is_some_and(Option::is_some) {
                rig.push_message(item, &update(Domain::MARKET_PRICE));
            }
        }
        9 => {
            rig.answer();
        }
        10 => {
            let Some(at) = (!rig.hub.items.is_empty()).then(|| dice.roll(rig.hub.items.len())) else {
                return;
            };
            if rig.hub.items[at].is_none() {
                return;
            }
            let item = ItemId(at as u32);
            let stream = [StreamState::Open, StreamState::ClosedRecover, StreamState::Closed][dice.roll(3)];
            let state = State::new(stream, DataState::Suspect, 0, b"");
            // The hub sends one message to the live streams, a notice to each waiting request, and then the end of the
            // item.
            let mut batch = Batch::default();
            let message = status(Domain::MARKET_PRICE, state);
            batch.push(Kind::Message, SideId::ALL, item, 0, &message);
            for (token, waits, _) in &rig.hub.waiting {
                if *waits == item {
                    batch.push(Kind::Notice, SIDE, item, *token, &message);
                }
            }
            if stream == StreamState::Closed {
                rig.hub.waiting.retain(|(_, waits, _)| *waits != item);
                batch.push_bare(Kind::Gone, SideId::ALL, item, 0);
            }
            rig.apply(&batch);
        }
        _ => {
            let mount = rig.consumers[at].mount;
            let reason = Reason::PeerClosed;
            rig.worker.closed(mount, reason).unwrap();
            rig.run();
            model.streams.retain(|(consumer, _), _| *consumer != at);
            rig.consumers.swap_remove(at);
            // The last consumer now has the index of the removed one.
            let last = rig.consumers.len();
            let moved: Vec<_> =
                model.streams.keys().filter(|(consumer, _)| *consumer == last).copied().collect();
            for key in moved {
                let open = model.streams.remove(&key).unwrap();
                model.streams.insert((at, key.1), open);
            }
            let attributes = [("SingleOpen", dice.roll(2) as u64), ("AllowSuspectData", dice.roll(2) as u64)];
            rig.login_as(&attributes);
        }
    }
}

#[test]
fn random_consumers_get_only_expected_messages() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let config = Config { output: Limits { guaranteed: 2, max: 50 }, ..Config::default() };
        let mut rig = Rig::with(config, 1000, Box::new(AllowAll));
        let mut model = Model::default();
        rig.hub.answers_at_once = dice.roll(2) == 0;
        for _ in 0..4 {
            rig.login_as(&[("SingleOpen", dice.roll(2) as u64), ("AllowSuspectData", dice.roll(2) as u64)]);
        }
        for _ in 0..400 {
            turn(&mut rig, &mut model, &mut dice);
            for at in 0..rig.consumers.len() {
                for received in rig.received(at) {
                    model.check(at, &received);
                }
            }
            assert_eq!(rig.disconnects, [], "seed {seed}");
        }
        // After all mounts are closed no item is held and no buffer borrowed.
        for at in 0..rig.consumers.len() {
            let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
            let open = model.streams.keys().filter(|(consumer, _)| *consumer == at).count();
            assert_eq!(stats.streams, open + 1, "seed {seed}: the login and {open} streams");
        }
        let mounts: Vec<_> = rig.worker.mounts().collect();
        for mount in mounts {
            rig.worker.closed(mount, Reason::ShutDown).unwrap();
        }
        rig.consumers.clear();
        rig.run();
        assert_eq!(rig.hub.items.iter().flatten().count(), 0, "seed {seed}: {:?}", rig.hub.items);
        assert_eq!(rig.shared.pool.free(), 1000);
    }
}
