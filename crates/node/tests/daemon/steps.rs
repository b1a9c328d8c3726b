//! A process is killed before and after each system call that it makes at a daemon: attaching, opening, binding,
//! fetching and mapping shared memory, sending, receiving, closing.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use nix::unistd::{Pid, gettid};
use utipc_attach::{LaneCall, LaneEnd, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::SocketKind;
use utipc_lanes::{Arena, Peek, Side};

use crate::client::{Client, Host, wait_while};
use crate::traced::{Reached, kill, named_thread, run_to, trace};

const SERVICE: ServiceRange = ServiceRange::new(4100, 1, 1);
/// Set for the process that is to be killed: the daemon's path.
const VICTIM: &str = "UTIPC_TEST_STEPS";
/// Set for the process that counts descriptors, in which no other test runs.
const ALONE: &str = "UTIPC_TEST_STEPS_ALONE";

const fn side(number: u8) -> Side {
    if number == 0 { Side::Zero } else { Side::One }
}

/// Not a test: the process that is killed. Both ends of its lane are its own.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    println!("\ntid {}", gettid());
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let mut client = Client::attach(path.as_ref(), true);
    let to = client.server(SocketKind::Rdm, SERVICE);
    let from = client.open(SocketKind::Rdm);
    client.call(&SocketCall::WantLane { to }.on(from)).unwrap();
    client.call(&Request::Process(ProcessCall::Notices)).unwrap();
    let told = client.notices.iter().find_map(|notice| match notice {
        Notice::Lane { lane, end: LaneEnd::Writer, .. } => Some(*lane),
        _ => None,
    });
    let lane = told.expect("a lane");
    let fds = client.call_for_fd(&Request::Lane(LaneCall::FetchPair { pair: lane.pair }));
    let arena = Arena::open(&fds[0]).unwrap();
    drop(fds);
    // One side writes, and the other reads, in the same process: the arena of a pair with itself.
    let (me, slot) = (side(lane.writer), u32::from(lane.slot));
    let outgoing = arena.outgoing(me);
    let mut writer = outgoing.writer(slot).unwrap();
    let incoming = arena.incoming(side(1 - lane.writer));
    let mut reader = incoming.reader(slot).unwrap();
    for _ in 0..3 {
        let _ = writer.send(&[7; 100], &[], 1).unwrap();
    }
    while let Peek::Record(record) = reader.peek().unwrap() {
        reader.consume(record, 1);
    }
    let descriptor = client.call_for_fd(&SocketCall::Descriptor.on(to));
    drop(descriptor);
    client.call(&SocketCall::Close.on(from)).unwrap();
    client.call(&Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Writer })).unwrap();
    client.call(&SocketCall::Close.on(to)).unwrap();
    drop((writer, reader, outgoing, incoming, arena));
    drop(client);
    // The end of the test program is not tested.
    std::process::exit(0);
}

/// Starts the victim and stops it before its first step.
fn start(host: &Host) -> nix::Result<(Child, Pid)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "steps::victim", "--nocapture"])
        .env(VICTIM, &host.path)
        // The leak check of a sanitizer is not stepped through.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let tid = named_thread(&mut child);
    let traced = trace(tid);
    if traced.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    traced.map(|()| (child, tid))
}

/// Kills a victim at its `step`-th entry to a system call or return from one; false if it ended earlier.
fn die_at(host: &Host, step: usize) -> nix::Result<bool> {
    let (mut child, tid) = start(host)?;
    child.stdin.take().unwrap().write_all(b"!").unwrap();
    let died = run_to(tid, step) == Reached::Point;
    kill(&mut child, tid);
    Ok(died)
}

#[test]
fn process_killed_at_any_system_call_leaves_no_state() {
    if std::env::var_os(ALONE).is_none() {
        let test = "steps::process_killed_at_any_system_call_leaves_no_state";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let alone = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
        eprintln!("{}", String::from_utf8_lossy(&alone.stderr));
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
        return;
    }
    let host = Host::new();
    let mut witness = host.direct_client();
    let port = witness.server(SocketKind::Rdm, ServiceRange::new(4101, 1, 1));
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = None;
    let mut step = 0;
    loop {
        match die_at(&host, step) {
            Err(error) => {
                eprintln!(
                    "skipped: kill points of system calls: this process may not trace its children ({error})"
                );
                return;
            }
            Ok(died) => {
                wait_while(|| host.daemon().counters().attached > 1);
                let counters = host.daemon().counters();
                let left = (counters.sockets, counters.lanes, counters.pairs);
                assert_eq!(left.0, 1, "sockets, step {step}");
                assert_eq!((left.1, left.2), (0, 0), "lanes and pairs, step {step}");
                assert!(
                    matches!(witness.call(&SocketCall::Look.on(port)), Ok(Reply::Socket(_))),
                    "step {step}"
                );
                if !died {
                    break;
                }
            }
        }
        step += 1;
        assert!(step < 5000, "the victim never ends");
        if step == 10 {
            before = Some(descriptors());
        }
    }
    assert_eq!(Some(descriptors()), before, "descriptors after {step} deaths");
    eprintln!("killed at each of {step} entries to and returns from system calls");
}
