//! Faults of a wire, drawn from a seed; the middleware applies them.

use std::collections::BTreeMap;
use std::time::Duration;

use utipc_core::Rng;

/// Maximum number of delayed frames of one direction; further ones are dropped.
const HELD_MAX: usize = 65_536;

/// Longest time that a frame waits for another one to overtake it.
const OVERTAKE_WAIT: Duration = Duration::from_millis(10);

/// One million: the unit of the rates.
const MILLION: u64 = 1_000_000;

/// Faults of one direction. Rates are in millionths of the frames.
///
/// Each frame draws the same number of random values at all rates, so that changing one rate does not change which
/// frames the others hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames that are dropped.
    pub drop_ppm: u32,
    /// Frames that arrive twice.
    pub duplicate_ppm: u32,
    /// Frames that the next one overtakes, within 10 ms at most; with a delay, frames that skip the delay and so
    /// overtake others.
    pub reorder_ppm: u32,
    /// Delay of each frame.
    pub delay: Duration,
    /// Largest additional delay, drawn for each frame: frames may overtake one another.
    pub jitter: Duration,
}

impl Faults {
    /// Drops `percent` of the frames, without other faults.
    pub fn loss(percent: u32) -> Faults {
        Faults { drop_ppm: percent.saturating_mul(10_000), ..Faults::default() }
    }
}

/// Counts of the faults of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Frames to which the faults were applied.
    pub seen: u64,
    /// Frames dropped by the drop rate.
    pub dropped: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames chosen to be reordered.
    pub reordered: u64,
    /// Frames that were delayed.
    pub delayed: u64,
    /// Frames dropped because the bearer was interrupted.
    pub interrupted: u64,
    /// Frames dropped because too many were delayed.
    pub overflowed: u64,
}

/// One direction of a wire with faults; `A` is the address of a frame.
#[derive(Debug)]
pub(crate) struct FaultyWire<A> {
    rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) counters: FaultCounters,
    held: BTreeMap<(Duration, u64), (A, Vec<u8>)>,
    overtaken: Option<(Duration, A, Vec<u8>)>,
    serial: u64,
}

impl<A: Copy> FaultyWire<A> {
    pub(crate) fn new(seed: u64) -> FaultyWire<A> {
        FaultyWire {
            rng: Rng::new(seed),
            faults: Faults::default(),
            counters: FaultCounters::default(),
            held: BTreeMap::new(),
            overtaken: None,
            serial: 0,
        }
    }

    /// Whether all faults are off and no frame is delayed.
    pub(crate) fn is_clear(&self) -> bool {
        self.faults == Faults::default() && self.held.is_empty() && self.overtaken.is_none()
    }

    /// Applies the faults to one frame at `now`; frames that leave at once go to `emit`.
    pub(crate) fn pass(&mut self, now: Duration, to: A, frame: &[u8], emit: &mut dyn FnMut(A, &[u8])) {
        self.counters.seen += 1;
        let faults = self.faults;
        let mut hit = |ppm: u32| self.rng.below(MILLION) < u64::from(ppm);
        let (drop, duplicate, reorder) =
            (hit(faults.drop_ppm), hit(faults.duplicate_ppm), hit(faults.reorder_ppm));
        let spread = u64::try_from(faults.jitter.as_nanos()).unwrap_or(u64::MAX);
        let wait =
            faults.delay.saturating_add(Duration::from_nanos(self.rng.below(spread.saturating_add(1))));
        let then = now.saturating_add(wait);
        if drop {
            self.counters.dropped += 1;
            return;
        }
        self.counters.duplicated += u64::from(duplicate);
        self.counters.reordered += u64::from(reorder);
        if duplicate {
            self.emit_at(now, then, to, frame, emit);
        }
        if !reorder {
            self.emit_at(now, then, to, frame, emit);
        } else if wait > Duration::ZERO {
            self.emit_at(now, now, to, frame, emit);
        } else {
            // A frame that already waits is sent first; otherwise it would wait forever under a high rate.
            self.release(emit);
            self.overtaken = Some((now + OVERTAKE_WAIT, to, frame.to_vec()));
        }
    }

    /// Emits the delayed frames that are due.
    pub(crate) fn due(&mut self, now: Duration, emit: &mut dyn FnMut(A, &[u8])) {
        while let Some(entry) = self.held.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (to, frame) = entry.remove();
            emit(to, &frame);
        }
        if self.overtaken.as_ref().is_some_and(|(at, ..)| *at <= now) {
            self.release(emit);
        }
    }

    /// Time when [`due`](FaultyWire::due) has something to do next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let held = self.held.keys().next().map(|(at, _)| *at);
        let overtaken = self.overtaken.as_ref().map(|(at, ..)| *at);
        held.into_iter().chain(overtaken).min()
    }

    fn emit_at(&mut self, now: Duration, at: Duration, to: A, frame: &[u8], emit: &mut dyn FnMut(A, &[u8])) {
        if at <= now {
            emit(to, frame);
            self.release(emit);
        } else if self.held.len() >= HELD_MAX {
            self.counters.overflowed += 1;
        } else {
            self.counters.delayed += 1;
            self.serial += 1;
            self.held.insert((at, self.serial), (to, frame.to_vec()));
        }
    }

    fn release(&mut self, emit: &mut dyn FnMut(A, &[u8])) {
        if let Some((_, to, frame)) = self.overtaken.take() {
            emit(to, &frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    /// The numbers of the frames that come out when 0 to count-1 go in at `NOW`, and the wire.
    fn run(faults: Faults, seed: u64, count: u8) -> (Vec<u8>, FaultyWire<()>) {
        let mut wire = FaultyWire::new(seed);
        wire.faults = faults;
        let mut out = Vec::new();
        for number in 0..count {
            wire.pass(NOW, (), &[number], &mut |(), frame| out.push(frame[0]));
        }
        (out, wire)
    }

    #[test]
    fn seed_determines_which_frames_are_hit() {
        let (out, wire) = run(Faults::loss(20), 1, 20);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17, 19]);
        assert_eq!((wire.counters.seen, wire.counters.dropped), (20, 3));
        let both = Faults { duplicate_ppm: 200_000, reorder_ppm: 200_000, ..Faults::default() };
        let (out, wire) = run(both, 1, 12);
        assert_eq!(out, run(both, 1, 12).0);
        assert_ne!(out, run(both, 2, 12).0);
        assert_eq!(wire.counters.dropped, 0);
        assert!(wire.counters.duplicated > 0 && wire.counters.reordered > 0);
        // Changing one rate does not change which frames the other hits.
        let (kept, _) = run(Faults { duplicate_ppm: 0, ..both }, 1, 12);
        let mut once = out.clone();
        once.sort_unstable();
        once.dedup();
        let mut sorted = kept.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, once);
    }

    #[test]
    fn overtaken_frame_follows_the_next_frame_or_a_timeout() {
        let (out, mut wire) = run(Faults { reorder_ppm: 500_000, ..Faults::default() }, 3, 10);
        let mut rest = Vec::new();
        wire.due(NOW, &mut |(), frame| rest.push(frame[0]));
        assert!(rest.is_empty(), "not before its time");
        if let Some(at) = wire.deadline() {
            assert_eq!(at, NOW + OVERTAKE_WAIT);
            wire.due(at, &mut |(), frame| rest.push(frame[0]));
        }
        assert!(wire.held.is_empty() && wire.overtaken.is_none());
        let all: Vec<u8> = out.into_iter().chain(rest).collect();
        assert_ne!(all, (0..10).collect::<Vec<_>>(), "something moved");
        let moved =
            |number: u8| all.iter().position(|it| *it == number).unwrap().abs_diff(usize::from(number));
        assert!((0..10).all(|number| moved(number) <= 1), "{all:?}");
    }

    #[test]
    fn delay_keeps_the_order_of_frames_and_jitter_does_not() {
        let delay = Duration::from_millis(5);
        let (out, mut wire) = run(Faults { delay, ..Faults::default() }, 3, 10);
        assert!(out.is_empty());
        assert_eq!(wire.deadline(), Some(NOW + delay));
        let mut late = Vec::new();
        wire.due(NOW + delay - Duration::from_nanos(1), &mut |(), frame| late.push(frame[0]));
        assert!(late.is_empty());
        wire.due(NOW + delay, &mut |(), frame| late.push(frame[0]));
        assert_eq!(late, (0..10).collect::<Vec<_>>());
        assert_eq!(wire.deadline(), None);
        let (_, mut wire) = run(Faults { delay, jitter: delay, ..Faults::default() }, 3, 10);
        late.clear();
        wire.due(NOW + delay * 2, &mut |(), frame| late.push(frame[0]));
        assert_ne!(late, (0..10).collect::<Vec<_>>());
        late.sort_unstable();
        assert_eq!(late, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn largest_delay_never_ends() {
        let faults = Faults { delay: Duration::MAX, jitter: Duration::MAX, ..Faults::default() };
        let (sent, mut wire) = run(faults, 4, 3);
        wire.due(Duration::from_secs(1 << 40), &mut |(), _| panic!("the delay is over"));
        assert_eq!((sent, wire.held.len()), (Vec::new(), 3));
    }

    #[test]
    fn delayed_frames_are_bounded() {
        let mut wire = FaultyWire::new(0);
        wire.faults.delay = Duration::from_secs(1);
        for _ in 0..HELD_MAX + 3 {
            wire.pass(NOW, (), &[0], &mut |(), _| ());
        }
        assert_eq!((wire.held.len(), wire.counters.overflowed), (HELD_MAX, 3));
    }
}
