//! Key files of daemons: rotation by reload, and an attacker who has recorded everything and replays it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use utipc::{Destination, Node, Scope, ServiceAddress, ServiceRange, Socket};

use super::Scratch;
use super::operate::{address, soon, utipc};

const KEY1: &str = "0x00112233445566778899aabbccddeeff01020304";
const KEY2: &str = "0xffeeddccbbaa99887766554433221100a0b0c0d0";
const SERVICE: ServiceAddress = ServiceAddress::new(4243, 1);
const PORT: u16 = 6118;

/// A daemon with a key file.
struct Keyed {
    child: Child,
    socket: PathBuf,
    config: PathBuf,
    key_file: PathBuf,
}

impl Keyed {
    fn start(scratch: &Scratch, name: &str, [local, remote]: [Ipv4Addr; 2]) -> Self {
        let key_file = scratch.0.join(format!("{name}.key"));
        write_key(&key_file, KEY1);
        let text = format!(
            "[node]\nidentity = \"keyed-{name}\"\n[[bearer]]\nmedia = \"udp\"\nname = \"U\"\nlocal = \"{local}\"\nremotes \
             = [\"{remote}\"]\n[encryption]\nkey_file = \"{}\"\n",
            key_file.display()
        );
        let config = scratch.file(&format!("{name}.toml"), &text);
        let socket = scratch.0.join(name);
        let child = spawn(&socket, &config);
        let daemon = Self { child, socket, config, key_file };
        daemon.wait();
        daemon
    }

    fn wait(&self) {
        soon("the daemon answers", || self.done(&["node", "get", "clusterid"]));
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }

    fn restart(&mut self) {
        self.stop();
        self.child = spawn(&self.socket, &self.config);
        self.wait();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    fn done(&self, args: &[&str]) -> bool {
        utipc(&self.socket, args).stderr(Stdio::null()).output().unwrap().status.success()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = utipc(&self.socket, args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn keys(&self) -> Vec<Value> {
        self.json(&["--json", "node", "get", "key"]).as_array().cloned().unwrap_or_default()
    }

    /// The fingerprint of the node's own key in a state.
    fn own_key(&self, state: &str) -> Option<String> {
        let keys = self.keys();
        let own = keys.iter().find(|key| key["sender"] == "this node" && key["state"] == state)?;
        Some(own["fingerprint"].as_str()?.to_owned())
    }

    fn is_linked(&self) -> bool {
        self.json(&["status", "--json"])["neighbours"]
            .as_array()
            .is_some_and(|all| all.iter().any(|node| node["up"] == true))
    }

    fn counter(&self, path: &str) -> u64 {
        self.json(&["--json", "node", "counters"]).pointer(path).and_then(Value::as_u64).unwrap_or_default()
    }

    /// Frames that were not accepted: replayed, without a proof, under a removed key, or from unknown nodes.
    fn refused(&self) -> u64 {
        let counters = self.json(&["--json", "node", "counters"]);
        counters["dropped"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
    }

    fn node(&self) -> Node {
        Node::builder().daemon_at(&self.socket).start().unwrap()
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(socket: &Path, config: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
    command.arg("--config").arg(config).arg("--socket").arg(socket);
    command.env_remove("UTIPC_LOG").env_remove("NOTIFY_SOCKET");
    command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn write_key(path: &Path, key: &str) {
    std::fs::write(path, format!("{key}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Numbered messages; each may arrive once.
struct Flow {
    receiver: Socket,
    next: u32,
    got: BTreeSet<u32>,
}

impl Flow {
    fn new(a: &Keyed) -> Self {
        let receiver = a.node().rdm().unwrap();
        receiver.bind(ServiceRange::new(4243, 1, 1), Scope::Cluster).unwrap();
        receiver.set_receive_timeout(Some(Duration::from_millis(300)));
        Self { receiver, next: 0, got: BTreeSet::new() }
    }

    /// Sends messages from another node; each arrives before the next is sent, so that no two share a frame.
    fn send(&mut self, from: &Keyed, count: u32) {
        let node = from.node();
        node.wait_for_service(SERVICE, Duration::from_secs(60)).unwrap();
        let sender = node.rdm().unwrap();
        for _ in 0..count {
            sender.send_to(&self.next.to_be_bytes(), Destination::from(SERVICE)).unwrap();
            self.next += 1;
            soon("the message has arrived", || {
                self.read_one();
                self.got.len() == self.next as usize
            });
        }
        self.read();
    }

    fn read(&mut self) {
        while self.read_one() {}
    }

    fn read_one(&mut self) -> bool {
        let Ok(message) = self.receiver.receive() else { return false };
        let number = u32::from_be_bytes(message.data[..].try_into().unwrap());
        assert!(self.got.insert(number), "message {number} was delivered a second time");
        true
    }
}

/// The frames to an address in a capture.
fn recorded(capture: &[u8], to: Ipv4Addr) -> Vec<Vec<u8>> {
    let (mut frames, mut rest) = (Vec::new(), capture);
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let len = u32::from_le_bytes(head[4..].try_into().unwrap()) as usize;
        if word(0) == 6 {
            let packet = &rest[28..28 + word(20) as usize];
            // IP follows an Ethernet header, if present.
            let ip = if packet[0] >> 4 == 4 && packet[9] == 17 { packet } else { &packet[14..] };
            if ip[16..20] == to.octets() {
                frames.push(ip[28..].to_vec());
            }
        }
        rest = &rest[len..];
    }
    frames
}

/// Gives a node everything that was recorded.
fn replay(frames: &[Vec<u8>], to: Ipv4Addr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for burst in frames.chunks(50) {
        burst.iter().for_each(|frame| assert!(socket.send_to(frame, (to, PORT)).is_ok()));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn recordings_are_refused_after_rotation_by_key_files_and_restarts() {
    let scratch = Scratch::new("key-files");
    let [at, bt] = [address(), address()];
    let (mut a, mut b) = (Keyed::start(&scratch, "a", [at, bt]), Keyed::start(&scratch, "b", [bt, at]));
    soon("the nodes link", || a.is_linked() && b.is_linked());
    let file = scratch.0.join("recording");
    let args = ["capture", "-w", file.to_str().unwrap(), "--bearer", "udp:U"];
    let mut capture = utipc(&a.socket, &args).stderr(Stdio::null()).spawn().unwrap();
    soon("the recording has begun", || file.exists());
    let mut flow = Flow::new(&a);
    flow.send(&b, 100);
    let (first, downs) =
        (a.own_key("pending").unwrap_or_else(|| a.own_key("active").unwrap()), "/links_down");

    // Rotation by reload within 10 s after the start: the new key waits for the first.
    for daemon in [&a, &b] {
        write_key(&daemon.key_file, KEY2);
        daemon.signal(Signal::SIGHUP);
    }
    flow.send(&b, 50);
    soon("both send with the second key", || {
        let keys = [&a, &b].map(|daemon| daemon.own_key("active"));
        keys[0].is_some() && keys[0] == keys[1] && keys[0].as_ref() != Some(&first)
    });
    assert_eq!(a.counter(downs), 0, "rotation takes no link down");
    flow.send(&b, 100);
    let _ = kill(Pid::from_raw(capture.id().try_into().unwrap()), Signal::SIGINT);
    capture.wait().unwrap();
    let frames = recorded(&std::fs::read(&file).unwrap(), at);
    assert!(frames.len() > 250 && frames.iter().all(|frame| frame[0] >> 5 == 7), "{}", frames.len());

    // The sender restarts with the second key in its file; then the same key is set again.
    for same_key_again in [false, true] {
        if same_key_again {
            for daemon in [&a, &b] {
                let path = daemon.key_file.to_str().unwrap();
                assert!(daemon.done(&["node", "set", "key", "file", path]));
            }
        } else {
            b.restart();
            soon("the nodes link again", || a.is_linked() && b.is_linked());
        }
        flow.send(&b, 20);
        let (refused, ended) = (a.refused(), a.counter(downs));
        let replayed = a.counter("/encryption/replayed");
        replay(&frames, at);
        let most = frames.len() as u64 * 9 / 10;
        soon("recordings are refused", || a.refused() >= refused + most);
        assert!(a.counter("/encryption/replayed") > replayed);
        flow.read();
        flow.send(&b, 20);
        assert_eq!(a.counter(downs), ended, "recordings reset no link");
    }

    // The sender is gone and the receiver is new: only discovery is accepted, and it makes no contact.
    b.stop();
    a.restart();
    let mut flow = Flow::new(&a);
    replay(&frames, at);
    soon("recordings are refused", || a.refused() >= frames.len() as u64 * 9 / 10);
    flow.read();
    assert!(!a.is_linked() && flow.got.is_empty());
    b.restart();
    soon("the nodes link again", || a.is_linked() && b.is_linked());
    flow.send(&b, 20);
    replay(&frames, at);
    flow.read();
    flow.send(&b, 20);
}

#[test]
fn node_with_an_old_key_file_is_named_by_the_doctor_of_the_others() {
    let scratch = Scratch::new("old-key-file");
    let [at, bt] = [address(), address()];
    let (a, mut b) = (Keyed::start(&scratch, "a", [at, bt]), Keyed::start(&scratch, "b", [bt, at]));
    soon("the nodes link", || a.is_linked() && b.is_linked());
    for daemon in [&a, &b] {
        let other = scratch.0.join("second.key");
        write_key(&other, KEY2);
        assert!(daemon.done(&["node", "set", "key", "file", other.to_str().unwrap()]));
    }
    soon("both send with the second key", || {
        [&a, &b].iter().all(|daemon| {
            daemon.own_key("active").is_some()
                && daemon.own_key("waiting").is_none()
                && daemon.own_key("pending").is_none()
        })
    });
    // Its key file still has the first key.
    b.restart();
    soon("the doctor names the node", || {
        let report = a.json(&["doctor", "--json"]);
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let text = findings
            .iter()
            .find(|found| found["check"] == "wrong-key")
            .map(|found| found["text"].to_string());
        text.is_some_and(|text| text.contains("keyed-b is out of the cluster"))
    });
    assert!(!a.is_linked());
}
