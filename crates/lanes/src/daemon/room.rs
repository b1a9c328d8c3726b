//! Programs that poll until a full lane has room: if the reader frees none in time, the daemon ends the wait, and the
//! next send finds that the receiver does not read. Decision 50.

use utipc_core::Time;

use super::work::STEP_LANES;
use super::{Context, Effect, Lanes};

impl Lanes {
    /// Makes the descriptor of a socket writable in `millis`; replaces an earlier time.
    pub fn await_room(&mut self, now: Time, port: u32, millis: u8) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let until = now.plus_millis(millis.into());
        if let Some(earlier) = socket.awaits_room_until.replace(until) {
            self.room_waits.remove(&(earlier, port));
        }
        self.room_waits.insert((until, port), ());
    }

    /// Ends waits whose time is over: some now, the others by the next call.
    pub(super) fn expire_room_waits(&mut self, context: &mut Context<'_>) {
        for _ in 0..STEP_LANES {
            let Some((_, port)) = self.room_waits.first().filter(|(until, _)| *until <= context.now) else {
                return;
            };
            self.forget_room_wait(port);
            context.effects.push(Effect::Writable(port));
        }
    }

    pub(super) fn forget_room_wait(&mut self, port: u32) {
        if let Some(socket) = self.sockets.get_mut(&port)
            && let Some(until) = socket.awaits_room_until.take()
        {
            self.room_waits.remove(&(until, port));
        }
    }
}
