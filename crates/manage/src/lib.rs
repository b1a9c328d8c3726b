//! The one language of management: what the kernel's generic-netlink family TIPCv2 understands, as typed values; pure.
//!
//! A [`Request`] is what an administrator asks, an [`Entry`] what one message of the answer says, [`Answer`] writes the
//! messages of an answer and [`replies`] reads them. The bytes are those that the kernel's own TIPC takes and gives, so that
//! the same question goes to a daemon and to the kernel (decision 12). Nothing here does input or output; whatever
//! arrives may be hostile. Spec: tipc.md §13.1; linux/tipc_netlink.h.
//!
//! ```
//! use utipc_manage::{Entry, Header, Node, Request, Answer, Reply, replies};
//! let question = Request::Nodes.to_bytes(&Header { family: 30, sequence: 1, ..Header::default() });
//! let (header, request) = Request::from_bytes(&question).unwrap();
//! assert_eq!(request.unwrap(), Request::Nodes);
//! let mut answer = Answer::new(header);
//! answer.entry(&Entry::Node(Node { address: 0x1001, up: true, identity: None }));
//! answer.done();
//! let first = replies(answer.bytes()).next().unwrap().unwrap();
//! assert!(matches!(first, Reply::Entry(Entry::Node(Node { address: 0x1001, .. }))));
//! ```

mod answer;
mod attribute;
mod control;
mod entry;
mod errno;
pub mod family;
mod netlink;
mod request;

pub use answer::{Answer, Reply, replies, without_words};
pub use attribute::{Attribute, Nest, Writer};
pub use control::{Family, FamilyQuestion};
pub use entry::{
    Bearer, Connection, Domain, Down, Entry, Link, Media, Monitor, MonitorPeer, Net, Node, Process,
    Properties, Publication, Socket, Stats, Udp,
};
pub use errno::{Errno, Refusal};
pub use netlink::{Header, Message, Messages, flag, kind};
pub use request::Request;
