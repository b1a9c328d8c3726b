use super::*;

fn pair() -> (Publisher, Replica) {
    let publisher = Publisher::new("utipc test", [100, 513, 7], 50).unwrap();
    let [table, open] = publisher.descriptors();
    let replica = Replica::map(table, open).unwrap();
    (publisher, replica)
}

#[test]
fn stores_are_seen() {
    let (publisher, replica) = pair();
    assert_eq!((0..4).map(|n| replica.area(n).len()).collect::<Vec<_>>(), [100, 513, 7, 0]);
    for (number, value) in [(0, 1), (1, 2), (2, 3)] {
        publisher.area(number).last().unwrap().store(value, Ordering::Release);
        assert_eq!(replica.area(number).last().unwrap().load(), value);
    }
    assert!(replica.area(1).iter().take(512).all(|word| word.load() == 0), "areas do not overlap");
    replica.open_area()[49].store(9, Ordering::Relaxed);
    assert_eq!(publisher.open_area()[49].load(Ordering::Relaxed), 9);
    assert_eq!(replica.publisher(), std::process::id());
}

#[test]
fn congestion_is_seen_and_inherited() {
    let (publisher, replica) = pair();
    assert!(publisher.set_congested(0x0100_1002, 2, true));
    assert!(replica.is_congested(0x0100_1002, 2));
    assert!(!replica.is_congested(0x0100_1002, 1) && !replica.is_congested(0x0100_1003, 2));
    let next = publisher.successor("utipc test", [1000, 1000, 1000]).unwrap();
    let [table, open] = next.descriptors();
    let moved = Replica::map(table, open).unwrap();
    assert!(moved.is_congested(0x0100_1002, 2));
    next.set_congested(0x0100_1002, 2, false);
    assert!(!moved.is_congested(0x0100_1002, 2));
    replica.open_area()[3].store(5, Ordering::Relaxed);
    assert_eq!(moved.open_area()[3].load(Ordering::Relaxed), 5, "the open area is the same");
}

#[test]
fn readers_cannot_make_the_table_writable() {
    let (publisher, _) = pair();
    let [table, open] = publisher.descriptors();
    assert!(Segment::open(table, Access::ReadWrite, MAX_SIZE).is_err());
    for fd in [table, open] {
        for size in [1, 1 << 25] {
            assert!(rustix::fs::ftruncate(fd, size).is_err());
        }
    }
}

#[test]
fn foreign_segments_are_refused() {
    let (publisher, _) = pair();
    let [table, open] = publisher.descriptors();
    let refused = |segment: &OwnedFd| Replica::map(segment, open).unwrap_err().to_string();
    let (_empty, fd) = Segment::publish("utipc test", 1 << 20).unwrap();
    assert!(refused(&fd).contains("incompatible versions"));
    let (wrong, fd) = Segment::publish("utipc test", 1 << 20).unwrap();
    for lengths in [[u64::MAX; 3], [1 << 61, 1, 1], [200_000, 1, 1], [1, 1, u64::MAX - 5]] {
        for (word, value) in wrong.words(0, 5).iter().zip([MAGIC, 1].into_iter().chain(lengths)) {
            word.store(value, Ordering::Relaxed);
        }
        assert!(refused(&fd).contains("incompatible versions"), "{lengths:?}");
    }
    let (_writable, fd) = Segment::create("utipc test", 1 << 20).unwrap();
    assert!(refused(&fd).contains("not sealed"));
    assert!(Replica::map(table, std::fs::File::open("/dev/null").unwrap()).is_err());
    assert!(Publisher::new("utipc test", [usize::MAX, 0, 0], 1).is_err());
    assert!(Publisher::new("utipc test", [0, usize::MAX / 4, 0], 1).is_err());
    assert!(Publisher::new("utipc test", [0, 0, 0], usize::MAX).is_err());
}
