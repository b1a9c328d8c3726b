//! Tasks on a node without bearers: their work is counted, not timed.

use utipc_attach::Hello;
use utipc_core::socket::SocketKind;
use utipc_os::fdpass::{Channel, Peer};

use super::*;
use crate::daemon::attachments::{EndReason, Handshake};
use crate::daemon::config::Limits;
use crate::daemon::reactors::Reactors;
use crate::driver::{NodeConfig, NodeDriver};

const PROCESS: AttachmentId = 1;
const SOCKETS: usize = 10 * STEP_ITEMS;

/// A process with many sockets, and its connection.
fn process() -> (Sockets, Channel) {
    let driver = NodeDriver::new(NodeConfig::default(), "test".into()).unwrap();
    let mut sockets = Sockets::new(driver, Reactors::new().unwrap(), Limits::default(), &Disposal::default());
    let (own, theirs) = Channel::pair().unwrap();
    assert!(sockets.connect(PROCESS, theirs, Peer { pid: 1, uid: 1000, gid: 1000 }));
    let hello = Hello { program: "test".to_owned(), takes_lanes: false };
    sockets.add_process(PROCESS, Handshake { version: 1, hello }, b"welcome").unwrap();
    for _ in 0..SOCKETS {
        sockets.open(PROCESS, SocketKind::Rdm).unwrap();
    }
    (sockets, own)
}

/// Does all that has begun; returns the number of steps.
fn finish(tasks: &mut Tasks, sockets: &mut Sockets) -> usize {
    let mut steps = 0;
    while let Some((user, task)) = tasks.next_begun() {
        steps += 1;
        let rest = tasks.step(sockets, task);
        tasks.begun.extend(rest.map(|rest| (user, rest)));
    }
    steps
}

#[test]
fn sockets_of_an_ended_process_are_freed_in_steps() {
    let (mut tasks, (mut sockets, _own)) = (Tasks::default(), process());
    tasks.end_process(&mut sockets, PROCESS, EndReason::Closed);
    assert!(tasks.leaving() == 1 && sockets.count(0).sockets >= SOCKETS - STEP_ITEMS);
    assert!(finish(&mut tasks, &mut sockets) >= SOCKETS / STEP_ITEMS - 1);
    let left = sockets.count(0);
    assert_eq!((left.attached, left.sockets, tasks.leaving()), (0, 0, 0));
}

#[test]
fn sockets_of_a_fork_live_until_its_inheritance_ends() {
    let (mut tasks, (mut sockets, _own)) = (Tasks::default(), process());
    tasks.fork(&mut sockets, PROCESS).unwrap();
    assert!(finish(&mut tasks, &mut sockets) >= SOCKETS / STEP_ITEMS);
    tasks.end_process(&mut sockets, PROCESS, EndReason::Closed);
    finish(&mut tasks, &mut sockets);
    assert_eq!((sockets.count(1).sockets, tasks.inheritances()), (SOCKETS, 1));
    tasks.end_inheritance(&mut sockets, 0);
    assert!(finish(&mut tasks, &mut sockets) >= SOCKETS / STEP_ITEMS - 1);
    assert_eq!((sockets.count(0).sockets, tasks.inheritances()), (0, 0));
}
