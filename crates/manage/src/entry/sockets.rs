//! Entries about sockets.

use super::{MAX_TEXT, required};
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{connection, counter, socket};

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Node address.
    pub node: u32,
    /// Port number.
    pub port: u32,
    /// Service type and instance by which the connection was set up.
    pub service: Option<(u32, u32)>,
}

/// The process of a socket and the socket's traffic. A utipc extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process ID; 0 for the node's own sockets.
    pub pid: u32,
    /// User ID.
    pub uid: u32,
    /// Name of the program.
    pub program: String,
    /// Messages sent, bytes sent, messages received, bytes received, messages returned, messages refused.
    pub counters: [u64; 6],
    /// The condition that its sender waits for.
    pub wait: Option<String>,
    /// Bytes of messages that its reader has not read at the node.
    pub unread: u64,
    /// Bytes that its open lanes have carried: written and read by it. The counters do not include them.
    pub lanes: [u64; 2],
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Port number.
    pub port: u32,
    /// Node address.
    pub node: u32,
    /// The peer, if the socket is connected.
    pub connection: Option<Connection>,
    /// Whether it is unconnected and has bindings.
    pub bound: bool,
    /// Socket type as in `socket()`: 1 stream, 2 datagram, 4 reliable datagram, 5 sequenced packets.
    pub kind: Option<u32>,
    /// The process that owns the socket.
    pub process: Option<Process>,
}

impl Socket {
    pub(super) fn write(&self, out: &mut Writer<'_>, extended: bool) {
        out.u32(socket::REF, self.port);
        out.u32(socket::ADDR, self.node);
        if let Some(c) = &self.connection {
            out.nest(socket::CON, |out| {
                out.u32(connection::NODE, c.node);
                out.u32(connection::SOCK, c.port);
                if let Some((service, instance)) = c.service {
                    out.flag(connection::FLAG, true);
                    out.u32(connection::TYPE, service);
                    out.u32(connection::INST, instance);
                }
            });
        }
        out.flag(socket::HAS_PUBL, self.bound);
        if !extended {
            return;
        }
        out.optional_u32(socket::TYPE, self.kind);
        if let Some(process) = &self.process {
            out.u32(socket::UID, process.uid);
            out.u32(socket::PID, process.pid);
            out.text(socket::PROGRAM, &process.program);
            out.nest(socket::COUNTERS, |out| {
                for (which, value) in (counter::SENT..).zip(process.counters) {
                    out.u64(which, value);
                }
            });
            if let Some(wait) = &process.wait {
                out.text(socket::WAIT, wait);
            }
            out.u64(socket::UNREAD, process.unread);
            out.u64(socket::LANE_SENT, process.lanes[0]);
            out.u64(socket::LANE_RECEIVED, process.lanes[1]);
        }
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let connected = |c: Nest<'_>| -> Result<Connection, Errno> {
            let named = c.flag(connection::FLAG);
            let service = (c.u32(connection::TYPE)?.unwrap_or(0), c.u32(connection::INST)?.unwrap_or(0));
            Ok(Connection {
                node: required(c, connection::NODE)?,
                port: required(c, connection::SOCK)?,
                service: named.then_some(service),
            })
        };
        let process = match nest.u32(socket::PID)? {
            None => None,
            Some(pid) => {
                let nested = nest.nest(socket::COUNTERS).unwrap_or_default();
                let mut counters = [0; 6];
                for (which, value) in (counter::SENT..).zip(&mut counters) {
                    *value = nested.u64(which)?.unwrap_or(0);
                }
                let uid = nest.u32(socket::UID)?.unwrap_or(0);
                let program = nest.text(socket::PROGRAM, MAX_TEXT)?.unwrap_or_default();
                let number = |kind| nest.u64(kind).map(Option::unwrap_or_default);
                Some(Process {
                    pid,
                    uid,
                    program,
                    counters,
                    wait: nest.text(socket::WAIT, MAX_TEXT)?,
                    unread: number(socket::UNREAD)?,
                    lanes: [number(socket::LANE_SENT)?, number(socket::LANE_RECEIVED)?],
                })
            }
        };
        Ok(Self {
            port: required(nest, socket::REF)?,
            node: nest.u32(socket::ADDR)?.unwrap_or(0),
            connection: nest.nest(socket::CON).map(connected).transpose()?,
            bound: nest.flag(socket::HAS_PUBL),
            kind: nest.u32(socket::TYPE)?,
            process,
        })
    }
}
