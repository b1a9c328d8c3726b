//! Nodes with key files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use utipc::{Engine, Node, Scope, ServiceAddress, SocketKind};

const LIMIT: Duration = Duration::from_secs(30);
const SERVICE: ServiceAddress = ServiceAddress::new(1300, 7);
const KEY: &str = "0x00112233445566778899aabbccddeeff01020304";
const OTHER: &str = "0xffeeddccbbaa99887766554433221100a0b0c0d0";

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("utipc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        Self(path)
    }

    fn key(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, format!("{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn node(folder: &Path) -> utipc::Builder {
    Node::builder().engine(Engine::Embedded).same_host_in(folder.join("nodes"))
}

#[test]
fn nodes_with_the_same_key_exchange_messages_and_others_stay_out() {
    let folder = Folder::new("same-key");
    let (key, other) = (folder.key("key", KEY, 0o600), folder.key("other", OTHER, 0o600));
    let server = node(&folder.0).key_file(&key).start().unwrap();
    let socket = server.socket(SocketKind::Rdm).unwrap();
    socket.bind(SERVICE, Scope::Cluster).unwrap();
    socket.set_receive_timeout(Some(LIMIT));
    let client = node(&folder.0).key_file(&key).start().unwrap();
    client.wait_for_service(SERVICE, LIMIT).unwrap();
    let sender = client.socket(SocketKind::Rdm).unwrap();
    for size in [1, 1000, 60_000] {
        sender.send_to(&vec![size as u8; size], SERVICE).unwrap();
        let got = socket.receive().unwrap();
        assert!(got.data.len() == size && got.data.iter().all(|byte| *byte == size as u8));
    }
    let counters = client.counters();
    assert!(counters.encryption["sealed"] > 0 && counters.encryption["opened"] > 0, "{counters:?}");

    let clear = node(&folder.0).start().unwrap();
    let stranger = node(&folder.0).key_file(&other).start().unwrap();
    let dropped =
        |node: &Node, reason: &str| node.counters().dropped.get(reason).copied().unwrap_or_default();
    let begun = Instant::now();
    while dropped(&server, "clear text") == 0 || dropped(&server, "wrong key") == 0 {
        assert!(begun.elapsed() < LIMIT, "{:?}", server.counters().dropped);
        std::thread::sleep(Duration::from_millis(20));
    }
    for outsider in [&clear, &stranger] {
        assert_eq!(outsider.describe().neighbours, 0);
    }
    assert_eq!(server.describe().neighbours, 1);
}

#[test]
fn key_file_that_others_may_read_stops_the_start_with_the_remedy() {
    let folder = Folder::new("open-key");
    let key = folder.key("key", KEY, 0o644);
    let error = node(&folder.0).key_file(&key).start().unwrap_err().to_string();
    assert!(error.contains("chmod 600") && error.contains("key"), "{error}");
    let missing = node(&folder.0).master_key_file(folder.0.join("none")).start().unwrap_err().to_string();
    assert!(missing.contains("none"), "{missing}");
}
