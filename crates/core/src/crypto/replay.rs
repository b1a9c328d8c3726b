//! Numbers of frames that have arrived from a peer, so that a recorded frame is not accepted again (decision 40).
//!
//! A utipc node numbers the frames of all its keys from one counter, so its windows belong to the node and one of its
//! bearers, whatever happens to keys and slots. Linux counts from 1 for each key: its windows belong to a key, which a
//! fingerprint names, and survive changes of slots too.

use super::key::Mode;
use super::window::{DISCOVERY, FRAMES, Window};
use crate::wire::Encrypted;

/// Keys of one Linux peer whose windows are kept. Ours: a peer has three keys and a master key at a time.
const MAX_KEYS: usize = 8;
/// Numbers from here on come from a clock: nanoseconds since 1970, reached in 1972. Linux counts from 1.
const FROM_CLOCK: u64 = 1 << 56;

/// Bits of a number below the counter: the bearer that sends it, or [`DISCOVERY_CLASS`].
pub(super) const CLASS_BITS: u32 = 2;
/// The class of discovery messages; their nonces vary by the identity, not by the address.
pub(super) const DISCOVERY_CLASS: u64 = 3;

/// The numbers received from one peer.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The life of the utipc node that has shown that it heard this node: what it sent before that is not accepted.
    life: Option<u16>,
    by_class: [Option<Class>; 1 << CLASS_BITS],
    floor: u64,
    by_key: Vec<OfKey>,
}

/// The numbers of one bearer of a utipc node, without the bits that name the bearer.
#[derive(Debug)]
struct Class {
    /// Numbers up to here are refused.
    floor: u64,
    window: Window,
}

/// The numbers of a Linux node under one key.
#[derive(Debug)]
struct OfKey {
    fingerprint: u64,
    mode: Mode,
    /// Numbers of frames to all, and to this node: Linux counts them separately under a node's own key.
    windows: [Window; 2],
    /// The numbers to this node before Linux restarted them.
    earlier: Option<Window>,
}

/// The sender's bearer, or [`DISCOVERY_CLASS`].
pub(super) const fn class(number: u64) -> usize {
    (number & DISCOVERY_CLASS) as usize
}

const fn split(number: u64) -> (usize, u64) {
    (class(number), number >> CLASS_BITS)
}

impl Numbers {
    /// True if no frame with this number has been received, and it is not too old.
    pub(super) fn is_fresh(&self, header: &Encrypted<'_>, fingerprint: u64) -> bool {
        let number = header.seqno;
        if !header.timed {
            // A node that has shown to be a utipc node does not become a Linux node by itself.
            let known = self.by_key.iter().find(|key| key.fingerprint == fingerprint);
            return !self.is_proven() && known.is_none_or(|key| key.window(header).is_fresh(number));
        }
        let (class, counter) = split(number);
        let known = self.by_class.get(class).and_then(Option::as_ref);
        counter > self.floor
            && known.is_none_or(|class| counter > class.floor && class.window.is_fresh(counter))
    }

    /// Notes the number of a frame that was accepted.
    pub(super) fn note(&mut self, header: &Encrypted<'_>, fingerprint: u64, mode: Mode) {
        if !header.timed {
            self.ensure_key(fingerprint, mode);
            let key = self.by_key.iter_mut().find(|key| key.fingerprint == fingerprint);
            return key.into_iter().for_each(|key| key.window_mut(header).note(header.seqno));
        }
        let (class, counter) = split(header.seqno);
        if let Some(place) = self.by_class.get_mut(class) {
            let words = if class as u64 == DISCOVERY_CLASS { DISCOVERY } else { FRAMES };
            place.get_or_insert_with(|| Class { floor: 0, window: Window::new(words) }).window.note(counter);
        }
    }

    /// True if a utipc node has shown that it heard this node.
    pub(super) fn is_proven(&self) -> bool {
        self.life.is_some()
    }

    /// True if the frame is of the life of the node that has shown that it heard this node.
    pub(super) fn is_of_proven_life(&self, header: &Encrypted<'_>) -> bool {
        self.life == Some(header.life)
    }

    /// This frame proves that its sender has heard this node since the start of both.
    pub(super) fn prove(&mut self, header: &Encrypted<'_>) {
        self.life = Some(header.life);
        self.floor = self.floor.max((header.seqno >> CLASS_BITS).saturating_sub(1));
        self.by_key.clear();
    }

    /// The frame with this number begins a session of the link on its bearer: earlier ones belong to another session.
    pub(super) fn begin_session(&mut self, number: u64) {
        let (class, counter) = split(number);
        if let Some(Some(class)) = self.by_class.get_mut(class) {
            class.floor = class.floor.max(counter);
        }
    }

    /// The highest number received, from the bits on that count.
    pub(super) fn top(&self) -> u64 {
        let tops = self.by_class.iter().flatten().map(|class| class.window.top());
        tops.max().unwrap_or_default() << CLASS_BITS
    }

    /// A peer that numbers as Linux does has restarted: what it sent before this frame is not expected again.
    pub(super) fn restart(&mut self, header: &Encrypted<'_>, fingerprint: u64, mode: Mode) {
        self.life = None;
        self.by_key.clear();
        self.note(header, fingerprint, mode);
    }

    /// This node announces another slot: Linux then counts its frames to this node from 1 again.
    pub(super) fn expect_restart(&mut self) {
        for key in &mut self.by_key {
            let [_, to_this] = &mut key.windows;
            if key.mode == Mode::PerNode && to_this.top() < FROM_CLOCK {
                key.earlier = Some(core::mem::replace(to_this, Window::new(FRAMES)));
            }
        }
    }

    /// Adds windows for a key unless it has some; those of the key that came first give way.
    fn ensure_key(&mut self, fingerprint: u64, mode: Mode) {
        if self.by_key.iter().any(|key| key.fingerprint == fingerprint) {
            return;
        }
        if self.by_key.len() == MAX_KEYS {
            self.by_key.remove(0);
        }
        let windows = [(); 2].map(|()| Window::new(FRAMES));
        self.by_key.push(OfKey { fingerprint, mode, windows, earlier: None });
    }
}

impl OfKey {
    fn is_earlier(&self, header: &Encrypted<'_>) -> bool {
        let number = header.seqno;
        header.destined
            && self.earlier.as_ref().is_some_and(|earlier| {
                (earlier.is_near(number) || number > earlier.top()) && earlier.is_fresh(number)
            })
    }

    fn window(&self, header: &Encrypted<'_>) -> &Window {
        let [to_all, to_this] = &self.windows;
        let earlier = self.earlier.as_ref().filter(|_| self.is_earlier(header));
        earlier.unwrap_or(if header.destined { to_this } else { to_all })
    }

    fn window_mut(&mut self, header: &Encrypted<'_>) -> &mut Window {
        let is_earlier = self.is_earlier(header);
        let [to_all, to_this] = &mut self.windows;
        let earlier = self.earlier.as_mut().filter(|_| is_earlier);
        earlier.unwrap_or(if header.destined { to_this } else { to_all })
    }
}
