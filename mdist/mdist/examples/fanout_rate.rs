//! Benchmark of the fan-out alone, without sockets and hub. Prints nanoseconds per output update.
//!
//! `cargo run --release -p mdist --example fanout_rate -- [mounts] [items] [seconds] [updates per turn] [threads]`
//!
//! All mounts have the same items. Each turn applies updates with 74 bytes of fields (default 100, about one read of a
//! worker; a flush timer of 20 ms gathers 700 at 35,000 per second), and then takes all output.
//! With several threads each has a worker and its share of the mounts.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use mdist::dictionaries::Dictionaries;
use mdist::hub::{Batch, HubRequest, ItemId, Kind, SideId};
use mdist::mounts::{AllowAll, Config, MountId, Shared, Worker};
use rssl::rdm::directory::{Info, Service, ServiceState};
use rssl::rdm::login;
use rssl::rwf::{DataType, Domain, Key, Qos, Refresh, RefreshFlags, Request, RequestFlags, State, Update};
use rssl::transport::{Channel, ClientOptions};
use rssl::wire::to_vec;

const SIDE: SideId = SideId(0);

fn main() -> rssl::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let (mounts, items) = (numbers.next().unwrap_or(100), numbers.next().unwrap_or(1000));
    let seconds = numbers.next().unwrap_or(3) as u64;
    let turn = numbers.next().unwrap_or(100);
    let threads = numbers.next().unwrap_or(1).max(1);

    let start = Barrier::new(threads);
    let worked: Vec<Work> = std::thread::scope(|scope| {
        let share = |thread: usize| mounts / threads + usize::from(thread < mounts % threads);
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || work(share(thread), items, seconds, turn, start))
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a worker")).collect::<rssl::Result<_>>()
    })?;
    let mean = |time: fn(&Work) -> Duration| {
        let of = |work: &Work| time(work).as_nanos() as f64 / work.outputs as f64;
        worked.iter().map(of).sum::<f64>() / threads as f64
    };
    let rate = |work: &Work| work.outputs as f64 / (work.applying + work.writing).as_secs_f64() / 1e6;
    println!(
        "{mounts} mounts, {items} items, {threads} threads: {:.2} ns per output update to sort them, {:.2} to put them together \
         ({:.1} million/s in all)",
        mean(|work| work.applying),
        mean(|work| work.writing),
        worked.iter().map(rate).sum::<f64>(),
    );
    Ok(())
}

/// The result of one thread.
struct Work {
    outputs: u64,
    applying: Duration,
    writing: Duration,
}

fn work(mounts: usize, items: usize, seconds: u64, turn: usize, start: &Barrier) -> rssl::Result<Work> {
    let services = [service()];
    let mut worker = Worker::new(
        SIDE,
        Arc::new(Config::default()),
        Arc::new(Shared::new(32_000)),
        Arc::new(Dictionaries::default()),
        Box::new(AllowAll),
    );
    let mut batch = Batch::default();
    batch.push_bare(Kind::Services, SIDE, ItemId::NONE, 0);
    worker.apply(&batch, &services);
    let clients: Vec<MountId> =
        (0..mounts).map(|_| mount(&mut worker, items)).collect::<rssl::Result<_>>()?;
    answer(&mut worker, &services, &clients)?;

    let update = Update {
        domain: Domain::MARKET_PRICE,
        stream: 1,
        container: DataType::FIELD_LIST,
        kind: 1,
        payload: &[7; 74],
        ..Update::default()
    };
    let update = to_vec(|w| update.encode(w))?;
    let (mut next, mut outputs, mut bytes) = (0, 0_u64, 0_u64);
    let mut dirty = Vec::new();
    start.wait();
    let started = Instant::now();
    let (mut applying, mut writing) = (Duration::ZERO, Duration::ZERO);
    while started.elapsed() < Duration::from_secs(seconds) {
        batch.clear();
        for _ in 0..turn {
            batch.push(Kind::Message, SideId::ALL, ItemId(next), 0, &update);
            next = (next + 1) % items as u32;
        }
        let begun = Instant::now();
        worker.apply(&batch, &services);
        applying += begun.elapsed();
        outputs += (turn * mounts) as u64;
        worker.dirty(&mut dirty);
        let begun = Instant::now();
        for id in dirty.drain(..) {
            take(&mut worker, id, |some| bytes += some.len() as u64);
        }
        writing += begun.elapsed();
    }
    assert_eq!(worker.disconnects().count(), 0, "no mount was disconnected");
    assert_eq!(bytes, outputs * (update.len() as u64 + 3), "every update was delivered");
    Ok(Work { outputs, applying, writing })
}

/// Takes all of a mount's output.
fn take(worker: &mut Worker, id: MountId, mut with: impl FnMut(&[u8])) {
    let all = worker.write(id, Duration::ZERO, |bytes| {
        with(bytes);
        Ok::<_, ()>(Some(bytes.len()))
    });
    assert_eq!(all, Ok(true));
}

fn service() -> Service {
    Service {
        id: 1,
        info: Some(Info {
            name: "DIRECT_FEED".into(),
            capabilities: vec![6],
            qos: vec![Qos::REALTIME_TICK],
            ..Info::default()
        }),
        state: Some(ServiceState { up: true, accepting: true, status: None }),
        ..Service::default()
    }
}

/// Adds a mount that logs in and requests all items.
fn mount(worker: &mut Worker, items: usize) -> rssl::Result<MountId> {
    let id = worker.open(Duration::ZERO, "example".into());
    let mut channel = Channel::client(ClientOptions::default());
    let talk = |worker: &mut Worker, channel: &mut Channel| {
        let mut out = Vec::new();
        channel.take_output(&mut out);
        worker.input(id, &out, Duration::ZERO);
        let mut input = Vec::new();
        take(worker, id, |some| input.extend_from_slice(some));
        while let Ok((used, pulled)) = channel.pull(&input) {
            if pulled == rssl::transport::Pulled::NeedMore {
                break;
            }
            input.drain(..used);
        }
    };
    for _ in 0..3 {
        talk(worker, &mut channel);
    }
    let mut out = Vec::new();
    let mut send = |message: Vec<u8>| {
        out.extend_from_slice(&rssl::transport::frame_header(message.len()));
        out.extend_from_slice(&message);
    };
    send(to_vec(|w| login::Request { user: b"user", ..login::Request::default() }.encode(1, w))?);
    for item in 0..items {
        let name = format!("ITEM{item}");
        let request = Request {
            domain: Domain::MARKET_PRICE,
            stream: 5 + item as i32,
            flags: RequestFlags::STREAMING,
            key: Key::item(1, name.as_bytes()),
            ..Request::default()
        };
        send(to_vec(|w| request.encode(w))?);
    }
    worker.input(id, &out, Duration::ZERO);
    Ok(id)
}

/// Answers all requests as a hub would, and takes the output, until no request is left.
fn answer(worker: &mut Worker, services: &[Service], clients: &[MountId]) -> rssl::Result<()> {
    let refresh = Refresh {
        domain: Domain::MARKET_PRICE,
        stream: 1,
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        container: DataType::FIELD_LIST,
        state: State::OK,
        payload: &[8, 0, 0],
        ..Refresh::default()
    };
    let image = to_vec(|w| refresh.encode(w))?;
    loop {
        let asks: Vec<HubRequest> = worker.hub_requests().collect();
        if asks.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        for ask in asks {
            if let HubRequest::Open { token, spec, .. } = ask {
                let name = spec.key(1).name.unwrap_or_default().get(4..).unwrap_or_default().to_vec();
                let item = ItemId(String::from_utf8_lossy(&name).parse().unwrap_or_default());
                batch.push_bare(Kind::Opened, SIDE, item, token);
                batch.push(Kind::Image, SIDE, item, token, &image);
            }
        }
        worker.apply(&batch, services);
        for id in clients {
            take(worker, *id, |_| ());
        }
    }
}
