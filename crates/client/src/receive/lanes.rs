//! Lanes that a socket reads: opening those that are announced, leaving those that have ended.

use utipc_attach::{LaneEnd, LaneId};
use utipc_lanes::{InboundLane, Receiver};

use crate::base::Base;
use crate::error::Error;
use crate::state::events::Event;

/// Processes the events of the inbox.
#[cold]
pub(crate) fn process_events(base: &Base, receiver: &mut Receiver) -> Result<(), Error> {
    let inbox = &base.state.inbox;
    for returned in inbox.take_returned() {
        receiver.give_back(returned);
    }
    let mut events = inbox.events.take().into_iter();
    while let Some(event) = events.next() {
        match event {
            Event::Ready => receiver.node_is_ready(),
            // The socket has become hosted: the daemon reads the lane.
            Event::LaneOpened { .. } if base.state.hosted.get() => {}
            Event::LaneOpened { peer, node, lane, member } => {
                let pair = match base.attachment.pair(lane, LaneEnd::Reader) {
                    Ok(pair) => pair,
                    Err(error) => {
                        inbox.events.put_back(event, events);
                        return Err(error);
                    }
                };
                match InboundLane::new(lane, pair, peer, node) {
                    Ok(new) => receiver.add(new.with_member(member), &inbox.ready),
                    Err(_) => base.report(lane)?,
                }
                if base.kind().is_connection_oriented() {
                    set_service(base, receiver)?;
                }
            }
            // The reader finds the end of the lane by reading it.
            Event::LaneOver(_) | Event::GroupChanged => {}
        }
    }
    Ok(())
}

/// Sets the service address by which the connection was set up. For an accepted socket the node knows it.
fn set_service(base: &Base, receiver: &mut Receiver) -> Result<(), Error> {
    let service = match base.state.inbox.service() {
        None if base.state.accepted => base.look()?.service.map(Into::into),
        known => known,
    };
    receiver.set_service(service);
    Ok(())
}

/// Leaves a lane that has ended; later messages come through the node.
pub(crate) fn leave(base: &Base, receiver: &mut Receiver, lane: LaneId) -> Result<(), Error> {
    drop(receiver.remove(lane));
    receiver.node_is_ready();
    base.attachment.lane_done(lane, LaneEnd::Reader)
}

/// Counts the messages that wait in lanes, where the node cannot count them, and their bytes including headers.
pub(crate) fn waiting(base: &Base) -> Result<(u32, u64), Error> {
    if base.attachment.has_notices() {
        base.attachment.fetch_notices()?;
    }
    let mut receiver = base.state.inbox.lock();
    process_events(base, &mut receiver)?;
    let waiting = receiver.waiting();
    base.unlock(receiver)?;
    Ok(waiting)
}
