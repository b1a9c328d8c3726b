//! The data path of a socket: its lanes, which only the sole holder of the socket may use.

use std::sync::Arc;

use utipc_attach::{LaneCall, LaneEnd, LaneId, ProcessCall, Reply, Request, SocketCall};
use utipc_lanes::Pair;
use utipc_os::lock;

use crate::attachment::Attachment;
use crate::attachment::notices::Task;
use crate::error::Error;
use crate::state::SocketState;

impl Attachment {
    /// Does the tasks that notices have left, and fetches further notices. The caller must not hold a lock of a
    /// socket's half.
    #[cold]
    pub(crate) fn fetch_notices(&self) -> Result<(), Error> {
        // Each task makes a request, whose reply may bring more tasks.
        for task in self.notices.take_tasks() {
            match task {
                Task::AnswerLaneEnd(lane) => {
                    // Before the slot has another lane, which begins in the same ring.
                    self.retire(lane);
                    self.lane_done(lane, LaneEnd::Writer)?;
                }
                Task::Share(port) => {
                    if let Some(socket) = self.notices.socket(port) {
                        self.host_while_shared(&socket)?;
                    }
                }
                Task::Unshare(port) => {
                    if let Some(socket) = self.notices.socket(port) {
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
        let mut halves = socket.lock();
        socket.hosted.set(true);
        socket.has_other_holders.set(has_other_holders);
        let request = SocketCall::MakeHosted { partly: halves.begun() }.on(socket.port);
        let done = self.request(&request, &[]);
        halves.leave_lanes();
        drop(halves);
        self.ring();
        done
    }

    /// Requests the data path of a socket that was hosted only because other processes held it too.
    pub(crate) fn unshare(&self, socket: &SocketState) -> Result<(), Error> {
        let mut halves = socket.lock();
        let had_other_holders = socket.has_other_holders.replace(false);
        // A socket that was opened during a fork is hosted at the daemon without being marked so here.
        if !had_other_holders && socket.hosted.get() {
            return Ok(());
        }
        socket.hosted.set(false);
        halves.forget_refusals();
        let requested = if socket.in_group.get() {
            self.request_group_lanes(socket).map(drop)
        } else {
            self.request(&SocketCall::Lend.on(socket.port), &[])
        };
        match requested {
            Err(Error::Failed(_)) => {
                // After another fork it has other holders again.
                socket.hosted.set(true);
                socket.has_other_holders.set(true);
                Ok(())
            }
            done => done,
        }
    }

    /// Lets a socket that has joined a group use lanes. Without them its messages go through the node.
    pub(crate) fn use_group_lanes(&self, socket: &SocketState) -> Result<(), Error> {
        let halves = socket.lock();
        // Before the notices about lanes are processed.
        socket.hosted.set(false);
        let requested = self.request_group_lanes(socket);
        if requested.is_err() {
            socket.hosted.set(true);
        }
        drop(halves);
        match requested {
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Requests lanes to all members; returns whether there are.
    pub(crate) fn request_group_lanes(&self, socket: &SocketState) -> Result<bool, Error> {
        let request = SocketCall::GroupLanes.on(socket.port);
        self.call(&request, &[], |reply, _| match reply {
            Reply::Number(number) => Some(number != 0),
            _ => None,
        })
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
