//! Which message a receive gets.

use utipc_core::socket::SocketKind;
use utipc_os::shm::prefetch;

use super::{Next, Receiver, SHARE, note_wakeup};
use crate::inbound::Found;
use crate::message::{Checked, Expected};
use crate::{OwnSocket, ReadyLanes, ReceiveCall, Record, Wakeup};

/// Messages of listed lanes between two messages of the node, which carries those of all sockets without a lane.
const NODE_EVERY: u32 = 64;
/// How many listed lanes ahead to prefetch: the lane's state, and its next record.
const PREFETCH_AHEAD: (usize, usize) = (2, 1);

impl Receiver {
    /// One step of a receive. Call it again after carrying out what it returns.
    pub fn next(&mut self, own: OwnSocket, call: &mut ReceiveCall<'_>, ready: &ReadyLanes) -> Next {
        if own.kind.is_connection_oriented() {
            return self.next_connected(own, call);
        }
        if let Some(next) = self.next_of_begun(own, call) {
            return next;
        }
        if let Some(returned) = self.returned.pop_front() {
            self.messages += 1;
            call.received = returned;
            return Next::Got;
        }
        // The rest of this round, then a whole one.
        for _ in 0..2 {
            if let Some(next) = self.next_in_round(own, call) {
                return next;
            }
            self.begin_round(ready);
        }
        Next::Nothing
    }

    /// The rest of the message that was begun, if there is one.
    fn next_of_begun(&mut self, own: OwnSocket, call: &mut ReceiveCall<'_>) -> Option<Next> {
        let (place, offset) = self.begun?;
        match self.find(own, place) {
            Ok(Found::Message(record, checked)) => {
                Some(self.take(own, place, (record, &checked), offset, call))
            }
            // Only the daemon takes back what was begun, when the socket changes hands.
            Ok(Found::Nothing | Found::Ended) => {
                self.begun = None;
                None
            }
            Err(next) => Some(next),
        }
    }

    /// The next message of this round; `None` at its end.
    #[inline]
    fn next_in_round(&mut self, own: OwnSocket, call: &mut ReceiveCall<'_>) -> Option<Next> {
        if self.turn == 0 {
            if self.node_ready {
                return Some(Next::AskNode);
            }
            self.end_turn();
        }
        while let Some(&place) = self.polled.get(self.turn - 1) {
            match self.find(own, place) {
                Ok(Found::Message(record, checked)) => {
                    if self.uses_share_up() {
                        self.end_turn();
                    }
                    return Some(self.take(own, place, (record, &checked), 0, call));
                }
                Ok(Found::Nothing) => self.end_turn(),
                Ok(Found::Ended) => return Some(self.ended(place)),
                Err(next) => return Some(next),
            }
        }
        if self.node_ready && self.node_waited >= NODE_EVERY {
            return Some(Next::AskNode);
        }
        self.next_listed(own, call)
    }

    /// The next message of the listed lanes; `None` when each has had its turn.
    fn next_listed(&mut self, own: OwnSocket, call: &mut ReceiveCall<'_>) -> Option<Next> {
        while self.listed_left > 0 {
            let place = *self.listed.front()?;
            match self.find(own, place) {
                Ok(Found::Message(record, checked)) => {
                    if self.uses_share_up() {
                        // Moved to the end of the list: it may have more.
                        self.end_listed_turn();
                        self.listed.push_back(place);
                    }
                    self.node_waited = self.node_waited.saturating_add(1);
                    return Some(self.take(own, place, (record, &checked), 0, call));
                }
                Ok(Found::Ended) => {
                    self.end_listed_turn();
                    return Some(self.ended(place));
                }
                Ok(Found::Nothing) => {
                    self.end_listed_turn();
                    if let Err(next) = self.arm(place) {
                        return Some(next);
                    }
                }
                Err(next) => {
                    self.end_listed_turn();
                    return Some(next);
                }
            }
        }
        None
    }

    /// Counts a message of the lane whose turn it is; returns whether its share is used up.
    #[inline]
    fn uses_share_up(&mut self) -> bool {
        self.taken += 1;
        let share = if self.places.len() > self.polled.len() { SHARE } else { 1 };
        self.taken >= share
    }

    /// Ends the turn of the first listed lane.
    fn end_listed_turn(&mut self) {
        self.listed.pop_front();
        self.listed_left -= 1;
        self.taken = 0;
        self.prefetch_ahead();
    }

    /// Prefetches what the next turns of listed lanes need: with many lanes it is no longer in the caches.
    #[inline]
    fn prefetch_ahead(&self) {
        let at = |ahead: usize| self.listed.get(ahead).and_then(|place| self.lanes.get(*place));
        if let Some(lane) = at(PREFETCH_AHEAD.0) {
            prefetch(lane);
        }
        if let Some(Some(lane)) = at(PREFETCH_AHEAD.1) {
            lane.reader.prefetch();
        }
    }

    fn begin_round(&mut self, ready: &ReadyLanes) {
        self.turn = 0;
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        self.listed_left = self.listed.len();
    }

    #[inline]
    fn find(&mut self, own: OwnSocket, place: usize) -> Result<Found, Next> {
        let Some(lane) = &mut self.lanes[place] else { return Ok(Found::Nothing) };
        let from = (!lane.is_from_any()).then(|| lane.peer_of(own.node));
        let in_group = lane.member.is_some();
        let expected = Expected { node: own.node, port: own.port, from, kind: own.kind, in_group };
        let found = lane.find(&expected);
        if !matches!(found, Ok(Found::Message(..))) {
            note_wakeup(lane, &mut self.to_wake);
        }
        found.map_err(|_| Next::Corrupt(lane.id))
    }

    fn ended(&self, place: usize) -> Next {
        self.lanes[place].as_ref().map_or(Next::Nothing, |lane| Next::Ended(lane.id))
    }

    #[inline]
    fn take(
        &mut self,
        own: OwnSocket,
        place: usize,
        message: (Record, &Checked),
        offset: usize,
        call: &mut ReceiveCall<'_>,
    ) -> Next {
        let Some(lane) = &mut self.lanes[place] else { return Next::Nothing };
        let (rest, wakeup) = lane.receive(message, offset, call);
        if wakeup == Wakeup::TellDaemon {
            self.to_wake.push(lane.id);
        }
        if own.kind.is_connection_oriented() {
            call.received.destination = self.service;
        }
        self.begun = rest.map(|offset| (place, offset));
        if !call.options.peek {
            self.bytes += call.received.len as u64;
            self.messages += u64::from(rest.is_none());
        }
        Next::Got
    }

    /// A connection has at most one lane; what comes after the lane's end is at the node.
    fn next_connected(&mut self, own: OwnSocket, call: &mut ReceiveCall<'_>) -> Next {
        let Some(&place) = self.polled.first() else {
            return if self.node_ready { Next::AskNode } else { Next::Nothing };
        };
        let found = match self.find(own, place) {
            Ok(found) => found,
            Err(next) => return next,
        };
        let offset = self.begun.map_or(0, |(_, offset)| offset);
        match found {
            Found::Message(record, checked) if own.kind == SocketKind::Stream => {
                self.read_stream(own, place, (record, checked), offset, call)
            }
            Found::Message(record, checked) => self.take(own, place, (record, &checked), offset, call),
            Found::Nothing => {
                // The node is not asked before the lane has ended.
                self.node_ready = false;
                Next::Nothing
            }
            Found::Ended => self.ended(place),
        }
    }

    /// Receives as many bytes of a stream as are available and fit; a peek sees those of one message.
    fn read_stream(
        &mut self,
        own: OwnSocket,
        place: usize,
        (mut record, mut checked): (Record, Checked),
        mut offset: usize,
        call: &mut ReceiveCall<'_>,
    ) -> Next {
        let ReceiveCall { sink, options, received } = call;
        received.destination = self.service;
        received.importance = checked.importance;
        // Memory that grows takes the first message.
        let buffer = sink.space(checked.data.saturating_sub(offset));
        while let Some(lane) = &mut self.lanes[place] {
            received.source = lane.peer_of(own.node);
            let len = lane.copy(&record, &checked, offset, &mut buffer[received.len..]);
            received.len += len;
            if options.peek {
                return Next::Got;
            }
            offset += len;
            if offset < checked.data {
                self.begun = Some((place, offset));
                break;
            }
            if lane.consume(record) == Wakeup::TellDaemon {
                self.to_wake.push(lane.id);
            }
            self.messages += 1;
            self.begun = None;
            offset = 0;
            if received.len == buffer.len() {
                break;
            }
            match self.find(own, place) {
                Ok(Found::Message(next, header)) => (record, checked) = (next, header),
                // The bytes read so far are the result; the next call finds the same again.
                Ok(Found::Nothing | Found::Ended) | Err(_) => break,
            }
        }
        self.bytes += received.len as u64;
        Next::Got
    }
}
