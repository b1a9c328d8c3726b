//! Looking for messages before a task waits.
//!
//! A look consists of turns of about a microsecond. Between two turns the task yields: the runtime resumes it after it
//! has run all tasks that are ready and has polled its descriptors and timers. If that takes long, the runtime has
//! other work, and the look is over. Decision 19.

use std::pin::pin;
use std::task::{Context, Poll};

use ::tokio::task::yield_now;
use utipc_os::spin::{Mode, Spinning, Turn};

use crate::Socket;

/// The look of a task.
#[derive(Debug, Default)]
pub(super) struct Look {
    spinning: Option<Spinning>,
    /// A look has preceded the sleep.
    has_looked: bool,
}

impl Look {
    /// Notes that the wait for the descriptor has ended.
    pub(super) fn slept(&mut self, socket: &Socket) {
        if std::mem::take(&mut self.has_looked)
            && let Some(attached) = socket.attached()
        {
            attached.slept();
        }
    }
}

/// One turn of the look, the first of which begins it. Ready with whether a receive would find something; if not, the
/// task waits for the descriptor.
pub(super) fn turn(look: &mut Look, socket: &Socket, cx: &mut Context<'_>) -> Poll<bool> {
    let Some(attached) = socket.attached().filter(|attached| attached.is_level_deferred()) else {
        look.spinning = None;
        return Poll::Ready(false);
    };
    if look.spinning.is_none() {
        look.has_looked = true;
        look.spinning = attached.begin_turns();
    }
    let Some(spinning) = &mut look.spinning else { return Poll::Ready(attached.has_input()) };
    match attached.look_for_a_turn(spinning) {
        Turn::Found(()) => {
            look.spinning = None;
            Poll::Ready(true)
        }
        // With `Mode::Busy` the next turn begins another look.
        Turn::Over => {
            look.spinning = None;
            if attached.spin_mode() == Mode::Busy { resume_later(cx) } else { Poll::Ready(false) }
        }
        Turn::Again => resume_later(cx),
    }
}

/// Lets the runtime resume the task after it has done everything else.
fn resume_later(cx: &mut Context<'_>) -> Poll<bool> {
    match pin!(yield_now()).as_mut().poll(cx) {
        Poll::Ready(()) => cx.waker().wake_by_ref(),
        Poll::Pending => {}
    }
    Poll::Pending
}
