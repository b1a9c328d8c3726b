//! Descriptors in flight count against the user of the daemon, for whom the kernel limits them. Another program of
//! this user may use the limit up.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use utipc_attach::{ProcessCall, Request, SocketCall};
use utipc_core::socket::SocketKind;
use utipc_os::fdpass::{Channel, MAX_FDS, Put};
use utipc_os::fork;

use crate::client::{Host, LIMIT};

/// Limit of open files, and so of descriptors in flight.
const FILES: u64 = 200;
/// A user without privileges: the limit does not apply to root.
const NOBODY: u32 = 65_534;

/// Makes this process run as a user without privileges and with a low limit.
fn drop_privileges() {
    if rustix::process::getuid().is_root() {
        nix::unistd::setgroups(&[]).unwrap();
        nix::unistd::setgid(NOBODY.into()).unwrap();
        nix::unistd::setuid(NOBODY.into()).unwrap();
    }
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).unwrap();
}

/// Sends descriptors that no process reads until the kernel takes no more.
fn crowd() -> Vec<(Channel, Channel)> {
    let (_read, write) = std::io::pipe().unwrap();
    let mut channels = Vec::new();
    for _ in 0..FILES {
        channels.push(Channel::pair().unwrap());
        let (one, _) = &channels[channels.len() - 1];
        let send = || one.send(&[IoSlice::new(&[1])], &[write.as_fd(); MAX_FDS], false).unwrap();
        match (0..FILES).map(|_| send()).find(|put| *put != Put::Sent) {
            Some(Put::Busy) => return channels,
            put => assert_eq!(put, Some(Put::Full)),
        }
    }
    panic!("the kernel has no such limit");
}

fn run() {
    drop_privileges();
    let host = Host::new();
    let (mut client, mut other) = (host.client(), host.client());
    let port = client.open(SocketKind::Rdm);
    let crowd = crowd();
    let waits = std::thread::spawn(move || client.call_for_fd(&SocketCall::Keep.on(port)).len());
    // Until the daemon has seen the request, which is counted although its reply has not left. The requests of `other`
    // are counted before.
    let (begun, mut asked) = (Instant::now(), 1);
    while host.daemon().counters().requests <= asked && host.ended("system") == 0 {
        assert!(begun.elapsed() < LIMIT);
        other.call(&Request::Process(ProcessCall::Notices)).unwrap();
        asked += 1;
    }
    // Other processes, and replies without descriptors, are not affected.
    other.open(SocketKind::Rdm);
    assert_eq!(host.ended("system"), 0);
    drop(crowd);
    assert_eq!(waits.join().unwrap(), 1);
}

#[test]
fn reply_with_descriptors_waits_until_the_kernel_takes_it() {
    let child = fork::run(|| {
        run();
        0
    });
    assert_eq!(child.unwrap().wait(), Some(0));
}
