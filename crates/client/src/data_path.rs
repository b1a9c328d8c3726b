//! The data path of a socket: its lanes, which only the sole holder of the socket may use.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{LaneCall, LaneEnd, LaneId, ProcessCall, Reply, Request, SocketCall};
use utipc_lanes::{Pair, Receiver};
use utipc_os::lock;

use crate::attachment::Attachment;
use crate::error::Error;
use crate::notices::Task;
use crate::state::{SendHalf, SocketState};

impl Attachment {
    /// Does the tasks that notices have left, and fetches further notices. The caller must not hold a lock of a
    /// socket's half.
    #[cold]
    pub(crate) fn fetch_notices(&self) -> Result<(), Error> {
        // Each task makes a request, whose reply may bring more tasks.
        for task in self.take_tasks() {
            match task {
                Task::AnswerLaneEnd(lane) => {
                    // Before the slot has another lane, which begins in the same ring.
                    self.retire(lane);
                    self.lane_done(lane, LaneEnd::Writer)?;
                }
                Task::Share(port) => {
                    if let Some(socket) = self.socket(port) {
                        self.host_while_shared(&socket)?;
                    }
                }
                Task::Unshare(port) => {
                    if let Some(socket) = self.socket(port) {
                        self.unshare(&socket)?;
                    }
                }
                Task::DropPair(pair) => lock(&self.pairs).retain(|(id, _), _| *id != pair),
            }
        }
        self.request(&Request::Process(ProcessCall::Notices), &[])
    }

    /// Makes a socket hosted: its lanes end, and all of its messages go through the node.
    pub(crate) fn host(&self, socket: &SocketState) -> Result<(), Error> {
        self.make_hosted(socket, false)
    }

    /// Makes a socket hosted until this process is its sole holder.
    pub(crate) fn host_while_shared(&self, socket: &SocketState) -> Result<(), Error> {
        self.make_hosted(socket, true)
    }

    fn make_hosted(&self, socket: &SocketState, has_other_holders: bool) -> Result<(), Error> {
        let mut receiver = lock(&socket.receiver);
        let mut sender = lock(&socket.sender);
        socket.hosted.store(true, Relaxed);
        socket.has_other_holders.store(has_other_holders, Relaxed);
        let request = SocketCall::MakeHosted { partly: receiver.begun() }.on(socket.port);
        let done = self.request(&request, &[]);
        leave_lanes(socket, &mut receiver, &mut sender);
        drop((receiver, sender));
        self.ring();
        done
    }

    /// Requests the data path of a socket that was hosted only because other processes held it too.
    pub(crate) fn unshare(&self, socket: &SocketState) -> Result<(), Error> {
        let mut receiver = lock(&socket.receiver);
        let mut sender = lock(&socket.sender);
        let had_other_holders = socket.has_other_holders.swap(false, Relaxed);
        // A socket that was opened during a fork is hosted at the daemon without being marked so here.
        if !had_other_holders && socket.hosted.load(Relaxed) {
            return Ok(());
        }
        socket.hosted.store(false, Relaxed);
        sender.lanes.forget_refusals();
        receiver.forget_refusals();
        let requested = if socket.in_group.load(Relaxed) {
            self.request_group_lanes(socket).map(drop)
        } else {
            self.request(&SocketCall::Lend.on(socket.port), &[])
        };
        match requested {
            Err(Error::Failed(_)) => {
                // After another fork it has other holders again.
                socket.hosted.store(true, Relaxed);
                socket.has_other_holders.store(true, Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    /// The arena of a lane, with the side that has this `end`; fetched from the daemon if it is new.
    pub(crate) fn pair(&self, lane: LaneId, end: LaneEnd) -> Result<Arc<Pair>, Error> {
        let writer = u8::from(lane.writer != 0);
        let side = if end == LaneEnd::Writer { writer } else { 1 - writer };
        let mut pairs = lock(&self.pairs);
        if let Some(pair) = pairs.get(&(lane.pair, side)) {
            return Ok(Arc::clone(pair));
        }
        let pair = match pairs.get(&(lane.pair, 1 - side)) {
            Some(pair) => pair.other_side(),
            None => {
                let request = Request::Lane(LaneCall::FetchPair { pair: lane.pair });
                let (arena, waker) = self.call(&request, &[], |reply, extra| {
                    let mut fds = extra.fds.drain(..).filter(|_| reply == Reply::Done);
                    Some((fds.next()?, fds.next()))
                })?;
                Pair::open(lane.pair, side, &arena, waker)?
            }
        };
        let pair = Arc::new(pair);
        pairs.insert((lane.pair, side), Arc::clone(&pair));
        Ok(pair)
    }

    /// Tells the daemon that this end does not use a lane any more.
    pub(crate) fn lane_done(&self, lane: LaneId, end: LaneEnd) -> Result<(), Error> {
        match self.request(&Request::Lane(LaneCall::LaneDone { lane, end }), &[]) {
            // The daemon has closed it already.
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    /// Frees the memory of a lane that a socket of this process has written and whose reader is done.
    pub(crate) fn retire(&self, lane: LaneId) {
        let pair = lock(&self.pairs).get(&(lane.pair, lane.writer)).cloned();
        if let Some(pair) = pair {
            pair.retire(lane.slot);
        }
    }
}

/// Stops using the lanes of a socket that has become hosted.
pub(crate) fn leave_lanes(socket: &SocketState, receiver: &mut Receiver, sender: &mut SendHalf) {
    receiver.remove_all();
    // Lanes that were announced to the reader but not opened yet.
    socket.receiver_events.forget_lanes();
    receiver.node_is_ready();
    sender.lanes.leave_all();
    sender.members.forget();
}
