//! The calls that wait, as errors name them.

use std::fmt;

/// A call that may wait, in [`Error::WouldBlock`](crate::Error::WouldBlock) and
/// [`Error::TimedOut`](crate::Error::TimedOut). `Display` is its name in the error's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`Listener::accept`](crate::Listener::accept).
    Accept,
    /// [`Node::start`](crate::Node::start), while the node chooses its address.
    ChooseAddress,
    /// A connection is set up.
    Connect,
    /// [`Socket::bind_exclusive`](crate::Socket::bind_exclusive).
    BindExclusive,
    /// A message is received.
    Receive,
    /// [`Requester::request`](crate::Requester::request).
    Request,
    /// A message is sent.
    Send,
    /// The binding table of the cluster arrives.
    AwaitBindings,
    /// [`Node::wait_for_service`](crate::Node::wait_for_service).
    AwaitService,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::ChooseAddress => "the choice of a node address",
            Self::Connect => "connect",
            Self::BindExclusive => "the wait for an exclusive binding",
            Self::Receive => "receive",
            Self::Request => "the request",
            Self::Send => "send",
            Self::AwaitBindings => "the wait for the binding table",
            Self::AwaitService => "the wait for a service",
        })
    }
}
