use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn socket(offloads: bool) -> UdpSocket {
    let options = UdpOptions { offloads, ..UdpOptions::default() };
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
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
fn a_run_arrives_as_separate_frames_with_and_without_offloads() {
    for (tx_offload, rx_offload) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut tx, rx) = (socket(tx_offload), socket(rx_offload));
        let arena: Vec<u8> = (0..1000_u32).map(|byte| byte as u8).collect();
        let to = SockAddr::from(rx.local_address());
        let segment = if tx.segmentation() { 300 } else { 0 };
        let run = Datagram { to, offset: 0, len: 1000, segment };
        let report = if segment == 0 {
            let singles: Vec<_> = Datagram { segment: 300, ..run }.segments().collect();
            tx.send(&arena, &singles)
        } else {
            tx.send(&arena, &[run])
        };
        assert_eq!((report.frames, report.bytes, report.dropped), (4, 1000, 0), "{report:?}");
        let got = collect(&rx, &mut ReceiveRing::new(4, gro::MAX_BYTES), 4);
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [300, 300, 300, 100]);
        assert_eq!(got.concat(), arena);
    }
}

#[test]
fn a_refused_run_goes_out_singly_and_is_remembered() {
    let (mut tx, rx) = (socket(true), socket(true));
    assert!(tx.segmentation(), "this test needs UDP_SEGMENT, Linux 4.18");
    // More segments than any kernel takes in one send.
    let arena = vec![7; 200];
    let to = SockAddr::from(rx.local_address());
    let report = tx.send(&arena, &[Datagram { to, offset: 0, len: 200, segment: 1 }]);
    assert_eq!((report.frames, report.dropped, report.offload_refused), (200, 0, true), "{report:?}");
    assert!(!tx.segmentation());
    assert_eq!(collect(&rx, &mut ReceiveRing::new(16, 2048), 200).len(), 200);
}

#[test]
fn what_cannot_be_sent_is_counted_and_the_rest_goes_out() {
    let (mut tx, rx) = (socket(true), socket(true));
    let to = SockAddr::from(rx.local_address());
    let arena = vec![1; 70_000];
    let datagram = |len| Datagram { to, offset: 0, len, segment: 0 };
    let beyond = Datagram { to, offset: 69_999, len: 2, segment: 0 };
    let report = tx.send(&arena, &[datagram(10), datagram(70_000), datagram(20), beyond, datagram(30)]);
    assert_eq!((report.frames, report.dropped), (3, 2), "{report:?}");
    let sizes: Vec<_> = collect(&rx, &mut ReceiveRing::new(2, 2048), 3).iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 20, 30]);
}

#[test]
fn a_datagram_above_the_buffer_is_counted_not_delivered() {
    let (mut tx, rx) = (socket(false), socket(false));
    let to = SockAddr::from(rx.local_address());
    tx.send(&[0; 200], &[Datagram { to, offset: 0, len: 200, segment: 0 }]);
    wait(&rx);
    let got = rx.receive(&mut ReceiveRing::new(2, 100), &mut |_, _| panic!("truncated frame")).unwrap();
    assert_eq!(got, Received { reads: 0, truncated: 1, more: false });
}

#[test]
fn nothing_to_read_is_no_error() {
    let rx = socket(true);
    let got = rx.receive(&mut ReceiveRing::new(2, 100), &mut |_, _| ()).unwrap();
    assert_eq!(got, Received::default());
}

#[test]
fn a_taken_address_says_what_to_do() {
    let first = socket(true);
    let error = UdpSocket::bind(first.local_address(), &UdpOptions::default()).unwrap_err().to_string();
    assert!(error.contains(&first.local_address().to_string()) && error.contains("ss -ulnp"), "{error}");
    let foreign = "203.0.113.5:6118".parse().unwrap();
    let error = UdpSocket::bind(foreign, &UdpOptions::default()).unwrap_err().to_string();
    assert!(error.contains("ip address"), "{error}");
}
