//! The loads of several receivers, and waits for any of them.

use utipc_core::Load;
use utipc_core::addr::ServiceAddr;
use utipc_core::socket::WaitReason;

use super::*;

const KIND: SocketKind = SocketKind::Rdm;
const SERVICE: ServiceAddr = ServiceAddr { service: 100, instance: 1 };

/// A sending socket 1 with lanes to the sockets 90, 91 …
struct Service {
    sender: Sender,
    receivers: Vec<(OwnSocket, Receiver, Arc<ReadyLanes>)>,
    _arena: Arena,
}

impl Service {
    fn new(count: u16) -> Self {
        let (arena, writes, reads) = pair();
        let mut sender = Sender::default();
        let receivers = (0..count)
            .map(|slot| {
                let port = 90 + u32::from(slot);
                arena.open_slot(Side::Zero, slot.into()).unwrap();
                sender.add(OutboundLane::new(id(slot), Arc::clone(&writes), port).unwrap(), KIND);
                let (mut receiver, ready) = (Receiver::default(), Arc::default());
                receiver.node_is_empty();
                receiver.add(InboundLane::new(id(slot), Arc::clone(&reads), 1, None).unwrap(), &ready);
                (own(port, KIND), receiver, ready)
            })
            .collect();
        Self { sender, receivers, _arena: arena }
    }

    fn send(&mut self, to: u32) -> Result<usize, LaneError> {
        self.sender.send_to(own(1, KIND), SendOptions::new(KIND), to, Address::Direct, &[7; 100])
    }

    /// Fills a lane; larger rings are granted at most this many times.
    fn fill(&mut self, to: u32, grants: usize) {
        let mut granted = 0;
        loop {
            let Err(error) = self.send(to) else { continue };
            let Some(growth) = self.sender.wants_ring(Route::Socket(to), error) else { return };
            self.sender.grow(growth, granted < grants);
            granted += 1;
        }
    }

    fn read(&mut self, from: u32) -> usize {
        let (own, receiver, ready) = &mut self.receivers[(from - 90) as usize];
        let mut buffer = [0; 200];
        let next = |_: &usize| {
            let mut call = ReceiveCall::new(Sink::Slice(&mut buffer), RecvOptions::default());
            matches!(receiver.next(*own, &mut call, ready), Next::Got)
        };
        (0..100_000).take_while(next).count()
    }
}

#[test]
fn load_is_what_the_reader_has_not_read_in_steps() {
    let mut service = Service::new(2);
    assert_eq!(service.sender.load(90, 100), Some(Load::IDLE));
    assert_eq!(service.sender.load(1, 100), None, "no lane leads there");
    service.fill(90, 2);
    let Some(Load::Full) = service.sender.load(90, 100) else { panic!("it is full") };
    service.read(90);
    for _ in 0..200 {
        service.send(90).unwrap();
    }
    assert_eq!(service.sender.load(90, 100), Some(Load::Open(1)), "200 blocks, of which 195 are a step");
    assert_eq!(service.sender.load(91, 100), Some(Load::IDLE));
    service.read(90);
    assert_eq!(service.sender.load(90, 100), Some(Load::IDLE));
}

#[test]
fn lane_that_can_grow_is_not_full() {
    let mut service = Service::new(1);
    while service.send(90).is_ok() {}
    assert!(service.sender.load(90, 100).is_some_and(Load::is_open));
    assert!(service.sender.load(90, 60_000).is_some_and(Load::is_open), "a larger ring takes it");
}

#[test]
fn reader_that_has_not_read_for_too_long_is_silent_until_it_makes_room() {
    let mut service = Service::new(1);
    service.fill(90, 0);
    assert_eq!(service.sender.load(90, 100), Some(Load::Full));
    let begin = Instant::now();
    assert!(service.sender.waits_for_any(&[90], false, (SERVICE, 1), begin));
    let later = begin + Duration::from_secs(1);
    assert!(!service.sender.waits_for_any(&[90], false, (SERVICE, 1), later));
    assert_eq!(service.sender.load(90, 100), Some(Load::Silent));
    service.read(90);
    assert_eq!(service.sender.load(90, 100), Some(Load::IDLE));
}

#[test]
fn sender_waits_for_any_of_several_readers() {
    let mut service = Service::new(3);
    for port in 90..93 {
        service.fill(port, 0);
    }
    assert!(service.sender.waits_for_any(&[90, 91, 92], false, (SERVICE, 3), Instant::now()));
    assert!(service.sender.take_new_wait());
    assert_eq!(service.sender.awaited_pairs().len(), 1, "one arena for all");
    assert_eq!(
        service.sender.wait_reason(NODE),
        Some(WaitReason::ReceiversFull { service: SERVICE, receivers: 3 })
    );
    assert!(!service.sender.want_room(100));
    service.read(91);
    assert!(service.sender.want_room(100));
    service.send(91).unwrap();
    assert_eq!(service.sender.wait_reason(NODE), None);
    // The node may be waited for alone.
    assert!(service.sender.waits_for_any(&[], true, (SERVICE, 3), Instant::now()));
    assert!(service.sender.awaited_pairs().is_empty());
    assert!(!service.sender.waits_for_any(&[], false, (SERVICE, 3), Instant::now()));
}
