//! A peer that writes random data anywhere.

use super::*;

/// splitmix64, so that a failure is reproducible.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn random_memory_is_an_error_never_a_panic_or_endless_loop() {
    for seed in 0..400 {
        let state = &mut (seed * 1000);
        let pair = pair(SMALL);
        let (mut writer, mut reader) = pair.ends();
        let _ = writer.send(&[1; 40], &[], 1).unwrap();
        let memory = &pair.arena.memory;
        for _ in 0..300 {
            let at = match random(state) % 4 {
                0 => pair.arena.layout.slot(Side::Zero, 3).unwrap() + (random(state) % 32 * 8) as usize,
                1 => pair.arena.layout.region(Side::Zero) + (random(state) % 256 * 8) as usize,
                2 => pair.arena.layout.region(Side::Zero) + (random(state) % 32 * 64) as usize,
                _ => (random(state) as usize % pair.arena.layout.size()) / 8 * 8,
            };
            // Words that are almost valid find more faults than random ones.
            let value = match random(state) % 4 {
                0 => random(state),
                1 => memory.load64(at, std::sync::atomic::Ordering::Relaxed) ^ 1 << (random(state) % 64),
                2 => (1 << 63) | (random(state) % 64),
                _ => ((random(state) % 8) << 32) | (random(state) % 200) | ((random(state) % 16) << 40),
            };
            memory.store64(at, value, std::sync::atomic::Ordering::Relaxed);
            if let Ok(Peek::Record(record)) = reader.peek() {
                reader.copy_payload(&record, 8, &mut [0; 100]);
                reader.consume(record, 1);
            }
            let _ = writer.push(&[2; 40], &[], 1);
            let _ = writer.flush();
            let _ = writer.want_room();
            let _ = writer.shrink_if_idle();
            if let Ok(mut left) = pair.arena.recover(Side::Zero, 3, LARGEST_CLASS) {
                for _ in 0..3 {
                    let _ = left.next_into(&mut Vec::new());
                }
            }
            pair.into.take_ready(|slot| assert!(slot < 70));
            pair.out.take_room(|slot| assert!(slot < 70));
        }
    }
}

#[test]
fn recovery_ends_although_the_writer_writes_empty_records_all_the_time() {
    let pair = pair(SMALL);
    let (mut writer, reader) = pair.ends();
    drop(reader);
    let mut left = pair.arena.recover(Side::Zero, 3, LARGEST_CLASS).unwrap();
    let mut body = Vec::new();
    let mut records = 0_usize;
    let at = pair.arena.layout.slot(Side::Zero, 3).unwrap();
    let order = std::sync::atomic::Ordering::Relaxed;
    let end = loop {
        // The daemon releases no space. The writer takes it.
        let read = pair.arena.memory.load64(at + crate::layout::slot::EXACT, order);
        pair.arena.memory.store64(at + crate::layout::slot::RELEASED, read, order);
        while writer.push(&[], &[], 0).is_ok() {}
        match left.next_into(&mut body) {
            Ok(Some(_)) => records += 1,
            end => break end,
        }
        // At most as many as fit the rings of a correct writer.
        assert!(records <= 100_000, "it reads as long as the writer writes");
    };
    assert!(end.is_err(), "{end:?} after {records}");
}
