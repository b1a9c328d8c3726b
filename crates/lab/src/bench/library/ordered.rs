//! The channels of members of an ordered group, for its multicasts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use utipc::Node;
use utipc::ordered::{Incoming, Order, Ordered};

use super::super::channel::{Channel, Opened, Waiting};
use super::super::job::{Job, LIMIT, ServerAddress};
use super::super::traffic::END;
use super::super::variant::Kind;
use super::packets;

/// Type of the group.
const GROUP: u32 = 19_621;
/// Instance of the driver; servers have their index.
const DRIVER: u32 = 1000;

/// A member. The driver sends, and receives its own messages too.
struct OrderedChannel {
    member: Ordered,
    /// The other members, if this is the driver.
    servers: u32,
    /// Servers that have confirmed the end.
    ended: u32,
}

fn join(node: &Node, job: &Job, instance: u32) -> Result<Ordered> {
    let order = if job.variant.kind == Kind::Safe { Order::Safe } else { Order::Agreed };
    let settings = Ordered::builder(GROUP).instance(instance).order(order).patience(LIMIT / 4);
    let settings = if instance == DRIVER { settings.founder() } else { settings };
    let member = settings.join(node).context("join the ordered group")?;
    member.set_receive_timeout(Some(LIMIT));
    member.set_send_timeout(Some(LIMIT));
    Ok(member)
}

/// Joins as a server.
pub(super) fn serve(node: Node, job: &Job) -> Result<Waiting> {
    let member = join(&node, job, job.index)?;
    let accept = move || {
        let channel = OrderedChannel { member, servers: 0, ended: 0 };
        Ok(Opened { channels: vec![Box::new(channel)], packets: packets(&node) })
    };
    Ok(Waiting { address: ServerAddress::default(), accept: Box::new(accept) })
}

/// Joins as the driver, and waits until all servers are in the view.
pub(super) fn drive(node: &Node, job: &Job) -> Result<Opened> {
    ensure!(job.servers > 1, "an ordered group is measured with multicasts");
    let member = join(node, job, DRIVER)?;
    let mut members = 0;
    while members <= job.servers as usize {
        if let Incoming::View(view) = member.receive().context("wait for all servers in the view")? {
            members = view.members.len();
        }
    }
    let channel = OrderedChannel { member, servers: job.servers, ended: 0 };
    Ok(Opened { channels: vec![Box::new(channel)], packets: packets(node) })
}

impl Channel for OrderedChannel {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        // Untaken messages would stop the acknowledgements of this member.
        while self.servers > 0 {
            match self.member.receive_within(Duration::ZERO) {
                Ok(Incoming::Message(message)) => self.note(&message.data, message.from.instance),
                Ok(_) => {}
                Err(error) if error.is_would_block() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.member.multicast(data)?)
    }

    /// The driver receives the confirmations of the end, which it reports as one; a server receives what the driver
    /// sends.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            if self.servers > 0 && self.ended == self.servers {
                if let Some(first) = buffer.first_mut() {
                    *first = END;
                }
                return Ok(Some(1));
            }
            let Incoming::Message(message) = self.member.receive()? else { continue };
            if self.servers > 0 {
                self.note(&message.data, message.from.instance);
            } else if message.from.instance == DRIVER {
                let len = message.data.len().min(buffer.len());
                buffer[..len].copy_from_slice(&message.data[..len]);
                return Ok(Some(len));
            }
        }
    }

    fn is_stream(&self) -> bool {
        false
    }
}

impl OrderedChannel {
    /// Counts the confirmations of servers.
    fn note(&mut self, data: &[u8], from: u32) {
        if from != DRIVER && data.first() == Some(&END) {
            self.ended += 1;
        }
    }
}
