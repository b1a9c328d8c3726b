use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn socket(offloads: bool) -> UdpSocket {
    let options = UdpOptions { offloads, ..UdpOptions::default() };
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
}

/// Adjacent frames of one size; the last may be shorter.
struct Equal<'a>(&'a [u8], usize);

impl Frames for Equal<'_> {
    fn pieces(&self, index: usize) -> [&[u8]; 2] {
        // In two halves, so that adjacent pieces have to be merged.
        let frame = self.0.chunks(self.1).nth(index).unwrap_or_default();
        frame.split_at(frame.len() / 2).into()
    }
}

/// Frames of these sizes; all start at the same place.
struct Sizes<'a>(&'a [u8], &'a [usize]);

impl Frames for Sizes<'_> {
    fn pieces(&self, index: usize) -> [&[u8]; 2] {
        [self.1.get(index).and_then(|len| self.0.get(..*len)).unwrap_or_default(), &[]]
    }
}

fn wait(socket: &UdpSocket) {
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1, "nothing arrived within 10 s");
}

fn collect(socket: &UdpSocket, ring: &mut ReceiveRing, frames: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    while got.len() < frames {
        wait(socket);
        socket.receive(ring, &mut |_, bytes| got.push(bytes.to_vec())).unwrap();
    }
    got
}

#[test]
fn run_arrives_as_separate_frames_with_and_without_offloads() {
    for (tx_offload, rx_offload) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut tx, rx) = (socket(tx_offload), socket(rx_offload));
        let arena: Vec<u8> = (0..1000_u32).map(|byte| byte as u8).collect();
        let to = SockAddr::from(rx.local_address());
        let segment = if tx.segmentation() { 300 } else { 0 };
        let (frames, run) = (Equal(&arena, 300), Datagram { to, first: 0, count: 4, len: 1000, segment });
        let singles: Vec<_> = run.singles().collect();
        let report = tx.send(&frames, if segment == 0 { &singles } else { std::slice::from_ref(&run) });
        assert_eq!((report.frames, report.bytes, report.dropped), (4, 1000, 0), "{report:?}");
        let got = collect(&rx, &mut ReceiveRing::new(4, gro::MAX_BYTES), 4);
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [300, 300, 300, 100]);
        assert_eq!(got.concat(), arena);
    }
}

#[test]
fn refused_run_is_sent_singly_and_disables_runs() {
    let (mut tx, rx) = (socket(true), socket(true));
    assert!(tx.segmentation(), "this test needs UDP_SEGMENT, Linux 4.18");
    // More segments than any kernel takes in one send.
    let arena = vec![7; 200];
    let to = SockAddr::from(rx.local_address());
    let report = tx.send(&Equal(&arena, 1), &[Datagram { to, first: 0, count: 200, len: 200, segment: 1 }]);
    assert_eq!((report.frames, report.dropped, report.offload_refused), (200, 0, true), "{report:?}");
    assert!(!tx.segmentation());
    assert_eq!(collect(&rx, &mut ReceiveRing::new(16, 2048), 200).len(), 200);
}

#[test]
fn unsendable_datagrams_are_counted_and_skipped() {
    let (mut tx, rx) = (socket(true), socket(true));
    let to = SockAddr::from(rx.local_address());
    let arena = vec![1; 70_000];
    let datagrams = [0, 1, 2, 9, 3].map(|first| Datagram { to, first, count: 1, len: 0, segment: 0 });
    let report = tx.send(&Sizes(&arena, &[10, 70_000, 20, 30]), &datagrams);
    assert_eq!((report.frames, report.dropped), (3, 2), "{report:?}");
    let sizes: Vec<_> = collect(&rx, &mut ReceiveRing::new(2, 2048), 3).iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 20, 30]);
}

#[test]
fn truncated_datagram_is_counted_and_dropped() {
    let (mut tx, rx) = (socket(false), socket(false));
    let to = SockAddr::from(rx.local_address());
    tx.send(&Sizes(&[0; 200], &[200]), &[Datagram { to, first: 0, count: 1, len: 200, segment: 0 }]);
    wait(&rx);
    let got = rx.receive(&mut ReceiveRing::new(2, 100), &mut |_, _| panic!("truncated frame")).unwrap();
    assert_eq!(got, Received { reads: 0, truncated: 1, more: false });
}

#[test]
fn nothing_to_read_is_an_empty_result() {
    let rx = socket(true);
    let got = rx.receive(&mut ReceiveRing::new(2, 100), &mut |_, _| ()).unwrap();
    assert_eq!(got, Received::default());
}

#[test]
fn address_in_use_is_refused_with_a_remedy() {
    let first = socket(true);
    let error = UdpSocket::bind(first.local_address(), &UdpOptions::default()).unwrap_err().to_string();
    assert!(error.contains(&first.local_address().to_string()) && error.contains("ss -ulnp"), "{error}");
    let foreign = "203.0.113.5:6118".parse().unwrap();
    let error = UdpSocket::bind(foreign, &UdpOptions::default()).unwrap_err().to_string();
    assert!(error.contains("ip address"), "{error}");
}

/// An express path from `first` to `peer`.
fn express(first: &UdpSocket, peer: &UdpSocket) -> Express {
    let path = first.reserve_express(&UdpOptions::default()).unwrap();
    path.connect(first, peer.local_address()).unwrap();
    assert!(!path.can_wait());
    assert_eq!(knocks(&path, first), 1);
    path.confirm_wake();
    path
}

/// Counts the empty datagrams from itself that wait on an express path.
fn knocks(path: &Express, first: &UdpSocket) -> u32 {
    let (mut ring, mut knocks) = (ReceiveRing::new(4, 100), 0);
    path.wait(&mut ring, 4, Some(std::time::Duration::from_secs(10))).unwrap();
    ring.deliver(&mut |from, bytes| {
        knocks += u32::from(bytes.is_empty() && from.to_ip() == Some(first.local_address()));
    });
    knocks
}

const ONE: Datagram = Datagram { to: SockAddr::NONE, first: 0, count: 1, len: 10, segment: 0 };

#[test]
fn express_path_receives_only_from_its_peer() {
    let (first, mut peer, mut stranger) = (socket(true), socket(true), socket(true));
    let path = express(&first, &peer);
    assert_eq!(path.send(&Sizes(&[1; 10], &[10]), &[ONE]).frames, 1);
    assert_eq!(collect(&peer, &mut ReceiveRing::new(1, 100), 1), [[1; 10]]);
    let to = SockAddr::from(first.local_address());
    peer.send(&Sizes(&[2; 10], &[10]), &[Datagram { to, ..ONE }]);
    stranger.send(&Sizes(&[3; 10], &[10]), &[Datagram { to, ..ONE }]);
    let mut ring = ReceiveRing::new(1, 100);
    path.wait(&mut ring, 1, None).unwrap();
    ring.deliver(&mut |from, bytes| {
        assert_eq!((from.to_ip(), bytes), (Some(peer.local_address()), &[2; 10][..]));
    });
    assert_eq!(collect(&first, &mut ring, 1), [[3; 10]]);
    // The address is in use as before.
    assert!(UdpSocket::bind(first.local_address(), &UdpOptions::default()).is_err());
}

#[test]
fn wait_on_an_express_path_ends_by_wake_and_at_its_limit() {
    let (first, peer) = (socket(true), socket(true));
    let path = express(&first, &peer);
    let mut ring = ReceiveRing::new(1, 100);
    std::thread::scope(|scope| {
        scope.spawn(|| path.wake());
        path.wait(&mut ring, 1, None).unwrap();
    });
    let mut knocks = 0;
    ring.deliver(&mut |from, bytes| {
        knocks += u32::from(bytes.is_empty() && from.to_ip() == Some(first.local_address()));
    });
    assert_eq!(knocks, 1);
    let start = std::time::Instant::now();
    path.wait(&mut ring, 1, Some(std::time::Duration::from_millis(20))).unwrap();
    assert!(ring.filled() == 0 && start.elapsed() >= std::time::Duration::from_millis(10));
    // The next call reports once that the peer is gone; later calls work.
    drop(peer);
    for _ in 0..3 {
        assert_eq!(path.send(&Sizes(&[1; 10], &[10]), &[ONE]).frames, 1);
    }
}
