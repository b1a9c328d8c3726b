//! Nodes of one user on one host find each other, and forget dead ones.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use utipc_core::outbox::Target;
use utipc_core::wire::MediaAddr;
use utipc_node::bearers::{Bearer, HostBearer, HostConfig};
use utipc_os::reactor::{Interest, Reactor};

use crate::conformance::{Rig, batch_of, frame};
use crate::fixtures::node_directory;

const MUST_COME: Duration = Duration::from_secs(20);
const CHILD: &str = "UTIPC_TEST_LOCAL_NODE";

fn open(directory: &Path) -> HostBearer {
    HostBearer::open(&HostConfig { directory: Some(directory.to_owned()), ..HostConfig::default() }).unwrap()
}

fn address(bearer: &HostBearer) -> MediaAddr {
    bearer.local_address()
}

/// The file of a bearer.
fn file(bearer: &HostBearer) -> String {
    name(bearer.local_address())
}

fn name(address: MediaAddr) -> String {
    let MediaAddr::Ethernet(bytes) = address else { unreachable!("six bytes") };
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Drives the bearer until it has exactly `count` peers.
fn wait_for_peers(bearer: &mut HostBearer, count: usize) {
    let mut reactor = Reactor::new().unwrap();
    for fd in bearer.fds() {
        reactor.add(fd, 0, Interest::Read).unwrap();
    }
    let end = Instant::now() + MUST_COME;
    while bearer.peers().len() != count {
        let left = end.checked_duration_since(Instant::now());
        let left = left
            .unwrap_or_else(|| panic!("{} peers, not {count}: {:?}", bearer.peers().len(), bearer.peers()));
        reactor.wait(Some(left), &mut Vec::new()).unwrap();
        bearer.receive(&mut |_, _| ()).unwrap();
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> =
        entries.map(|name| name.into_string().unwrap()).filter(|it| it != ".lock").collect();
    names.sort();
    names
}

#[test]
fn new_nodes_are_found_and_closed_ones_forgotten() {
    let directory = node_directory();
    let mut first = open(&directory);
    assert!(first.peers().is_empty());
    let mut second = open(&directory);
    assert_eq!(second.peers(), [address(&first)], "known from the start");
    wait_for_peers(&mut first, 1);
    assert_eq!(first.peers(), [address(&second)]);
    let third = open(&directory);
    assert_ne!(address(&third), address(&first));
    wait_for_peers(&mut first, 2);
    wait_for_peers(&mut second, 2);
    assert_eq!(names(&directory).len(), 3);
    drop(third);
    wait_for_peers(&mut first, 1);
    wait_for_peers(&mut second, 1);
    assert_eq!(names(&directory).len(), 2);
    drop((first, second));
    assert!(names(&directory).is_empty());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn removed_entry_is_restored() {
    let directory = node_directory();
    let mut first = open(&directory);
    let before = names(&directory);
    std::fs::remove_file(directory.join(&before[0])).unwrap();
    let end = Instant::now() + MUST_COME;
    while names(&directory) != before {
        assert!(Instant::now() < end);
        first.receive(&mut |_, _| ()).unwrap();
    }
    let second = open(&directory);
    assert_eq!(second.peers(), [address(&first)]);
    drop((first, second));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn other_files_are_not_removed() {
    let directory = node_directory();
    drop(open(&directory));
    for name in ["notes.txt", "0200", "0a0000000001", "02000000000A"] {
        std::fs::write(directory.join(name), "x").unwrap();
    }
    let left = directory.join("020000000001");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    let bearer = open(&directory);
    assert!(bearer.peers().is_empty());
    assert!(!left.exists(), "left by a dead node");
    drop(bearer);
    assert_eq!(names(&directory), ["0200", "02000000000A", "0a0000000001", "notes.txt"]);
    std::fs::remove_dir_all(directory).unwrap();
}

/// Not a test: the node that the next test kills. Without its variable it does nothing.
#[test]
fn child_node() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let mut bearer = open(Path::new(&directory));
    let mut out = std::io::stdout();
    writeln!(out, "\nchild is {}", file(&bearer)).unwrap();
    out.flush().unwrap();
    let end = Instant::now() + 3 * MUST_COME;
    while Instant::now() < end {
        let mut echo = Vec::new();
        bearer.receive(&mut |from, frame| echo.push((Target::Unicast(from), frame.to_vec()))).unwrap();
        bearer.send(2, &batch_of(&echo));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn killed_process_is_forgotten_and_its_file_removed() {
    let directory = node_directory();
    let mut first = open(&directory);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host::child_node", "--nocapture"])
        .env(CHILD, &directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child is ").map(str::to_owned));
    let there = told.expect("the child prints its address");
    wait_for_peers(&mut first, 1);
    let child_address = first.peers()[0];
    assert_eq!(name(child_address), there);
    // It answers.
    first.send(2, &batch_of(&[(Target::Broadcast, frame(0, 5, 100))]));
    let got = Rig::new(vec![Box::new(first)]).take(0, 1);
    assert_eq!(got[0].0, child_address);

    let mut first = open(&directory);
    assert_eq!(first.peers(), [child_address]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for_peers(&mut first, 0);
    assert_eq!((first.take_gone(), first.take_gone()), (Some(child_address), None));
    // The next check removes its file.
    let second = open(&directory);
    assert_eq!(second.peers(), [address(&first)]);
    assert!(!names(&directory).contains(&there));
    drop((first, second));
    std::fs::remove_dir_all(directory).unwrap();
}
