//! The backbone's carrier (the host's utipcd, mostly) may die, or be started later than the program: the program lives on
//! without it, and takes it up again.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::backbone::feeds::Feeds;
use crate::backbone::{SinkEnd, SourceEnd, tipc};
use crate::net::{Interest, Now, Registry, Waker};

use super::bus::Bus;
use super::core::{Above, BACKBONE, Core};
use super::side::Side;

/// Between two attempts: at first, and at most.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two lines of the log that say so.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Opens ends in a thread of its own, as long as it takes.
pub(super) struct Opener<E: ?Sized> {
    bus: Bus,
    options: tipc::Options,
    open: fn(&Bus, tipc::Options) -> Result<Option<Box<E>>>,
    waker: Waker,
    /// Where the end comes from, while it is awaited; the thread ends when nobody has the other half any more.
    awaited: Option<(Receiver<Box<E>>, Arc<()>)>,
}

impl<E: ?Sized + Send + 'static> Opener<E> {
    /// The first end, if it can be had at once, and how to get others.
    ///
    /// # Errors
    /// There is a carrier, and it refuses.
    pub(super) fn new(
        bus: &Bus,
        options: tipc::Options,
        open: fn(&Bus, tipc::Options) -> Result<Option<Box<E>>>,
        waker: Waker,
    ) -> Result<(Self, Option<Box<E>>)> {
        let end = open(bus, options)?;
        let mut opener = Self { bus: bus.clone(), options, open, waker, awaited: None };
        if end.is_none() {
            opener.begin()?;
        }
        Ok((opener, end))
    }

    fn begin(&mut self) -> Result<()> {
        let ((to, from), alive) = (channel(), Arc::new(()));
        let (bus, options, open, waker) = (self.bus.clone(), self.options, self.open, self.waker.clone());
        let wanted = Arc::downgrade(&alive);
        std::thread::Builder::new()
            .name("mdist-attach".into())
            .spawn(move || attempts(&wanted, || open(&bus, options), &to, &waker))
            .context("start the thread that waits for the backbone")?;
        self.awaited = Some((from, alive));
        Ok(())
    }

    /// The end that was awaited, if it is there.
    fn take(&mut self) -> Result<Option<Box<E>>> {
        match self.awaited.as_ref().map(|(from, _)| from.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => Ok(None),
            Some(Ok(end)) => {
                self.awaited = None;
                Ok(Some(end))
            }
            // Its thread has failed.
            Some(Err(TryRecvError::Disconnected)) => self.begin().map(|()| None),
        }
    }
}

fn attempts<E: ?Sized>(
    wanted: &Weak<()>,
    open: impl Fn() -> Result<Option<Box<E>>>,
    to: &Sender<Box<E>>,
    waker: &Waker,
) {
    let (mut pause, mut said) = (PAUSE, None::<Instant>);
    while wanted.strong_count() > 0 {
        let why = match open() {
            Ok(Some(end)) => {
                // Nobody waits any more: the program ends.
                let _ = to.send(end);
                waker.wake();
                return;
            }
            Ok(None) => "nothing answers at its socket".to_owned(),
            Err(why) => format!("{why:#}"),
        };
        if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            said = Some(Instant::now());
            tracing::warn!(
                "the backbone is away ({why}): start utipcd on this host, or say where it is (UTIPC_SOCKET); tried again until it is there"
            );
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Where ends of the backbone come from, and how often one was lost.
#[derive(Default)]
pub(super) struct Mend {
    pub(super) sinks: Option<Opener<dyn SinkEnd>>,
    pub(super) sources: Option<Opener<dyn SourceEnd>>,
    /// To the feeds' thread.
    pub(super) feeds: Option<Sender<Feeds>>,
    /// Ends that were lost.
    pub(super) lost: u64,
}

impl Mend {
    fn lost(&mut self, why: &crate::backbone::Error) {
        self.lost += 1;
        tracing::error!("the backbone is lost, and its items are suspect until it is back: {why}");
    }
}

/// Has the main thread woken by an end of the backbone, if there is one.
///
/// # Errors
/// The system has no room for one more descriptor.
pub(super) fn watch(registry: &Registry, end: Option<BorrowedFd<'_>>) -> Result<()> {
    end.map_or(Ok(()), |end| registry.add(end, BACKBONE, Interest::Read)).context("poll the backbone")
}

/// The same for an end that was awaited; people are told.
fn come(registry: &Registry, end: Option<BorrowedFd<'_>>) -> Result<()> {
    watch(registry, end)?;
    tracing::warn!("the backbone is there");
    Ok(())
}

impl Core {
    /// Lets go of an end of the backbone that has died, and takes one that has come.
    ///
    /// # Errors
    /// The system has no room for a thread or a descriptor.
    pub(super) fn mend(&mut self, now: Now) -> Result<()> {
        if let (Some(sources), Some(opener)) = (&mut self.sources, &mut self.mend.sinks) {
            let mut above = Above { hub: &mut self.hub, out: &mut self.batch };
            if let Some(why) = sources.take_lost(now, &mut above) {
                opener.begin()?;
                self.mend.lost(&why);
            }
        }
        if let (Side::Backbone(sinks), Some(opener)) = (&mut self.side, &mut self.mend.sources)
            && let Some(why) = sinks.take_lost()
        {
            opener.begin()?;
            self.mend.lost(&why);
        }
        let (sink, source) = (
            self.mend.sinks.as_mut().map(Opener::take).transpose()?.flatten(),
            self.mend.sources.as_mut().map(Opener::take).transpose()?.flatten(),
        );
        if let (Some(end), Some(sources)) = (sink, &mut self.sources) {
            sources.attach(end);
            if let (Some(feeds), Some(to)) = (sources.feeds(), &self.mend.feeds) {
                // The thread is there as long as the program.
                let _ = to.send(feeds);
            }
            come(&self.registry, sources.descriptor())?;
        }
        if let (Some(end), Side::Backbone(sinks)) = (source, &mut self.side) {
            sinks.attach(end, &self.hub.services().services)?;
            come(&self.registry, sinks.descriptor())?;
        }
        Ok(())
    }
}
