//! The values of a socket's options, and their defaults. Spec: tipc.md §8.9.

use super::error::OptionError;
use super::header::SendOptions;
use super::options::{OptionValue, SocketOption};
use super::types::SocketKind;
use crate::addr::Importance;

/// Default connect timeout, milliseconds. Spec: tipc.md §15.
const DEFAULT_CONNECT_TIMEOUT_MS: u16 = 8000;
/// Receive buffer, bytes: smallest, default, largest (`tipc_rmem`). Spec: tipc.md §8.7.
const RECEIVE_BUFFER: [usize; 3] = [512 * 1024, 2 * 1024 * 1024, 16 * 1024 * 1024];

/// The values of a socket's options.
#[derive(Debug)]
pub(super) struct Settings {
    /// Those that appear in the headers of messages.
    pub(super) send: SendOptions,
    /// Milliseconds; 0 selects the default.
    pub(super) connect_timeout: u16,
    pub(super) receive_buffer: usize,
    pub(super) low_water: usize,
    pub(super) no_delay: bool,
    pub(super) exact_hang_up: bool,
}

impl Settings {
    /// The defaults for a kind of socket. Spec: tipc.md §8.1.
    pub(super) fn new(kind: SocketKind) -> Self {
        let [_, receive_buffer, _] = RECEIVE_BUFFER;
        Self {
            send: SendOptions::new(kind),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT_MS,
            receive_buffer,
            low_water: 1,
            no_delay: false,
            exact_hang_up: false,
        }
    }

    /// Time within which a connection request must be answered, milliseconds.
    pub(super) fn request_timeout_ms(&self) -> u64 {
        u64::from(if self.connect_timeout == 0 { DEFAULT_CONNECT_TIMEOUT_MS } else { self.connect_timeout })
    }

    /// Sets an option of a socket of `kind` to a number.
    pub(super) fn set(&mut self, kind: SocketKind, option: SocketOption, n: u32) -> Result<(), OptionError> {
        match option {
            SocketOption::Importance if Importance::from_number(n).is_none() => {
                return Err(OptionError::Invalid);
            }
            SocketOption::SourceDroppable if kind == SocketKind::Stream => {
                return Err(OptionError::NoSuchOption);
            }
            SocketOption::Importance | SocketOption::SourceDroppable | SocketOption::DestDroppable => {
                self.send.set(option, OptionValue::Number(n));
            }
            SocketOption::ConnectTimeout => self.connect_timeout = (n & 0xffff) as u16,
            SocketOption::NoDelay => self.no_delay = n != 0,
            SocketOption::ReceiveBuffer => {
                let [least, _, most] = RECEIVE_BUFFER;
                self.receive_buffer = (n as usize).clamp(least, most);
            }
            SocketOption::ReceiveLowWater => self.low_water = (n as usize).max(1),
            SocketOption::ExactHangUp => self.exact_hang_up = n != 0,
            _ => return Err(OptionError::Invalid),
        }
        Ok(())
    }

    /// The value of an option; an error if it has none, or cannot be read.
    pub(super) fn get(&self, option: SocketOption) -> Result<u32, OptionError> {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(match option {
            SocketOption::Importance => self.send.importance as u32,
            SocketOption::SourceDroppable => u32::from(self.send.source_droppable),
            SocketOption::DestDroppable => u32::from(self.send.dest_droppable),
            SocketOption::ConnectTimeout => u32::from(self.connect_timeout),
            SocketOption::ReceiveBuffer => small(self.receive_buffer),
            SocketOption::ReceiveLowWater => small(self.low_water),
            SocketOption::ExactHangUp => u32::from(self.exact_hang_up),
            _ => return Err(OptionError::Invalid),
        })
    }
}
