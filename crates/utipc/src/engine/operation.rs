//! Which error a call returns, by what it was to do and why that failed.

use std::io;

use utipc_client::{Error as ClientError, Failure};
use utipc_core::socket::{BindError, ConnectError, RecvError, SendError};
use utipc_os::OsError;

use crate::{Destination, Engine, Error, ServiceRange};

/// What a call was to do, with what its error names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Bind(ServiceRange),
    Unbind,
    Join(u32),
    Leave,
    ListMembers,
    Listen,
    Accept,
    Connect,
    Send(Option<Destination>),
    Receive,
    Shutdown,
    Option,
    Other,
}

impl Operation {
    /// The table; gives back a failure that the operation does not expect.
    fn failed(self, failure: Failure) -> Result<Error, Failure> {
        Ok(match (self, failure) {
            (Self::Bind(range), Failure::Bind(why)) => Error::Bind { range, why },
            (Self::Bind(range), Failure::NoSocket(_)) => Error::Bind { range, why: BindError::InvalidState },
            (Self::Unbind, Failure::Bind(why)) => Error::Unbind(why),
            (Self::Join(group), Failure::Join(why)) => Error::Join { group, why },
            (Self::Leave | Self::ListMembers, Failure::Leave(why)) => Error::Leave(why),
            (Self::ListMembers, Failure::State) => Error::Engine {
                engine: Engine::Daemon,
                why: "the daemon is of a release that does not list members (restart it with this release)"
                    .into(),
            },
            (Self::Listen, Failure::Call(why)) => Error::Listen(why),
            (Self::Accept, Failure::Accept(why)) => Error::Accept(why),
            (Self::Connect, Failure::Connect(why)) => Error::Connect(why),
            (Self::Connect, Failure::NoSocket(_)) => Error::Connect(ConnectError::Aborted),
            (Self::Send(to), Failure::Send(why)) => Error::Send { to, why },
            (Self::Send(to), Failure::NoSocket(_)) => Error::Send { to, why: SendError::Broken },
            (Self::Send(to), Failure::Overload) => Error::Send { to, why: SendError::NoBuffers },
            (Self::Receive, Failure::Receive(why)) => Error::Receive(why),
            (Self::Receive, Failure::NoSocket(_)) => Error::Receive(RecvError::NotConnected),
            (Self::Shutdown, Failure::Call(why)) => Error::Shutdown(why),
            (Self::Option, Failure::Option(why)) => Error::Option(why),
            (_, other) => return Err(other),
        })
    }

    /// The error of a call of the client library.
    #[cold]
    pub(super) fn client_error(self, error: ClientError) -> Error {
        match error {
            ClientError::Died(socket) => Error::DaemonDied { socket },
            ClientError::Resumed(socket) => Error::Resumed { socket },
            ClientError::System(error) => Error::System(error),
            ClientError::Failed(failure) => {
                self.failed(failure).unwrap_or_else(|other| Error::Daemon(ClientError::Failed(other)))
            }
            other => Error::Daemon(other),
        }
    }

    /// The error of a system call; `failure`: what its errno means, if that is known.
    #[cold]
    pub(super) fn kernel_error(self, error: io::Error, failure: Option<Failure>) -> Error {
        let expected = failure.and_then(|failure| self.failed(failure).ok());
        expected.unwrap_or_else(|| Error::System(OsError::new("use", "a socket of the kernel's TIPC", error)))
    }
}
