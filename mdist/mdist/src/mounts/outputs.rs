//! The outputs of a worker's mounts, and the messages that several of them share.

use super::arena::Arena;
use super::delivery::{Delivery, Subject, Verdict};
use super::mount::MountId;
use super::output::{CHUNK, Output};
use super::pool::Pool;
use super::slots::Ticket;
use super::slow_consumer::{Limits, Overflow};
use super::subscribers::Subscriber;

/// The outputs of all mounts of a worker.
pub(super) struct Outputs {
    /// By index of the mount. They lie side by side, because a message for many mounts touches each of them.
    list: Vec<Output>,
    /// The messages that outputs list.
    arena: Arena,
    /// Mounts with output since the last [`Outputs::take_dirty`], each once.
    dirty: Vec<MountId>,
    /// Mounts whose output has no space for the message that was fanned out.
    overflows: Vec<(Ticket, Overflow)>,
    /// Memory in which listed messages are gathered for a socket.
    chunk: Vec<u8>,
}

/// A message to be fanned out.
#[derive(Clone, Copy)]
pub(super) struct Fanned<'a> {
    /// Its bytes as one plain frame, or bare if it is too long for one.
    pub(super) framed: &'a [u8],
    /// Whether the frame is the same for all streams but for the stream id.
    pub(super) same_for_all: bool,
}

impl Default for Outputs {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            arena: Arena::default(),
            dirty: Vec::new(),
            overflows: Vec::new(),
            chunk: vec![0; CHUNK],
        }
    }
}

impl Outputs {
    /// Gives a mount an output.
    pub(super) fn open(&mut self, mount: Ticket, limits: Limits) {
        let output = Output::new(mount, limits);
        match self.list.get_mut(mount.index() as usize) {
            Some(place) => *place = output,
            None => self.list.push(output),
        }
    }

    /// The mount's output.
    #[inline]
    pub(super) fn get(&self, mount: Ticket) -> Option<&Output> {
        self.list.get(mount.index() as usize).filter(|output| output.mount == mount)
    }

    #[inline]
    fn get_mut(&mut self, mount: Ticket) -> Option<&mut Output> {
        self.list.get_mut(mount.index() as usize).filter(|output| output.mount == mount)
    }

    /// The mount of a subscriber.
    #[inline]
    pub(super) fn mount_of(&self, subscriber: Subscriber) -> Option<Ticket> {
        self.list.get(subscriber.mount()).map(|output| output.mount)
    }

    /// Sets whether the mount's transport would write plain frames unchanged; returns whether it was so.
    pub(super) fn set_plain(&mut self, mount: Ticket, plain: bool) -> bool {
        self.get_mut(mount).is_some_and(|output| std::mem::replace(&mut output.plain, plain))
    }

    /// Sets the mount's policy of delivery.
    pub(super) fn set_delivery(&mut self, mount: Ticket, delivery: Delivery) {
        if let Some(output) = self.get_mut(mount) {
            output.delivery = delivery;
        }
    }

    /// Lets `write` queue bytes for a mount; `None`: the mount has no output.
    ///
    /// # Errors
    /// The output has no space for them; nothing is queued.
    pub(super) fn queue<T>(
        &mut self,
        mount: Ticket,
        subject: Subject,
        pool: &Pool,
        write: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Option<Result<T, Verdict>> {
        let output = self.list.get_mut(mount.index() as usize).filter(|output| output.mount == mount)?;
        let queued = match (output.delivery, subject) {
            // Everything is kept in order, whatever it is about.
            (Delivery::Ordered, _) => output.append(&mut self.arena, pool, write),
        };
        let delivery = output.delivery;
        if queued.is_ok() {
            output.messages += u64::from(subject != Subject::Transport);
            if !output.dirty && output.waiting() > 0 {
                output.dirty = true;
                self.dirty.push(MountId(mount));
            }
        }
        Some(queued.map_err(|overflow| delivery.overflowed(overflow)))
    }

    /// Queues a message for the subscribers that get its frame unchanged but for the stream id, and calls `other` with
    /// those that do not. This is the hot path.
    #[inline]
    pub(super) fn fan_out(
        &mut self,
        message: Fanned<'_>,
        subscribers: &[Subscriber],
        pool: &Pool,
        mut other: impl FnMut(Subscriber),
    ) {
        let Fanned { framed, same_for_all } = message;
        let Self { list, arena, dirty, overflows, .. } = self;
        // With one subscriber and no lists a copy is cheaper than a list.
        let shared = subscribers.len() > 1 || !arena.is_idle();
        if shared && !arena.make_room(framed.len()) {
            let older = arena.older();
            for output in list.iter_mut() {
                output.copy_list_of(older, arena);
            }
            arena.make_room(framed.len());
        }
        let mut stored = None;
        for &subscriber in subscribers {
            if let Some(output) = list.get_mut(subscriber.mount())
                && same_for_all
                && subscriber.flags() == 0
                && output.plain
            {
                let done = if shared && output.can_list() {
                    let at = *stored.get_or_insert_with(|| arena.store(framed));
                    output.list(at, framed.len(), subscriber.id, arena, pool)
                } else {
                    output.push_frame(framed, subscriber.id, arena, pool)
                };
                if let Err(overflow) = done {
                    overflows.push((output.mount, overflow));
                } else if !output.dirty {
                    output.dirty = true;
                    dirty.push(MountId(output.mount));
                }
            } else {
                other(subscriber);
            }
        }
    }

    /// The next mount that had no space for a message that was fanned out.
    #[inline]
    pub(super) fn take_overflow(&mut self) -> Option<(Ticket, Verdict)> {
        let (mount, overflow) = self.overflows.pop()?;
        let delivery = self.get(mount).map(|output| output.delivery).unwrap_or_default();
        Some((mount, delivery.overflowed(overflow)))
    }

    /// The mounts with output since the last [`Outputs::take_dirty`].
    #[inline]
    pub(super) fn dirty(&self) -> &[MountId] {
        &self.dirty
    }

    /// Adds the mounts that have had output since the last call, each once.
    pub(super) fn take_dirty(&mut self, into: &mut Vec<MountId>) {
        for id in self.dirty.drain(..) {
            if let Some(output) = self.list.get_mut(id.index()).filter(|output| output.mount == id.0) {
                output.dirty = false;
                into.push(id);
            }
        }
    }

    /// As [`Output::write`], of the mount's output; `None`: it has none.
    pub(super) fn write<E>(
        &mut self,
        mount: Ticket,
        pool: &Pool,
        put: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
    ) -> Option<(usize, Result<bool, E>)> {
        let output = self.list.get_mut(mount.index() as usize).filter(|output| output.mount == mount)?;
        Some(output.write(&mut self.arena, pool, &mut self.chunk, put))
    }

    /// Drops the output of a mount that is closed.
    pub(super) fn release(&mut self, mount: Ticket, pool: &Pool) {
        if let Some(output) = self.list.get_mut(mount.index() as usize).filter(|output| output.mount == mount)
        {
            output.release(&mut self.arena, pool);
        }
    }
}
