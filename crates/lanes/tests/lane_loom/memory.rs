//! Memory whose loads return every value that the memory model allows, and which can be broken on purpose.

use std::ops::Range;
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use utipc_lanes::Shape;
use utipc_os::shm::{Fence, Memory};

/// The step left out, to show that a model detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Nothing.
    No,
    /// One of the fences.
    Fence(Fence),
    /// Stores have no ordering.
    Stores,
    /// Loads have no ordering.
    Loads,
    /// The next commit word is not cleared.
    Clear,
    /// The reader does not wait for OPEN (a break of the model, not of the memory).
    Open,
}

/// Three lanes per direction, rings of 256 and 512 bytes are enough to lap and to grow.
pub(crate) const SHAPE: Shape = Shape { slots: 3, region: 4096, ring_shifts: [8, 9, 10, 11] };

/// Ranges of the words that the models use: `docs/spec/lanes.md` §1. Only direction 0 is modelled.
const USED: [Range<usize>; 8] = [
    0..48,
    256..272,
    384..400,
    // Bitmaps: ready summary, ready words, room summary, room words.
    512..520,
    640..648,
    768..776,
    896..904,
    // Slots.
    1024..1024 + 3 * 256,
];
/// The first ring of each slot, and one of the next class behind them.
const RINGS: [Range<usize>; 2] = [REGION..REGION + 3 * 256, REGION + 2048..REGION + 2048 + 512];
const REGION: usize = 4096;
const SIZE: usize = REGION + 2 * (2048 + 4096);

pub(crate) struct Modelled {
    words: Vec<Option<AtomicU64>>,
    /// The words used as 32-bit words.
    halves: Vec<Option<AtomicU32>>,
    /// The kernel's queue of sleepers.
    queue: Mutex<()>,
    woken: Condvar,
    broken: Broken,
}

impl Modelled {
    /// All zero.
    pub(crate) fn new(broken: Broken) -> Modelled {
        let halves =
            |at: usize| (256..512).contains(&at) || (1024..2048).contains(&at) && at.is_multiple_of(256);
        let used = |at: usize| USED.iter().chain(&RINGS).any(|range| range.contains(&at));
        let every = || (0..SIZE).step_by(8);
        Modelled {
            words: every().map(|at| (used(at) && !halves(at)).then(|| AtomicU64::new(0))).collect(),
            halves: every().map(|at| (used(at) && halves(at)).then(|| AtomicU32::new(0))).collect(),
            queue: Mutex::new(()),
            woken: Condvar::new(),
            broken,
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert_eq!(at % 8, 0);
        self.words[at / 8].as_ref().unwrap_or_else(|| panic!("the model has no 64-bit word at {at}"))
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        assert_eq!(at % 8, 0);
        self.halves[at / 8].as_ref().unwrap_or_else(|| panic!("the model has no 32-bit word at {at}"))
    }

    fn loaded(&self, order: Ordering) -> Ordering {
        if self.broken == Broken::Loads { Ordering::Relaxed } else { order }
    }

    fn stored(&self, order: Ordering) -> Ordering {
        if self.broken == Broken::Stores { Ordering::Relaxed } else { order }
    }
}

impl Memory for Modelled {
    fn size(&self) -> usize {
        SIZE
    }

    fn load64(&self, at: usize, order: Ordering) -> u64 {
        self.word(at).load(self.loaded(order))
    }

    fn store64(&self, at: usize, value: u64, order: Ordering) {
        if !(self.broken == Broken::Clear && at >= REGION && value == 0) {
            self.word(at).store(value, self.stored(order));
        }
    }

    fn swap64(&self, at: usize, value: u64) -> u64 {
        self.word(at).swap(value, Ordering::AcqRel)
    }

    fn exchange64(&self, at: usize, from: u64, to: u64) -> bool {
        self.word(at).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn or64(&self, at: usize, bits: u64) -> u64 {
        self.word(at).fetch_or(bits, Ordering::AcqRel)
    }

    fn load32(&self, at: usize, order: Ordering) -> u32 {
        self.half(at).load(self.loaded(order))
    }

    fn store32(&self, at: usize, value: u32, order: Ordering) {
        self.half(at).store(value, self.stored(order));
    }

    fn add32(&self, at: usize, value: u32) -> u32 {
        // A failed model unwinds a sleeper: the model's state is gone.
        if std::thread::panicking() {
            return 0;
        }
        self.half(at).fetch_add(value, Ordering::AcqRel)
    }

    fn or32(&self, at: usize, bits: u32) -> u32 {
        self.half(at).fetch_or(bits, Ordering::AcqRel)
    }

    fn and32(&self, at: usize, bits: u32) -> u32 {
        self.half(at).fetch_and(bits, Ordering::AcqRel)
    }

    fn fence(&self, which: Fence) {
        if self.broken != Broken::Fence(which) {
            fence(Ordering::SeqCst);
        }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let mut word = (usize::MAX, [0; 8]);
        for (index, byte) in into.iter_mut().enumerate() {
            let (start, part) = ((at + index) / 8 * 8, (at + index) % 8);
            if word.0 != start {
                word = (start, self.word(start).load(Ordering::Relaxed).to_le_bytes());
            }
            *byte = word.1[part];
        }
    }

    fn write(&self, at: usize, from: &[u8]) {
        assert!(at.is_multiple_of(8) && from.len().is_multiple_of(8), "models write whole words");
        for (index, chunk) in from.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
            self.word(at + index * 8).store(word, Ordering::Relaxed);
        }
    }

    /// Like the kernel: checks the word and joins the queue in one step with respect to wakers.
    fn wait32(&self, at: usize, expected: u32, _: Option<Duration>) {
        let queue = self.queue.lock().unwrap();
        if self.half(at).load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake32(&self, _: usize) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }

    fn release(&self, _: Range<usize>) {}
}
