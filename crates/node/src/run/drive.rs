//! A call that drives: it runs turns of the event loop on its own thread.

use std::sync::Arc;
use std::time::Duration;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::OsError;
use utipc_os::spin::Mode;
use utipc_os::udp::Express;

use super::driven::Waiting;
use super::slot::{Slot, Want};
use super::state::{DriveEvent, Supervision};
use super::{Guard, Shared};
use crate::driver::{Idles, now};

/// If a wait is shorter than this, its frames had arrived before it began.
const SHORT_WAIT: Duration = Duration::from_micros(4);

/// Checks of memory per check of descriptors, which costs a system call.
const LOOKS: u32 = 64;

/// Limits of one wait of a driving call.
#[derive(Clone, Copy)]
struct Limits {
    /// Longest wait after the spinning; `None` for no limit.
    pause: Option<Duration>,
    /// End of spinning.
    spin_until: Option<Time>,
}

/// The express path that a driving call has used.
struct Path {
    index: usize,
    express: Arc<Express>,
    /// Maximum number of reads of the next wait. More than one pays only if frames come faster than they are received.
    reads: usize,
}

impl Shared {
    /// Drives on the calling thread until `attempt` returns something, or until the second of `times`; the first is
    /// now.
    pub(super) fn drive<'a, T>(
        &'a self,
        mut driven: Guard<'a>,
        (slot, want): (&Arc<Slot>, Want),
        (mut time, until): (Time, Time),
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        let mut waiting = driven.idle.take()?;
        driven.change_drive(DriveEvent::CallerBegins);
        driven.drives += 1;
        slot.enter(want);
        driven.send_and_notify();
        driven.driving = Some(Arc::clone(slot));
        let mut path: Option<Path> = None;
        let done = loop {
            let pause = driven.node.pause(time, until);
            // Timers and the call's own limit also end the spinning.
            let spin = driven.spin.min(pause.unwrap_or(Duration::MAX));
            let limits = Limits {
                pause: pause.map(|pause| pause.saturating_sub(spin)),
                spin_until: (!spin.is_zero()).then(|| time + spin),
            };
            let open = driven.node.express_path(pause);
            if path.is_none()
                && let Some(index) = open
            {
                path = driven.node.express(index).map(|express| Path { index, express, reads: 1 });
            }
            (driven, time) = match path.as_mut().filter(|path| open == Some(path.index)) {
                Some(path) => self.receive_on_express(driven, path, &mut waiting, limits, time),
                None => self.receive_in_event_loop(driven, &mut waiting, limits),
            };
            let done = finish_turn(&mut driven, path.as_ref(), &mut waiting, time, &mut attempt);
            if done.is_some() || time >= until {
                break done;
            }
        };
        slot.leave(want);
        driven.driving = None;
        driven.node.disarm();
        driven.idle = Some(waiting);
        driven.change_drive(DriveEvent::CallerEnds);
        if !driven.waiting.is_empty() || driven.supervision.is_asleep() || driven.polled > 0 {
            self.hand_over(&mut driven);
        }
        done
    }

    /// Waits on an express path, without the lock, and receives what came. Returns the time after the wait.
    fn receive_on_express<'a>(
        &'a self,
        mut driven: Guard<'a>,
        path: &mut Path,
        waiting: &mut Waiting,
        limits: Limits,
        before: Time,
    ) -> (Guard<'a>, Time) {
        driven.change_drive(DriveEvent::CallerWaitsOn(path.index));
        if driven.supervision == Supervision::Asleep {
            self.wake_supervisor(&driven);
        }
        drop(driven);
        let read = wait_on_express(path, waiting, limits);
        driven = self.lock();
        driven.change_drive(DriveEvent::CallerReturns);
        let time = now();
        path.reads = if time.since(before) < SHORT_WAIT { usize::MAX } else { 1 };
        driven.node.receive_express(time, path.index, read.map(|()| &waiting.ring));
        (driven, time)
    }

    /// Waits in the event loop, without the lock, and receives what came. Returns the time after the wait.
    fn receive_in_event_loop<'a>(
        &'a self,
        mut driven: Guard<'a>,
        waiting: &mut Waiting,
        limits: Limits,
    ) -> (Guard<'a>, Time) {
        let idles = driven.node.idles();
        drop(driven);
        let waited = wait_in_event_loop(waiting, limits, &idles);
        driven = self.lock();
        let time = now();
        if waited.is_err() {
            driven.node.receive_all(time);
        }
        driven.node.receive(time, &waiting.ready);
        (driven, time)
    }
}

/// The rest of a turn: timers, the call's own attempt, frames and wake-ups.
fn finish_turn<T>(
    driven: &mut Guard<'_>,
    path: Option<&Path>,
    waiting: &mut Waiting,
    time: Time,
    attempt: &mut impl FnMut(&mut Stack, Time) -> Option<T>,
) -> Option<T> {
    driven.node.handle_timeout(time);
    let mut done = attempt(&mut driven.node.stack, time);
    if done.is_none()
        && driven.node.stack.only_acknowledges()
        && let Some(path) = path
        && path.express.poll(&mut waiting.ring, usize::MAX).is_ok()
        && waiting.ring.filled() > 0
    {
        // One acknowledgement covers these frames and those that have arrived since.
        driven.node.receive_express(time, path.index, Ok(&waiting.ring));
        done = attempt(&mut driven.node.stack, time);
    }
    driven.send_and_notify();
    // The attempt has seen everything that has arrived.
    driven.recall = false;
    done
}

/// Waits on an express path, and reads its frames into the ring.
fn wait_on_express(path: &Path, waiting: &mut Waiting, limits: Limits) -> std::io::Result<()> {
    while limits.spin_until.is_some_and(|end| now() < end) {
        path.express.poll(&mut waiting.ring, path.reads)?;
        if waiting.ring.filled() > 0 {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    path.express.wait(&mut waiting.ring, path.reads, limits.pause)
}

/// Waits in the event loop, and lists the descriptors that are ready; frames that bearers report in memory are not
/// listed.
fn wait_in_event_loop(waiting: &mut Waiting, limits: Limits, idles: &Idles) -> Result<(), OsError> {
    let Waiting { reactor, ready, spin, .. } = waiting;
    ready.clear();
    if limits.pause == Some(Duration::ZERO) {
        return reactor.wait(limits.pause, ready).map(|_| ());
    }
    let mut looks = 0_u32;
    let mut look = || {
        if idles.iter().any(|idle| idle.has_frames()) {
            return Some(Ok(()));
        }
        looks = looks.wrapping_add(1);
        if !idles.is_empty() && !looks.is_multiple_of(LOOKS) {
            return None;
        }
        match reactor.wait(Some(Duration::ZERO), ready) {
            Ok(false) if ready.is_empty() => None,
            found => Some(found.map(|_| ())),
        }
    };
    while limits.spin_until.is_some_and(|end| now() < end) {
        if let Some(found) = look() {
            return found;
        }
        std::hint::spin_loop();
    }
    if idles.is_empty() {
        return reactor.wait(limits.pause, ready).map(|_| ());
    }
    if let Some(found) = spin.spin(false, look) {
        return found;
    }
    if spin.mode() == Mode::Busy {
        return Ok(());
    }
    if idles.iter().any(|idle| idle.prepare_sleep()) {
        return Ok(());
    }
    reactor.wait(limits.pause, ready)?;
    if !ready.is_empty() {
        spin.slept();
    }
    Ok(())
}
