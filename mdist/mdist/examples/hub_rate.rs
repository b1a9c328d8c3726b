//! Benchmark of updates at the hub: `cargo run --release -p mdist --example hub_rate [items] [rounds]`.
//!
//! One upstream, 100,000 items, updates of 74 bytes, 256 in a turn; with and without cache; items in order and in
//! random order. The fields of the updates are spread over the images, as in messages of publishers.

use std::time::Instant;

use mdist::cache::FieldTypes;
use mdist::hub::{Batch, Hub, HubRequest, ItemSpec, Kind, Now, Options, SideId, UpstreamId};
use rssl::rdm::directory::{Action, Info, Service, ServiceState};
use rssl::rwf::{
    DataType, Domain, FieldListWriter, Key, Refresh, RefreshFlags, Request, State, Update, peek, set_stream,
};
use rssl::wire::{Writer, to_vec};

const SIDE: SideId = SideId(0);
const UP: UpstreamId = UpstreamId(0);
const TURN: usize = 256;

/// Writes every `step`-th of 61 fields; with a step of 5 these are thirteen, as in the load tools' updates.
fn fields(w: &mut Writer<'_>, step: usize, seed: u8) -> rssl::Result<()> {
    let mut list = FieldListWriter::new(w)?;
    for id in (0..61_i16).step_by(step) {
        let value = [0x0C, 0x0F, seed];
        list.field(22 + id, if id % 2 == 0 { &value } else { value.split_at(1).1 })?;
    }
    list.finish()
}

/// Shuffles the messages, in the same way each time.
fn shuffle(messages: &mut [Vec<u8>]) {
    let mut random = 88_172_645_463_325_252_u64;
    for at in (1..messages.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        messages.swap(at, random as usize % (at + 1));
    }
}

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let items = args.next().transpose()?.unwrap_or(100_000);
    let rounds = args.next().transpose()?.unwrap_or(50);
    for cache in [false, true] {
        let mut hub = Hub::new(Options { cache, ..Options::default() }, FieldTypes::default());
        let mut out = Batch::default();
        let started = Instant::now();
        let streams = open_items(&mut hub, items, &mut out)?;
        let images = out.entries.iter().filter(|e| e.kind == Kind::Image).count();
        println!("cache {cache}: {images} items open after {:?}", started.elapsed());
        let payload = to_vec(|w| fields(w, 5, 0x11))?;
        let mut updates =
            streams.iter().map(|stream| update(*stream, &payload)).collect::<Result<Vec<_>, _>>()?;
        for order in ["in turn", "in random order"] {
            if order != "in turn" {
                shuffle(&mut updates);
            }
            let best = fastest_round(&mut hub, &updates, rounds, &mut out)?;
            let last = out.entries.last().map(|e| out.message(e).to_vec()).ok_or("no entry")?;
            let mut wanted = updates.last().cloned().ok_or("no update")?;
            set_stream(&mut wanted, peek(&last)?.stream)?;
            assert_eq!(last, wanted);
            println!(
                "cache {cache}, items {order}: {best:.1} ns per update of {} bytes, payload {} (best of {rounds} rounds)",
                wanted.len(),
                payload.len()
            );
        }
    }
    Ok(())
}

/// Opens items of one service and gives each an image; returns their upstream streams.
fn open_items(hub: &mut Hub, items: usize, out: &mut Batch) -> Result<Vec<i32>, Failure> {
    let now = Now::ZERO;
    hub.upstream_up(now, UP, false, out);
    let service = Service {
        id: 1,
        info: Some(Info { name: "RATE".into(), capabilities: vec![6], ..Info::default() }),
        state: Some(ServiceState { up: true, ..ServiceState::default() }),
        ..Service::default()
    };
    hub.upstream_services(now, UP, vec![(Action::Add, service)], true, out);
    for n in 0..items {
        let name = format!("ITEM{n}");
        let key = Key { name: Some(name.as_bytes()), ..Key::default() };
        let spec = ItemSpec::new(1, Domain::MARKET_PRICE, &key, None, false)?;
        let open = HubRequest::Open { side: SIDE, token: n as u64, spec, worst_qos: None, streaming: true };
        hub.handle(now, open, out);
    }
    let image = to_vec(|w| fields(w, 1, 0x96))?;
    let orders: Vec<Vec<u8>> = hub.outgoing().map(|(_, order)| order).collect();
    let mut streams = Vec::with_capacity(items);
    for order in &orders {
        let request = Request::decode(order)?;
        streams.push(request.stream);
        let refresh = Refresh {
            domain: request.domain,
            stream: request.stream,
            flags: RefreshFlags::SOLICITED | RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
            container: DataType::FIELD_LIST,
            state: State::OK,
            group: &[0, 1],
            key: Some(request.key),
            payload: &image,
            ..Refresh::default()
        };
        hub.message(now, UP, &to_vec(|w| refresh.encode(w))?, out)?;
    }
    Ok(streams)
}

fn update(stream: i32, payload: &[u8]) -> rssl::Result<Vec<u8>> {
    let update = Update {
        domain: Domain::MARKET_PRICE,
        stream,
        container: DataType::FIELD_LIST,
        kind: 1,
        payload,
        ..Update::default()
    };
    to_vec(|w| update.encode(w))
}

/// Nanoseconds of an update in the fastest round but the first.
fn fastest_round(hub: &mut Hub, updates: &[Vec<u8>], rounds: usize, out: &mut Batch) -> Result<f64, Failure> {
    // Messages lie one after the other, as in a socket's buffer.
    let size = updates.first().map_or(0, Vec::len);
    let wire: Vec<u8> = updates.concat();
    let mut best = f64::MAX;
    for round in 0..rounds {
        let started = Instant::now();
        for turn in wire.chunks(TURN * size) {
            out.clear();
            for message in turn.chunks_exact(size) {
                hub.message(Now::ZERO, UP, message, out)?;
            }
        }
        if round > 0 {
            best = best.min(started.elapsed().as_nanos() as f64 / updates.len() as f64);
        }
    }
    Ok(best)
}
