//! `utipc status`, `doctor`, `top` and `capture` of daemons that run.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use utipc::{Destination, Node, Scope, ServiceAddress, ServiceRange};
use utipc_netns::{Cable, Namespace};

use super::Scratch;

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An address that only this process uses.
pub(super) fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
    Ipv4Addr::from(0x7f80_0000 | (std::process::id() << 6) & 0x3f_ffc0 | number)
}

pub(super) fn utipc(socket: &std::path::Path, args: &[&str]) -> Command {
    with_socket(Command::new(env!("CARGO_BIN_EXE_utipc")), socket, args)
}

fn with_socket(mut command: Command, socket: &std::path::Path, args: &[&str]) -> Command {
    command.args(args).env("UTIPC_SOCKET", socket).env_remove("UTIPC_ENGINE").env_remove("UTIPC_LOG");
    command
}

fn command_in(namespace: Option<&Namespace>, program: &str) -> Command {
    namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program))
}

/// A daemon that ends with the value.
struct Daemon {
    child: Child,
    socket: PathBuf,
    local: Ipv4Addr,
    /// The namespace of the daemon and of the commands to it, if it is not the test's.
    namespace: Option<Namespace>,
}

impl Daemon {
    fn start(scratch: &Scratch, name: &str) -> Self {
        Self::start_in(scratch, name, None, address())
    }

    fn start_in(scratch: &Scratch, name: &str, namespace: Option<Namespace>, local: Ipv4Addr) -> Self {
        let socket = scratch.0.join(name);
        let mut command = command_in(namespace.as_ref(), env!("CARGO_BIN_EXE_utipcd"));
        command.arg("--socket").arg(&socket).env_remove("UTIPC_LOG").env_remove("NOTIFY_SOCKET");
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Self { child, socket, local, namespace };
        soon("the daemon answers", || daemon.run(&["node", "get", "clusterid"]).status.success());
        daemon
    }

    fn run(&self, args: &[&str]) -> Output {
        let program = command_in(self.namespace.as_ref(), env!("CARGO_BIN_EXE_utipc"));
        with_socket(program, &self.socket, args).output().unwrap()
    }

    fn text(&self, line: &str) -> String {
        let args: Vec<&str> = line.split_whitespace().collect();
        String::from_utf8(self.run(&args).stdout).unwrap()
    }

    fn done(&self, line: &str) {
        let args: Vec<&str> = line.split_whitespace().collect();
        let ended = self.run(&args);
        assert!(ended.status.success(), "{line}: {}", String::from_utf8_lossy(&ended.stderr));
    }

    fn json(&self, line: &str) -> Value {
        let text = self.text(line);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error} in {text:?}"))
    }

    fn enable(&self, remote: Ipv4Addr) {
        self.done(&format!("bearer enable media udp name U localip {} remoteip {remote}", self.local));
    }

    fn node(&self) -> Node {
        Node::builder().daemon_at(&self.socket).start().unwrap()
    }

    /// Waits until the doctor reports a level for a check.
    fn finds(&self, check: &str, level: &str) {
        soon(&format!("{check} is {level}"), || {
            let report = self.json("doctor --json");
            let wrong = self.run(&["doctor", "--quiet"]);
            let found = report["findings"].as_array().unwrap().iter();
            let has = { found }.any(|found| found["check"] == check && found["level"] == level);
            if has {
                assert_eq!((wrong.status.code(), &report["ok"]), (Some(1), &Value::Bool(false)));
                let text = String::from_utf8(wrong.stdout).unwrap();
                assert!(text.contains(&format!(" {check}: ")) && !text.contains("ok "), "{text}");
            }
            has
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two daemons with a link.
fn linked(scratch: &Scratch) -> (Daemon, Daemon) {
    let (a, b) = (Daemon::start(scratch, "a"), Daemon::start(scratch, "b"));
    link(&a, &b);
    (a, b)
}

/// Links two daemons.
fn link(a: &Daemon, b: &Daemon) {
    a.enable(b.local);
    b.enable(a.local);
    soon("the link is up", || a.json("status --json")["links"][0]["up"] == true);
    soon("the link is up at the other end", || b.json("status --json")["links"][0]["up"] == true);
}

#[test]
fn status_and_doctor_say_how_to_start_a_daemon() {
    let scratch = Scratch::new("no-daemon");
    for command in ["status", "doctor"] {
        let ended = utipc(&scratch.0.join("none"), &[command, "--json"]).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{command}");
        let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let finding = &report["findings"][0];
        assert_eq!((&finding["check"], &finding["level"]), (&"daemon".into(), &"error".into()));
        assert!(!finding["remedy"].as_str().unwrap().is_empty());
    }
    let lines = utipc(&scratch.0.join("none"), &["status"]).output().unwrap();
    assert!(String::from_utf8(lines.stdout).unwrap().starts_with("ERROR   daemon: no daemon answers at "));
}

#[test]
fn status_shows_links_with_time_and_reason_of_their_last_change() {
    let scratch = Scratch::new("status");
    let (a, mut b) = linked(&scratch);
    let state = a.json("status --json");
    let link = &state["links"][0];
    assert!(link["up_since"].as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(link["peer_media"], format!("{}:6118", b.local));
    assert_eq!(link["bearer"], "udp:U");
    assert_eq!((&state["running"], &state["engine"]), (&true.into(), &"daemon".into()));
    assert_eq!(state["daemon"]["pid"], a.child.id());
    assert_eq!(state["neighbours"][0]["up"], true);
    assert!(state["bearers"][0]["rx_frames"].as_u64().unwrap() > 0);
    let screen = a.text("status");
    assert!(screen.contains("Event loop  longest turn") && screen.contains("  up 20"), "{screen}");
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    soon("the link is down", || a.json("status --json")["links"][0]["up"] == false);
    let link = a.json("status --json")["links"][0].clone();
    assert!(link["last_down"].as_u64().is_some() && !link["last_down_reason"].as_str().unwrap().is_empty());
    let screen = a.text("status");
    assert!(screen.starts_with("WARNING links: "), "what is wrong comes first: {screen}");
}

#[test]
fn doctor_finds_nothing_wrong_with_two_linked_nodes() {
    let scratch = Scratch::new("healthy");
    let (a, _b) = linked(&scratch);
    let ended = a.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    // The host may have its own problems, as a machine for tests has: little memory, few descriptors.
    let host = ["shared-memory", "open-files", "memlock", "port-6118", "kernel-module"];
    let wrong: Vec<&Value> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|found| found["level"] == "warning" || found["level"] == "error")
        .filter(|found| !host.contains(&found["check"].as_str().unwrap()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(report["findings"].as_array().unwrap().len() >= 20);
}

#[test]
fn doctor_finds_frames_that_show_a_problem() {
    let scratch = Scratch::new("frames");
    let (a, b) = (Daemon::start(&scratch, "a"), Daemon::start(&scratch, "b"));
    a.done("node set clusterid 4712");
    a.enable(b.local);
    b.enable(a.local);
    a.finds("foreign-cluster", "warning");
    let stranger = UdpSocket::bind((address(), 0)).unwrap();
    // Version 7 of the header marks encrypted messages.
    stranger.send_to(&[0xe0; 64], (a.local, 6118)).unwrap();
    a.finds("undecryptable-frames", "error");
    stranger.send_to(b"GET / HTTP/1.1\r\n\r\n and some more bytes", (a.local, 6118)).unwrap();
    a.finds("malformed-frames", "warning");
}

#[test]
fn doctor_finds_duplicate_addresses() {
    let scratch = Scratch::new("duplicate");
    let (a, b) = (Daemon::start(&scratch, "a"), Daemon::start(&scratch, "b"));
    for daemon in [&a, &b] {
        daemon.done("node set address 1.1.77");
    }
    a.enable(b.local);
    b.enable(a.local);
    a.finds("duplicate-address", "error");
}

#[test]
fn doctor_finds_one_sided_peer_lists() {
    let scratch = Scratch::new("one-sided");
    let (a, b) = (Daemon::start(&scratch, "a"), Daemon::start(&scratch, "b"));
    a.enable(b.local);
    // Its list has another node instead.
    b.enable(address());
    b.finds("one-sided-peers", "warning");
    let text = b.text("doctor --quiet");
    assert!(text.contains(&format!("remoteip {}`", a.local)), "the remedy names the peer: {text}");
}

const CABLE: Cable =
    Cable { interface: "narrow0", addresses: [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)] };

#[test]
fn doctor_finds_paths_that_carry_less_than_their_link() {
    let [here, there] = match CABLE.join() {
        Ok(pair) => pair,
        Err(why) => {
            eprintln!("skipped: MTU of real interfaces: {why:#}");
            return;
        }
    };
    let scratch = Scratch::new("mtu");
    let [first, second] = CABLE.addresses;
    let a = Daemon::start_in(&scratch, "a", Some(here), first);
    let b = Daemon::start_in(&scratch, "b", Some(there), second);
    link(&a, &b);
    let level = |check: &str| {
        let report = a.json("doctor --json");
        let mut found = report["findings"].as_array().unwrap().iter();
        found.find(|found| found["check"] == check).unwrap()["level"].clone()
    };
    assert_eq!(level("path-mtu"), "ok");
    // Like a tunnel on the path.
    let ip = a.namespace.as_ref().unwrap();
    ip.ip(&["route", "replace", &format!("{second}/32"), "dev", CABLE.interface, "mtu", "900"]).unwrap();
    a.finds("path-mtu", "warning");
    let text = a.text("doctor --quiet");
    assert!(text.contains("a path of 900 bytes: 1500 bytes"), "path and packet are named: {text}");
}

/// Captures while `send` is called again and again, until the capture ends by itself.
fn captured(daemon: &Daemon, args: &[&str], mut send: impl FnMut()) -> Output {
    let mut command = utipc(&daemon.socket, args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    soon("the capture is complete", || {
        send();
        child.try_wait().unwrap().is_some()
    });
    child.wait_with_output().unwrap()
}

/// The output of `tshark` for a file; `None` if it is not installed.
fn tshark(file: &std::path::Path, fields: &[&str]) -> Option<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", "tipc", "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A text as Wireshark prints the bytes of a message.
fn digits(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn capture_of_a_bearer_is_readable_by_wireshark() {
    let scratch = Scratch::new("capture-bearer");
    let (a, b) = linked(&scratch);
    let (far, near) = (b.node(), a.node());
    let receiver = far.rdm().unwrap();
    receiver.bind(ServiceRange::new(4242, 1, 1), Scope::Cluster).unwrap();
    soon("the service is known", || a.text("nametable show").contains("4242"));
    let sender = near.rdm().unwrap();
    let file = scratch.0.join("out.pcapng");
    let to = ServiceAddress::new(4242, 1);
    let args = ["capture", "-w", file.to_str().unwrap(), "--service", "4242", "--count", "3"];
    let ended = captured(&a, &args, || drop(sender.send_to(b"seen by the capture", Destination::from(to))));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(String::from_utf8(ended.stderr).unwrap().contains("3 frames captured"));
    let bytes = std::fs::read(&file).unwrap();
    let found = bytes.windows(19).filter(|window| *window == b"seen by the capture").count();
    assert!(found >= 3, "{found}");
    if let Some(text) =
        tshark(&file, &["ip.src", "ip.dst", "tipcv2.port_name_type", "tipc.data", "data.data"])
    {
        assert_eq!(text.lines().count(), 3, "{text}");
        for part in
            [a.local.to_string(), b.local.to_string(), "4242".to_owned(), digits("seen by the capture")]
        {
            assert!(text.lines().all(|line| line.contains(&part)), "no {part} in {text}");
        }
    }
    // A link is chosen by its bearer and peer.
    let link = a.json("status --json")["links"][0]["name"].as_str().unwrap().to_owned();
    let lines = captured(&a, &["capture", "--link", &link, "--count", "2"], || {});
    let text = String::from_utf8(lines.stdout).unwrap();
    assert!(
        text.lines().count() == 2 && text.lines().all(|line| line.contains(&b.local.to_string())),
        "{text}"
    );
}

#[test]
fn capture_of_lanes_shows_messages_between_programs() {
    let scratch = Scratch::new("capture-lanes");
    let daemon = Daemon::start(&scratch, "a");
    let (one, other) = (daemon.node(), daemon.node());
    let receiver = other.rdm().unwrap();
    receiver.bind(ServiceRange::new(4243, 1, 1), Scope::Cluster).unwrap();
    let sender = one.rdm().unwrap();
    let to = Destination::from(ServiceAddress::new(4243, 1));
    let exchange = || {
        sender.send_to(b"from lane to lane", to).unwrap();
        receiver.receive().unwrap();
    };
    soon("messages go by lanes", || {
        exchange();
        daemon.json("status --json")["daemon"]["lanes"].as_u64().unwrap() > 0
    });
    let file = scratch.0.join("lanes.pcapng");
    let args = ["capture", "-w", file.to_str().unwrap(), "--lanes", "--no-bearers", "--count", "5"];
    let ended = captured(&daemon, &args, exchange);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let bytes = std::fs::read(&file).unwrap();
    let found = bytes.windows(17).filter(|window| *window == b"from lane to lane").count();
    assert_eq!(found, 5);
    if let Some(text) = tshark(&file, &["eth.src", "tipc.data", "data.data"]) {
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.lines().all(|line| line.contains(&digits("from lane to lane"))), "{text}");
    }
    // `top` shows what the lane has carried.
    let mut child = utipc(&daemon.socket, &["top", "--json", "-i", "0.3"]);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    soon("top ends", || {
        exchange();
        child.try_wait().unwrap().is_some()
    });
    let report: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let sockets = report["rates"]["sockets"].as_array().unwrap();
    assert!(sockets.iter().any(|socket| socket["lane_bytes"].as_f64().unwrap() > 0.0), "{sockets:?}");
    let services = report["rates"]["services"].as_array().unwrap();
    assert!(services.iter().any(|service| service["service"] == 4243 && service["local"] == 1));
}

#[test]
fn capture_ends_on_a_signal_with_a_whole_file() {
    use nix::sys::signal::{Signal, kill};
    let scratch = Scratch::new("capture-signal");
    let (a, _b) = linked(&scratch);
    let file = scratch.0.join("out.pcapng");
    let mut command = utipc(&a.socket, &["capture", "-w", file.to_str().unwrap()]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    soon("the daemon captures", || a.json("status --json")["daemon"]["captures"] == 1);
    soon("frames are written", || std::fs::metadata(&file).is_ok_and(|meta| meta.len() > 500));
    kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && String::from_utf8(ended.stderr).unwrap().contains("frames captured"));
    if let Some(text) = tshark(&file, &["ip.src"]) {
        assert!(text.lines().count() > 0);
    }
    soon("the daemon captures no more", || a.json("status --json")["daemon"]["captures"] == 0);
    let unknown = a.run(&["capture", "--bearer", "udp:none", "--seconds", "1"]);
    assert_eq!(unknown.status.code(), Some(1));
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(error, "utipc: there is no bearer udp:none (see `bearer list`)\n");
}
