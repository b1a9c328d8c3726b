//! A transport endpoint that reconnects. While its carrier is absent, calls return nothing, and everything that
//! is sent is lost.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{
    Address, Credit, Error, FeedId, Result, SinkEnd, SinkEvent, SinkId, SourceEnd, SourceEvent, SourceId,
};

/// An endpoint that may be absent.
#[derive(Debug)]
pub(super) struct Reconnecting<E: ?Sized> {
    end: Option<Box<E>>,
    /// Reason why the last endpoint was lost, until [`Reconnecting::take_lost`].
    lost: Option<Error>,
}

impl<E: ?Sized> Reconnecting<E> {
    pub(super) fn new(end: Option<Box<E>>) -> Self {
        Self { end, lost: None }
    }

    /// Uses another endpoint from now on.
    pub(super) fn replace(&mut self, end: Box<E>) {
        (self.end, self.lost) = (Some(end), None);
    }

    /// Returns the reason why the endpoint was lost, once for each loss.
    pub(super) fn take_lost(&mut self) -> Option<Error> {
        self.lost.take()
    }

    pub(super) fn is_away(&self) -> bool {
        self.end.is_none()
    }

    /// Drops the endpoint.
    pub(super) fn lose(&mut self, why: Error) {
        if self.end.take().is_some() {
            self.lost = Some(why);
        }
    }

    /// Returns the result of `call`. A failure drops the endpoint.
    fn call<T: Default>(&mut self, call: impl FnOnce(&mut E) -> Result<T>) -> Result<T> {
        match self.end.as_deref_mut().map(call) {
            None => Ok(T::default()),
            Some(Ok(value)) => Ok(value),
            // This is an error of the caller, not a failure of the endpoint.
            Some(Err(why @ Error::TooLong { .. })) => Err(why),
            Some(Err(why)) => {
                self.lose(why);
                Ok(T::default())
            }
        }
    }
}

impl Reconnecting<dyn SourceEnd> {
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_deref().map(|end| end.as_fd())
    }

    pub(super) fn id(&self) -> SourceId {
        self.end.as_deref().map_or(SourceId(0), SourceEnd::id)
    }

    pub(super) fn address(&self) -> Address {
        self.end.as_deref().map_or(Address(0), SourceEnd::address)
    }

    pub(super) fn open_feed(&mut self) -> Result<FeedId> {
        self.call(|end| end.open_feed().map(Some)).map(|feed| feed.unwrap_or(FeedId(0)))
    }

    pub(super) fn multicast(&mut self, feed: FeedId, packet: &[u8]) -> Result<()> {
        self.call(|end| end.multicast(feed, packet))
    }

    pub(super) fn unicast(&mut self, to: Address, packet: &[u8]) -> Result<()> {
        self.call(|end| end.unicast(to, packet))
    }

    pub(super) fn keeps_order(&self, feed: FeedId) -> bool {
        self.end.as_deref().is_some_and(|end| end.keeps_order(feed))
    }

    pub(super) fn send(&mut self, sink: SinkId, record: &[u8]) {
        if let Some(end) = &mut self.end {
            end.send(sink, record);
        }
    }

    pub(super) fn flush(&mut self) {
        if let Some(end) = &mut self.end {
            end.flush();
        }
    }

    pub(super) fn queued(&self, sink: SinkId) -> usize {
        self.end.as_deref().map_or(0, |end| end.queued(sink))
    }

    pub(super) fn poll(&mut self, events: &mut Vec<SourceEvent>) -> Result<()> {
        self.call(|end| end.poll(events))
    }

    pub(super) fn credits(&mut self, wait: Duration, credits: &mut Vec<Credit>) -> Result<()> {
        self.call(|end| end.credits(wait, credits))
    }

    pub(super) fn disconnect(&mut self, sink: SinkId) {
        if let Some(end) = &mut self.end {
            end.disconnect(sink);
        }
    }
}

impl Reconnecting<dyn SinkEnd> {
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_deref().map(|end| end.as_fd())
    }

    pub(super) fn address(&self) -> Address {
        self.end.as_deref().map_or(Address(0), SinkEnd::address)
    }

    pub(super) fn listen(&mut self, feed: FeedId) -> Result<()> {
        self.call(|end| end.listen(feed))
    }

    pub(super) fn ignore(&mut self, feed: FeedId) {
        if let Some(end) = &mut self.end {
            end.ignore(feed);
        }
    }

    pub(super) fn send(&mut self, source: SourceId, record: &[u8]) {
        if let Some(end) = &mut self.end {
            end.send(source, record);
        }
    }

    pub(super) fn flush(&mut self) {
        if let Some(end) = &mut self.end {
            end.flush();
        }
    }

    pub(super) fn poll(&mut self, events: &mut Vec<SinkEvent>) -> Result<()> {
        self.call(|end| end.poll(events))
    }

    pub(super) fn disconnect(&mut self, source: SourceId) {
        if let Some(end) = &mut self.end {
            end.disconnect(source);
        }
    }

    pub(super) fn reader(&mut self) -> Option<Box<dyn super::FeedReader>> {
        self.end.as_deref_mut().and_then(SinkEnd::reader)
    }
}
