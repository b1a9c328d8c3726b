//! The management protocol: the kernel's generic netlink family TIPCv2 as typed values. The crate is pure.
//!
//! A [`Request`] is an administrator's request to a node, an [`Entry`] the content of one message of the reply.
//! [`ReplyWriter`] writes the messages of a reply, [`replies`] reads them. The bytes are the kernel's, so the
//! same request goes to a daemon or to the kernel (docs/decisions/0012). Nothing here does input or output;
//! input may be hostile. To add an attribute, see "Worked examples" in ARCHITECTURE.md. Spec: tipc.md §13;
//! linux/tipc_netlink.h.
//!
//! ```
//! use utipc_manage::{Entry, Header, Node, Reply, ReplyWriter, Request, replies};
//! let message = Request::Nodes.to_bytes(&Header { family: 30, sequence: 1, ..Header::default() });
//! let (header, request) = Request::from_bytes(&message).unwrap();
//! assert_eq!(request.unwrap(), Request::Nodes);
//! let mut reply = ReplyWriter::new(header);
//! reply.entry(&Entry::Node(Node { address: 0x1001, up: true, identity: None, contact: None }));
//! reply.done();
//! let first = replies(reply.bytes()).next().unwrap().unwrap();
//! assert!(matches!(first, Reply::Entry(Entry::Node(Node { address: 0x1001, .. }))));
//! ```

mod attribute;
pub mod capture;
mod control;
mod entry;
mod errno;
pub mod family;
mod identity;
mod key;
pub mod legacy;
mod netlink;
mod reply;
mod request;

pub use attribute::{Attribute, Nest, Writer};
pub use control::{Family, FamilyRequest};
pub use entry::{
    Bearer, Connection, Contact, Domain, Down, Entry, Group, GroupMember, KeyState, Link, Media, Monitor,
    MonitorPeer, Net, Node, Path, Process, Properties, Publication, Quota, ResourceUse, Socket, Stats, Udp,
    Wide,
};
pub use errno::{Errno, Refusal};
pub use key::{KeyChange, REKEY_NOW, Secret};
pub use netlink::{Header, Message, Messages, flag, kind};
pub use reply::{Reply, ReplyWriter, entries, replies, without_error_texts};
pub use request::Request;
