//! Opens the backbone's transport endpoints, and opens them again after a loss.
//!
//! The backbone's carrier, usually the host's `utipcd`, may die or start later than the program. The program keeps
//! running meanwhile: its items are suspect, and a thread tries to open an endpoint until that succeeds.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::backbone::feeds::Feeds;
use crate::backbone::sink_side::SinkSide;
use crate::backbone::{Carrier, Opening, SinkEnd, SourceEnd};
use crate::hub::HubTurn;
use crate::net::{Interest, Registry, Waker};

use super::backbone::Backbone;
use super::side::Side;
use super::tokens::BACKBONE;

/// Pause after the first failed attempt; doubled after each further one.
const BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Interval between two warnings about failed attempts.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Opens an endpoint of one kind on a carrier.
type Open<E> = fn(&dyn Carrier) -> Result<Opening<E>>;

/// Opens endpoints of one kind, at once or in a thread of its own.
pub(super) struct Opener<E: ?Sized> {
    carrier: Arc<dyn Carrier>,
    open: Open<E>,
    waker: Waker,
    attempt: Option<Attempt<E>>,
}

/// A thread that is trying to open an endpoint.
struct Attempt<E: ?Sized> {
    end: Receiver<Box<E>>,
    /// The thread stops trying once this is dropped.
    _wanted: Arc<()>,
}

impl<E: ?Sized + Send + 'static> Opener<E> {
    /// Opens the first endpoint; `None` if the carrier is absent, and a thread waits for it.
    ///
    /// # Errors
    /// The carrier refuses the endpoint, or the system refuses the thread.
    pub(super) fn new(backbone: &Backbone, open: Open<E>, waker: Waker) -> Result<(Self, Option<Box<E>>)> {
        let mut opener = Self { carrier: backbone.carrier().clone(), open, waker, attempt: None };
        match open(&*opener.carrier)? {
            Opening::Opened(end) => Ok((opener, Some(end))),
            Opening::Absent(_) => {
                opener.start_thread()?;
                Ok((opener, None))
            }
        }
    }

    fn start_thread(&mut self) -> Result<()> {
        let ((to, end), wanted) = (channel(), Arc::new(()));
        let (carrier, open, waker) = (self.carrier.clone(), self.open, self.waker.clone());
        let still_wanted = Arc::downgrade(&wanted);
        std::thread::Builder::new()
            .name("mdist-attach".into())
            .spawn(move || open_with_backoff(&still_wanted, &*carrier, open, &to, &waker))
            .context("start the thread that waits for the backbone")?;
        self.attempt = Some(Attempt { end, _wanted: wanted });
        Ok(())
    }

    /// The endpoint that the thread has opened, if it has.
    fn take_opened(&mut self) -> Result<Option<Box<E>>> {
        match self.attempt.as_ref().map(|attempt| attempt.end.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => Ok(None),
            Some(Ok(end)) => {
                self.attempt = None;
                Ok(Some(end))
            }
            // The thread has panicked.
            Some(Err(TryRecvError::Disconnected)) => self.start_thread().map(|()| None),
        }
    }
}

fn open_with_backoff<E: ?Sized>(
    wanted: &Weak<()>,
    carrier: &dyn Carrier,
    open: Open<E>,
    to: &Sender<Box<E>>,
    waker: &Waker,
) {
    let (mut pause, mut warned) = (BACKOFF, None::<Instant>);
    while wanted.strong_count() > 0 {
        let why = match open(carrier) {
            Ok(Opening::Opened(end)) => {
                // Fails if the program ends, and the endpoint is not needed any more.
                let _ = to.send(end);
                waker.wake();
                return;
            }
            Ok(Opening::Absent(why)) => why.to_owned(),
            Err(why) => format!("{why:#}"),
        };
        if warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
            warned = Some(Instant::now());
            tracing::warn!("the backbone is unavailable ({why}): {}; retrying", carrier.remedy());
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(MAX_BACKOFF);
    }
}

/// Openers of the program's endpoints, and the number of endpoints lost.
#[derive(Default)]
pub(super) struct Reconnect {
    /// Opens sink ends, for a program with sources above it.
    pub(super) sink_end: Option<Opener<dyn SinkEnd>>,
    /// Opens source ends, for a program with sinks below it.
    pub(super) source_end: Option<Opener<dyn SourceEnd>>,
    /// Passes the feeds of a new sink end to the feeds' thread.
    pub(super) feeds: Option<Sender<Feeds>>,
    /// Endpoints lost so far.
    pub(super) lost: u64,
}

impl Reconnect {
    /// Replaces an endpoint that was lost by one that was opened since.
    ///
    /// # Errors
    /// The system refuses a thread or a watch on a descriptor.
    pub(super) fn run(
        &mut self,
        registry: &Registry,
        sources: Option<&mut SinkSide>,
        side: &mut Side,
        turn: &mut HubTurn<'_>,
    ) -> Result<()> {
        if let Some(sources) = sources {
            self.reconnect_sources(registry, sources, turn)?;
        }
        if let Side::Backbone(sinks) = side {
            if let (Some(opener), Some(why)) = (&mut self.source_end, sinks.take_lost()) {
                opener.start_thread()?;
                self.count_loss(&why);
            }
            if let Some(end) = take_opened(&mut self.source_end)? {
                sinks.attach(end, &turn.hub.services().services)?;
                watch_reopened(registry, sinks.descriptor())?;
            }
        }
        Ok(())
    }

    fn reconnect_sources(
        &mut self,
        registry: &Registry,
        sources: &mut SinkSide,
        turn: &mut HubTurn<'_>,
    ) -> Result<()> {
        if let Some(opener) = &mut self.sink_end
            && let Some(why) = sources.take_lost(turn)
        {
            opener.start_thread()?;
            self.count_loss(&why);
        }
        if let Some(end) = take_opened(&mut self.sink_end)? {
            sources.attach(end);
            if let (Some(feeds), Some(to)) = (sources.feeds(), &self.feeds) {
                // Fails only if the program ends: the feeds' thread lives as long as the program.
                let _ = to.send(feeds);
            }
            watch_reopened(registry, sources.descriptor())?;
        }
        Ok(())
    }

    fn count_loss(&mut self, why: &crate::backbone::Error) {
        self.lost += 1;
        tracing::error!("the backbone is lost, and its items are suspect until it is back: {why}");
    }
}

fn take_opened<E: ?Sized + Send + 'static>(opener: &mut Option<Opener<E>>) -> Result<Option<Box<E>>> {
    opener.as_mut().map_or(Ok(None), Opener::take_opened)
}

/// Adds an endpoint's descriptor, if there is one, to the main poller.
///
/// # Errors
/// The system's limit of watches is reached.
pub(super) fn watch(registry: &Registry, end: Option<BorrowedFd<'_>>) -> Result<()> {
    end.map_or(Ok(()), |end| registry.add(end, BACKBONE, Interest::Read)).context("poll the backbone")
}

fn watch_reopened(registry: &Registry, end: Option<BorrowedFd<'_>>) -> Result<()> {
    watch(registry, end)?;
    tracing::warn!("the backbone is available again");
    Ok(())
}
