//! Entries about communication groups. A utipc extension.

use super::{MAX_TEXT, required};
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::group;

/// A socket in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The socket's port.
    pub port: u32,
    /// The group: its service type.
    pub service: u32,
    /// The socket's instance.
    pub instance: u32,
    /// Scope: 2 cluster, 3 node.
    pub scope: u32,
    /// The socket gets its own messages too.
    pub loopback: bool,
    /// Members that join and leave are reported to the socket.
    pub events: bool,
    /// Number of members, without the socket itself unless it gets its own messages.
    pub members: u32,
    /// Process that opened the socket; 0 for the node itself.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its program.
    pub program: String,
    /// The condition that the last send waits for.
    pub wait: Option<String>,
    /// The policy for slow members; none: sends wait, as on Linux.
    pub policy: Option<String>,
    /// The member that has evicted the socket.
    pub evicted: Option<String>,
}

/// A member of a group, as seen by one socket in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    /// Its port.
    pub port: u32,
    /// Its node.
    pub node: u32,
    /// Its instance.
    pub instance: u32,
    /// Its state.
    pub state: String,
    /// Blocks that may still be sent to it.
    pub window: u32,
    /// Blocks that it may still send.
    pub granted: u32,
    /// Blocks received from it and not read.
    pub unread: u32,
    /// Messages from it that wait for an earlier one.
    pub deferred: u32,
    /// Messages that it did not get because it is slow.
    pub dropped: u64,
    /// Messages for it that newer messages with the same key have replaced.
    pub conflated: u64,
    /// Messages that wait until it has room.
    pub kept: u32,
}

impl Group {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(group::PORT, self.port);
        out.u32(group::TYPE, self.service);
        out.u32(group::INSTANCE, self.instance);
        out.u32(group::SCOPE, self.scope);
        out.flag(group::LOOPBACK, self.loopback);
        out.flag(group::EVENTS, self.events);
        out.u32(group::MEMBERS, self.members);
        out.u32(group::PID, self.pid);
        out.u32(group::UID, self.uid);
        out.text(group::PROGRAM, &self.program);
        if let Some(wait) = &self.wait {
            out.text(group::WAIT, wait);
        }
        if let Some(policy) = &self.policy {
            out.text(group::POLICY, policy);
        }
        if let Some(by) = &self.evicted {
            out.text(group::EVICTED, by);
        }
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        Ok(Self {
            port: required(nest, group::PORT)?,
            service: required(nest, group::TYPE)?,
            instance: required(nest, group::INSTANCE)?,
            scope: required(nest, group::SCOPE)?,
            loopback: nest.flag(group::LOOPBACK),
            events: nest.flag(group::EVENTS),
            members: required(nest, group::MEMBERS)?,
            pid: required(nest, group::PID)?,
            uid: required(nest, group::UID)?,
            program: nest.text(group::PROGRAM, MAX_TEXT)?.unwrap_or_default(),
            wait: nest.text(group::WAIT, MAX_TEXT)?,
            policy: nest.text(group::POLICY, MAX_TEXT)?,
            evicted: nest.text(group::EVICTED, MAX_TEXT)?,
        })
    }
}

impl GroupMember {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.u32(group::PORT, self.port);
        out.u32(group::NODE, self.node);
        out.u32(group::INSTANCE, self.instance);
        out.text(group::STATE, &self.state);
        out.u32(group::WINDOW, self.window);
        out.u32(group::GRANTED, self.granted);
        out.u32(group::UNREAD, self.unread);
        out.u32(group::DEFERRED, self.deferred);
        // Only of sockets with a policy: readers of earlier releases see what they know.
        if (self.dropped, self.conflated, self.kept) != (0, 0, 0) {
            out.u64(group::DROPPED, self.dropped);
            out.u64(group::CONFLATED, self.conflated);
            out.u32(group::KEPT, self.kept);
        }
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        Ok(Self {
            port: required(nest, group::PORT)?,
            node: required(nest, group::NODE)?,
            instance: required(nest, group::INSTANCE)?,
            state: nest.text(group::STATE, MAX_TEXT)?.unwrap_or_default(),
            window: required(nest, group::WINDOW)?,
            granted: required(nest, group::GRANTED)?,
            unread: required(nest, group::UNREAD)?,
            deferred: required(nest, group::DEFERRED)?,
            dropped: nest.u64(group::DROPPED)?.unwrap_or_default(),
            conflated: nest.u64(group::CONFLATED)?.unwrap_or_default(),
            kept: nest.u32(group::KEPT)?.unwrap_or_default(),
        })
    }
}
