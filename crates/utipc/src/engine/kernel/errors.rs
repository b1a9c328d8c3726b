//! Translation of the kernel's errno to failures, and so to errors of the API.

use std::io;

use utipc_client::Failure;
use utipc_core::group::{JoinError, LeaveError};
use utipc_core::socket::{
    AcceptError, BindError, ConnectError, Errno, OptionError, RecvError, SendError, StateError,
};

use crate::Error;
use crate::engine::operation::Operation;

/// What each errno of a call means.
type Meanings<T> = [(Errno, T)];

const BIND: &Meanings<BindError> = &[
    (Errno::Access, BindError::Reserved),
    (Errno::Invalid, BindError::InvalidRange),
    (Errno::AddressInUse, BindError::TooMany),
    (Errno::AddressNotAvailable, BindError::NotBound),
];

/// The request itself is valid.
const JOIN: &Meanings<JoinError> = &[
    (Errno::Access, JoinError::AlreadyJoined),
    (Errno::AddressInUse, JoinError::Bind(BindError::TooMany)),
    // A kernel before 4.14.
    (Errno::Invalid, JoinError::Unsupported),
    (Errno::NoProtocolOption, JoinError::Unsupported),
];

const LEAVE: &Meanings<LeaveError> = &[(Errno::Invalid, LeaveError::NotJoined)];

const SEND: &Meanings<SendError> = &[
    (Errno::Again, SendError::WouldBlock),
    (Errno::MessageSize, SendError::MessageSize),
    (Errno::DestAddrRequired, SendError::DestinationRequired),
    (Errno::HostUnreachable, SendError::HostUnreachable),
    (Errno::Invalid, SendError::InvalidDestination),
    (Errno::Pipe, SendError::Broken),
    (Errno::NotConnected, SendError::NotConnected),
    (Errno::IsConnected, SendError::IsConnected),
    (Errno::NotSupported, SendError::BoundSocket),
    (Errno::NoBuffers, SendError::NoBuffers),
    (Errno::NoMemory, SendError::NoBuffers),
    (Errno::ConnectionRefused, SendError::Refused),
    (Errno::TimedOut, SendError::TimedOut),
];

const RECEIVE: &Meanings<RecvError> = &[
    (Errno::Again, RecvError::WouldBlock),
    (Errno::Invalid, RecvError::EmptyBuffer),
    (Errno::NotConnected, RecvError::NotConnected),
    (Errno::ConnectionReset, RecvError::ConnectionReset),
    (Errno::ConnectionRefused, RecvError::Refused),
    (Errno::TimedOut, RecvError::TimedOut),
    (Errno::ConnectionAborted, RecvError::Aborted),
];

/// A connection request that was refused; one that could not be sent is in [`SEND`].
const CONNECT: &Meanings<ConnectError> = &[
    (Errno::Already, ConnectError::Already),
    (Errno::TimedOut, ConnectError::TimedOut),
    (Errno::ConnectionRefused, ConnectError::Refused),
    (Errno::ConnectionAborted, ConnectError::Aborted),
];

const ACCEPT: &Meanings<AcceptError> = &[
    (Errno::Again, AcceptError::WouldBlock),
    (Errno::Invalid, AcceptError::NotListening),
    (Errno::NotSupported, AcceptError::NotListening),
];

const STATE: &Meanings<StateError> = &[
    (Errno::NotSupported, StateError::Connectionless),
    (Errno::Invalid, StateError::InUse),
    (Errno::NotConnected, StateError::NotConnected),
];

const OPTION: &Meanings<OptionError> = &[
    (Errno::Invalid, OptionError::Invalid),
    (Errno::NoProtocolOption, OptionError::NoSuchOption),
    (Errno::NotSupported, OptionError::NotSupported),
];

/// The error of a call of the kernel; [`Error::System`] for an errno without a meaning.
pub(super) fn error_of(operation: Operation, error: io::Error) -> Error {
    let failure = error.raw_os_error().and_then(|number| failure(operation, number));
    operation.kernel_error(error, failure)
}

fn failure(operation: Operation, number: i32) -> Option<Failure> {
    fn find<T: Copy>(all: &Meanings<T>, number: i32) -> Option<T> {
        all.iter().find(|(errno, _)| errno.number() == number).map(|(_, why)| *why)
    }
    match operation {
        Operation::Bind(_) | Operation::Unbind => find(BIND, number).map(Failure::Bind),
        Operation::Join(_) => find(JOIN, number).map(Failure::Join),
        Operation::Leave => find(LEAVE, number).map(Failure::Leave),
        Operation::Listen | Operation::Shutdown => find(STATE, number).map(Failure::Call),
        Operation::Accept => find(ACCEPT, number).map(Failure::Accept),
        Operation::Connect => {
            let refused = find(CONNECT, number);
            refused.or_else(|| find(SEND, number).map(ConnectError::Send)).map(Failure::Connect)
        }
        Operation::Send(_) => find(SEND, number).map(Failure::Send),
        Operation::Receive => find(RECEIVE, number).map(Failure::Receive),
        Operation::Option => find(OPTION, number).map(Failure::Option),
        Operation::ListMembers | Operation::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_map_back_to_their_errno() {
        for (errno, why) in SEND.iter().filter(|(errno, _)| *errno != Errno::NoMemory) {
            assert_eq!(why.errno(), *errno);
        }
        let error = |operation, number| error_of(operation, io::Error::from_raw_os_error(number));
        let lost = error(Operation::Receive, Errno::ConnectionReset.number());
        assert!(matches!(lost, Error::Receive(RecvError::ConnectionReset)));
        let odd = error(Operation::Receive, 71); // EPROTO
        assert_eq!(odd.errno(), 71);
        let unreachable = error(Operation::Connect, Errno::HostUnreachable.number());
        assert!(matches!(unreachable, Error::Connect(ConnectError::Send(SendError::HostUnreachable))));
    }
}
