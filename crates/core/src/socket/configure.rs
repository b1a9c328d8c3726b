//! Setting and reading the options of a socket. Spec: tipc.md §8.9.

use super::endpoint::Endpoint;
use super::error::OptionError;
use super::options::{OptionValue, SocketOption};
use super::settings::RECEIVE_BUFFER;
use super::types::{Method, RecvOptions, SocketKind};
use super::uplink::Uplink;
use crate::addr::Importance;

impl Endpoint {
    /// Sets an option.
    ///
    /// # Errors
    /// See [`OptionError`].
    pub fn set_option(
        &mut self,
        option: SocketOption,
        value: OptionValue,
        uplink: &mut dyn Uplink,
    ) -> Result<(), OptionError> {
        match (option, value) {
            // The request does not fit an option's value: see `join`.
            (SocketOption::GroupJoin, _) => Err(OptionError::NotSupported),
            (SocketOption::GroupLeave, OptionValue::None) => {
                self.leave(uplink).map_err(|_| OptionError::Invalid)
            }
            (SocketOption::MulticastBroadcast, OptionValue::None) => {
                uplink.multicast_method(self.port, Some(Method::Broadcast));
                Ok(())
            }
            (SocketOption::MulticastReplicast, OptionValue::None) => {
                if let Some(group) = &mut self.group {
                    group.force_replicast();
                }
                uplink.multicast_method(self.port, Some(Method::Replicast));
                Ok(())
            }
            (_, OptionValue::Number(n)) => self.set_number(option, n),
            _ => Err(OptionError::Invalid),
        }
    }

    fn set_number(&mut self, option: SocketOption, n: u32) -> Result<(), OptionError> {
        match option {
            SocketOption::Importance => {
                self.settings.importance = Importance::from_number(n).ok_or(OptionError::Invalid)?;
            }
            SocketOption::SourceDroppable if self.kind == SocketKind::Stream => {
                return Err(OptionError::NoSuchOption);
            }
            SocketOption::SourceDroppable => self.settings.source_droppable = n != 0,
            SocketOption::DestDroppable => self.settings.dest_droppable = n != 0,
            SocketOption::ConnectTimeout => self.settings.connect_timeout = (n & 0xffff) as u16,
            SocketOption::NoDelay => {
                self.settings.no_delay = n != 0;
                if self.settings.no_delay {
                    self.nagle.set_max(0);
                } else {
                    self.allow_nagle();
                }
            }
            SocketOption::ReceiveBuffer => {
                let [least, _, most] = RECEIVE_BUFFER;
                self.settings.receive_buffer = (n as usize).clamp(least, most);
            }
            SocketOption::ReceiveLowWater => self.settings.low_water = (n as usize).max(1),
            SocketOption::ExactHangUp => self.settings.exact_hang_up = n != 0,
            _ => return Err(OptionError::Invalid),
        }
        Ok(())
    }

    /// Reads an option.
    ///
    /// # Errors
    /// [`OptionError::Invalid`] if the option is not readable.
    pub fn option(&self, option: SocketOption) -> Result<u32, OptionError> {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(match option {
            SocketOption::Importance => self.settings.importance as u32,
            SocketOption::SourceDroppable => u32::from(self.settings.source_droppable),
            SocketOption::DestDroppable => u32::from(self.settings.dest_droppable),
            SocketOption::ConnectTimeout => u32::from(self.settings.connect_timeout),
            SocketOption::NodeReceiveQueueDepth => 0,
            SocketOption::ReceiveQueueDepth => small(self.queue.len()),
            SocketOption::ReceiveQueueUsed => small(self.queue.charged()),
            SocketOption::ReceiveBuffer => small(self.settings.receive_buffer),
            SocketOption::ReceiveLowWater => small(self.settings.low_water),
            SocketOption::GroupJoin => self.group.as_ref().map_or(0, |group| group.request().member.service),
            SocketOption::ExactHangUp => u32::from(self.settings.exact_hang_up),
            _ => return Err(OptionError::Invalid),
        })
    }

    /// Bytes that a blocking receive on a STREAM collects, in several calls of [`Self::recv`], before it returns: the
    /// low-water mark, or the whole buffer with [`RecvOptions::wait_all`]. 1 for other kinds.
    #[must_use]
    pub fn receive_goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.kind {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => self.settings.low_water.min(buffer),
            _ => 1,
        }
    }
}
