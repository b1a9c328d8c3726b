//! Messages that have left a node lane and wait until their endpoint accepts them, and sockets that end after them.

use std::collections::VecDeque;

use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::{Built, Unsent};
use utipc_core::stack::Stack;
use utipc_core::{NodeAddr, Time};
use utipc_os::disposal::Large;
use utipc_os::heap::shrink_queue;
use utipc_os::many::{Index, Many};

use super::node_lanes::{is_connected, is_datagram};
use super::work::{STEP_LANES, STEP_RECORDS};
use super::{Context, Effect, Job};

/// The end of a connection waits for unsent messages this long, milliseconds at most. Spec: tipc.md §8.3.
const MAX_LINGER_MS: u64 = 8000;

/// Maximum number of bytes that wait for full queues for one socket without a connection, plus one message.
/// Processes check the queues before they send, so there is seldom more than the lane held when a queue became full.
const MAX_PARKED: usize = 1 << 20;

/// How a socket ends once everything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEnd {
    /// Its connection is shut down.
    Shutdown,
    /// It is closed.
    Close,
}

/// The unsent messages of one socket: of a connection whose lane has ended; without a connection, those for nodes whose
/// queue is full, so that they do not hold up messages to other nodes.
#[derive(Debug, Default)]
struct Messages {
    /// By destination, in the order of sending; messages of a connection have no node as key.
    messages: Many<NodeAddr, VecDeque<Built>>,
    /// The node that was tried last; the next turn tries the others.
    tried: Option<NodeAddr>,
    is_listed: bool,
    /// Something has changed since: all are tried again.
    again: bool,
    bytes: usize,
    /// The user that is charged for them, and how many bytes.
    user: Option<UserId>,
    charged: u64,
    /// After the last message the connection is shut down.
    shuts_down: bool,
    /// After that the socket is closed.
    closes: bool,
}

impl Messages {
    fn new(stack: &Stack, port: u32) -> Self {
        Self { user: stack.user_of(port), ..Self::default() }
    }

    /// Charges the user for the bytes that wait now.
    fn settle(&mut self, stack: &mut Stack) {
        let (ledger, bytes) = (stack.ledger_mut(), self.bytes as u64);
        if let Some(user) = self.user {
            ledger.charge(user, Resource::Memory, bytes.saturating_sub(self.charged));
            ledger.release(user, Resource::Memory, self.charged.saturating_sub(bytes));
            self.charged = bytes;
        }
    }

    fn add(&mut self, message: Built) {
        self.bytes += cost(&message);
        let node = message.node().unwrap_or(NodeAddr::NONE);
        self.messages.get_or_insert(node, VecDeque::new).push_back(message);
    }

    /// Whether the socket ends after the last message.
    fn is_ending(&self) -> bool {
        self.shuts_down || self.closes
    }
}

/// Bytes that a message counts while it waits.
fn cost(message: &Built) -> usize {
    message.size() + size_of::<Built>()
}

/// The unsent messages of all sockets.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages {
    sockets: Index<u32, Messages>,
    /// Times at which unsent messages of ended sockets are dropped, and the sockets; oldest first.
    lingering: VecDeque<(Time, u32)>,
}

impl UnsentMessages {
    /// See [`super::Lanes::shrink`].
    pub(super) fn shrink(&mut self, part: usize) {
        self.sockets.shrink(part);
        shrink_queue(&mut self.lingering);
    }

    pub(super) fn contains(&self, port: u32) -> bool {
        self.sockets.contains(&port)
    }

    /// Whether the process has ended the socket while messages that it has sent before are unsent.
    pub(super) fn is_ending(&self, port: u32) -> bool {
        self.sockets.get(&port).is_some_and(Messages::is_ending)
    }

    /// Whether messages to this node wait already.
    pub(super) fn waits_for(&self, port: u32, node: NodeAddr) -> bool {
        self.sockets.get(&port).is_some_and(|unsent| unsent.messages.contains(&node))
    }

    /// Keeps a message without a connection until the queue to its node has room.
    ///
    /// # Errors
    /// The message: too many bytes wait already, of this socket or of its user.
    pub(super) fn park(&mut self, context: &mut Context<'_>, port: u32, message: Built) -> Result<(), Built> {
        let (stack, bytes) = (&mut *context.stack, cost(&message) as u64);
        let mut is_full = self.sockets.get(&port).is_some_and(|unsent| unsent.bytes >= MAX_PARKED);
        if let Some(user) = stack.user_of(port).filter(|_| !is_full) {
            is_full = stack.ledger_mut().check(user, Resource::Memory, bytes).is_err();
        }
        if is_full {
            return Err(message);
        }
        let message = stack.keep(port, message)?;
        let unsent = self.sockets.get_or_insert(port, || Messages::new(stack, port));
        unsent.add(message);
        unsent.settle(stack);
        Ok(())
    }

    /// Sends messages of a lane that has ended, now or when the endpoint accepts them; returns how many are malformed.
    pub(super) fn keep(&mut self, context: &mut Context<'_>, port: u32, messages: Vec<Vec<u8>>) -> u64 {
        let mut malformed = 0;
        let unsent = self.sockets.get_or_insert(port, || Messages::new(context.stack, port));
        for bytes in messages {
            match context.stack.check_built(port, bytes) {
                // Its sender has seen success: it waits wherever there is room.
                Some(message) => unsent.add(context.stack.keep(port, message).unwrap_or_else(|built| built)),
                None => malformed += 1,
            }
        }
        unsent.settle(context.stack);
        self.send(context, port);
        malformed
    }

    /// Sends unsent messages as far as the endpoint accepts them, and then ends the socket if that was to follow; what
    /// one step does not do follows in the next turns.
    pub(super) fn send(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(unsent) = self.sockets.get_mut(&port) else { return };
        if unsent.is_listed {
            unsent.again = true;
        } else {
            unsent.tried = None;
            self.try_all(context, port);
        }
    }

    /// Continues [`Self::send`].
    pub(super) fn resend(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(unsent) = self.sockets.get_mut(&port) else { return };
        unsent.is_listed = false;
        self.try_all(context, port);
    }

    fn try_all(&mut self, context: &mut Context<'_>, port: u32) {
        if !is_datagram(context.stack, port) && !is_connected(context.stack, port) {
            return self.drop_all(context, port);
        }
        let mut left = STEP_RECORDS;
        while let Some(unsent) = self.sockets.get_mut(&port) {
            let Some(node) = unsent.messages.next_after(unsent.tried) else {
                unsent.tried = None;
                if !std::mem::take(&mut unsent.again) {
                    break;
                }
                left = 0;
                continue;
            };
            if left == 0 {
                unsent.is_listed = true;
                context.later(port, Job::Resend(port));
                break;
            }
            left -= 1;
            if self.send_to(context, port, node, &mut left)
                && let Some(unsent) = self.sockets.get_mut(&port)
            {
                unsent.tried = Some(node);
            }
        }
        if self.sockets.get(&port).is_some_and(|unsent| unsent.messages.is_empty()) {
            self.drop_all(context, port);
        }
    }

    /// Sends messages that wait for one node; returns whether it takes no more, or has all.
    fn send_to(&mut self, context: &mut Context<'_>, port: u32, node: NodeAddr, left: &mut u32) -> bool {
        let Some(unsent) = self.sockets.get_mut(&port) else { return true };
        let Some(mut queue) = unsent.messages.remove(&node) else { return true };
        let (mut freed, mut is_done) = (0, true);
        while let Some(message) = queue.pop_front() {
            if *left == 0 {
                queue.push_front(message);
                is_done = false;
                break;
            }
            *left -= 1;
            let bytes = cost(&message);
            match context.stack.send_built(context.now, port, message) {
                Ok(()) => freed += bytes,
                Err(Unsent::Blocked(message)) => {
                    queue.push_front(message);
                    break;
                }
                Err(Unsent::Over) => {
                    freed += bytes + queue.iter().map(cost).sum::<usize>();
                    context.effects.push(Effect::Free(Large::new(std::mem::take(&mut queue))));
                }
            }
        }
        unsent.bytes = unsent.bytes.saturating_sub(freed);
        unsent.settle(context.stack);
        if !queue.is_empty() {
            unsent.messages.insert(node, queue);
        }
        is_done
    }

    /// Ends a connection, or closes a socket: at once, or after its unsent messages.
    pub(super) fn end(&mut self, context: &mut Context<'_>, port: u32, end: SocketEnd) {
        match (self.sockets.get_mut(&port), end) {
            (Some(unsent), _) => {
                if !unsent.is_ending() {
                    self.lingering.push_back((context.now.plus_millis(MAX_LINGER_MS), port));
                }
                // A close does not replace the shutdown before it: the peer reads the end of the shutdown.
                match end {
                    SocketEnd::Shutdown => unsent.shuts_down = true,
                    SocketEnd::Close => unsent.closes = true,
                }
                // New peers would get no reply. A socket without bindings has none to withdraw.
                let _ = context.stack.unbind(context.now, port, None);
            }
            (None, SocketEnd::Close) => context.stack.close(context.now, port),
            // A socket that is not connected refuses it, which the caller knows.
            (None, SocketEnd::Shutdown) => drop(context.stack.shutdown(context.now, port)),
        }
    }

    fn drop_all(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(mut unsent) = self.sockets.remove(&port) else { return };
        unsent.bytes = 0;
        unsent.settle(context.stack);
        if !unsent.messages.is_empty() {
            let messages = std::mem::take(&mut unsent.messages);
            context.effects.push(Effect::Free(Large::new(messages)));
        }
        if unsent.shuts_down {
            self.end(context, port, SocketEnd::Shutdown);
        }
        if unsent.closes {
            self.end(context, port, SocketEnd::Close);
        }
    }

    /// When [`Self::expire`] has something to do.
    pub(super) fn deadline(&self) -> Time {
        self.lingering.front().map_or(Time::NEVER, |(until, _)| *until)
    }

    /// Drops unsent messages of sockets that have waited too long for their end.
    pub(super) fn expire(&mut self, context: &mut Context<'_>) {
        for _ in 0..STEP_LANES {
            let Some((_, port)) = self.lingering.front().copied().filter(|(until, _)| *until <= context.now)
            else {
                return;
            };
            self.lingering.pop_front();
            if self.is_ending(port) {
                self.drop_all(context, port);
            }
        }
    }
}
