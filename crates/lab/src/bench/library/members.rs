//! The channels of members of a communication group.

use anyhow::{Context, Result, bail, ensure};
use utipc::{Destination, Group, GroupIncoming, GroupRequest, Node, PortId};

use super::super::channel::{Channel, Opened, Spinner, Waiting};
use super::super::job::{Job, LIMIT, ServerAddress};
use super::super::traffic::END;
use super::{packets, prepare, retry};

/// Type of the group.
const GROUP: u32 = 19_620;
/// Instance of the driver; servers have their index.
const DRIVER: u32 = 1000;

/// A member: the driver sends to all, a server to the member from which it has received.
struct MemberChannel {
    group: Group,
    busy: Option<Spinner>,
    /// The other members, if this is the driver.
    servers: u32,
    /// Servers that have confirmed the end.
    ended: u32,
    /// The source of the last message, if this is a server.
    source: Option<PortId>,
}

impl MemberChannel {
    fn boxed(group: Group, job: &Job, servers: u32) -> Box<dyn Channel> {
        let busy = prepare(group.socket(), job);
        Box::new(Self { group, busy, servers, ended: 0, source: None })
    }
}

/// Joins as a server.
pub(super) fn serve(node: Node, job: &Job) -> Result<Waiting> {
    let group = Group::join(&node, GroupRequest::new(GROUP, job.index)).context("join the group")?;
    let job = job.clone();
    let accept =
        move || Ok(Opened { channels: vec![MemberChannel::boxed(group, &job, 0)], packets: packets(&node) });
    Ok(Waiting { address: ServerAddress::default(), accept: Box::new(accept) })
}

/// Joins as the driver, and waits until all servers are members.
pub(super) fn drive(node: &Node, job: &Job) -> Result<Opened> {
    ensure!(job.servers > 1, "a group is measured with multicasts");
    let request = GroupRequest::new(GROUP, DRIVER).with_events();
    let group = Group::join(node, request).context("join the group")?;
    group.socket().set_receive_timeout(Some(LIMIT));
    for _ in 0..job.servers {
        match group.receive().context("wait for a server to join")? {
            GroupIncoming::Joined(_) => {}
            other => bail!("not a server that joins: {other:?}"),
        }
    }
    Ok(Opened { channels: vec![MemberChannel::boxed(group, job, job.servers)], packets: packets(node) })
}

impl Channel for MemberChannel {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let socket = self.group.socket();
        if self.servers > 0 {
            retry(self.busy, || socket.send(data))?;
        } else {
            let to = self.source.context("a server sends before it has received")?;
            retry(self.busy, || socket.send_to(data, Destination::Port(to)))?;
        }
        Ok(())
    }

    /// The driver receives the confirmations of the end, which it reports as one.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            let received = retry(self.busy, || self.group.socket().receive_into(buffer))?;
            // An event has no bytes.
            if received.len == 0 {
                continue;
            }
            if self.servers == 0 {
                self.source = Some(received.source);
                return Ok(Some(received.len));
            }
            ensure!(buffer.first() == Some(&END), "a server has sent more than the end");
            self.ended += 1;
            if self.ended == self.servers {
                return Ok(Some(received.len));
            }
        }
    }

    fn is_stream(&self) -> bool {
        false
    }
}
