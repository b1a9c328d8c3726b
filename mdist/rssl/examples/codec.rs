//! Measures the cost of writing, reading and forwarding one update of 13 fields (74 bytes of field list), in
//! nanoseconds.
//!
//! `cargo run --release -p rssl --example codec`

use std::hint::black_box;
use std::time::Instant;

use rssl::Result;
use rssl::rwf::{
    DataType, Domain, FieldList, FieldListWriter, Real, Update, peek, set_stream, uint, update_kind,
};
use rssl::wire::Writer;

const ROUNDS: u32 = 2_000_000;

/// The fields of the update that the load tools send.
fn write(buf: &mut [u8], stream: i32, bid: i64) -> Result<usize> {
    let mut w = Writer::new(buf);
    let update = Update {
        domain: Domain::MARKET_PRICE,
        stream,
        container: DataType::FIELD_LIST,
        kind: update_kind::QUOTE,
        ..Update::default()
    };
    update.encode_header(&mut w)?;
    let mut list = FieldListWriter::new(&mut w)?;
    list.real(1025, Real::new(10272, 14))?;
    list.uint(3855, 52_831_000)?;
    list.uint(115, 2)?;
    list.text(1000, "-")?;
    list.real(22, Real::with_decimals(bid, 2))?;
    list.real(114, Real::with_decimals(349, 2))?;
    list.real(30, Real::new(18, 14))?;
    list.real(25, Real::with_decimals(bid + 4, 2))?;
    list.real(31, Real::new(1, 15))?;
    list.text(293, "NAS")?;
    list.text(3298, "+")?;
    list.text(296, "NAS")?;
    list.text(3297, "+")?;
    list.finish()?;
    Ok(w.len())
}

/// Reads the header and every field.
fn read(message: &[u8]) -> Result<usize> {
    let update = Update::decode(message)?;
    let list = FieldList::decode(update.payload, None)?;
    let mut sum = 0;
    for field in list.entries() {
        let field = field?;
        sum += usize::from(field.id.cast_unsigned()) + field.data.len();
    }
    Ok(sum)
}

/// As [`read`], with the values of two prices and a number.
fn read_values(message: &[u8]) -> Result<i64> {
    let update = Update::decode(message)?;
    let mut sum = 0;
    for field in FieldList::decode(update.payload, None)?.entries() {
        let field = field?;
        sum += match field.id {
            22 | 25 => Real::decode(field.data)?.unwrap_or_default().mantissa,
            3855 => uint::decode(field.data)?.unwrap_or_default().cast_signed(),
            _ => 0,
        };
    }
    Ok(sum)
}

fn time(what: &str, mut f: impl FnMut(u32) -> Result<()>) -> Result<()> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for round in 0..ROUNDS {
            f(round)?;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
    }
    println!("{what}: {best:.1} ns");
    Ok(())
}

fn main() -> Result<()> {
    let mut buf = [0; 200];
    let n = write(&mut buf, 5, 40150)?;
    println!("an update of {n} bytes, best of five runs of {ROUNDS}");
    time("write", |round| {
        black_box(write(black_box(&mut buf), 5, 30000 + i64::from(round & 1023))?);
        Ok(())
    })?;
    let message = buf.get(..n).unwrap_or_default();
    time("read every field", |_| {
        black_box(read(black_box(message))?);
        Ok(())
    })?;
    time("read three values", |_| {
        black_box(read_values(black_box(message))?);
        Ok(())
    })?;
    // As from a socket: one message after another, none in the cache from writing.
    let mut messages = message.repeat(256);
    time("pass on: look at the head, give it another stream", |round| {
        let at = (round as usize & 255) * n;
        let message = messages.get_mut(at..at + n).unwrap_or_default();
        let head = peek(message)?;
        set_stream(message, head.stream ^ 1)
    })?;
    black_box(messages);
    Ok(())
}
