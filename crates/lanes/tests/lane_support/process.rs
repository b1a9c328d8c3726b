//! A second process that runs another test of the same program.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};

use utipc_lanes::{Arena, Shape};
use utipc_os::fdpass::{Channel, Got};

/// Set in a second process: its role.
const ROLE: &str = "UTIPC_LANE_ROLE";

/// A second process, killed when dropped.
pub(crate) struct Peer {
    child: Child,
    pub(crate) channel: Channel,
}

impl Peer {
    /// Starts a process that runs the test `name` with `fds`; it finds its task by [`role`].
    pub(crate) fn spawn(name: &str, role: &str, fds: &[&OwnedFd]) -> Peer {
        let (channel, far) = Channel::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--quiet"])
            .env(ROLE, role)
            .stdin(Stdio::from(far.into_fd()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        channel.send(&[IoSlice::new(b"start")], &fds, true).unwrap();
        Peer { child, channel }
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a second process: its role, the channel to the first process, and the descriptors from it.
pub(crate) fn role() -> Option<(String, Channel, Vec<OwnedFd>)> {
    let role = std::env::var(ROLE).ok()?;
    let channel = Channel::from_fd(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut fds = Vec::new();
    assert_eq!(channel.receive(&mut [0; 8], &mut fds, 8, true).unwrap(), Got::Packet(5));
    Some((role, channel, fds))
}

/// A new arena with the descriptor to share it.
pub(crate) fn arena() -> (Arena, OwnedFd) {
    Arena::create("utipc-lane-test", Shape::STANDARD).unwrap()
}
