//! The values of a socket's options, and their defaults. Spec: tipc.md §8.9.

use super::header::SendOptions;
use super::types::SocketKind;
use crate::addr::Importance;

/// Default connect timeout, milliseconds. Spec: tipc.md §15.
pub(super) const DEFAULT_CONNECT_TIMEOUT_MS: u16 = 8000;
/// Receive buffer, bytes: smallest, default, largest (`tipc_rmem`). Spec: tipc.md §8.7.
pub(super) const RECEIVE_BUFFER: [usize; 3] = [512 * 1024, 2 * 1024 * 1024, 16 * 1024 * 1024];

/// The values of a socket's options.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) importance: Importance,
    pub(super) source_droppable: bool,
    pub(super) dest_droppable: bool,
    pub(super) connect_timeout: u16,
    pub(super) receive_buffer: usize,
    pub(super) low_water: usize,
    pub(super) no_delay: bool,
    pub(super) exact_hang_up: bool,
}

impl Settings {
    /// The defaults for a kind of socket. Spec: tipc.md §8.1.
    pub(super) const fn new(kind: SocketKind) -> Self {
        let [_, receive_buffer, _] = RECEIVE_BUFFER;
        Self {
            importance: Importance::Low,
            source_droppable: matches!(kind, SocketKind::Dgram),
            dest_droppable: !kind.is_connection_oriented(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT_MS,
            receive_buffer,
            low_water: 1,
            no_delay: false,
            exact_hang_up: false,
        }
    }

    /// Those that appear in the headers of messages.
    pub(super) const fn send_options(&self) -> SendOptions {
        let Self { importance, source_droppable, dest_droppable, .. } = *self;
        SendOptions { importance, source_droppable, dest_droppable }
    }
}
