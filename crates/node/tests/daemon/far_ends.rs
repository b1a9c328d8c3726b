//! Copies of the far ends of descriptors: who gets one, and that nothing its holder does harms the daemon or others.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use utipc_attach::{Failure, LaneCall, LaneEnd, LaneId, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::{Destination, SocketKind};
use utipc_os::fdpass::Channel;
use utipc_os::packets;

use crate::client::Client;
use crate::lanes::Two;

const OTHER: ServiceRange = ServiceRange::new(18889, 17, 17);
const TO_OTHER: Option<Destination> = Some(Destination::service(18889, 17));

fn polled(near: &OwnedFd, limit_s: i64) -> PollFlags {
    let mut set = [PollFd::new(near, PollFlags::IN | PollFlags::OUT)];
    poll(&mut set, Some(&Timespec { tv_sec: limit_s, tv_nsec: 0 })).unwrap();
    set[0].revents()
}

/// A connection whose second end is polled, and the lane to it.
struct Polled {
    two: Two,
    /// The polled socket's port, and its near end.
    port: u32,
    near: OwnedFd,
    /// The lane that the first process writes.
    lane: LaneId,
    bystander: Bystander,
}

/// A third process with its own polled socket, to which the second one sends.
struct Bystander {
    client: Client,
    port: u32,
    near: OwnedFd,
}

impl Polled {
    fn new() -> Self {
        let mut two = Two::new();
        let (from, port) = two.connect(SocketKind::SeqPacket, b"");
        let near = two.two.call_for_fd(&SocketCall::Descriptor.on(port)).pop().unwrap();
        two.update();
        let lane = two.one_lanes.writers[&(from, port)].0;
        let mut client = two.host.client();
        let other = client.server(SocketKind::Rdm, OTHER);
        let other_near = client.call_for_fd(&SocketCall::Descriptor.on(other)).pop().unwrap();
        let bystander = Bystander { client, port: other, near: other_near };
        Self { two, port, near, lane, bystander }
    }

    /// The copy that the writer gets.
    fn far(&mut self) -> OwnedFd {
        self.two.one.call_for_fd(&Request::Lane(LaneCall::FarEnd { lane: self.lane })).pop().unwrap()
    }

    /// Checks that the daemon serves all three processes, and maintains the bystander's descriptor.
    fn check_others(&mut self) {
        let Bystander { client, port, near } = &mut self.bystander;
        let from = self.two.two.open(SocketKind::Rdm);
        self.two.two.send(from, TO_OTHER, b"hello").unwrap();
        assert_eq!(polled(near, 10), PollFlags::IN | PollFlags::OUT);
        assert_eq!(client.receive(*port).unwrap().1, b"hello");
        assert!(packets::drain(&*near));
        assert_eq!(client.call(&SocketCall::Drained { more: false }.on(*port)), Ok(Reply::Number(0)));
        assert_eq!(polled(near, 0), PollFlags::OUT);
        assert_eq!(self.two.one.call(&Request::Process(ProcessCall::Notices)), Ok(Reply::Done));
        assert_eq!(self.two.two.call(&SocketCall::Close.on(from)), Ok(Reply::Done));
    }

    /// Makes the daemon use its far end in every way; it must not wait.
    fn exercise(&mut self) {
        let (port, lane) = (self.port, self.lane);
        for more in [false, true, false] {
            drop(self.two.two.call(&SocketCall::Drained { more }.on(port)));
            drop(self.two.two.call(&SocketCall::Rearm.on(port)));
            drop(self.two.one.call(&Request::Lane(LaneCall::Wake { lane })));
        }
        self.check_others();
    }
}

#[test]
fn writer_makes_the_reader_of_its_lane_readable() {
    let mut polled_one = Polled::new();
    let far = packets::Far::new(polled_one.far()).unwrap();
    assert_eq!(polled(&polled_one.near, 0), PollFlags::OUT);
    assert!(far.set_readable() && far.keep_readable());
    assert_eq!(polled(&polled_one.near, 0), PollFlags::IN | PollFlags::OUT);
    assert!(packets::drain(&polled_one.near));
    assert_eq!(polled(&polled_one.near, 0), PollFlags::OUT);
    // The socket's own process gets a copy too.
    let own = polled_one.two.two.call_for_fd(&SocketCall::FarEnd.on(polled_one.port));
    assert!(packets::Far::new(own.into_iter().next().unwrap()).unwrap().set_readable());
    assert_eq!(polled(&polled_one.near, 0), PollFlags::IN | PollFlags::OUT);
    polled_one.two.two.call(&SocketCall::Close.on(polled_one.port)).unwrap();
    assert!(!far.set_readable(), "a closed socket's descriptor has hung up");
    polled_one.check_others();
}

#[test]
fn only_writers_and_holders_get_a_copy() {
    let mut it = Polled::new();
    let (port, lane) = (it.port, it.lane);
    let own = |client: &mut Client| client.call(&SocketCall::FarEnd.on(port));
    let of_reader = |client: &mut Client, lane| client.call(&Request::Lane(LaneCall::FarEnd { lane }));
    let bystander = &mut it.bystander.client;
    assert_eq!(of_reader(bystander, lane), Err(Failure::State));
    assert_eq!(own(bystander), Err(Failure::NoSocket(port)));
    assert_eq!(own(&mut it.two.one), Err(Failure::NoSocket(port)));
    assert_eq!(of_reader(&mut it.two.two, lane), Err(Failure::State), "it reads the lane");
    let unknown = LaneId { slot: lane.slot + 1, ..lane };
    assert_eq!(of_reader(&mut it.two.one, unknown), Err(Failure::State));
    let back = it.two.two_lanes.writers.values().next().unwrap().0;
    let unpolled = of_reader(&mut it.two.two, back);
    assert_eq!(unpolled, Err(Failure::State), "the socket at the other end has no descriptor");
    it.two.two.call(&Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Reader })).unwrap();
    it.check_others();
}

#[test]
fn junk_in_a_far_end_harms_no_other_process() {
    let mut it = Polled::new();
    let far = it.far();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    for junk in [&[][..], &[1], &[0xff; 1000]] {
        for _ in 0..10_000 {
            if send(&far, junk, flags).is_err() {
                break;
            }
        }
        it.exercise();
    }
    while packets::drain_to_end(&it.near).0 {}
    it.exercise();
}

#[test]
fn reading_a_far_end_harms_no_other_process() {
    let mut it = Polled::new();
    let far = it.far();
    for _ in 0..10 {
        packets::fill(&it.near);
        while recv(&far, &mut [0; 4096], RecvFlags::DONTWAIT).is_ok() {}
        assert!(polled(&it.near, 0).contains(PollFlags::OUT));
        it.exercise();
    }
}

#[test]
fn flags_of_a_far_end_do_not_make_the_daemon_wait() {
    let mut it = Polled::new();
    let far = it.far();
    for flags in [OFlags::empty(), OFlags::NONBLOCK, OFlags::empty()] {
        rustix::fs::fcntl_setfl(&far, flags).unwrap();
        it.exercise();
        while send(&far, &[1; 1000], SendFlags::DONTWAIT).is_ok() {}
        it.exercise();
    }
}

#[test]
fn descriptors_passed_through_a_far_end_stay_with_its_two_ends() {
    let mut it = Polled::new();
    let far = Channel::from_fd(it.far());
    let (passed, kept) = Channel::pair().unwrap();
    for _ in 0..100 {
        let _ = far.send(&[IoSlice::new(&[1])], &[passed.as_fd(); 8], false);
    }
    drop(passed);
    it.exercise();
    assert!(!packets::is_peer_closed(&kept), "they wait in the near end");
    while packets::drain(&it.near) {}
    assert!(packets::is_peer_closed(&kept), "the kernel has closed them");
    it.exercise();
}

#[test]
fn shutdown_of_a_far_end_ends_only_its_socket() {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let mut it = Polled::new();
        let far = it.far();
        shutdown(&far, how).unwrap();
        it.exercise();
        drop(far);
        it.exercise();
        assert!(it.two.two.call(&SocketCall::Close.on(it.port)).is_ok());
        it.check_others();
    }
}

#[test]
fn copy_outlives_socket_and_daemon_without_effect() {
    let mut it = Polled::new();
    let far = it.far();
    it.two.two.call(&SocketCall::Close.on(it.port)).unwrap();
    assert!(polled(&it.near, 0).contains(PollFlags::HUP), "although the copy is open");
    assert!(send(&far, &[1], SendFlags::NOSIGNAL).is_err());
    it.check_others();
}
