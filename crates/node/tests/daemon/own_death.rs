//! Kills the daemon before and after each system call: while it starts, and while it serves clients that use
//! all kinds of state. The clients must notice, and the next daemon at the same path must serve the same
//! requests.

use std::io::{BufRead, BufReader, IoSlice, Lines, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, gettid};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use utipc_attach::{LaneCall, LaneEnd, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::StackConfig;
use utipc_core::addr::{NodeAddr, Scope, ServiceRange};
use utipc_core::socket::{Destination, SocketKind};
use utipc_node::NodeConfig;
use utipc_node::daemon::{Daemon, DaemonConfig};
use utipc_os::fdpass::{Channel, Put};

use crate::client::{Client, LIMIT, path};
use crate::traced::{self, Reached, run_to};

const SERVICE: ServiceRange = ServiceRange::new(4300, 1, 1);
/// Set for the process whose daemon is to be killed: the daemon's path.
const DAEMON: &str = "UTIPC_TEST_DAEMON_STEPS";
/// Set if it only starts and stops.
const START: &str = "UTIPC_TEST_DAEMON_START";

fn config(socket: &Path) -> DaemonConfig {
    let stack = StackConfig { address: Some(NodeAddr(0x1002)), seed: 1, ..StackConfig::default() };
    let node = NodeConfig { stack, ..NodeConfig::default() };
    DaemonConfig { node, socket: socket.to_owned(), ..DaemonConfig::default() }
}

/// Not a test: the daemon that is killed.
#[test]
fn daemon() {
    let Some(path) = std::env::var_os(DAEMON) else { return };
    println!("\ntid {}", gettid());
    let mut orders = std::io::stdin();
    orders.read_exact(&mut [0]).unwrap();
    let daemon = Daemon::start(config(path.as_ref())).unwrap();
    if std::env::var_os(START).is_some() {
        drop(daemon);
        std::process::exit(0);
    }
    // Its thread has its name when it has answered.
    assert_eq!(daemon.counters().attached, 0);
    println!("\ntid {}", thread_of("utipcd"));
    let _ = orders.read(&mut [0]);
    drop(daemon);
}

/// The number of a thread of this process, by its name. On a busy machine, one list in thousands lacked the thread.
fn thread_of(name: &str) -> String {
    let named =
        |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let begun = Instant::now();
    loop {
        let mut threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        if let Some(path) = threads.find(named) {
            return path.file_name().unwrap().to_string_lossy().into_owned();
        }
        assert!(begun.elapsed() < LIMIT, "no thread has the name {name}");
        std::thread::yield_now();
    }
}

/// The requests of two clients; `None` if the daemon is gone.
fn serve_clients(path: &Path) -> Option<()> {
    let (mut server, mut client) = (Client::try_attach(path)?, Client::try_attach(path)?);
    let open =
        |who: &mut Client, kind| match who.try_call(&Request::Process(ProcessCall::Open { kind }), &[])?.0 {
            Reply::Opened { port } => Some(port),
            other => panic!("{other:?}"),
        };
    let done = |who: &mut Client, request: Request| match who.try_call(&request, &[])?.0 {
        Reply::Failed(failure) => panic!("{request:?}: {failure:?}"),
        reply => Some(reply),
    };
    let (to, from) = (open(&mut server, SocketKind::Rdm)?, open(&mut client, SocketKind::Rdm)?);
    let (listener, caller) =
        (open(&mut server, SocketKind::SeqPacket)?, open(&mut client, SocketKind::SeqPacket)?);
    done(&mut server, SocketCall::Bind { range: SERVICE, scope: Scope::Cluster }.on(to))?;
    done(&mut server, SocketCall::Listen.on(listener))?;
    let node = Destination::service(SERVICE.service, SERVICE.lower);
    client.try_call(&SocketCall::Send { to: Some(node) }.on(from), b"by the node")?;
    done(&mut server, SocketCall::Descriptor.on(to))?;
    done(&mut client, SocketCall::WantLane { to }.on(from))?;
    done(&mut client, Request::Process(ProcessCall::Notices))?;
    let told = client.notices.iter().find_map(|notice| match notice {
        Notice::Lane { lane, end: LaneEnd::Writer, .. } => Some(*lane),
        _ => None,
    });
    let lane = told.expect("a lane");
    for who in [&mut client, &mut server] {
        done(who, Request::Lane(LaneCall::FetchPair { pair: lane.pair }))?;
    }
    let near = share_socket(&mut server, &mut client, to)?;
    done(&mut client, SocketCall::Close.on(from))?;
    done(&mut client, Request::Lane(LaneCall::LaneDone { lane, end: LaneEnd::Writer }))?;
    done(&mut server, SocketCall::Unbind { which: None }.on(to))?;
    done(&mut server, SocketCall::Close.on(to))?;
    drop(near);
    done(&mut client, SocketCall::Close.on(caller))?;
    done(&mut server, SocketCall::Close.on(listener))?;
    done(&mut client, Request::Process(ProcessCall::Notices)).map(drop)
}

/// A socket of the server is inherited, and its descriptor, which is returned, passed on; `None` if the daemon is gone.
fn share_socket(server: &mut Client, client: &mut Client, port: u32) -> Option<OwnedFd> {
    let (reply, fds) = server.try_call_with_fds(&Request::Process(ProcessCall::Fork), &[])?;
    let Reply::Number(inheritance) = reply else { panic!("{reply:?}") };
    let copy = Channel::from_fd(fds.into_iter().next().unwrap());
    if copy.send(&[IoSlice::new(&7_u64.to_le_bytes())], &[], true).unwrap() != Put::Sent {
        return None;
    }
    let (reply, _) =
        client.try_call(&Request::Process(ProcessCall::Inherit { inheritance, nonce: 7 }), &[])?;
    assert!(matches!(reply, Reply::Number(_)), "{reply:?}");
    drop(copy);
    client.try_call(&SocketCall::Close.on(port), &[])?;
    let (reply, fds) = server.try_call_with_fds(&SocketCall::Keep.on(port), &[])?;
    assert_eq!(reply, Reply::Done);
    let claim = Request::Process(ProcessCall::Claim);
    let (reply, _) = client.try_call_with_fds(&claim, &[fds[0].as_fd()])?;
    assert_eq!(reply, Reply::Claimed { port });
    let (reply, _) = client.try_call(&SocketCall::Close.on(port), &[])?;
    assert_eq!(reply, Reply::Done);
    // Refused while the daemon has not noticed the end of the inheritance.
    server.try_call(&SocketCall::Lend.on(port), &[])?;
    fds.into_iter().next()
}

/// The process of a daemon.
struct Doomed {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Doomed {
    /// Starts the process; the daemon starts with [`Self::go`].
    fn new(path: &Path, only_start: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "own_death::daemon", "--nocapture"]).env(DAEMON, path);
        if only_start {
            command.env(START, "1");
        }
        // The leak check of a sanitizer is not stepped through.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    }

    /// The next thread that it names.
    fn thread(&mut self) -> Pid {
        let named = self.said.by_ref().map_while(Result::ok);
        let tid = named.into_iter().find_map(|line| line.strip_prefix("tid ")?.parse().ok());
        Pid::from_raw(tid.expect("it names a thread"))
    }

    /// Runs a thread until its `step`-th entry to a system call or return from one, and kills the process there; false
    /// if it ended earlier.
    fn die_at(&mut self, tid: Pid, step: usize) -> bool {
        let died = run_to(tid, step) == Reached::Point;
        traced::kill(&mut self.child, tid);
        died
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops a thread at its next system call; false if this process may not trace.
fn trace(tid: Pid) -> bool {
    let traced = traced::trace(tid);
    if let Err(error) = traced {
        eprintln!("skipped: kill points of the daemon: this process may not trace its children ({error})");
    }
    traced.is_ok()
}

/// The next daemon at the same path starts, and serves.
fn next_daemon(path: &Path, step: usize) {
    let next = Daemon::start(config(path)).unwrap_or_else(|error| panic!("after step {step}: {error}"));
    assert_eq!(serve_clients(path), Some(()), "the daemon after step {step} does not serve");
    next.stop();
}

/// Removes the lock file when a test is over.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("{}.lock", self.0.display()));
    }
}

#[test]
fn daemon_killed_at_any_system_call_of_start_or_stop_can_be_replaced() {
    let place = Place(path());
    for step in 0.. {
        let mut doomed = Doomed::new(&place.0, true);
        let tid = doomed.thread();
        if !trace(tid) {
            return;
        }
        doomed.go();
        let died = doomed.die_at(tid, step);
        next_daemon(&place.0, step);
        if !died {
            assert!(step > 20, "only {step} steps");
            eprintln!(
                "killed at each of {step} entries to and returns from system calls of a start and an end"
            );
            return;
        }
        assert!(step < 2000, "the daemon never starts");
    }
}

/// A daemon while it serves clients that use all kinds of state.
struct Serving {
    doomed: Doomed,
    tid: Pid,
    /// True if the clients were served to the end.
    client: std::thread::JoinHandle<bool>,
}

impl Serving {
    /// `None` if this process may not trace.
    fn start(path: &Path) -> Option<Self> {
        let mut doomed = Doomed::new(path, false);
        // First the thread that starts the daemon, then the daemon's thread.
        doomed.thread();
        doomed.go();
        let tid = doomed.thread();
        if !trace(tid) {
            return None;
        }
        let process = pidfd_open(own_pid(doomed.child.id()), PidfdFlags::empty()).unwrap();
        let at = path.to_owned();
        let client = std::thread::spawn(move || {
            let lived = std::panic::catch_unwind(|| serve_clients(&at).is_some());
            if !matches!(lived, Ok(false)) {
                // A daemon without work makes no further system call.
                let _ = pidfd_send_signal(&process, rustix::process::Signal::KILL);
            }
            lived.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Some(Self { doomed, tid, client })
    }

    /// Whether the clients were served, after the daemon's end.
    fn end(self, step: usize) -> bool {
        let killed = Instant::now();
        while !self.client.is_finished() {
            assert!(killed.elapsed() < LIMIT, "a client does not notice the death at step {step}");
            std::thread::sleep(Duration::from_micros(100));
        }
        self.client.join().unwrap()
    }
}

#[test]
fn clients_notice_a_daemon_killed_at_any_system_call_and_its_path_is_free() {
    let place = Place(path());
    for step in 0.. {
        let Some(mut serving) = Serving::start(&place.0) else { return };
        let died = serving.doomed.die_at(serving.tid, step);
        assert!(serving.end(step) || died, "step {step}");
        next_daemon(&place.0, step);
        if !died {
            assert!(step > 100, "only {step} steps");
            eprintln!("killed at each of {step} entries to and returns from system calls while serving");
            return;
        }
        assert!(step < 5000, "the clients never finish");
    }
}

#[test]
fn daemon_stopped_at_any_system_call_serves_on() {
    let place = Place(path());
    let mut count = 0;
    for step in traced::points(11) {
        let Some(mut serving) = Serving::start(&place.0) else { return };
        let reached = run_to(serving.tid, step) == Reached::Point;
        // During that time the clients wait.
        std::thread::sleep(Duration::from_millis(5));
        serving.doomed.die_at(serving.tid, usize::MAX);
        assert!(serving.end(step), "a client was not served by a daemon that was stopped at step {step}");
        count += 1;
        if !reached {
            break;
        }
        assert!(step < 5000, "the clients never finish");
    }
    eprintln!("stopped at {count} entries to and returns from system calls while serving");
}

fn own_pid(id: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(id.cast_signed()).unwrap()
}
