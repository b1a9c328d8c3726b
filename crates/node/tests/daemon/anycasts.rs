//! Anycasts by requests: receivers without lanes, among which the daemon chooses.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc_attach::{Failure, Reply, SocketCall};
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, SendError, SocketKind, WaitReason};
use utipc_os::fdpass::Channel;
use utipc_os::packets;

use crate::client::{Client, Host, LIMIT};

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Destination = Destination::service(18888, 17);
const OWN: NodeAddr = NodeAddr(0x1001);

/// Two receivers, and the socket of a sender whose process finds the first one each time.
struct Field {
    _host: Host,
    sender: Client,
    port: u32,
    receivers: [(Client, u32); 2],
}

impl Field {
    fn new() -> Self {
        let host = Host::new();
        let receivers = [0; 2].map(|_| {
            let mut client = host.client();
            let port = client.server(SocketKind::Rdm, SERVICE);
            (client, port)
        });
        let mut sender = host.client();
        let port = sender.open(SocketKind::Rdm);
        Self { _host: host, sender, port, receivers }
    }

    fn send(&mut self, data: &[u8]) -> Result<Reply, Failure> {
        let found = PortId { port: self.receivers[0].1, node: OWN };
        let request = SocketCall::SendFound { to: TO, found }.on(self.port);
        match self.sender.try_call(&request, data).unwrap().0 {
            Reply::Failed(failure) => Err(failure),
            reply => Ok(reply),
        }
    }

    /// Sends until the receivers are full. Returns false if their time was over before that was noticed.
    fn fill(&mut self) -> bool {
        for _ in 0..1000 {
            match self.send(&[7; 60_000]) {
                Ok(_) => {}
                Err(Failure::Send(SendError::WouldBlock)) => return true,
                Err(other) => panic!("{other:?}"),
            }
        }
        false
    }

    fn drain(&mut self, at: usize) -> usize {
        let (client, port) = &mut self.receivers[at];
        (0..10_000).take_while(|_| client.receive(*port).is_ok()).count()
    }

    fn wait_reason(&mut self) -> Option<WaitReason> {
        match self.sender.call(&SocketCall::Look.on(self.port)).unwrap() {
            Reply::Socket(view) => view.wait,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn found_receiver_that_does_not_read_shares_its_messages_with_the_other() {
    let mut field = Field::new();
    for _ in 0..100 {
        field.send(b"few").unwrap();
    }
    assert_eq!([0, 1].map(|at| field.drain(at)), [100, 0], "the one that was found is not loaded");
    for _ in 0..600 {
        field.send(b"many").unwrap();
    }
    let got = [0, 1].map(|at| field.drain(at));
    assert!(got[0] + got[1] == 600 && got[0] < 500 && got[1] > 100, "{got:?}");
}

#[test]
fn sender_is_notified_when_any_receiver_without_a_lane_reads() {
    let found = (0..5).any(|_| {
        let mut field = Field::new();
        if !field.fill() {
            return false;
        }
        let service = ServiceAddr::new(18888, 17);
        let is_told = field.wait_reason() == Some(WaitReason::ReceiversFull { service, receivers: 2 });
        // The second receiver, although the process has found the first.
        assert!(field.drain(1) > 5);
        let port = field.port;
        let found = PortId { port: field.receivers[0].1, node: OWN };
        let request = SocketCall::SendFound { to: TO, found }.on(port);
        field.sender.wait(|client| match client.try_call(&request, b"next").unwrap().0 {
            Reply::Failed(Failure::Send(SendError::WouldBlock)) => None,
            reply => Some(reply),
        });
        let (client, port) = &mut field.receivers[1];
        is_told && client.receive(*port).is_ok_and(|(_, data)| data == b"next")
    });
    assert!(found, "no attempt was fast enough");
}

#[test]
fn polled_sender_becomes_writable_when_any_receiver_without_a_lane_reads() {
    let found = (0..5).any(|_| {
        let mut field = Field::new();
        let port = field.port;
        let near =
            Channel::from_fd(field.sender.call_for_fd(&SocketCall::Descriptor.on(port)).pop().unwrap());
        let poll_out = |seconds| {
            let mut set = [PollFd::new(&near, PollFlags::OUT)];
            poll(&mut set, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
        };
        if !field.fill() {
            return false;
        }
        // As a library does after EWOULDBLOCK.
        packets::fill(&near);
        field.sender.call(&SocketCall::Rearm.on(port)).unwrap();
        if poll_out(0) {
            return false;
        }
        field.drain(1);
        assert!(poll_out(LIMIT.as_secs() as i64), "the sender is stuck");
        field.send(b"next").is_ok()
    });
    assert!(found, "no attempt was fast enough");
}
