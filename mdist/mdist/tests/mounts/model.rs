//! Random clients and a random hub against a model of what a client may hear.

use std::collections::HashMap;

use mdist::hub::{Batch, ItemId, Kind, SideId};
use mdist::mounts::{AllowAll, Config, Limits, Reason};
use rssl::rwf::{DataState, Domain, Message, RequestFlags, State, StreamState};

use crate::hostile::Dice;
use crate::support::*;

const NAMES: [&str; 5] = ["A", "B", "C", "D", "E"];

/// What a client may expect of one of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// Requested, no image yet.
    Asked,
    /// Has its image.
    Live,
}

#[derive(Default)]
struct Model {
    streams: HashMap<(usize, i32), Open>,
}

impl Model {
    fn hear(&mut self, at: usize, heard: &Heard) {
        let head = heard.message().head();
        if head.domain == Domain::LOGIN {
            return;
        }
        let key = (at, head.stream);
        let open = self.streams.get(&key).copied();
        match heard.message() {
            Message::Update(_) => assert_eq!(open, Some(Open::Live), "an update on {key:?}: {heard:?}"),
            Message::Refresh(_) | Message::Status(_) => {
                assert!(open.is_some(), "{heard:?} on {key:?}, which is not open");
                let Some(state) = heard.state() else { return };
                assert!(!matches!(state.stream, StreamState::Unspecified), "{state}");
                if state.is_final() {
                    self.streams.remove(&key);
                } else if matches!(heard.message(), Message::Refresh(_)) {
                    self.streams.insert(key, Open::Live);
                }
            }
            _ => panic!("{heard:?}"),
        }
    }
}

fn turn(room: &mut Room, model: &mut Model, dice: &mut Dice) {
    let at = dice.roll(room.clients.len());
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
            // The model hears the answer while the request is on its way in.
            if open.is_none() {
                model.streams.insert((at, stream), Open::Asked);
            }
            room.ask(at, stream, name, flags);
        }
        4..=5 => {
            room.close(at, stream);
            // What was on its way before the close is drained by now.
            for heard in room.heard(at) {
                model.hear(at, &heard);
            }
            model.streams.remove(&(at, stream));
        }
        6..=8 => {
            let item = ItemId(dice.roll(room.hub.items.len() + 1) as u32);
            if room.hub.items.get(item.index()).is_some_and(Option::is_some) {
                room.tell(item, &update(Domain::MARKET_PRICE));
            }
        }
        9 => {
            let mut batch = Batch::default();
            room.hub.answer(&mut batch);
            room.apply(&batch);
        }
        10 => {
            let Some(at) = (!room.hub.items.is_empty()).then(|| dice.roll(room.hub.items.len())) else {
                return;
            };
            if room.hub.items[at].is_none() {
                return;
            }
            let item = ItemId(at as u32);
            let stream = [StreamState::Open, StreamState::ClosedRecover, StreamState::Closed][dice.roll(3)];
            let state = State::new(stream, DataState::Suspect, 0, b"");
            // The hub tells the live streams together, those that wait one by one, and then that the item is no more.
            let mut batch = Batch::default();
            let message = status(Domain::MARKET_PRICE, state);
            batch.push(Kind::Message, SideId::ALL, item, 0, &message);
            for (token, waits, _) in &room.hub.waiting {
                if *waits == item {
                    batch.push(Kind::Notice, SIDE, item, *token, &message);
                }
            }
            if stream == StreamState::Closed {
                room.hub.waiting.retain(|(_, waits, _)| *waits != item);
                batch.push_bare(Kind::Gone, SideId::ALL, item, 0);
            }
            room.apply(&batch);
        }
        _ => {
            let mount = room.clients[at].mount;
            let reason = Reason::PeerClosed;
            room.worker.closed(mount, reason).unwrap();
            room.run();
            model.streams.retain(|(client, _), _| *client != at);
            room.clients.swap_remove(at);
            // The last client has the removed one's number now.
            let last = room.clients.len();
            let moved: Vec<_> = model.streams.keys().filter(|(client, _)| *client == last).copied().collect();
            for key in moved {
                let open = model.streams.remove(&key).unwrap();
                model.streams.insert((at, key.1), open);
            }
            let attributes = [("SingleOpen", dice.roll(2) as u64), ("AllowSuspectData", dice.roll(2) as u64)];
            room.login_as(&attributes);
        }
    }
}

#[test]
fn random_clients_hear_only_what_they_may() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let config = Config { output: Limits { guaranteed: 2, max: 50 }, ..Config::default() };
        let mut room = Room::with(config, 1000, Box::new(AllowAll));
        let mut model = Model::default();
        room.hub.prompt = dice.roll(2) == 0;
        for _ in 0..4 {
            room.login_as(&[("SingleOpen", dice.roll(2) as u64), ("AllowSuspectData", dice.roll(2) as u64)]);
        }
        for _ in 0..400 {
            turn(&mut room, &mut model, &mut dice);
            for at in 0..room.clients.len() {
                for heard in room.heard(at) {
                    model.hear(at, &heard);
                }
            }
            assert_eq!(room.cuts, [], "seed {seed}");
        }
        // Everything is closed: nothing is held, nothing is borrowed.
        for at in 0..room.clients.len() {
            let stats = room.worker.stats(room.clients[at].mount).unwrap();
            let open = model.streams.keys().filter(|(client, _)| *client == at).count();
            assert_eq!(stats.streams, open + 1, "seed {seed}: the login and {open} streams");
        }
        let mounts: Vec<_> = room.worker.mounts().collect();
        for mount in mounts {
            room.worker.closed(mount, Reason::ShutDown).unwrap();
        }
        room.clients.clear();
        room.run();
        assert_eq!(room.hub.items.iter().flatten().count(), 0, "seed {seed}: {:?}", room.hub.items);
        assert_eq!(room.shared.pool.free(), 1000);
    }
}
