//! Sockets change hands (forks, execs, passed descriptors, lanes with messages in them) while one of the processes is
//! killed, or stopped for a moment, at each system call. Every sent message arrives once and in order, and nothing is
//! left at the daemon.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::unistd::{Pid, gettid};
use utipc_attach::{Failure, LaneCall, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::ServiceRange;
use utipc_core::socket::{Destination, RecvError, SocketKind};
use utipc_core::wire::MessageType;
use utipc_os::fdpass::{Channel, Got, Put};

use crate::client::{Client, Host, LIMIT, wait_while};
use crate::lanes::Lanes;
use crate::traced::{Reached, kill, named_thread, points, run_from, trace};

const SERVICE: ServiceRange = ServiceRange::new(4600, 1, 1);
const TO: Option<Destination> = Some(Destination::service(4600, 1));

/// Set for the processes of a scenario: the daemon's path, the scenario, and a number.
const PATH: &str = "UTIPC_TEST_STOPS";
const SCENARIO: &str = "UTIPC_TEST_STOPS_SCENARIO";
const NUMBER: &str = "UTIPC_TEST_STOPS_NUMBER";

/// Set for the process in which no other test runs.
const ALONE: &str = "UTIPC_TEST_STOPS_ALONE";

/// Messages that are sent before a socket changes hands, and after.
const BEFORE: u32 = 4;
const ALL: u32 = 6;

/// Largest number of points of a scenario.
const POINTS_MAX: usize = 5000;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// A process of this scenario, with this descriptor as its input.
fn process(path: &Path, scenario: &str, number: u32, input: OwnedFd) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stops::process_of_a_scenario", "--nocapture"]);
    command.env(PATH, path).env(SCENARIO, scenario).env(NUMBER, number.to_string());
    // The leak check of a sanitizer is not stepped through.
    command.env("ASAN_OPTIONS", "detect_leaks=0").stdin(Stdio::from(input)).stdout(Stdio::piped());
    command
}

/// Not a test: the processes of the scenarios.
#[test]
fn process_of_a_scenario() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let input = Channel::from_fd(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let (path, number) = (path.as_ref(), variable(NUMBER).parse().unwrap());
    match variable(SCENARIO).as_str() {
        "successor" => return succeed(path, &input),
        "child" => return take_over(&mut Client::attach(path, false), number),
        _ => {}
    }
    println!("\ntid {}", gettid());
    assert_eq!(input.receive(&mut [0; 8], &mut Vec::new(), 0, true).unwrap(), Got::Packet(2));
    match variable(SCENARIO).as_str() {
        "pass" => pass(path, &input),
        "fork" => fork(path),
        "heir" => inherit_passed(path, &input, number),
        "exec" => exec(path),
        "write" => write(path, number),
        other => panic!("{other}"),
    }
    // The end of the test program is not tested.
    std::process::exit(0);
}

fn message(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// All messages that wait at a socket; they must follow each other.
fn receive_all(client: &mut Client, port: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = Vec::new();
    loop {
        match client.receive(port) {
            Ok((received, data)) => {
                assert_eq!(received.returned, None);
                let number = u32::from_be_bytes(data.try_into().unwrap());
                assert!(numbers.last().is_none_or(|last| last + 1 == number), "{number} after {numbers:?}");
                numbers.push(number);
            }
            Err(Failure::Receive(RecvError::WouldBlock)) => return numbers,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// A socket, and messages in the lane to it.
fn server_with_messages(path: &Path) -> (Client, Client, Lanes, u32, u32) {
    let (mut own, mut other) = (Client::attach(path, true), Client::attach(path, true));
    let port = own.server(SocketKind::Rdm, SERVICE);
    let from = other.open(SocketKind::Rdm);
    other.call(&SocketCall::WantLane { to: port }.on(from)).unwrap();
    let mut lanes = Lanes::default();
    lanes.update(&mut other);
    for number in 0..BEFORE {
        lanes.write(from, port, MessageType::Direct, &message(number)).unwrap();
    }
    (own, other, lanes, port, from)
}

/// Sends the rest by the daemon: the lane is over.
fn send_rest(other: &mut Client, from: u32) {
    for number in BEFORE..ALL {
        other.send(from, TO, &message(number)).unwrap();
    }
}

/// Passes on a socket whose lane has messages.
fn pass(path: &Path, to: &Channel) {
    let (mut own, mut other, mut lanes, port, from) = server_with_messages(path);
    let near = own.call_for_fd(&SocketCall::Keep.on(port)).pop().unwrap();
    own.call(&SocketCall::MakeHosted { partly: None }.on(port)).unwrap();
    assert_eq!(to.send(&[IoSlice::new(b"near")], &[near.as_fd()], true).unwrap(), Put::Sent);
    drop(near);
    own.call(&SocketCall::Close.on(port)).unwrap();
    lanes.update(&mut other);
    send_rest(&mut other, from);
    other.call(&SocketCall::Close.on(from)).unwrap();
}

/// Starts a program that inherits the sockets.
fn fork(path: &Path) {
    let (mut own, mut other, mut lanes, port, from) = server_with_messages(path);
    let (number, inheritance) = own.fork();
    let channel = Channel::from_fd(inheritance.try_clone().unwrap());
    channel.send(&[IoSlice::new(&7_u64.to_le_bytes())], &[], true).unwrap();
    let mut child = process(path, "child", number, inheritance).stdout(Stdio::null()).spawn().unwrap();
    drop(channel);
    lanes.update(&mut other);
    // The child may close the socket before: this process holds it until all is sent.
    send_rest(&mut other, from);
    own.call(&SocketCall::Close.on(port)).unwrap();
    drop(own);
    assert!(child.wait().unwrap().success());
}

/// Claims an inheritance and reads what its socket has.
fn take_over(client: &mut Client, inheritance: u32) {
    let claimed = client.call(&Request::Process(ProcessCall::Inherit { inheritance, nonce: 7 }));
    let Ok(Reply::Number(_)) = claimed else { panic!("{claimed:?}") };
    let Ok(Reply::Found(Some(at))) = client.call(&Request::Process(ProcessCall::Lookup {
        to: utipc_core::addr::ServiceAddr { service: SERVICE.service, instance: SERVICE.lower },
        domain: utipc_core::addr::NodeAddr::NONE,
    })) else {
        panic!("the inherited socket has lost its binding")
    };
    let got = receive_all(client, at.port);
    assert!(got.len() >= BEFORE as usize && got[0] == 0, "{got:?}");
    client.call(&SocketCall::Close.on(at.port)).unwrap();
}

/// Inherits a socket of the test; its descriptor comes with a packet.
fn inherit_passed(path: &Path, input: &Channel, number: u32) {
    let mut fds = Vec::new();
    assert_eq!(input.receive(&mut [0; 8], &mut fds, 1, true).unwrap(), Got::Packet(1));
    let inheritance = Channel::from_fd(fds.pop().unwrap());
    inheritance.send(&[IoSlice::new(&7_u64.to_le_bytes())], &[], true).unwrap();
    take_over(&mut Client::attach(path, false), number);
}

/// Becomes another program, which has the socket's descriptor as its input.
fn exec(path: &Path) {
    let (mut own, mut other, mut lanes, port, from) = server_with_messages(path);
    let near = own.call_for_fd(&SocketCall::Keep.on(port)).pop().unwrap();
    own.call(&SocketCall::MakeHosted { partly: None }.on(port)).unwrap();
    lanes.update(&mut other);
    send_rest(&mut other, from);
    let error = process(path, "successor", 0, near).stdout(Stdio::null()).exec();
    panic!("{error}");
}

/// The program after the exec.
fn succeed(path: &Path, near: &Channel) {
    let mut client = Client::attach(path, false);
    let claimed = client.call_with_fd(&Request::Process(ProcessCall::Claim), near);
    let Ok(Reply::Claimed { port }) = claimed else { panic!("{claimed:?}") };
    assert_eq!(receive_all(&mut client, port), Vec::from_iter(0..ALL));
    client.call(&SocketCall::Close.on(port)).unwrap();
}

/// Writes into the lane to a socket of the test, by system calls in between.
fn write(path: &Path, to: u32) {
    let mut own = Client::attach(path, true);
    let from = own.open(SocketKind::Rdm);
    own.call(&SocketCall::WantLane { to }.on(from)).unwrap();
    let mut lanes = Lanes::default();
    lanes.update(&mut own);
    for number in 0..ALL {
        lanes.write(from, to, MessageType::Direct, &message(number)).unwrap();
        own.call(&Request::Process(ProcessCall::Notices)).unwrap();
    }
    own.call(&SocketCall::Close.on(from)).unwrap();
}

/// What to do with a process at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Kill,
    /// Serve others while it is stopped, and let it go on.
    Stop,
}

/// Bytes of memory that users are charged for.
fn memory(host: &Host) -> u64 {
    let quotas = host.daemon().counters().quotas;
    quotas.iter().find(|quota| quota.resource == "memory").map_or(0, |quota| quota.used)
}

/// A daemon, and a process that survives.
struct Stage {
    host: Host,
    witness: Client,
    lanes: Lanes,
    /// Its socket, to which victims write.
    inbox: u32,
    bindings: usize,
    /// Bytes of memory that these are charged for.
    memory: u64,
}

impl Stage {
    fn new() -> Self {
        let host = Host::new();
        let mut witness = host.direct_client();
        witness.channel.set_patience(LIMIT).unwrap();
        let inbox = witness.open(SocketKind::Rdm);
        let bindings = host.daemon().with(|stack, _| stack.bindings().len()).unwrap();
        let memory = memory(&host);
        Self { host, witness, lanes: Lanes::default(), inbox, bindings, memory }
    }

    /// Waits until the daemon holds what it held before.
    fn is_balanced_soon(&mut self, case: &str) {
        let begun = Instant::now();
        loop {
            let counters = self.host.daemon().counters();
            let bindings = self.host.daemon().with(|stack, _| stack.bindings().len()).unwrap();
            let held =
                (counters.attached, counters.sockets, counters.descriptors, counters.lanes, counters.pairs);
            let quotas: Vec<_> = counters.quotas.iter().map(|quota| (quota.resource, quota.used)).collect();
            let are_free = quotas.iter().all(|(name, used)| match *name {
                "processes" | "sockets" => true,
                "memory" => *used == self.memory,
                _ => *used == 0,
            });
            // The witness, its socket and nothing else.
            if held == (1, 1, 0, 0, 0) && bindings == self.bindings && are_free {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{case}: {held:?}, {bindings} bindings, {quotas:?}");
            std::thread::yield_now();
        }
    }

    /// Runs a process of the scenario to a point; `None` if this process may not trace its children. True if it reached
    /// the point.
    fn run(
        &mut self,
        scenario: &str,
        number: u32,
        passed: Option<OwnedFd>,
        what: Do,
        point: usize,
    ) -> Option<(bool, Channel)> {
        let (own, theirs) = Channel::pair().unwrap();
        let mut child = process(&self.host.path, scenario, number, theirs.into_fd()).spawn().unwrap();
        let tid: Pid = named_thread(&mut child);
        if let Err(error) = trace(tid) {
            eprintln!("skipped: points of system calls: this process may not trace its children ({error})");
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        own.send(&[IoSlice::new(b"go")], &[], true).unwrap();
        if let Some(passed) = passed {
            own.send(&[IoSlice::new(b"x")], &[passed.as_fd()], true).unwrap();
        }
        let main = Pid::from_raw(child.id().cast_signed());
        let (mut tid, mut reached) = run_from((tid, main), point);
        let got_there = reached == Reached::Point;
        if got_there && what == Do::Stop {
            for _ in 0..3 {
                assert!(matches!(self.witness.call(&SocketCall::Look.on(self.inbox)), Ok(Reply::Socket(_))));
            }
            (tid, reached) = run_from((tid, main), usize::MAX);
        }
        if let Reached::End(status) = reached {
            let ended =
                status.map_or_else(|| child.wait().is_ok_and(|status| status.success()), |code| code == 0);
            assert!(ended, "{scenario}, {what:?} at {point}: the process has failed");
        }
        kill(&mut child, tid);
        Some((got_there, own))
    }
}

/// Whether this process runs one test alone. If not, it starts one that does: a starting process has copies of the
/// descriptors for a moment, which parallel tests would notice.
fn is_alone() -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let thread = std::thread::current();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let alone =
        command.args(["--exact", thread.name().unwrap(), "--nocapture"]).env(ALONE, "1").output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&alone.stderr));
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
    false
}

/// Runs a scenario to each of its points, and `check`s what has arrived; `is_whole`: the process was not killed.
fn at_each_point(
    scenario: &str,
    mut prepare: impl FnMut(&mut Stage) -> (u32, Option<OwnedFd>),
    mut check: impl FnMut(&mut Stage, Channel, bool),
) {
    if !is_alone() {
        return;
    }
    for (what, first) in [(Do::Kill, 3), (Do::Stop, 17)] {
        let (mut stage, mut count) = (Stage::new(), 0);
        for point in points(first) {
            assert!(point < POINTS_MAX, "{scenario}: the process never ends");
            let (number, passed) = prepare(&mut stage);
            let Some((reached, channel)) = stage.run(scenario, number, passed, what, point) else { return };
            check(&mut stage, channel, !reached || what == Do::Stop);
            stage.is_balanced_soon(&format!("{scenario}, {what:?} at point {point}"));
            count += 1;
            if !reached {
                break;
            }
        }
        eprintln!("{scenario}: {what:?} at {count} points");
    }
}

#[test]
fn passed_socket_keeps_its_messages_at_any_system_call() {
    at_each_point(
        "pass",
        |_| (0, None),
        |stage, channel, is_whole| {
            let mut fds = Vec::new();
            let got = channel.receive(&mut [0; 8], &mut fds, 1, false).unwrap();
            let Some(near) = fds.pop() else {
                assert!(!is_whole, "{got:?}");
                return;
            };
            let claimed = stage.witness.call_with_fd(&Request::Process(ProcessCall::Claim), &near);
            let Ok(Reply::Claimed { port }) = claimed else { panic!("{claimed:?}") };
            let got = receive_all(&mut stage.witness, port);
            let least = if is_whole { ALL } else { BEFORE };
            assert!(got.first() == Some(&0) && got.len() >= least as usize, "{got:?}");
            drop(near);
            let _ = stage.witness.call(&SocketCall::Close.on(port));
        },
    );
}

#[test]
fn parent_that_forks_leaves_no_state_at_any_system_call() {
    at_each_point("fork", |_| (0, None), |_, _, _| {});
}

#[test]
fn heir_leaves_the_socket_to_its_parent_at_any_system_call() {
    let port = std::cell::Cell::new(0);
    at_each_point(
        "heir",
        |stage| {
            let client = &mut stage.witness;
            port.set(client.server(SocketKind::Rdm, SERVICE));
            for number in 0..ALL {
                client.send(stage.inbox, TO, &message(number)).unwrap();
            }
            let (number, inheritance) = client.fork();
            (number, Some(inheritance))
        },
        |stage, _, is_whole| {
            let got = receive_all(&mut stage.witness, port.get());
            assert!(got.last().is_none_or(|last| *last == ALL - 1), "{got:?}");
            assert!(!is_whole || got.is_empty(), "{got:?}");
            stage.witness.call(&SocketCall::Close.on(port.get())).unwrap();
        },
    );
}

#[test]
fn process_that_execs_leaves_no_state_at_any_system_call() {
    at_each_point("exec", |_| (0, None), |_, _, _| {});
}

#[test]
fn messages_of_a_killed_writer_arrive_in_order_at_any_system_call() {
    at_each_point(
        "write",
        |stage| (stage.inbox, None),
        |stage, _, is_whole| {
            let Stage { host, witness, lanes, inbox, .. } = stage;
            // The daemon has noticed the death.
            wait_while(|| host.daemon().counters().attached > 1);
            lanes.update(witness);
            let mut got: Vec<u32> = Vec::new();
            let keys: Vec<_> = lanes.readers.keys().copied().collect();
            for (port, from) in keys {
                while let Ok(Some(data)) = lanes.read(port, from) {
                    got.push(u32::from_be_bytes(data.try_into().unwrap()));
                }
                let (lane, _) = lanes.readers.remove(&(port, from)).unwrap();
                witness
                    .call(&Request::Lane(LaneCall::LaneDone { lane, end: utipc_attach::LaneEnd::Reader }))
                    .unwrap();
            }
            got.extend(receive_all(witness, *inbox));
            assert_eq!(got, Vec::from_iter(0..got.len() as u32));
            assert!(!is_whole || got.len() == ALL as usize, "{got:?}");
            lanes.update(witness);
        },
    );
}
