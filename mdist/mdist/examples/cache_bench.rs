//! Benchmark of the cache: nanoseconds per update, refresh and image, bytes per record.
//!
//! 100,000 records of 70 fields (390 bytes), updates of 13 fields (74 bytes): the shape of the market-price messages
//! that load tools send. Records are visited in turn, so their memory is not in the processor's cache.
//! `cargo run --release -p mdist --example cache_bench [RECORDS]`

use mdist::cache::{Cache, Image, Record};
use rssl::rwf::{DataType, Domain, FieldListWriter, Key, Qos, Refresh, RefreshFlags, State, Update};
use rssl::wire::to_vec;
use std::hint::black_box;
use std::time::Instant;

/// The fields of the updates, with the length of each value: 3 + 13 × 3 + 32 bytes.
const UPDATED: [(i16, usize); 13] = [
    (1025, 3),
    (3855, 4),
    (115, 1),
    (1000, 4),
    (22, 3),
    (114, 3),
    (30, 2),
    (25, 3),
    (31, 2),
    (293, 3),
    (296, 2),
    (3298, 1),
    (3297, 1),
];

fn value(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| (seed * 7 + i * 13) as u8 & 0x0f).collect()
}

fn payloads() -> (Vec<u8>, Vec<Vec<u8>>) {
    let write = |fields: &[(i16, usize)], seed: usize| {
        to_vec(|w| {
            let mut list = FieldListWriter::new(w)?;
            for (n, (id, len)) in fields.iter().enumerate() {
                list.field(*id, &value(*len, seed + n))?;
            }
            list.finish()
        })
        .unwrap_or_default()
    };
    let mut fields: Vec<(i16, usize)> =
        (0..57).map(|n| (3_000 + n * 3, [3, 2, 1, 4, 0, 3, 2][n as usize % 7])).collect();
    fields.extend([(3902, 0)]);
    // The fields of the updates are spread over the refresh, as in messages of publishers.
    for (n, field) in UPDATED.iter().enumerate() {
        fields.insert((n * 5 + 2).min(fields.len()), *field);
    }
    fields.truncate(70);
    (write(&fields, 1), (0..64).map(|seed| write(&UPDATED, seed)).collect())
}

/// A refresh, and updates of its fields.
fn messages() -> rssl::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let (refresh, updates) = payloads();
    println!(
        "refresh payload {} bytes, update payload {} bytes",
        refresh.len(),
        updates.first().map_or(0, Vec::len)
    );
    let message = Refresh {
        domain: Domain::MARKET_PRICE,
        stream: 5,
        flags: RefreshFlags::CLEAR_CACHE | RefreshFlags::COMPLETE | RefreshFlags::SOLICITED,
        container: DataType::FIELD_LIST,
        state: State::OK,
        group: &[0, 1],
        qos: Some(Qos::REALTIME_TICK),
        key: Some(Key::item(1, b"RDT12345")),
        payload: &refresh,
        ..Refresh::default()
    };
    let update = |payload: &Vec<u8>| {
        let update = Update {
            domain: Domain::MARKET_PRICE,
            stream: 5,
            container: DataType::FIELD_LIST,
            payload,
            ..Update::default()
        };
        to_vec(|w| update.encode(w))
    };
    Ok((to_vec(|w| message.encode(w))?, updates.iter().map(update).collect::<Result<_, _>>()?))
}

/// Nanoseconds for each of `n` since `start`.
fn per(start: Instant, n: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / n as f64
}

/// Updates of each measurement.
const UPDATES: usize = 4_000_000;

fn main() -> rssl::Result<()> {
    let count: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let (refresh, updates) = messages()?;
    let mut cache = Cache::default();
    let mut records = vec![Record::default(); count];
    fill(&mut cache, &mut records, &refresh);
    for round in 0..3 {
        update_in_turn(&mut cache, &mut records, &updates, round);
    }
    for ahead in [1, 32] {
        update_at_random(&mut cache, &mut records, &updates, ahead);
    }
    if let Some(record) = records.first_mut() {
        let start = Instant::now();
        for update in updates.iter().cycle().take(UPDATES) {
            let _ = cache.message(record, update);
        }
        println!("{:8.1} ns per update of one record", per(start, UPDATES));
    }
    read_images(&mut cache, &records);
    Ok(())
}

fn fill(cache: &mut Cache, records: &mut [Record], refresh: &[u8]) {
    let start = Instant::now();
    for record in &mut *records {
        if let Err(why) = cache.message(record, refresh) {
            println!("refresh refused: {why}");
        }
    }
    println!("{:8.1} ns per refresh", per(start, records.len()));
    let bytes = records.iter().map(Record::bytes).sum::<usize>();
    let (layouts, layout_bytes) = cache.layouts();
    let each = bytes as f64 / records.len() as f64;
    println!("{each:8.1} bytes per record, {layouts} layout(s) of {layout_bytes} bytes");
}

fn update_in_turn(cache: &mut Cache, records: &mut [Record], updates: &[Vec<u8>], round: usize) {
    let count = records.len();
    let rounds = (UPDATES / count).max(1);
    let start = Instant::now();
    for n in 0..rounds {
        for (record, update) in records.iter_mut().zip(updates.iter().cycle().skip(n % updates.len())) {
            if let Err(why) = cache.message(record, update) {
                println!("update refused: {why}");
            }
        }
    }
    println!("{:8.1} ns per update of {count} records in turn (run {round})", per(start, rounds * count));
}

/// Updates random records, of which `ahead` are known and prefetched at a time.
fn update_at_random(cache: &mut Cache, records: &mut [Record], updates: &[Vec<u8>], ahead: usize) {
    let mut random = 1_usize;
    let count = records.len();
    let mut place = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % count
    };
    let start = Instant::now();
    for turn in 0..UPDATES / ahead {
        let places: Vec<usize> = (0..ahead).map(|_| place()).collect();
        if ahead > 1 {
            let touched = || places.iter().filter_map(|at| records.get(*at));
            black_box(touched().map(Record::touch).sum::<usize>());
            black_box(touched().map(Record::touch_values).sum::<usize>());
        }
        for (at, update) in places.iter().zip(updates.iter().cycle().skip(turn % updates.len())) {
            if let Some(record) = records.get_mut(*at) {
                let _ = cache.message(record, update);
            }
        }
    }
    println!("{:8.1} ns per update of random records, {ahead} at a time", per(start, UPDATES));
}

fn read_images(cache: &mut Cache, records: &[Record]) {
    let (start, mut bytes) = (Instant::now(), 0);
    for record in records {
        let _ = cache.parts(record, 6_000, |part| bytes += black_box(part.payload).len());
    }
    let count = records.len();
    println!("{:8.1} ns per image payload of {} bytes", per(start, count), bytes / count);
    let (start, mut bytes) = (Instant::now(), 0);
    let ask = Image { domain: Domain::MARKET_PRICE, stream: 7, solicited: true, ..Image::default() };
    for record in records {
        let ask = Image { key: record.key(), ..ask };
        let _ = cache.image(record, &ask, 6_000, |message| bytes += black_box(message).len());
    }
    println!("{:8.1} ns per refresh message of {} bytes", per(start, count), bytes / count);
}
