//! Checks the merge against a model: a source that numbers each item's messages, and delivery in any interleaving.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::backbone::SourceId;
use crate::backbone::feed_out::FeedOut;
use crate::backbone::wire::{AnswerKind, Entry, mark_unordered};

const FEED: FeedId = FeedId(7);
const SINK: u32 = 3;

/// A seeded random generator.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

const UPDATE: u8 = 4;
const REFRESH: u8 = 2;
const REFUSAL: u8 = 3;

/// A message with class and stream at their places in RWF, then a name and the item's message count.
fn message(class: u8, stream: i32, name: u32, count: u64, extra: usize) -> Vec<u8> {
    let mut bytes = vec![0, 0, class, 6];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(&name.to_be_bytes());
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.resize(bytes.len() + extra, 0xEE);
    bytes
}

fn parsed(bytes: &[u8]) -> (u8, i32, u32, u64) {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let count = u64::from_be_bytes(bytes[12..20].try_into().unwrap());
    (bytes[2], word(4).cast_signed(), word(8), count)
}

/// An item at the source.
struct Item {
    id: i32,
    count: u64,
    /// The sink's stream on it.
    stream: Option<i32>,
    live: bool,
}

struct World {
    dice: Dice,
    out: FeedOut,
    items: BTreeMap<u32, Item>,
    free: Vec<i32>,
    ids: i32,
    /// Packets and records under way.
    packets: VecDeque<Vec<u8>>,
    records: VecDeque<Answer>,
    /// Requests from sink to source: stream, name (0: close), on an open stream, image in the feed.
    asks: VecDeque<(i32, u32, bool, bool)>,
    /// Images that the source is sending: stream, name, parts left, in the feed.
    images: Vec<(i32, u32, u64, bool)>,
    merge: Merge,
    /// The sink's streams: name and count; `None` before the image.
    seen: BTreeMap<i32, (u32, Option<u64>)>,
    /// Streams that the sink's hub has left without a close, because the source reported them lost.
    left: Vec<i32>,
    next_stream: i32,
    delivered: u64,
    in_feed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut merge = Merge::new(SINK, HISTORY);
        merge.join(FEED);
        merge.joined(FEED, 0, &mut |_| {}).unwrap();
        Self {
            dice: Dice(seed),
            out: FeedOut::new(SourceId(1), FEED),
            items: BTreeMap::new(),
            free: Vec::new(),
            ids: 0,
            packets: VecDeque::new(),
            records: VecDeque::new(),
            asks: VecDeque::new(),
            images: Vec::new(),
            merge,
            seen: BTreeMap::new(),
            left: Vec::new(),
            next_stream: 0,
            delivered: 0,
            in_feed: 0,
        }
    }

    fn seal(&mut self) {
        if !self.out.is_empty() {
            let packet = self.out.seal();
            self.packets.push_back(packet.clone());
            self.out.begin(packet);
        }
    }

    fn put(&mut self, entry: &Entry<'_>) {
        if !self.out.fits(entry.size()) {
            self.seal();
        }
        if self.out.fits(entry.size()) {
            self.out.push(entry);
        } else {
            self.packets.extend(self.out.parts(entry));
        }
    }

    fn answer(&mut self, kind: AnswerKind, stream: i32, item: i32, message: Vec<u8>) {
        let as_of = self.out.number();
        self.records.push_back(Answer { kind, feed: FEED, as_of, stream, item, message });
    }

    fn update(&mut self, name: u32) {
        let extra = if self.dice.next(400) == 0 { 70_000 } else { self.dice.next(40) as usize };
        let Some(item) = self.items.get_mut(&name) else { return };
        item.count += 1;
        let bytes = message(UPDATE, item.id, name, item.count, extra);
        self.put(&Entry::Message(&bytes));
    }

    fn end(&mut self, name: u32) {
        let Some(item) = self.items.remove(&name) else { return };
        let last = message(REFUSAL, item.id, name, item.count, 0);
        let live = item.live;
        let before = self.dice.next(2) == 0;
        let told = item.stream.filter(|_| !live);
        if before {
            let refusal = message(REFUSAL, 0, name, 0, 0);
            told.into_iter().for_each(|stream| self.answer(AnswerKind::Notice, stream, 0, refusal.clone()));
        }
        self.put(&Entry::Gone { item: item.id, message: &last });
        if let Some(stream) = told {
            self.images.retain(|(s, ..)| *s != stream);
            if !before {
                self.answer(AnswerKind::Notice, stream, 0, message(REFUSAL, 0, name, 0, 0));
            }
        }
        self.free.push(item.id);
    }

    /// The source sends another part of an image.
    fn image(&mut self) {
        if self.images.is_empty() {
            return;
        }
        let at = self.dice.next(self.images.len() as u64) as usize;
        let (stream, name, parts, in_feed) = self.images[at];
        let Some(item) = self.items.get_mut(&name).filter(|item| item.stream == Some(stream)) else {
            self.images.swap_remove(at);
            return;
        };
        item.live = true;
        let (id, refresh) = (item.id, message(REFRESH, item.id, name, item.count, 0));
        let complete = parts == 1;
        if complete {
            self.images.swap_remove(at);
        } else {
            self.images[at].2 -= 1;
        }
        if in_feed {
            self.in_feed += 1;
            self.put(&Entry::Image { sink: SINK, stream, complete, message: &refresh });
        } else {
            let kind = if complete { AnswerKind::Complete } else { AnswerKind::Image };
            self.answer(kind, stream, id, refresh);
        }
    }

    /// The source handles a request.
    fn ask(&mut self) {
        let Some((stream, name, reissue, in_feed)) = self.asks.pop_front() else { return };
        if name == 0 {
            let held = self.items.iter().find(|(_, item)| item.stream == Some(stream)).map(|(name, _)| *name);
            if let Some(name) = held {
                // The item ends with its last stream.
                let item = self.items.remove(&name).unwrap();
                self.free.push(item.id);
                self.put(&Entry::Gone { item: item.id, message: b"" });
            }
            self.images.retain(|(s, ..)| *s != stream);
            return;
        }
        let parts = 1 + self.dice.next(3);
        if self.items.get(&name).is_some_and(|item| item.stream == Some(stream)) {
            self.images.push((stream, name, parts, in_feed));
            return;
        }
        if reissue {
            // The item has ended meanwhile.
            return;
        }
        if let Some(item) = self.items.get_mut(&name) {
            let before = item.stream.replace(stream);
            item.live = false;
            let id = item.id;
            self.images.retain(|(s, ..)| Some(*s) != before);
            self.answer(AnswerKind::Opened, stream, id, Vec::new());
            self.images.push((stream, name, parts, false));
            return;
        }
        if self.dice.next(20) == 0 {
            self.answer(AnswerKind::Refused, stream, 0, message(REFUSAL, 0, name, 0, 0));
            return;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.ids += 1;
            self.ids
        });
        self.items.insert(name, Item { id, count: 0, stream: Some(stream), live: false });
        self.answer(AnswerKind::Opened, stream, id, Vec::new());
        self.images.push((stream, name, parts, false));
    }

    /// The sink opens a stream, closes one or requests another image.
    fn want(&mut self) {
        let name = 1 + self.dice.next(12) as u32;
        let open =
            self.seen.iter().find(|(_, (n, _))| *n == name).map(|(stream, (_, count))| (*stream, *count));
        match open {
            None => {
                self.next_stream += 1;
                let stream = self.next_stream;
                self.seen.insert(stream, (name, None));
                self.request(stream, name);
            }
            Some((stream, Some(_))) if self.dice.next(2) == 0 => self.request(stream, name),
            // The source has reported the stream lost, and the hub requests the item on another one.
            Some((stream, Some(_))) if self.dice.next(3) == 0 => {
                self.seen.remove(&stream);
                self.left.push(stream);
                self.next_stream += 1;
                let stream = self.next_stream;
                self.seen.insert(stream, (name, None));
                self.request(stream, name);
            }
            Some((stream, _)) if self.dice.next(4) == 0 => {
                self.seen.remove(&stream);
                self.merge.closed(stream);
                self.asks.push_back((stream, 0, false, false));
            }
            Some(_) => {}
        }
    }

    fn request(&mut self, stream: i32, name: u32) {
        self.asks.push_back((stream, name, self.merge.is_open(stream), false));
        self.merge.requested(stream, &message(1, stream, name, 0, 0));
    }

    fn arrive(&mut self) {
        let Self { merge, seen, left, delivered, .. } = self;
        let mut out = |bytes: &[u8]| {
            let (class, stream, name, count) = parsed(bytes);
            *delivered += 1;
            let Some((known, last)) = seen.get_mut(&stream) else {
                // A notice may cross the close of its stream.
                assert!(class == REFUSAL || left.contains(&stream), "stream {stream} is not open");
                return;
            };
            assert_eq!(*known, name, "a message of another item");
            match class {
                REFRESH => {
                    assert!(last.is_none_or(|last| last == count), "image {count} after {last:?}");
                    *last = Some(count);
                }
                UPDATE => {
                    assert_eq!(last.expect("an update before the image") + 1, count, "item {name}");
                    *last = Some(count);
                }
                _ => {
                    seen.remove(&stream);
                }
            }
        };
        let by_feed = match (self.packets.is_empty(), self.records.is_empty()) {
            (true, true) => return,
            (feed, link) => link || (!feed && self.dice.next(2) == 0),
        };
        if by_feed {
            let mut packet = self.packets.pop_front().unwrap();
            let header = Header::decode(&packet).unwrap();
            merge.packet(&header, &mut packet, &mut out).unwrap();
        } else {
            merge.answer(self.records.pop_front().unwrap(), &mut out).unwrap();
        }
        for request in self.merge.take_retries() {
            let (_, stream, name, _) = parsed(&request);
            self.asks.push_back((stream, name, true, true));
        }
    }

    fn step(&mut self) {
        match self.dice.next(100) {
            0..40 => {
                let name = 1 + self.dice.next(12) as u32;
                self.update(name);
            }
            40..50 => self.image(),
            50..58 => self.ask(),
            58..66 => self.want(),
            66..67 => {
                let name = 1 + self.dice.next(12) as u32;
                self.end(name);
            }
            67..75 => self.seal(),
            _ => {
                // Feed and connection fall behind each other at random.
                for _ in 0..self.dice.next(4) {
                    self.arrive();
                }
            }
        }
    }

    /// Delivers everything under way, and compares the sink's items with the source's.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.seal();
            self.ask();
            self.image();
            self.arrive();
            let still = self.packets.len() + self.records.len() + self.asks.len() + self.images.len();
            if still == 0 && self.out.is_empty() {
                break;
            }
        }
        for (stream, (name, count)) in &self.seen {
            let item =
                self.items.get(name).unwrap_or_else(|| panic!("stream {stream} of an item that is gone"));
            assert_eq!(*count, Some(item.count), "item {name} on stream {stream}");
        }
        let start = Instant::now();
        for sweep in 0..3 {
            self.merge.check(start + sweep * 2 * STALL).unwrap();
        }
        assert!(self.merge.pending.is_empty(), "{:?}", self.merge.pending);
        assert_eq!((self.merge.waiting_bytes, self.merge.held_bytes), (0, 0));
    }
}

#[test]
fn any_interleaving_gives_each_item_in_source_order() {
    let (mut delivered, mut in_feed) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..2000 {
            world.step();
        }
        world.finish();
        delivered += world.delivered;
        in_feed += world.in_feed;
    }
    assert!(delivered > 50_000 && in_feed > 100, "{delivered} {in_feed}");
}

fn packet(first: u64, messages: &[&[u8]]) -> Vec<u8> {
    let count = messages.len() as u16;
    let (source, unordered) = (SourceId(1), false);
    let header = Header { count, source, feed: FEED, first, position: 0, part: None, unordered };
    let mut packet = header.encode().to_vec();
    messages.iter().for_each(|message| Entry::Message(message).append(&mut packet));
    packet
}

fn give(merge: &mut Merge, mut packet: Vec<u8>) -> Result<u32> {
    let mut count = 0;
    let header = Header::decode(&packet)?;
    merge.packet(&header, &mut packet, &mut |_| count += 1)?;
    Ok(count)
}

/// Packets of 40 entries; every tenth entry is longer than a packet.
fn some_packets() -> Vec<Vec<u8>> {
    let mut out = FeedOut::new(SourceId(1), FEED);
    let mut packets = Vec::new();
    for number in 1..=40_u64 {
        let mut bytes = message(UPDATE, 1, 1, number, 0);
        if number % 10 == 0 {
            bytes.resize(100_000, 0);
            packets.extend(out.parts(&Entry::Message(&bytes)));
            continue;
        }
        out.push(&Entry::Message(&bytes));
        let packet = out.seal();
        packets.push(packet.clone());
        out.begin(packet);
    }
    packets
}

#[test]
fn packets_that_overtake_others_are_put_in_order_if_they_are_marked() {
    let mut dice = Dice(5);
    for _ in 0..200 {
        let mut merge = Merge::new(0, HISTORY);
        merge.join(FEED);
        merge.joined(FEED, 0, &mut |_| {}).unwrap();
        merge.slots = vec![Slot::default(), Slot { stream: 9, live: true, asked: 0 }];
        let mut packets = some_packets();
        for at in (1..packets.len()).rev() {
            packets.swap(at, at - (dice.next(5) as usize).min(at));
        }
        let mut numbers = Vec::new();
        for mut packet in packets {
            mark_unordered(&mut packet);
            let header = Header::decode(&packet).unwrap();
            merge.packet(&header, &mut packet, &mut |bytes| numbers.push(parsed(bytes).3)).unwrap();
        }
        assert!(numbers.iter().copied().eq(1..=40), "{numbers:?}");
        assert_eq!(merge.held_bytes, 0);
    }
}

#[test]
fn marked_packets_after_a_lost_one_are_a_gap_at_last() {
    let mut merge = Merge::new(0, HISTORY);
    merge.join(FEED);
    merge.joined(FEED, 0, &mut |_| {}).unwrap();
    let mut packets = some_packets().into_iter().skip(1);
    let mut give_next = |merge: &mut Merge| {
        let mut packet = packets.next().unwrap();
        mark_unordered(&mut packet);
        give(merge, packet)
    };
    assert_eq!((give_next(&mut merge), give_next(&mut merge)), (Ok(0), Ok(0)));
    let start = Instant::now();
    for step in 0..=STALL.as_millis() / CHECK_GAP.as_millis() {
        assert_eq!(merge.check(start + step as u32 * CHECK_GAP), Ok(()));
    }
    let late = start + STALL + Duration::from_millis(1);
    assert_eq!(merge.check(late), Err(MergeError::Stalled { feed: FEED, read: 0 }));
    merge.held_bytes = 8 << 20;
    assert_eq!(give_next(&mut merge), Err(MergeError::Gap { feed: FEED, from: 1, to: 3 }));
    merge.leave(FEED);
}

#[test]
fn packets_held_while_joining_are_delivered_from_the_first_entry() {
    let mut merge = Merge::new(0, HISTORY);
    merge.join(FEED);
    for number in 1..=4 {
        give(&mut merge, packet(number, &[&message(UPDATE, 1, 1, number, 0)])).unwrap();
    }
    merge.slots = vec![Slot::default(), Slot { stream: 9, live: true, asked: 0 }];
    let mut counts = Vec::new();
    merge.joined(FEED, 2, &mut |bytes| counts.push(parsed(bytes).3)).unwrap();
    assert_eq!(counts, [3, 4]);
    assert_eq!(merge.held_bytes, 0);
    // The same packet again has nothing new.
    assert_eq!(give(&mut merge, packet(4, &[&message(UPDATE, 1, 1, 4, 0)])), Ok(0));
}

#[test]
fn gaps_stalls_and_invalid_entries_are_reported() {
    let mut merge = Merge::new(0, HISTORY);
    merge.join(FEED);
    merge.joined(FEED, 0, &mut |_| {}).unwrap();
    let update = message(UPDATE, 1, 1, 1, 0);
    assert_eq!(give(&mut merge, packet(1, &[&update, &update])), Ok(0));
    assert_eq!(give(&mut merge, packet(4, &[&update])), Err(MergeError::Gap { feed: FEED, from: 3, to: 3 }));
    let mut short = packet(3, &[&update]);
    short[3] = 2;
    assert!(matches!(give(&mut merge, short), Err(MergeError::Invalid { .. })));

    let start = Instant::now();
    merge.newest(FEED, 9);
    assert_eq!(merge.check(start), Ok(()));
    // This process was stopped, so the entries may wait unread.
    let stopped = start + 10 * STALL;
    assert_eq!(merge.check(stopped), Ok(()));
    let start = stopped;
    for step in 0..=STALL.as_millis() / CHECK_GAP.as_millis() {
        assert_eq!(merge.check(start + step as u32 * CHECK_GAP), Ok(()));
    }
    let late = start + STALL + Duration::from_millis(1);
    assert_eq!(merge.check(late), Err(MergeError::Stalled { feed: FEED, read: 4 }));
    let huge = Answer {
        kind: AnswerKind::Opened,
        feed: FeedId(99),
        as_of: 0,
        stream: 1,
        item: i32::MAX,
        message: Vec::new(),
    };
    assert!(matches!(merge.answer(huge, &mut |_| {}), Err(MergeError::Invalid { .. })));
}

/// Gives a merge an answer for the item with id 1, and returns what it delivers: class, stream and count.
fn answered(merge: &mut Merge, kind: AnswerKind, stream: i32, as_of: u64, count: u64) -> Vec<(u8, i32, u64)> {
    let message = if kind == AnswerKind::Opened { Vec::new() } else { message(REFRESH, 1, 9, count, 0) };
    let mut delivered = Vec::new();
    let mut out = |bytes: &[u8]| {
        let (class, stream, _, count) = parsed(bytes);
        delivered.push((class, stream, count));
    };
    merge.answer(Answer { kind, feed: FEED, as_of, stream, item: 1, message }, &mut out).unwrap();
    delivered
}

#[test]
fn refresh_in_the_feed_is_not_lost_behind_an_older_image_for_a_new_stream() {
    let mut merge = Merge::new(SINK, HISTORY);
    merge.join(FEED);
    merge.joined(FEED, 0, &mut |_| {}).unwrap();
    merge.requested(5, b"request!");
    answered(&mut merge, AnswerKind::Opened, 5, 0, 0);
    assert_eq!(answered(&mut merge, AnswerKind::Complete, 5, 0, 1), [(REFRESH, 5, 1)]);
    // The source reports the stream lost, and the hub requests the item on another one. The source answers from its
    // cache, which is stale, and then puts the image of its recovered upstream into the feed, which arrives first.
    assert_eq!(give(&mut merge, packet(1, &[&message(REFUSAL, 1, 9, 1, 0)])), Ok(1));
    merge.requested(6, b"request!");
    give(&mut merge, packet(2, &[&message(REFRESH, 1, 9, 2, 0)])).unwrap();
    answered(&mut merge, AnswerKind::Opened, 6, 1, 0);
    let delivered = answered(&mut merge, AnswerKind::Complete, 6, 1, 1);
    if delivered.is_empty() {
        assert_eq!(merge.take_retries(), [b"request!".to_vec()]);
    } else {
        assert_eq!(delivered, [(REFRESH, 6, 1), (REFRESH, 6, 2)]);
    }
}

#[test]
fn image_is_requested_in_the_feed_if_the_history_is_too_short() {
    let mut merge = Merge::new(SINK, HISTORY);
    merge.join(FEED);
    merge.joined(FEED, 0, &mut |_| {}).unwrap();
    merge.requested(5, b"request!");
    let answer = |kind, as_of| Answer { kind, feed: FEED, as_of, stream: 5, item: 1, message: vec![0; 20] };
    merge.answer(answer(AnswerKind::Opened, 0), &mut |_| {}).unwrap();
    let long = vec![0; 50_000];
    for number in 1..=(HISTORY as u64 / 50_000 + 2) {
        assert_eq!(give(&mut merge, packet(number, &[&long])), Ok(0));
    }
    assert!(merge.history_bytes() <= HISTORY);
    merge.answer(answer(AnswerKind::Complete, 1), &mut |_| panic!("out of order")).unwrap();
    assert_eq!(merge.take_retries(), [b"request!".to_vec()]);
    let entry =
        Entry::Image { sink: SINK, stream: 5, complete: true, message: &message(REFRESH, 1, 1, 1, 0) };
    let first = merge.feeds[0].read + 1;
    let mut bytes = packet(first, &[]);
    bytes[3] = 1;
    entry.append(&mut bytes);
    assert_eq!(give(&mut merge, bytes), Ok(1));
    assert!(merge.pending.is_empty());
    assert_eq!(merge.history_bytes(), 0);
}

#[test]
fn history_is_short_while_all_pending_images_are_delayed() {
    let mut merge = Merge::new(SINK, HISTORY);
    merge.join(FEED);
    merge.joined(FEED, 0, &mut |_| {}).unwrap();
    let long = vec![0; 50_000];
    let mut number = 0;
    let mut pass = |merge: &mut Merge| {
        for _ in 0..(HISTORY_DELAYED / 50_000 * 2) {
            number += 1;
            assert_eq!(give(merge, packet(number, &[&long])), Ok(0));
        }
        merge.history_bytes()
    };
    let notice = |stream| Answer {
        kind: AnswerKind::Notice,
        feed: FEED,
        as_of: 0,
        stream,
        item: 0,
        message: vec![0; 20],
    };
    for stream in [5, 6] {
        merge.requested(stream, b"request!");
        merge.answer(notice(stream), &mut |_| {}).unwrap();
        merge.answer(notice(stream), &mut |_| {}).unwrap();
    }
    let bytes = pass(&mut merge);
    assert!(bytes > 0 && bytes <= HISTORY_DELAYED);
    merge.requested(7, b"request!");
    assert!(pass(&mut merge) > HISTORY_DELAYED, "an image without a delay needs the full history");
    merge.closed(7);
    assert!(pass(&mut merge) <= HISTORY_DELAYED);
    // Requested again, and delayed again.
    merge.requested(5, b"request!");
    assert!(pass(&mut merge) > HISTORY_DELAYED);
    merge.answer(notice(5), &mut |_| {}).unwrap();
    assert!(pass(&mut merge) <= HISTORY_DELAYED);
    merge.closed(5);
    merge.closed(6);
    assert_eq!((pass(&mut merge), merge.delayed), (0, 0));
}
