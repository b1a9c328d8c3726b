//! The protocol between an application's library and the daemon, as bytes; pure.
//!
//! An *attachment* is one AF_UNIX SEQPACKET connection from a process to its daemon. It begins with a [`Hello`] and a
//! [`Welcome`] (or a [`Refusal`]), which agree on a version. Then the process repeatedly sends a [`Request`] and reads
//! one [`Reply`]; the daemon replies to each at once. The daemon reports changes by [`Notice`]s, which travel with the
//! next reply in one [`Envelope`]. Payload of a request or reply follows it in the same packet. See decision 8 and
//! docs/spec/attach.md.

mod codec;
mod greeting;
mod lanes;
mod notice;
mod reply;
mod request;
mod types;

pub use codec::{BadMessage, MAX_PACKET, decode, encode};
pub use greeting::{Greeting, Hello, NEWEST, OLDEST, Refusal, Welcome, agree};
pub use lanes::{LaneEnd, LaneId, PairId};
pub use notice::{Envelope, Notice};
pub use reply::{Failure, MAX_AWAITED, MAX_GROUP_MEMBERS, Reply};
pub use request::{LaneCall, ProcessCall, Request, SocketCall};
pub use types::SocketView;
