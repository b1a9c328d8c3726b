//! Entries about the neighbour monitor.

use super::required;
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::monitor_peer;

/// Largest number of members of a domain of the neighbour monitor.
const MAX_MEMBERS: usize = 64;

/// The neighbour monitor of a bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Index of the bearer.
    pub bearer: u32,
    /// Name of the bearer.
    pub name: String,
    /// Whether it is active: each node supervises only some of the others.
    pub active: bool,
    /// Number of nodes, including this one.
    pub nodes: u32,
    /// Number of changes to the list of nodes.
    pub generation: u32,
}

/// The nodes that a node supervises, as its domain record announces them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Number of changes to the domain.
    pub generation: u32,
    /// Bit i: member i is up.
    pub up: u64,
    /// The members, at most 64.
    pub members: Vec<u32>,
}

/// A node in the monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorPeer {
    /// Its address.
    pub address: u32,
    /// Number of members of its domain, from the first, that agree with the own list.
    pub applied: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is the head of a domain.
    pub head: bool,
    /// Whether it is in the own domain.
    pub local: bool,
    /// The domain that it has announced.
    pub domain: Option<Domain>,
}

impl MonitorPeer {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(monitor_peer::ADDR, self.address);
        out.u32(monitor_peer::APPLIED, self.applied);
        out.flag(monitor_peer::UP, self.up);
        out.flag(monitor_peer::LOCAL, self.local);
        out.flag(monitor_peer::HEAD, self.head);
        if let Some(domain) = &self.domain {
            out.u32(monitor_peer::DOMGEN, domain.generation);
            out.u64(monitor_peer::UPMAP, domain.up);
            let members: Vec<u8> = domain.members.iter().flat_map(|m| m.to_ne_bytes()).collect();
            out.bytes(monitor_peer::MEMBERS, &members);
        }
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let domain = match nest.u32(monitor_peer::DOMGEN)? {
            None => None,
            Some(generation) => {
                let members = nest.value(monitor_peer::MEMBERS).unwrap_or_default();
                let (members, _) = members.as_chunks::<4>();
                if members.len() > MAX_MEMBERS {
                    return Err(Errno::INVALID);
                }
                let members = members.iter().map(|m| u32::from_ne_bytes(*m)).collect();
                Some(Domain { generation, up: nest.u64(monitor_peer::UPMAP)?.unwrap_or(0), members })
            }
        };
        Ok(Self {
            address: required(nest, monitor_peer::ADDR)?,
            applied: nest.u32(monitor_peer::APPLIED)?.unwrap_or(0),
            up: nest.flag(monitor_peer::UP),
            head: nest.flag(monitor_peer::HEAD),
            local: nest.flag(monitor_peer::LOCAL),
            domain,
        })
    }
}
