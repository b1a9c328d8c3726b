//! Management requests to the kernel, over generic netlink.

use std::io;

use utipc_manage::{Entry, Family, FamilyRequest, Header, Messages, Reply, Request, flag, kind, replies};
use utipc_os::af_tipc::Netlink;

/// A netlink socket, with the number of the kernel's family TIPCv2.
#[derive(Debug)]
pub(crate) struct TipcNetlink {
    socket: Netlink,
    family: u16,
}

impl TipcNetlink {
    /// Opens a socket and resolves the family; an error if the kernel has no TIPC.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = Netlink::open()?;
        socket.send(&FamilyRequest::own(1))?;
        let family = Family::from_bytes(&socket.receive()?);
        let Family(family) = family.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { socket, family })
    }

    /// Sends a request; returns all messages of the reply.
    pub(crate) fn exchange(&self, request: &Request) -> io::Result<Vec<u8>> {
        let header = Header { family: self.family, sequence: 1, ..Header::default() };
        self.socket.send(&request.to_bytes(&header))?;
        let mut reply = Vec::new();
        loop {
            let packet = self.socket.receive()?;
            let ended = Messages::new(&packet).any(|message| is_end(&message.header));
            reply.extend_from_slice(&packet);
            if ended || packet.is_empty() {
                return Ok(reply);
            }
        }
    }

    /// Sends a request; returns the entries of the reply, or the errno of a refusal.
    pub(crate) fn entries(&self, request: &Request) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for reply in replies(&self.exchange(request)?) {
            match reply {
                Ok(Reply::Entry(entry)) => entries.push(entry),
                Ok(Reply::Refused(refusal)) => return Err(io::Error::from_raw_os_error(refusal.errno.0)),
                // The end, or an entry that this version does not know.
                Ok(Reply::Done) | Err(_) => {}
            }
        }
        Ok(entries)
    }
}

/// Whether this message ends the reply: the end of a list, an error or an acknowledgement.
const fn is_end(header: &Header) -> bool {
    header.family == kind::DONE || header.family == kind::ERROR && header.flags & flag::MULTI == 0
}
