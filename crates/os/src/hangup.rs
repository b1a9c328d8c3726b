//! Waiting for the other side of a connection to go.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Sleeps until the other end of a connected socket is closed or shut down, whatever may be there to read.
pub fn wait(connection: impl AsFd) {
    loop {
        // HUP and ERR are always reported.
        let mut set = [PollFd::new(&connection, PollFlags::RDHUP)];
        match poll(&mut set, None) {
            Err(Errno::INTR) => {}
            // Nothing to wait for on a descriptor that cannot be polled.
            Err(_) => return,
            Ok(_) if set.iter().any(|fd| !fd.revents().is_empty()) => return,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fdpass::Channel;
    use std::io::IoSlice;

    #[test]
    fn data_is_not_the_end() {
        let (near, far) = Channel::pair().unwrap();
        far.send(&[IoSlice::new(b"data")], &[], true).unwrap();
        let watch = std::thread::spawn(move || super::wait(&near));
        assert!(!watch.is_finished());
        drop(far);
        watch.join().unwrap();
    }
}
