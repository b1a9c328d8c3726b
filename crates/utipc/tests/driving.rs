//! Driving of the node's event loop by callers, other threads, the supervisor and poll loops.

mod common;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Engine, LIMIT, echo, on_each_engine, pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc::{Connection, LinkProperty, Scope, ServiceAddress, SocketKind};

on_each_engine!(
    poll_reports_what_a_call_would_find,
    poll_reports_requests_congestion_and_hang_up,
    threads_waiting_on_one_node_get_their_own_messages,
    local_send_wakes_a_waiting_thread,
    idle_node_keeps_its_links,
    send_only_program_keeps_its_links,
    dropped_node_leaves_at_once,
);

/// Tests for embedded nodes only: a daemon drives its node itself.
mod driven {
    use super::Engine;

    #[test]
    fn event_loop_of_the_program_drives_the_node() {
        super::event_loop_of_the_program_drives_the_node(Engine::Embedded);
    }

    #[test]
    fn wait_on_the_fast_path_ends_for_messages_by_other_paths() {
        super::wait_on_the_fast_path_ends_for_messages_by_other_paths(Engine::Embedded);
    }
}

const SERVICE: ServiceAddress = ServiceAddress::new(3000, 0);

fn polled(fd: &impl AsFd, limit: Duration) -> PollFlags {
    let mut set = [PollFd::new(fd, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    poll(&mut set, Some(&limit)).unwrap();
    set[0].revents()
}

/// Polls for input only.
fn wait_readable(fd: &impl AsFd) {
    let mut set = [PollFd::new(fd, PollFlags::IN)];
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut set, Some(&limit)).unwrap(), 1, "nothing to read within {LIMIT:?}");
}

fn threads_waiting_on_one_node_get_their_own_messages(engine: Engine) {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 50;
    let [red, blue] = pair(engine);
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for instance in 1..=THREADS {
            let service = ServiceAddress::new(3000, instance);
            let server = blue.rdm().unwrap();
            server.bind(service, Scope::Cluster).unwrap();
            scope.spawn(move || echo(&server, ROUNDS));
            let (red, done) = (&red, &done);
            scope.spawn(move || {
                red.wait_for_service(service, LIMIT).unwrap();
                let client = red.rdm().unwrap();
                client.set_receive_timeout(Some(LIMIT));
                for round in 0..ROUNDS {
                    client.send_to(&[instance as u8, round as u8], service).unwrap();
                    assert_eq!(client.receive().unwrap().data, [instance as u8, round as u8]);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), THREADS);
}

fn local_send_wakes_a_waiting_thread(engine: Engine) {
    let [red, _blue] = pair(engine);
    let server = red.rdm().unwrap();
    server.bind(SERVICE, Scope::Node).unwrap();
    server.set_receive_timeout(Some(LIMIT));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| server.receive());
        thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        red.rdm().unwrap().send_to(b"wake up", SERVICE).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap().data, b"wake up");
        assert!(start.elapsed() < LIMIT / 2, "only the timeout woke it");
    });
}

fn poll_reports_what_a_call_would_find(engine: Engine) {
    let [red, blue] = pair(engine);
    let server = blue.rdm().unwrap();
    server.set_nonblocking(true);
    assert_eq!(polled(&server, Duration::ZERO), PollFlags::OUT);
    server.bind(SERVICE, Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let client = red.rdm().unwrap();
    for round in 0..20_u8 {
        client.send_to(&[round], SERVICE).unwrap();
        wait_readable(&server);
        assert_eq!(server.receive().unwrap().data, [round]);
        assert_eq!(polled(&server, Duration::ZERO), PollFlags::OUT);
        assert!(server.receive().unwrap_err().is_temporary());
    }
}

fn event_loop_of_the_program_drives_the_node(engine: Engine) {
    let [red, blue] = pair(engine);
    let server = blue.rdm().unwrap();
    server.set_nonblocking(true);
    server.bind(SERVICE, Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let client = red.rdm().unwrap();
    for round in 0..200_u8 {
        client.send_to(&[round], SERVICE).unwrap();
        let received = loop {
            match server.receive() {
                Ok(received) => break received,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            if round % 2 == 0 {
                blue.drive(LIMIT);
            } else {
                let wait = blue.poll().unwrap_or(LIMIT).min(LIMIT);
                polled(&blue.descriptor().unwrap().unwrap(), wait);
            }
        };
        assert_eq!(received.data, [round]);
    }
    assert!(!blue.drive(Duration::from_millis(20)) || server.receive().unwrap_err().is_temporary());
}

fn wait_on_the_fast_path_ends_for_messages_by_other_paths(engine: Engine) {
    let [red, blue] = pair(engine);
    let server = blue.rdm().unwrap();
    server.bind(SERVICE, Scope::Cluster).unwrap();
    server.set_receive_timeout(Some(LIMIT));
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let client = red.rdm().unwrap();
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            loop {
                let request = server.receive().unwrap();
                if request.data.is_empty() || request.data == b"end" {
                    return Instant::now();
                }
                server.send_to(&request.data, request.source).unwrap();
            }
        });
        // Enough rounds for both ends to wait on the express path only.
        for round in 0..500_u32 {
            client.send_to(&round.to_ne_bytes(), SERVICE).unwrap();
            assert_eq!(client.receive().unwrap().data, round.to_ne_bytes());
        }
        // A message from another thread of the same node.
        let start = Instant::now();
        blue.rdm().unwrap().send_to(b"end", SERVICE).unwrap();
        assert!(echo.join().unwrap() - start < LIMIT / 2, "only the timeout woke it");
    });
    // The timeout still applies.
    server.set_receive_timeout(Some(Duration::from_millis(30)));
    let start = Instant::now();
    assert!(server.receive().unwrap_err().is_temporary());
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!((red.counters().links_down, blue.counters().links_down), (0, 0));
}

fn poll_reports_requests_congestion_and_hang_up(engine: Engine) {
    let [red, blue] = pair(engine);
    let listener = blue.listen(SocketKind::SeqPacket, SERVICE).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    assert!(!polled(&listener, Duration::ZERO).contains(PollFlags::IN));
    let client = Connection::open_with(red.seqpacket().unwrap(), SERVICE, b"first").unwrap();
    wait_readable(&listener);
    let server = listener.accept().unwrap();
    wait_readable(&server);
    server.receive().unwrap();
    server.send(b"welcome").unwrap();
    client.receive().unwrap();

    client.socket().set_nonblocking(true);
    assert!(polled(&client, LIMIT).contains(PollFlags::OUT));
    let message = vec![1; 60_000];
    let mut sent = 0;
    let end = Instant::now() + LIMIT;
    loop {
        if client.send(&message).is_ok() {
            sent += 1;
            assert!(sent < 1000, "the sender is never blocked");
            continue;
        }
        // With a daemon, forwarding frees space again until the peer's buffer is full.
        let wait = if engine == Engine::Embedded { Duration::ZERO } else { Duration::from_millis(200) };
        if !polled(&client, wait).contains(PollFlags::OUT) {
            break;
        }
        assert!(engine == Engine::Daemon && Instant::now() < end, "writable, but nothing can be sent");
    }
    for _ in 0..sent {
        server.receive().unwrap();
    }
    assert!(polled(&client, LIMIT).contains(PollFlags::OUT));
    server.shutdown().unwrap();
    wait_readable(&client);
    // A daemon reports the end of the readable data first.
    let end = Instant::now() + LIMIT;
    while !polled(&client, LIMIT).contains(PollFlags::HUP) {
        assert!(engine == Engine::Daemon && Instant::now() < end, "no POLLHUP");
    }
}

fn idle_node_keeps_its_links(engine: Engine) {
    let [red, blue] = pair(engine);
    // Longer than the tolerance of 1.5 s: only the supervisor threads keep the link up.
    thread::sleep(Duration::from_secs(3));
    assert!(red.links().iter().chain(&blue.links()).all(|link| link.up));
    assert_eq!((red.counters().links_down, blue.counters().links_down), (0, 0));
}

fn send_only_program_keeps_its_links(engine: Engine) {
    let [red, blue] = pair(engine);
    let server = blue.rdm().unwrap();
    server.bind(SERVICE, Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let client = red.rdm().unwrap();
    let start = Instant::now();
    let mut sent = 0_u32;
    while start.elapsed() < Duration::from_secs(3) {
        client.send_to(b"tick", SERVICE).unwrap();
        sent += 1;
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..sent {
        server.receive().unwrap();
    }
    assert_eq!(red.counters().links_down, 0);
}

fn dropped_node_leaves_at_once(engine: Engine) {
    let [red, blue] = pair(engine);
    let mut topology = red.topology().unwrap();
    topology.links().unwrap();
    assert!(topology.next(LIMIT).unwrap().unwrap().is_up());
    for link in red.links() {
        red.set_link(&link.name, LinkProperty::ToleranceMs(30_000)).unwrap();
    }
    drop(blue);
    let event = topology.next(LIMIT / 2).unwrap();
    assert!(!event.expect("the link would end by its tolerance only").is_up());
}
