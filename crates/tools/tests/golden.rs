//! The output of `utipc`, and of Debian's own `tipc` under `utipc run`, for a daemon equals that of iproute2's `tipc`
//! for a kernel node in the same state (interop/manage/golden, recorded in the lab), except for what [`normalise`]
//! permits.

#[path = "golden/normalise.rs"]
mod normalise;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use normalise::normalise;
use utipc::{Node, Scope, ServiceAddress, ServiceRange};

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A daemon of a test.
struct Daemon {
    child: Child,
    socket: PathBuf,
    local: Ipv4Addr,
}

impl Daemon {
    fn start(folder: &Path, name: &str, local: Ipv4Addr) -> Self {
        let socket = folder.join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        command.arg("--socket").arg(&socket).env_remove("UTIPC_LOG").env_remove("NOTIFY_SOCKET");
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Self { child, socket, local };
        soon("the daemon answers", || daemon.utipc(&["node", "get", "clusterid"]).status.success());
        daemon
    }

    fn utipc(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
        command.args(args).env("UTIPC_SOCKET", &self.socket).env("UTIPC_ENGINE", "daemon");
        command.output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        String::from_utf8(self.utipc(args).stdout).unwrap()
    }

    fn done(&self, line: &str) {
        let args: Vec<&str> = line.split_whitespace().collect();
        let ended = self.utipc(&args);
        assert!(ended.status.success(), "{line}: {}", String::from_utf8_lossy(&ended.stderr));
    }

    fn enable_bearer(&self, remote: Ipv4Addr) {
        self.done(&format!("bearer enable media udp name U localip {} remoteip {remote}", self.local));
    }

    fn node(&self) -> Node {
        Node::builder().daemon_at(&self.socket).start().unwrap()
    }

    /// Names and states of the daemon's links to peers.
    fn links(&self) -> Vec<(String, String)> {
        let text = self.text(&["link", "list"]);
        let links = text.lines().filter(|line| !line.starts_with("broadcast-link"));
        links.filter_map(|line| line.rsplit_once(": ")).map(|(n, s)| (n.to_owned(), s.to_owned())).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::yield_now();
    }
}

struct Stage {
    a: Daemon,
    b: Daemon,
    link: String,
    sockets: Vec<Box<dyn std::any::Any>>,
}

impl Stage {
    fn new(folder: &Path, first: u32) -> Self {
        // Sixteen addresses that only this process uses; each test has three, from `first` on.
        let own = std::process::id() << 4;
        let address = |n| Ipv4Addr::from(0x7f40_0000 | own & 0x3f_fff0 | (first + n));
        let (a, b) = (Daemon::start(folder, "a", address(0)), Daemon::start(folder, "b", address(1)));
        a.done("node set clusterid 4712");
        a.done("node set identity alpha");
        a.enable_bearer(b.local);
        Self { a, b, link: String::new(), sockets: Vec::new() }
    }

    fn wait_for_link(&mut self, state: &str) {
        soon(&format!("the link is {state}"), || self.b.links().iter().any(|(_, now)| now == state));
        self.link = self.b.links().remove(0).0;
    }

    fn open_sockets(&mut self) {
        let (far, near) = (self.a.node(), self.b.node());
        let server = far.listen(utipc::SocketKind::SeqPacket, ServiceAddress::new(3000, 1)).unwrap();
        let rdm = near.rdm().unwrap();
        rdm.bind(ServiceRange::new(1000, 1, 10), Scope::Cluster).unwrap();
        rdm.bind(ServiceRange::new(1000, 20, 20), Scope::Node).unwrap();
        let listener = near.listen(utipc::SocketKind::Stream, ServiceAddress::new(2000, 5)).unwrap();
        soon("the peer's service is known", || self.b.text(&["nametable", "show"]).contains("3000"));
        let accepting = std::thread::spawn(move || {
            let accepted = server.accept().unwrap();
            (server, accepted)
        });
        let connection = near.connect(utipc::SocketKind::SeqPacket, ServiceAddress::new(3000, 1)).unwrap();
        let accepted = accepting.join().unwrap();
        self.sockets.push(Box::new((far, near, rdm, listener, connection, accepted)));
    }

    fn step(&mut self, step: &str) {
        match step {
            "@up" => self.wait_for_link("up"),
            "@sockets" => self.open_sockets(),
            "@peer-off" => {
                self.sockets.clear();
                self.a.done("bearer disable media udp name U");
                self.wait_for_link("down");
            }
            other => panic!("no such step: {other}"),
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/manage")
}

#[test]
fn utipc_prints_what_tipc_prints_on_a_kernel_node() {
    compare("utipc", &|daemon, args| daemon.utipc(args));
}

/// Needs iproute2's `tipc`: `cargo xtask test stock-tipc`.
#[cfg(feature = "stock-tipc")]
#[test]
fn debians_tipc_under_utipc_run_prints_what_it_prints_on_a_kernel_node() {
    build_shim();
    compare("tipc", &debians_tipc);
}

#[cfg(feature = "stock-tipc")]
fn debians_tipc(daemon: &Daemon, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(["run", "--", "tipc"]).args(args).env("UTIPC_SOCKET", &daemon.socket);
    command.output().unwrap()
}

/// A key of the cluster, keys of nodes, no key, a master key with session keys, and a key that is refused. The link
/// stays up.
#[cfg(feature = "stock-tipc")]
#[test]
fn debians_tipc_under_utipc_run_encrypts_a_link() {
    build_shim();
    let folder = std::env::temp_dir().join(format!("utipc-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut stage = Stage::new(&folder, 7);
    stage.b.done("node set clusterid 4712");
    stage.b.done("node set identity beta");
    stage.b.enable_bearer(stage.a.local);
    stage.wait_for_link("up");
    // A key is refused while the previous key is being introduced.
    let both = |line: &str| {
        let args: Vec<&str> = line.split(' ').collect();
        for daemon in [&stage.a, &stage.b] {
            soon(&format!("tipc {line}"), || debians_tipc(daemon, &args).status.success());
        }
    };
    let counted = |name: &str| {
        let text = stage.b.text(&["node", "counters"]);
        let line = text.lines().find(|line| line.contains(&format!("encryption.{name} ")));
        line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok()).unwrap()
    };
    let decrypts = || {
        let before = counted("opened");
        soon("the peer's frames are decrypted", || counted("opened") > before);
    };
    assert_eq!((counted("sealed"), counted("opened")), (0, 0));
    both("node set key this_is_a_cluster_ke");
    decrypts();
    both("node set key 0x00112233445566778899aabbccddeeff01020304 nodeid alpha");
    both("node set key 0xffeeddccbbaa99887766554433221100a0b0c0d0 nodeid beta");
    decrypts();
    both("node flush key");
    both("node set key this_is_a_master_key master");
    decrypts();
    assert_eq!(counted("received"), 0);
    both("node set key rekeying now");
    soon("a session key of the peer has come", || counted("received") > 0);
    both("node set key rekeying 60");
    decrypts();
    let refused = debians_tipc(&stage.b, &["node", "set", "key", "too_short"]);
    assert!(!refused.status.success(), "a key of nine bytes is accepted");
    assert_eq!(stage.b.links()[0].1, "up");
    drop(stage);
    let _ = std::fs::remove_dir_all(&folder);
}

/// A program with its own netlink socket.
#[cfg(feature = "stock-tipc")]
#[test]
fn netlink_under_utipc_run_has_the_family_tipcv2_and_the_kernels_families() {
    build_shim();
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(["run", "--private", "--", "python3"]).arg(root().join("netlink.py"));
    let ended = command.output().unwrap();
    let said = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(said.0, "netlink: ok\n", "{}", said.1);
}

#[cfg(feature = "stock-tipc")]
fn build_shim() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "-p", "utipc-preload"]).status().unwrap();
    assert!(built.success());
}

/// Runs all cases with `tool` on the second of two daemons.
fn compare(tool_name: &str, tool: &dyn Fn(&Daemon, &[&str]) -> Output) {
    let folder = std::env::temp_dir().join(format!("utipc-golden-{tool_name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut stage = Stage::new(&folder, if tool_name == "utipc" { 1 } else { 4 });
    let cases = std::fs::read_to_string(root().join("cases.txt")).unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in cases.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if line.starts_with('@') {
            stage.step(line);
            continue;
        }
        let mut words = line.split_whitespace();
        let (name, how) = (words.next().unwrap(), words.next().unwrap());
        let (local, peer) = (stage.b.local.to_string(), stage.a.local.to_string());
        let other = Ipv4Addr::from(u32::from(stage.b.local) + 1).to_string();
        let link = stage.link.clone();
        let mut args: Vec<&str> = words
            .map(|word| match word {
                "LOCAL" => local.as_str(),
                "PEER" => peer.as_str(),
                "OTHER" => other.as_str(),
                "LINK" => link.as_str(),
                word => word,
            })
            .collect();
        if name == "bearer-enable" {
            // Without multicast, which other tests on this machine would receive.
            args.extend(["remoteip", peer.as_str()]);
        }
        let ended = tool(&stage.b, &args);
        let (ours, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        if ended.status.success() == (how == "fails") {
            wrong.push(format!("{name}: exit code {:?}: {said}", ended.status.code()));
            continue;
        }
        if how == "fails" && tool_name == "utipc" {
            assert!(said.starts_with("utipc: ") && said.contains('('), "no cause and remedy: {said}");
        }
        let golden = std::fs::read_to_string(root().join("golden").join(format!("{name}.txt"))).unwrap();
        let (expected, got) = (normalise(how, &golden), normalise(how, &ours));
        compared += 1;
        if expected != got {
            wrong.push(format!("{name} ({how}): tipc on a kernel node:\n{golden}{tool_name}:\n{ours}{said}--- expected\n{expected}--- got\n{got}"));
        }
    }
    drop(stage);
    let _ = std::fs::remove_dir_all(&folder);
    assert!(wrong.is_empty(), "{} of {compared} differ\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(compared > 80, "{compared}");
}
