//! Translation of the kernel's errno to errors of the API.

use std::io;

use utipc_core::group::{JoinError, LeaveError};
use utipc_core::socket::{
    AcceptError, BindError, ConnectError, Errno, OptionError, RecvError, SendError, StateError,
};

use crate::Error;

/// Looks an errno up in a list of reasons; any other becomes [`Error::System`].
fn translate<T: Copy>(error: io::Error, all: &[(Errno, T)], known: impl FnOnce(T) -> Error) -> Error {
    let number = error.raw_os_error();
    match all.iter().find(|(errno, _)| Some(errno.number()) == number) {
        Some((_, reason)) => known(*reason),
        None => Error::System(utipc_os::OsError::new("use", "a socket of the kernel's TIPC", error)),
    }
}

pub(super) fn bind_error(error: io::Error, known: impl FnOnce(BindError) -> Error) -> Error {
    let all = [
        (Errno::Access, BindError::Reserved),
        (Errno::Invalid, BindError::InvalidRange),
        (Errno::AddressInUse, BindError::TooMany),
        (Errno::AddressNotAvailable, BindError::NotBound),
    ];
    translate(error, &all, known)
}

/// A group that was not joined. The request itself is valid.
pub(super) fn join_error(error: io::Error, known: impl FnOnce(JoinError) -> Error) -> Error {
    let all = [
        (Errno::Access, JoinError::AlreadyJoined),
        (Errno::AddressInUse, JoinError::Bind(BindError::TooMany)),
        // A kernel before 4.14.
        (Errno::Invalid, JoinError::Unsupported),
        (Errno::NoProtocolOption, JoinError::Unsupported),
    ];
    translate(error, &all, known)
}

pub(super) fn leave_error(error: io::Error) -> Error {
    translate(error, &[(Errno::Invalid, LeaveError::NotJoined)], Error::Leave)
}

const SEND_ERRORS: [(Errno, SendError); 13] = [
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

pub(super) fn send_error(error: io::Error, known: impl FnOnce(SendError) -> Error) -> Error {
    translate(error, &SEND_ERRORS, known)
}

pub(super) fn receive_error(error: io::Error) -> Error {
    let all = [
        (Errno::Again, RecvError::WouldBlock),
        (Errno::Invalid, RecvError::EmptyBuffer),
        (Errno::NotConnected, RecvError::NotConnected),
        (Errno::ConnectionReset, RecvError::ConnectionReset),
        (Errno::ConnectionRefused, RecvError::Refused),
        (Errno::TimedOut, RecvError::TimedOut),
        (Errno::ConnectionAborted, RecvError::Aborted),
    ];
    translate(error, &all, Error::Receive)
}

/// A connection request that could not be sent, or was refused.
pub(super) fn connect_error(error: io::Error) -> Error {
    let all = [
        (Errno::Already, ConnectError::Already),
        (Errno::TimedOut, ConnectError::TimedOut),
        (Errno::ConnectionRefused, ConnectError::Refused),
        (Errno::ConnectionAborted, ConnectError::Aborted),
    ];
    let number = error.raw_os_error();
    if all.iter().any(|(errno, _)| Some(errno.number()) == number) {
        return translate(error, &all, Error::Connect);
    }
    send_error(error, |why| Error::Connect(ConnectError::Send(why)))
}

pub(super) fn accept_error(error: io::Error) -> Error {
    let all = [
        (Errno::Again, AcceptError::WouldBlock),
        (Errno::Invalid, AcceptError::NotListening),
        (Errno::NotSupported, AcceptError::NotListening),
    ];
    translate(error, &all, Error::Accept)
}

pub(super) fn state_error(error: io::Error, known: impl FnOnce(StateError) -> Error) -> Error {
    let all = [
        (Errno::NotSupported, StateError::Connectionless),
        (Errno::Invalid, StateError::InUse),
        (Errno::NotConnected, StateError::NotConnected),
    ];
    translate(error, &all, known)
}

pub(super) fn option_error(error: io::Error) -> Error {
    let all = [
        (Errno::Invalid, OptionError::Invalid),
        (Errno::NoProtocolOption, OptionError::NoSuchOption),
        (Errno::NotSupported, OptionError::NotSupported),
    ];
    translate(error, &all, Error::Option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_map_back_to_their_errno() {
        for (errno, why) in SEND_ERRORS.iter().filter(|(errno, _)| *errno != Errno::NoMemory) {
            assert_eq!(why.errno(), *errno);
        }
        let lost = io::Error::from_raw_os_error(Errno::ConnectionReset.number());
        assert!(matches!(receive_error(lost), Error::Receive(RecvError::ConnectionReset)));
        let odd = io::Error::from_raw_os_error(71); // EPROTO
        assert_eq!(receive_error(odd).errno(), 71);
        let busy = io::Error::from_raw_os_error(Errno::HostUnreachable.number());
        assert!(matches!(
            connect_error(busy),
            Error::Connect(ConnectError::Send(SendError::HostUnreachable))
        ));
    }
}
