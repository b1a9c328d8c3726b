//! Multicasts to more sockets of this node than one step may take: the rest of the copies is made step by step, each
//! charged to the sender. Meanwhile everything that the same sender sends to sockets of this node waits behind them, so
//! that its order holds. Announcements to the members of a group wait in the same way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::announcement::{Announcement, Told};
use super::collecting::{Collecting, RECEIVER_MEMORY};
use crate::addr::NodeAddr;
use crate::quota::UserId;
use crate::wire::Message;

/// Copies of one step. Ours: some 0.1 ms.
pub(crate) const STEP: usize = 64;

/// Bytes of a message that are copied in the time of a short one.
const COPY_BYTES: usize = 4096;

/// The sender of messages that wait: a socket of this node, or another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A socket of this node, by its port.
    Socket(u32),
    /// Another node.
    Node(NodeAddr),
}

/// Messages that wait in order.
#[derive(Debug)]
enum Waiting {
    /// For one socket.
    One(u32, Message),
    /// A multicast, the sockets that have not got it yet, and what its user is charged.
    Many(Message, BTreeSet<u32>, Option<(UserId, u64)>),
    /// A multicast whose receivers are not all known yet.
    Collecting(Box<Collecting>),
    /// What sockets of a group are told.
    Announcement(Box<Announcement>),
}

/// A message for one socket.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) port: u32,
    pub(crate) message: Message,
    /// The charge that ends with it.
    pub(crate) charge: Option<(UserId, u64)>,
}

impl Copy {
    /// How many copies of short messages take as long.
    pub(crate) fn cost(&self) -> usize {
        1 + self.message.size() / COPY_BYTES
    }
}

/// What waits of each sender.
#[derive(Debug, Default)]
pub(crate) struct Spreads {
    all: BTreeMap<Origin, VecDeque<Waiting>>,
    /// Senders of multicasts that are not charged yet, and whether no message of them waited before.
    begun: VecDeque<(Origin, bool)>,
    /// Senders whose messages have begun to wait, with their users, until they are reported.
    unreported: VecDeque<(Origin, Option<UserId>)>,
    /// What sockets tell their groups in the call in progress.
    noted: VecDeque<(u32, Told)>,
    /// The sender whose messages do not wait now.
    passing: Option<Origin>,
    /// The last sender that all receivers are known of, and those that it must reach by lanes.
    collected: Option<(u32, Vec<u32>)>,
}

impl Spreads {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether what this sender sends now has to wait.
    pub(crate) fn holds(&self, origin: Origin) -> bool {
        self.contains(origin) && self.passing != Some(origin)
    }

    /// Lets messages of a sender pass those that wait, until this is called with none.
    pub(crate) fn let_pass(&mut self, origin: Option<Origin>) {
        self.passing = origin;
    }

    /// Whether messages of this sender wait.
    pub(crate) fn contains(&self, origin: Origin) -> bool {
        self.all.contains_key(&origin)
    }

    /// Puts a message for one socket behind those of its sender that wait.
    pub(crate) fn add_one(&mut self, origin: Origin, port: u32, message: Message) {
        if let Some(waiting) = self.all.get_mut(&origin) {
            waiting.push_back(Waiting::One(port, message));
        }
    }

    /// Puts a multicast behind the messages of its sender that wait, if there are any.
    pub(crate) fn add_many(&mut self, origin: Origin, message: Message, ports: BTreeSet<u32>) {
        self.add(origin, Waiting::Many(message, ports, None));
    }

    /// As [`Self::add_many`], for a multicast whose receivers are not known yet.
    pub(crate) fn add_collecting(&mut self, origin: Origin, collecting: Collecting) {
        self.add(origin, Waiting::Collecting(Box::new(collecting)));
    }

    fn add(&mut self, origin: Origin, multicast: Waiting) {
        let is_first = !self.contains(origin);
        self.all.entry(origin).or_default().push_back(multicast);
        self.begun.push_back((origin, is_first));
    }

    /// Notes what a socket tells the others of its group.
    pub(crate) fn note(&mut self, port: u32, told: Told) {
        self.noted.push_back((port, told));
    }

    /// What [`Self::note`] has noted first.
    pub(crate) fn next_noted(&mut self) -> Option<(u32, Told)> {
        self.noted.pop_front()
    }

    /// Puts an announcement behind what waits of its sender; true if nothing waited before.
    pub(crate) fn add_announcement(&mut self, origin: Origin, announcement: Announcement) -> bool {
        let is_first = !self.contains(origin);
        self.all.entry(origin).or_default().push_back(Waiting::Announcement(Box::new(announcement)));
        is_first
    }

    /// Takes the next item of a sender if `pick` wants it.
    fn take_if<T>(&mut self, origin: Origin, pick: impl FnOnce(Waiting) -> Result<T, Waiting>) -> Option<T> {
        let waiting = self.all.get_mut(&origin)?;
        pick(waiting.pop_front()?).map_err(|other| waiting.push_front(other)).ok()
    }

    fn put_first(&mut self, origin: Origin, item: Waiting) {
        if let Some(waiting) = self.all.get_mut(&origin) {
            waiting.push_front(item);
        }
    }

    /// Takes the next item of a sender if it is an announcement; [`Self::put_announcement_back`] what is left of it.
    pub(crate) fn take_announcement(&mut self, origin: Origin) -> Option<Box<Announcement>> {
        self.take_if(origin, |item| match item {
            Waiting::Announcement(announcement) => Ok(announcement),
            other => Err(other),
        })
    }

    pub(crate) fn put_announcement_back(&mut self, origin: Origin, announcement: Box<Announcement>) {
        self.put_first(origin, Waiting::Announcement(announcement));
    }

    /// Takes the next message of a sender if its receivers are not all known; [`Self::put_back`], or
    /// [`Self::put_collected`] if they are now.
    pub(crate) fn take_collecting(&mut self, origin: Origin) -> Option<Box<Collecting>> {
        self.take_if(origin, |item| match item {
            Waiting::Collecting(collecting) => Ok(collecting),
            other => Err(other),
        })
    }

    pub(crate) fn put_back(&mut self, origin: Origin, collecting: Box<Collecting>) {
        self.put_first(origin, Waiting::Collecting(collecting));
    }

    /// All receivers of the next message of a sender are known; its copies for sockets of this node follow. Returns the
    /// charge if there is none.
    pub(crate) fn put_collected(&mut self, origin: Origin, collected: Collecting) -> Option<(UserId, u64)> {
        let Collecting { message, ports, charge, .. } = collected;
        match self.all.get_mut(&origin).filter(|_| !ports.is_empty()) {
            Some(waiting) => {
                waiting.push_front(Waiting::Many(message, ports, charge));
                None
            }
            None => charge,
        }
    }

    /// Whether the last message of a sender is one whose receivers are not all known.
    pub(crate) fn is_collecting(&self, origin: Origin) -> bool {
        matches!(self.all.get(&origin).and_then(VecDeque::back), Some(Waiting::Collecting(_)))
    }

    /// Whether it is one that goes to other nodes too.
    pub(crate) fn collects_for_others(&self, origin: Origin) -> bool {
        match self.all.get(&origin).and_then(VecDeque::back) {
            Some(Waiting::Collecting(collecting)) => collecting.has_others(),
            _ => false,
        }
    }

    /// Notes that all receivers of a socket's message are known, and those that it must reach by lanes.
    pub(crate) fn note_collected(&mut self, origin: Origin, diverted: BTreeSet<u32>) {
        if let Origin::Socket(port) = origin {
            self.collected = Some((port, diverted.into_iter().collect()));
        }
    }

    /// What [`Self::note_collected`] has noted since the last call.
    pub(crate) fn take_collected(&mut self) -> Option<(u32, Vec<u32>)> {
        self.collected.take()
    }

    /// The sender of a multicast that has begun to wait, whether it is the first message of it that waits, and the
    /// memory that it takes, bytes. It is the last message of the sender that waits.
    pub(crate) fn next_begun(&mut self) -> Option<(Origin, bool, u64)> {
        let (origin, is_first) = self.begun.pop_front()?;
        let last = self.all.get(&origin).and_then(VecDeque::back);
        let memory = match last {
            Some(Waiting::Many(message, ports, _)) => (message.size() + ports.len() * RECEIVER_MEMORY) as u64,
            Some(Waiting::Collecting(collecting)) => collecting.memory(),
            _ => 0,
        };
        Some((origin, is_first, memory))
    }

    /// Notes who is charged for the last multicast of a sender, or takes it out if nobody may be.
    pub(crate) fn settle(
        &mut self,
        origin: Origin,
        charged: Result<Option<(UserId, u64)>, ()>,
    ) -> Option<Message> {
        let waiting = self.all.get_mut(&origin)?;
        if let Ok(charged) = charged {
            match waiting.back_mut() {
                Some(Waiting::Many(_, _, charge)) => *charge = charged,
                Some(Waiting::Collecting(collecting)) => collecting.charge = charged,
                _ => {}
            }
            return None;
        }
        let refused = waiting.pop_back();
        if waiting.is_empty() {
            self.all.remove(&origin);
        }
        match refused {
            Some(Waiting::Many(message, ..)) => Some(message),
            Some(Waiting::Collecting(collecting)) => Some(collecting.message),
            _ => None,
        }
    }

    /// Reports that a sender's messages wait, for which this user is charged.
    pub(crate) fn report(&mut self, origin: Origin, user: Option<UserId>) {
        self.unreported.push_back((origin, user));
    }

    /// The next sender to be reported.
    pub(crate) fn next_report(&mut self) -> Option<(Origin, Option<UserId>)> {
        self.unreported.pop_front()
    }

    /// The next message of a sender, whose receivers are known; `None` if no more waits.
    pub(crate) fn next(&mut self, origin: Origin) -> Option<Copy> {
        let waiting = self.all.get_mut(&origin)?;
        if let Some(Waiting::Many(message, ports, _)) = waiting.front_mut()
            && ports.len() > 1
            && let Some(port) = ports.pop_first()
        {
            let mut copy = message.clone();
            copy.set_dest_port(port);
            return Some(Copy { port, message: copy, charge: None });
        }
        match waiting.pop_front() {
            Some(Waiting::One(port, message)) => Some(Copy { port, message, charge: None }),
            Some(Waiting::Many(mut message, ports, charge)) => {
                let port = ports.last().copied().unwrap_or(0);
                message.set_dest_port(port);
                Some(Copy { port, message, charge })
            }
            Some(other) => {
                waiting.push_front(other);
                None
            }
            None => {
                self.all.remove(&origin);
                None
            }
        }
    }
}
