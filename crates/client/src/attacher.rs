//! Which attachment a node's handle uses: that to the daemon of its place, and after that daemon's death to the next.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use utipc_os::{fork as forks, lock};

use crate::attachment::{Attachment, fork};
use crate::error::Error;
use crate::place::Place;

/// Pauses between tries to find the next daemon after one has died; a service manager restarts it within about their
/// sum.
const DAEMON_BACKOFF: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(5), ms(10), ms(25), ms(50), ms(100), ms(250), ms(500)]
};

/// The attachment of a node's handle; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Attacher {
    place: Arc<Place>,
    /// The attachment that it was made with. While it lives, lookups take no lock.
    first: Arc<Attachment>,
    /// The current attachment; replaced when a socket is opened after the daemon has died.
    current: Arc<Mutex<Arc<Attachment>>>,
    /// The process that made it, see [`forks::generation`].
    generation: u32,
    /// In a forked child: the attacher of the child. Set only while forks are locked out.
    inherited: Arc<OnceLock<Box<Attacher>>>,
}

impl Attacher {
    /// Attaches this process to the daemon at `place`.
    pub(crate) fn attach(place: Place) -> Result<Self, Error> {
        let attachment = find(&place)?;
        Ok(Self::with(Arc::new(place), attachment))
    }

    fn with(place: Arc<Place>, attachment: Arc<Attachment>) -> Self {
        Self {
            place,
            first: Arc::clone(&attachment),
            current: Arc::new(Mutex::new(attachment)),
            generation: forks::generation(),
            inherited: Arc::default(),
        }
    }

    /// The attacher that this process may use: `self`, except in a forked child, which attaches on its own. It takes no
    /// lock of the parent: a thread that exists only in the parent may hold it.
    fn live(&self) -> Result<&Self, Error> {
        if self.generation == forks::generation() {
            return Ok(self);
        }
        if let Some(inherited) = self.inherited.get() {
            return inherited.live();
        }
        let mut locked = fork::attachments();
        let olds = locked.inherited();
        let same =
            olds.iter().rev().find(|old| self.place.paths().iter().any(|path| path == old.connection.path()));
        let attachment = match same.map(|old| old.claim(&mut locked)) {
            Some(Ok(attachment)) => attachment,
            // The parent's daemon has died: look for the next one.
            Some(Err(_)) | None => {
                drop(locked);
                let attachment = find(&self.place)?;
                locked = fork::attachments();
                attachment
            }
        };
        let inherited =
            self.inherited.get_or_init(|| Box::new(Self::with(Arc::clone(&self.place), attachment)));
        drop(locked);
        Ok(inherited)
    }

    /// The first attachment, if this process may use it and its daemon lives.
    pub(crate) fn first(&self) -> Option<&Attachment> {
        Some(&*self.first).filter(|first| first.is_own() && !first.connection.is_over())
    }

    /// The current attachment, whether or not its daemon lives.
    pub(crate) fn current(&self) -> Result<Arc<Attachment>, Error> {
        Ok(Arc::clone(&lock(&self.live()?.current)))
    }

    /// An attachment to a living daemon: if the current one has died, to the next.
    pub(crate) fn living(&self) -> Result<Arc<Attachment>, Error> {
        let live = self.live()?;
        let mut attachment = lock(&live.current);
        let mut pauses = DAEMON_BACKOFF.iter();
        while attachment.connection.is_over() {
            match find(&live.place) {
                Ok(next) => *attachment = next,
                Err(error) if error.is_absent() => match pauses.next() {
                    Some(pause) => std::thread::sleep(*pause),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::clone(&attachment))
    }
}

/// Attaches to the first daemon of `place` that answers.
fn find(place: &Place) -> Result<Arc<Attachment>, Error> {
    for path in place.paths() {
        if let Some(attachment) = fork::attach(path)? {
            return Ok(attachment);
        }
    }
    Err(Error::Absent(place.paths().to_vec()))
}
