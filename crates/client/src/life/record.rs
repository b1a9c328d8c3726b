//! The state that the program has given to a socket, which the socket has with the next daemon too.

use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::socket::{Destination, OptionValue, SocketOption};

/// The record of one socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) bindings: Vec<(ServiceRange, Scope)>,
    pub(crate) options: Vec<(SocketOption, OptionValue)>,
    pub(crate) default_to: Option<Destination>,
    pub(crate) group: Option<(GroupRequest, GroupPolicy)>,
    pub(crate) listens: bool,
}

impl Record {
    /// Removes a binding; `None`: all, and the group.
    pub(crate) fn unbind(&mut self, which: Option<(ServiceRange, Scope)>) {
        match which {
            None => {
                self.bindings.clear();
                self.group = None;
            }
            Some(which) => {
                if let Some(at) = self.bindings.iter().position(|binding| *binding == which) {
                    self.bindings.remove(at);
                }
            }
        }
    }

    pub(crate) fn set_option(&mut self, option: SocketOption, value: OptionValue) {
        self.options.retain(|(other, _)| *other != option);
        self.options.push((option, value));
    }
}
