//! The layout of an arena. The reasons are in `docs/spec/lanes.md`.

use utipc_os::shm::{LINE, PAGE};

/// First word of an arena.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"utipcARN");
/// Version of the layout. Any other is refused.
pub(super) const VERSION: u64 = 2;

/// Bytes of a pair of lines. Processors fetch lines in pairs: words that different sides write must not share one.
const PAIR: usize = 128;

/// log2 of the ring sizes in bytes, by class: 4 KiB, 32 KiB, 256 KiB and 1 MiB. Each slot has its own ring of class 0,
/// in which its lane begins; a larger ring needs a grant of the daemon.
pub const RING_SHIFTS: [u8; 4] = [12, 15, 18, 20];
/// log2 of the size of a first ring.
pub const FIRST_RING: u8 = RING_SHIFTS[0];
/// The class of the largest ring.
pub const LARGEST_CLASS: u8 = RING_SHIFTS.len() as u8 - 1;

/// Maximum number of slots, as many as a bitmap's summary covers: 4 words of 64 bits, each for a word of 64 slots.
pub const MAX_SLOTS: u32 = 16_384;

/// Sizes of an arena. The creator writes them into the header; every other process checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lanes per direction, 1 to [`MAX_SLOTS`].
    pub slots: u32,
    /// Bytes for rings larger than the first ones, per direction.
    pub region: u64,
    /// log2 of the ring sizes, smallest first: four classes.
    pub ring_shifts: [u8; 4],
}

impl Shape {
    /// Rings of [`RING_SHIFTS`]; 16,384 slots, each with its first ring; 384 MiB in all (virtual: pages exist once
    /// touched).
    pub const STANDARD: Shape = Shape { slots: MAX_SLOTS, region: 123 << 20, ring_shifts: RING_SHIFTS };

    fn is_valid(&self) -> bool {
        let [a, b, c, d] = self.ring_shifts;
        let rising = 8 <= a && a < b && b < c && c < d && d <= 24;
        let largest = 1u64 << (d & 31);
        rising
            && (1..=MAX_SLOTS).contains(&self.slots)
            && self.region >= largest
            && self.region.is_multiple_of(largest)
            && self.region <= 1 << 31
    }
}

/// One of the two sides of an arena. A lane's direction is named by its writer's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first side.
    Zero,
    /// The second side.
    One,
}

impl Side {
    /// The peer's side.
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::Zero => Side::One,
            Side::One => Side::Zero,
        }
    }

    /// 0 or 1.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Side::Zero => 0,
            Side::One => 1,
        }
    }
}

/// Words of the header, as offsets.
pub(super) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 8;
    pub(crate) const SIZE: usize = 16;
    pub(crate) const SLOTS: usize = 24;
    pub(crate) const REGION: usize = 32;
    pub(crate) const SHIFTS: usize = 40;
}

/// Words of a slot, as offsets from its start: four lines; each pair of lines has one writer.
pub(super) mod slot {
    /// Flags, see [`flag`]: the reader and the daemon write them seldom, the writer loads them for each message.
    pub(crate) const FLAGS: usize = 0;
    /// The writer's first ring, a place; zero before the first record.
    pub(crate) const START: usize = 64;
    /// Nonzero: the writer waits for room, see [`waiting`]. In the same line as `START`: both change seldom.
    pub(crate) const WAITING: usize = 72;
    /// How far the reader has released space, a place: written seldom, loaded by the writer when it finds the ring
    /// full.
    pub(crate) const RELEASED: usize = 128;
    /// Sum of the costs of the messages given back.
    pub(crate) const RELEASED_COST: usize = 136;
    /// The reader's position, a place: written for each message, loaded only after the reader is gone.
    pub(crate) const EXACT: usize = 192;
    /// Size of a slot.
    pub(crate) const SIZE: usize = 256;
}

/// Bits of a slot's flags.
pub(super) mod flag {
    /// The daemon assigned the slot.
    pub(crate) const OPEN: u32 = 1;
    /// The lane is armed: its reader does not check it, so report the next record.
    pub(crate) const WANT: u32 = 2;
    /// The lane is frozen: its writer is gone.
    pub(crate) const FROZEN: u32 = 4;
    /// The reader is gone.
    pub(crate) const GONE: u32 = 8;
    /// With [`WANT`]: the reader waits by its descriptor, so tell the daemon too.
    pub(crate) const TELL: u32 = 16;
}

/// Bits of a slot's word `WAITING`, which the writer sets.
pub(super) mod waiting {
    /// The writer waits for room.
    pub(crate) const ROOM: u64 = 1;
    /// It waits by its descriptor, so tell the daemon too.
    pub(crate) const TELL: u64 = 2;
    /// The bits from here on: the cost that the reader gives back before it wakes the writer.
    pub(crate) const COST_SHIFT: u32 = 8;
}

/// Words of a doorbell, as offsets from its start.
pub(super) mod bell {
    pub(crate) const SEQ: usize = 0;
    pub(crate) const PARKED: usize = 8;
    pub(crate) const SIZE: usize = super::PAIR;
}

const BELLS: usize = 2 * PAIR;
const DIRECTIONS: usize = BELLS + 2 * bell::SIZE;

/// Offsets in an arena of a given shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    /// Bytes of one direction's bitmaps and slots.
    control: usize,
    /// Bytes of one bitmap's words, rounded to line pairs.
    words: usize,
    /// Bytes of one direction's first rings, rounded to the largest ring.
    firsts: usize,
    /// Where the first direction's rings start.
    regions: usize,
}

impl Layout {
    /// `None` if the shape is invalid.
    pub(super) fn new(shape: Shape) -> Option<Layout> {
        if !shape.is_valid() {
            return None;
        }
        let slots = shape.slots as usize;
        let words = (slots.div_ceil(64) * 8).next_multiple_of(PAIR);
        let control = 2 * (PAIR + words) + slots * slot::SIZE;
        let [first, .., largest] = shape.ring_shifts;
        let firsts = (slots << first).next_multiple_of(1 << largest);
        let regions = (DIRECTIONS + 2 * control).next_multiple_of(PAGE);
        Some(Layout { shape, control, words, firsts, regions })
    }

    /// Bytes of the whole arena.
    pub(super) fn size(&self) -> usize {
        (self.regions + 2 * self.region_size()).next_multiple_of(PAGE)
    }

    pub(super) fn bell(side: Side) -> usize {
        BELLS + side.index() * bell::SIZE
    }

    fn direction(&self, writer: Side) -> usize {
        DIRECTIONS + writer.index() * self.control
    }

    /// Summary and words of the bitmap of lanes that have something to read.
    pub(super) fn ready(&self, writer: Side) -> (usize, usize) {
        let summary = self.direction(writer);
        (summary, summary + PAIR)
    }

    /// Summary and words of the bitmap of lanes that have room again.
    pub(super) fn room(&self, writer: Side) -> (usize, usize) {
        let summary = self.direction(writer) + PAIR + self.words;
        (summary, summary + PAIR)
    }

    /// A slot's header; `None` if the slot does not exist.
    pub(super) fn slot(&self, writer: Side, slot: u32) -> Option<usize> {
        let table = self.direction(writer) + 2 * (PAIR + self.words);
        (slot < self.shape.slots).then(|| table + slot as usize * slot::SIZE)
    }

    /// Bytes of one direction's rings: the first ones, then the larger ones.
    fn region_size(&self) -> usize {
        self.firsts + self.shape.region as usize
    }

    /// Where a direction's rings start.
    pub(super) fn region(&self, writer: Side) -> usize {
        self.regions + writer.index() * self.region_size()
    }

    /// Where the rings larger than the first ones start, in units of the first ones.
    pub(super) fn larger(&self) -> u32 {
        (self.firsts >> self.shape.ring_shifts[0]) as u32
    }

    /// Offset in the segment and size of the ring at `place`. `None` if the lane in this slot cannot have it: it is the
    /// first ring of another slot, or not a ring of the writer's region.
    pub(super) fn ring(&self, writer: Side, slot: u32, place: Place) -> Option<(usize, usize)> {
        let size = 1usize << self.shape.ring_shifts.get(usize::from(place.class))?;
        let start = (place.unit as usize) << self.shape.ring_shifts[0];
        let is_own = match place.class {
            0 => place.unit == slot && slot < self.shape.slots,
            _ => self.firsts <= start && start.is_multiple_of(size),
        };
        (is_own && start + size <= self.region_size()).then(|| (self.region(writer) + start, size))
    }
}

/// A ring and a position in the lane, packed into one word so that both change at once.
///
/// Bit 63: valid. 60 and 61: class of the ring. 36 to 59: where the ring starts, in units of the smallest ring.
/// 0 to 35: position in the lane, in lines, modulo 2^36.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) class: u8,
    pub(super) unit: u32,
    /// Lines since the lane began, modulo 2^36.
    pub(super) lines: u64,
}

/// Positions repeat after this many lines.
pub(super) const LINES: u64 = 1 << 36;
const VALID: u64 = 1 << 63;

impl Place {
    pub(super) fn new(class: u8, unit: u32, position: u64) -> Place {
        Place { class, unit, lines: (position / LINE as u64) & (LINES - 1) }
    }

    pub(super) fn pack(self) -> u64 {
        VALID
            | u64::from(self.class & 3) << 60
            | u64::from(self.unit & 0xff_ffff) << 36
            | self.lines & (LINES - 1)
    }

    /// `None` for words that are not a packed place, such as zero.
    pub(super) fn unpack(word: u64) -> Option<Place> {
        if word & VALID == 0 || word & (1 << 62) != 0 {
            return None;
        }
        Some(Place {
            class: (word >> 60 & 3) as u8,
            unit: (word >> 36 & 0xff_ffff) as u32,
            lines: word & (LINES - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A size as the documentation writes it.
    fn size_text(log2: u8) -> String {
        if log2 < 20 { format!("{} KiB", 1 << (log2 - 10)) } else { format!("{} MiB", 1 << (log2 - 20)) }
    }

    #[test]
    fn documentation_gives_the_ring_sizes() {
        let [first, second, third, fourth] = RING_SHIFTS.map(size_text);
        let lanes = include_str!("../../../docs/spec/lanes.md");
        let attach = include_str!("../../../docs/spec/attach.md");
        let rings = format!("rings of {first}, {second}, {third} and {fourth}");
        assert!(lanes.contains(&rings), "lanes.md lacks: {rings}");
        for text in
            [format!("A ring beyond {first} needs"), format!("gives rings up to {fourth}, or {third} if")]
        {
            assert!(attach.contains(&text), "attach.md lacks: {text}");
        }
    }

    #[test]
    fn the_standard_arena_has_384_mebibytes() {
        let layout = Layout::new(Shape::STANDARD).unwrap();
        assert!(layout.size() <= 384 << 20 && layout.size() > 378 << 20, "{}", layout.size());
        let last = layout.slot(Side::One, MAX_SLOTS - 1).unwrap() + slot::SIZE;
        assert!(last <= layout.region(Side::Zero));
        assert_eq!(layout.slot(Side::One, MAX_SLOTS), None);
    }

    #[test]
    fn parts_do_not_overlap() {
        for slots in [1, 64, 65, 1000, MAX_SLOTS] {
            let layout = Layout::new(Shape { slots, ..Shape::STANDARD }).unwrap();
            for (writer, end) in [(Side::Zero, layout.direction(Side::One)), (Side::One, layout.regions)] {
                let (summary, words) = layout.ready(writer);
                let (room_summary, room_words) = layout.room(writer);
                let bytes = slots.div_ceil(64) as usize * 8;
                let first = layout.slot(writer, 0).unwrap();
                let marks =
                    [summary, words, words + bytes, room_summary, room_words, room_words + bytes, first];
                assert!(marks.is_sorted(), "{marks:?}");
                assert!(first + slots as usize * slot::SIZE <= end);
                assert_eq!(first % PAIR, 0);
            }
        }
    }

    #[test]
    fn invalid_shapes_are_refused() {
        let bad = [
            Shape { slots: 0, ..Shape::STANDARD },
            Shape { slots: MAX_SLOTS + 1, ..Shape::STANDARD },
            Shape { region: 0, ..Shape::STANDARD },
            Shape { region: (1 << 20) + 4096, ..Shape::STANDARD },
            Shape { region: u64::MAX << 20, ..Shape::STANDARD },
            Shape { ring_shifts: [12, 12, 18, 20], ..Shape::STANDARD },
            Shape { ring_shifts: [12, 15, 18, 255], ..Shape::STANDARD },
            Shape { ring_shifts: [0, 1, 2, 3], ..Shape::STANDARD },
        ];
        assert!(bad.iter().all(|shape| Layout::new(*shape).is_none()));
    }

    #[test]
    fn places_outside_the_region_have_no_ring() {
        let layout = Layout::new(Shape::STANDARD).unwrap();
        let largest = 1 << (RING_SHIFTS[3] - FIRST_RING);
        let units = (Shape::STANDARD.region >> FIRST_RING) as u32 + layout.larger();
        let ring = |unit| layout.ring(Side::One, 7, Place { class: 3, unit, lines: 0 });
        assert!(ring(units).is_none() && ring(units - largest + 1).is_none());
        let (start, size) = ring(units - largest).unwrap();
        assert!(start + size <= layout.size());
    }

    #[test]
    fn each_slot_has_one_first_ring_of_its_own() {
        for slots in [1, 3, 70, MAX_SLOTS] {
            let layout = Layout::new(Shape { slots, ..Shape::STANDARD }).unwrap();
            let ring = |slot, class, unit| layout.ring(Side::Zero, slot, Place { class, unit, lines: 0 });
            let mut end = layout.region(Side::Zero);
            for slot in 0..slots {
                let (start, size) = ring(slot, 0, slot).unwrap();
                assert_eq!((start, size), (end, 1 << FIRST_RING));
                end = start + size;
                let others = [slot.wrapping_sub(1), slot + 1, layout.larger()];
                assert!(others.iter().all(|other| ring(slot, 0, *other).is_none()));
            }
            assert_eq!(ring(slots, 0, slots), None, "a slot that does not exist");
            // Larger rings lie behind all first ones.
            assert!((1..=LARGEST_CLASS).all(|class| ring(0, class, 0).is_none()));
            assert!(ring(0, 1, layout.larger()).unwrap().0 >= end);
        }
    }

    #[test]
    fn places_survive_packing() {
        let place = Place::new(3, 0xff_fffe, 64 * (LINES - 1));
        assert_eq!(Place::unpack(place.pack()), Some(place));
        assert_eq!(Place::unpack(0), None);
        assert_eq!(Place::unpack(u64::MAX), None);
    }
}
