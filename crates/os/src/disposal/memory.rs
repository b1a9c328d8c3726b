//! The thread that gives back memory which other processes have written. The process that unmaps shared memory last
//! frees all of its pages: 254 MiB take about 50 ms.

use std::fmt;
use std::sync::mpsc::{Sender, channel};

use crate::signals;

/// A value whose drop takes long.
pub struct Large(#[expect(dead_code, reason = "it is only dropped")] Box<dyn Send>);

impl Large {
    /// This value.
    pub fn new(value: impl Send + 'static) -> Self {
        Self(Box::new(value))
    }
}

impl fmt::Debug for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Large").finish_non_exhaustive()
    }
}

/// Drops values on a separate thread, which starts with the first value and ends with this one.
#[derive(Default)]
pub struct Reclaim {
    thread: Option<Sender<Large>>,
}

impl fmt::Debug for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaim").field("runs", &self.thread.is_some()).finish()
    }
}

impl Reclaim {
    /// Drops a value without waiting. If the system cannot start a thread, it is dropped here.
    pub fn drop_later(&mut self, value: Large) {
        if self.thread.is_none() {
            self.thread = start();
        }
        if let Some(thread) = &self.thread
            && thread.send(value).is_err()
        {
            self.thread = None;
        }
    }
}

fn start() -> Option<Sender<Large>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("utipc free".to_owned());
    let run = move || {
        while let Ok(value) = receiver.recv() {
            drop(value);
        }
    };
    signals::masked(|| thread.spawn(run)).ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    /// Reports which thread drops it.
    struct Told(Sender<ThreadId>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn values_are_dropped_by_another_thread() {
        let mut reclaim = Reclaim::default();
        let (tell, told) = channel();
        for _ in 0..10 {
            reclaim.drop_later(Large::new(Told(tell.clone())));
            assert_ne!(told.recv_timeout(Duration::from_secs(30)).unwrap(), thread::current().id());
        }
    }
}
