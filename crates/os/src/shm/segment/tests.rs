use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::memfd_create;

use super::*;

#[test]
fn both_mappings_see_the_same_bytes() {
    let (one, fd) = Segment::create("utipc-test", 10_000).unwrap();
    let two = Segment::open(&fd, Access::ReadWrite, 1 << 20).unwrap();
    drop(fd);
    assert_eq!((one.size(), two.size()), (12288, 12288));
    one.write(5000, b"bytes at an odd place");
    let mut got = [0; 21];
    two.read(5000, &mut got);
    assert_eq!(&got, b"bytes at an odd place");
    two.store64(8, 7, Relaxed);
    assert_eq!(one.or64(8, 8), 7);
    assert_eq!(one.swap64(8, 1), 15);
    assert!(two.exchange64(8, 1, 2) && !two.exchange64(8, 1, 3));
}

#[test]
fn short_reads_are_exact() {
    let memory = Segment::heap(PAGE);
    memory.write(PAGE - 64, &std::array::from_fn::<u8, 64, _>(|n| n as u8));
    for len in 0..=64 {
        for at in [PAGE - 64, PAGE - len] {
            let mut got = vec![0; len];
            memory.read(at, &mut got);
            let first = at - (PAGE - 64);
            assert!(got.iter().enumerate().all(|(n, byte)| usize::from(*byte) == first + n));
        }
    }
}

#[test]
fn published_segment_has_one_writer() {
    let (writer, fd) = Segment::publish("utipc-test", PAGE).unwrap();
    assert!(Segment::open(&fd, Access::ReadWrite, PAGE).is_err());
    let reader = Segment::open(&fd, Access::ReadOnly, PAGE).unwrap();
    writer.store64(0, 5, Relaxed);
    assert_eq!(reader.load64(0, Relaxed), 5);
    assert!(std::panic::catch_unwind(|| reader.store64(0, 6, Relaxed)).is_err());
}

#[test]
fn descriptor_that_can_shrink_is_refused() {
    let file = File::open("/dev/null").unwrap();
    assert!(
        Segment::open(&file, Access::ReadWrite, PAGE).unwrap_err().to_string().contains("not shared memory")
    );
    let loose = memfd_create("utipc-test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&loose, PAGE as u64).unwrap();
    assert!(Segment::open(&loose, Access::ReadWrite, PAGE).unwrap_err().to_string().contains("not sealed"));
    let (_, large) = Segment::create("utipc-test", 2 * PAGE).unwrap();
    assert!(Segment::open(&large, Access::ReadWrite, PAGE).unwrap_err().to_string().contains("size"));
    // A read-only user refuses it unless it is sealed against other writers.
    assert!(Segment::open(&large, Access::ReadOnly, 2 * PAGE).is_err());
    assert!(ftruncate(&large, 0).is_err());
}

#[test]
fn released_pages_are_freed() {
    let (memory, fd) = Segment::create("utipc-test", 64 * PAGE).unwrap();
    memory.write(0, &vec![1; 64 * PAGE]);
    let blocks = || fstat(&fd).unwrap().st_blocks;
    let before = blocks();
    memory.release(PAGE - 1..63 * PAGE);
    assert_eq!(before - blocks(), 62 * 8);
    assert_eq!(memory.load64(PAGE - 8, Relaxed) & 1, 1);
    assert_eq!(memory.load64(PAGE, Relaxed), 0);
}

#[test]
fn offsets_outside_panic() {
    let memory = Segment::heap(PAGE);
    for at in [PAGE - 4, PAGE, usize::MAX - 7, 4] {
        assert!(std::panic::catch_unwind(|| memory.load64(at, Relaxed)).is_err());
    }
    assert!(std::panic::catch_unwind(|| memory.write(PAGE - 1, b"ab")).is_err());
}
