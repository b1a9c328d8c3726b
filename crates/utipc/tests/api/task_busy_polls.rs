//! Tasks that poll busily for messages before they wait.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Engine, LIMIT, TestNode, alone};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use utipc::tokio::Socket;
use utipc::{Error, ServiceAddress, SocketKind, Spin};

const SERVICE: ServiceAddress = ServiceAddress::new(5210, 1);
/// More messages than a socket receives before its level is deferred.
const MANY: u8 = 50;

/// Runs a test's task on one thread, at most for [`LIMIT`].
fn run(task: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, task).await.expect("the task ends in time") });
}

/// A connection by lanes whose first end is a task's, and has received so much that its level is deferred.
async fn ends() -> (TestNode, Socket, utipc::Socket) {
    let red = alone(Engine::Daemon);
    let listener = utipc::Socket::from(red.again().listen(SocketKind::SeqPacket, SERVICE).unwrap());
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let acceptor = thread::spawn(move || listener.accept().unwrap().0);
    let client = red.seqpacket().unwrap();
    client.connect(SERVICE).unwrap();
    let (client, server) = (Socket::new(client).unwrap(), acceptor.join().unwrap());
    server.set_receive_timeout(Some(LIMIT));
    for round in 0..MANY {
        server.send(&[round]).unwrap();
        assert_eq!(client.receive().await.unwrap().data, [round]);
        client.send(&[round]).await.unwrap();
        assert_eq!(server.receive().unwrap().data, [round]);
    }
    (red, client, server)
}

#[test]
fn waiting_task_is_woken_while_another_polls_its_socket_busily() {
    run(async {
        let (_red, client, server) = ends().await;
        // Its busy poll is over at once.
        client.get().set_spin(Spin::Parked);
        let waiting = async { assert_eq!(client.receive().await.unwrap().data, b"x") };
        let other = async {
            for _ in 0..3 {
                assert!(matches!(client.get().receive(), Err(Error::WouldBlock { .. })));
                sleep(Duration::from_millis(5)).await;
            }
            server.send(b"x").unwrap();
        };
        tokio::join!(biased; waiting, other);
    });
}

#[test]
fn busy_poll_does_not_disarm_the_lanes_of_a_thread_that_sleeps() {
    run(async {
        let (_red, client, server) = ends().await;
        client.get().set_spin(Spin::Parked);
        thread::scope(|scope| {
            client.get().set_nonblocking(false);
            client.get().set_receive_timeout(Some(2 * LIMIT));
            let asleep = scope.spawn(|| client.get().receive().unwrap().data);
            while client.get().wait_reason().is_none() {
                thread::yield_now();
            }
            // Until it sleeps; if it does not yet, there is nothing to see.
            thread::sleep(Duration::from_millis(100));
            client.get().set_nonblocking(true);
            for _ in 0..2 {
                assert!(matches!(client.get().receive(), Err(Error::WouldBlock { .. })));
            }
            server.send(b"x").unwrap();
            let sent = Instant::now();
            while !asleep.is_finished() {
                assert!(sent.elapsed() < LIMIT, "it sleeps until its time limit");
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(asleep.join().unwrap(), b"x");
        });
    });
}

#[test]
fn endless_busy_poll_leaves_other_tasks_and_timers_their_turns() {
    run(async {
        let (_red, client, server) = ends().await;
        client.get().set_spin(Spin::Busy);
        let polling = async { assert_eq!(client.receive().await.unwrap().data, b"x") };
        let other = async {
            for _ in 0..100 {
                yield_now().await;
            }
            for _ in 0..10 {
                sleep(Duration::from_millis(1)).await;
            }
            server.send(b"x").unwrap();
        };
        tokio::join!(biased; polling, other);
    });
}

#[test]
fn task_that_always_finds_a_message_leaves_other_tasks_their_turns() {
    run(async {
        let (_red, client, server) = ends().await;
        let (mut served, mut ended) = (0, false);
        let busy = async {
            while !ended_now(&mut served, &client, &server).await {}
            ended = true;
        };
        tokio::select! {
            () = busy => panic!("the other task got no turn in {served} messages"),
            () = async { for _ in 0..10 { yield_now().await } } => {}
        }
    });
}

/// Sends a message and receives it, which never waits; returns whether that was done very often.
async fn ended_now(served: &mut u32, client: &Socket, server: &utipc::Socket) -> bool {
    server.send(b"x").unwrap();
    client.receive().await.unwrap();
    *served += 1;
    *served > 1_000_000
}

#[test]
fn descriptor_that_the_program_asks_for_is_right() {
    run(async {
        let (_red, client, server) = ends().await;
        server.send(b"x").unwrap();
        let descriptor = client.get().as_fd();
        for sent in [b"x", b"y"] {
            let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
            poll(&mut set, Some(&Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 })).unwrap();
            assert_eq!(set[0].revents(), PollFlags::IN);
            assert_eq!(client.receive().await.unwrap().data, sent);
            let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
            poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            assert_eq!(set[0].revents(), PollFlags::empty());
            server.send(b"y").unwrap();
        }
    });
}
