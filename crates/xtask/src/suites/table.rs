//! The suites of `cargo xtask test`. To add one, add an entry.

use std::path::Path;
use std::time::Duration;

use super::judge::Judge;
use crate::process::user_is_root;
use crate::{clean_root, go, howto, java, lab, packages, python, sandbox, web_page};

/// The runs that include a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// In every run.
    Always,
    /// With `--all`, and by name.
    All,
    /// By name only: it takes too long for `--all`.
    Named,
}

/// Reason why a suite cannot run here, and the one command that enables it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

/// A set of tests that one command runs.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Program and arguments. `cargo` stands for the cargo that runs this program, `xtask` for this program.
    pub(crate) command: &'static [&'static str],
    /// The command of a run without `--all`, if it is another one.
    pub(crate) quick: Option<&'static [&'static str]>,
    pub(crate) judge: Judge,
    /// Time after which the suite is killed and counts as failed.
    pub(crate) limit: Duration,
    /// Whether to show its output while it runs.
    pub(crate) live: bool,
    /// Reason why it cannot run on this machine.
    pub(crate) obstacle: fn(&Path) -> Option<Skip>,
    /// Whether continuous integration must run it.
    pub(crate) required_in_ci: bool,
    pub(crate) when: When,
    /// Whether it runs in the lab's machine, at the same time as suites that do not.
    pub(crate) beside: bool,
    /// Target folder of its own, which continuous integration removes after it: its machine has little disk.
    pub(crate) folder: Option<&'static str>,
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

const fn suite(name: &'static str, limit: Duration, judge: Judge, command: &'static [&'static str]) -> Suite {
    Suite {
        name,
        command,
        quick: None,
        judge,
        limit,
        live: false,
        obstacle: |_| None,
        required_in_ci: true,
        when: When::All,
        beside: false,
        folder: None,
    }
}

/// All suites, in the order in which they run. When the first suite of the lab's machine begins, those after it
/// run at the same time, so suites that build something for it come before, and those whose time limits are short.
pub(crate) const SUITES: &[Suite] = &[
    // Unit tests, vectors, replay of the fuzz corpora, scenarios, documentation examples.
    Suite {
        when: When::Always,
        live: true,
        ..suite(
            "tests",
            minutes(25),
            Judge::Total("tests"),
            &[
                "xtask",
                "run-tests",
                "--workspace",
                "--exclude",
                "utipc-c",
                "--exclude",
                "utipc-cpg",
                "--features",
                // Also the party of `utipc bench` that an ordinary build leaves out.
                "utipc/tokio,utipc-lab/iceoryx2",
            ],
        )
    },
    // The C libraries as C programmers use them: installed, compiled against, with their manual pages.
    Suite {
        when: When::Always,
        obstacle: no_c_tools,
        ..suite(
            "c-library",
            minutes(12),
            Judge::CargoTest,
            &["cargo", "test", "-p", "utipc-c", "-p", "utipc-cpg", "--no-fail-fast"],
        )
    },
    Suite {
        when: When::Always,
        obstacle: bearers_without_root,
        ..suite(
            "bearers",
            minutes(5),
            Judge::CargoTest,
            &[
                "unshare",
                "--map-root-user",
                "--net",
                "cargo",
                "test",
                "-p",
                "utipc-node",
                "--test",
                "bearers",
            ],
        )
    },
    Suite {
        when: When::Always,
        quick: Some(&["cargo", "run", "--quiet", "--", "demo"]),
        ..suite(
            "demo",
            minutes(8),
            Judge::LastLine("demo: ok"),
            &["cargo", "run", "--quiet", "--release", "--", "demo"],
        )
    },
    // Every example in Rust, C, Python, Go and Java prints the output that examples/README.md shows.
    Suite {
        when: When::Always,
        ..suite("examples", minutes(20), Judge::Total("examples"), &["xtask", "examples"])
    },
    // The commands on the pages of the manual do what the pages say.
    Suite { obstacle: no_howto, ..suite("howto", minutes(10), Judge::Total("howto"), &["xtask", "howto"]) },
    // The wheel in a clean environment, on an embedded node and on the daemon.
    Suite {
        obstacle: no_python,
        ..suite("python", minutes(20), Judge::Total("python"), &["xtask", "python"])
    },
    // Every program of the market-data chain is killed, stopped and restarted, and every item compared afterwards.
    suite(
        "events",
        minutes(15),
        Judge::Total("events"),
        &["cargo", "run", "--quiet", "-p", "mdist-bench", "--", "events", "--quick", "--rate", "5000"],
    ),
    // The web page of daemons and of p2ps, in Chromium.
    Suite {
        obstacle: no_browser,
        ..suite("web-page", minutes(10), Judge::Total("web-page"), &["xtask", "web-page"])
    },
    // The alert rules for Prometheus, with their tests; that their metrics exist is a test of utipcd.
    Suite {
        obstacle: no_promtool,
        ..suite(
            "alert-rules",
            minutes(2),
            Judge::LastLine("  SUCCESS"),
            &["promtool", "test", "rules", "packaging/monitoring/alerts_test.yml"],
        )
    },
    // The rules of AF_TIPC, case by case, under the shim.
    Suite {
        obstacle: no_make,
        ..suite(
            "conformance",
            minutes(12),
            Judge::Total("conformance"),
            &["xtask", "conformance", "-t", "60"],
        )
    },
    // The end of connections between two daemons, a thousand times for each kind of socket and bearer.
    Suite {
        obstacle: no_make_or_root,
        ..suite(
            "conformance-pair",
            minutes(10),
            Judge::Total("conformance"),
            &["xtask", "conformance", "--pair"],
        )
    },
    // Programs that were not written for utipc, under the shim.
    Suite {
        obstacle: no_make,
        ..suite("programs", minutes(10), Judge::Total("programs"), &["xtask", "programs"])
    },
    // Before the suites of the lab: beside its machine it takes twice the time. The command that
    // docs/operating/simulator.md shows runs 500 seeds.
    Suite {
        when: When::Always,
        quick: Some(&[
            "cargo",
            "run",
            "--quiet",
            "-p",
            "utipc-sim",
            "--",
            "--nodes",
            "8",
            "--seeds",
            "50",
            "--faults",
            "loss,reorder,duplicate,partition,crash",
        ]),
        ..suite(
            "sim",
            minutes(10),
            Judge::Seeds,
            &[
                "cargo",
                "run",
                "--quiet",
                "--release",
                "-p",
                "utipc-sim",
                "--",
                "--nodes",
                "8",
                "--seeds",
                "200",
                "--faults",
                "loss,reorder,duplicate,partition,crash",
            ],
        )
    },
    // The same cases on the kernel's own TIPC.
    Suite {
        beside: true,
        obstacle: no_lab_or_make,
        ..suite(
            "conformance-kernel",
            minutes(10),
            Judge::Total("conformance"),
            &["xtask", "conformance", "--kernel", "-t", "60"],
        )
    },
    // The same under the shim, with a kernel node as the peer.
    Suite {
        beside: true,
        obstacle: no_lab_or_make,
        ..suite(
            "conformance-mixed",
            minutes(15),
            Judge::Total("conformance"),
            &["xtask", "conformance", "--mixed", "-t", "60"],
        )
    },
    // Programs that were not written for utipc, between a kernel node and the shim, in both directions.
    Suite {
        beside: true,
        obstacle: no_lab_or_make,
        ..suite("programs-mixed", minutes(15), Judge::Total("programs"), &["xtask", "programs", "--mixed"])
    },
    // The library, the demo and the benchmark on the kernel's own TIPC.
    Suite {
        beside: true,
        live: true,
        obstacle: no_lab,
        ..suite(
            "kernel-engine",
            minutes(20),
            Judge::Interop,
            &["xtask", "interop", "--peer", "kernel-engine", "udp", "demo", "bench"],
        )
    },
    // The output of `tipc` on a kernel node equals the recorded one, and `utipc` prints the same for that node.
    Suite {
        beside: true,
        obstacle: no_lab,
        ..suite("golden", minutes(15), Judge::LastLine("golden: ok"), &["xtask", "golden"])
    },
    Suite {
        when: When::Always,
        quick: Some(INTEROP_QUICK),
        beside: true,
        live: true,
        obstacle: no_lab,
        ..suite("interop", minutes(37), Judge::Interop, &["xtask", "interop", "--wireshark"])
    },
    // The Go package, built against the C library as a user installs it.
    Suite { obstacle: no_go, ..suite("go", minutes(15), Judge::Total("go"), &["xtask", "go"]) },
    // The Java package, on the oldest and a newer version of Java.
    Suite { obstacle: no_java, ..suite("java", minutes(15), Judge::Total("java"), &["xtask", "java"]) },
    // gRPC by service name; a workspace of its own, because no other suite needs hyper and tonic.
    Suite {
        folder: Some("target/tonic"),
        ..suite(
            "grpc",
            minutes(15),
            Judge::CargoTest,
            &["cargo", "test", "--manifest-path", "crates/tonic/Cargo.toml", "--target-dir", "target/tonic"],
        )
    },
    // Wheel and C library as a new user installs them, where nothing else of the project is.
    Suite {
        obstacle: no_clean_root,
        required_in_ci: false,
        ..suite("clean-root", minutes(10), Judge::Total("clean-root"), &["xtask", "clean-root"])
    },
    // The packages in clean roots of Debian 12 and 13: installed, started, upgraded, removed and purged.
    Suite {
        live: true,
        obstacle: no_packages,
        folder: Some("target/package-builder"),
        ..suite("packages", minutes(25), Judge::Total("packages"), &["xtask", "packages"])
    },
    // Each fault planted in the protocol must be caught by the simulator's invariants.
    suite(
        "planted",
        minutes(6),
        Judge::CargoTest,
        &["cargo", "test", "--release", "-p", "utipc-sim", "--features", "planted-faults"],
    ),
    // Lanes and doorbells in all interleavings, also with faults planted in them, which must be found.
    suite(
        "lane-models",
        minutes(6),
        Judge::CargoTest,
        &["cargo", "test", "--release", "-p", "utipc-lanes", "--features", "loom", "--test", "lane_loom"],
    ),
    // Readers of the binding table's replica at the same time as its writer, also with faults planted in the writer.
    suite(
        "table-models",
        minutes(8),
        Judge::CargoTest,
        &["cargo", "test", "--release", "-p", "utipc-node", "--features", "loom", "--test", "table_loom"],
    ),
    Suite {
        obstacle: no_sandbox,
        required_in_ci: false,
        ..suite("sandbox", minutes(15), Judge::LastLine("sandbox: ok"), &["xtask", "sandbox"])
    },
    Suite {
        obstacle: no_address_sanitizer,
        required_in_ci: false,
        folder: Some("target/asan"),
        ..suite(
            "asan",
            minutes(25),
            Judge::CargoTest,
            &[
                "env",
                "RUSTFLAGS=-Zsanitizer=address --cfg=asan",
                "RUSTDOCFLAGS=-Zsanitizer=address",
                "CARGO_TARGET_DIR=target/asan",
                "cargo",
                "+nightly",
                "test",
                "--target",
                "x86_64-unknown-linux-gnu",
                "-p",
                "utipc-os",
                "-p",
                "utipc-lanes",
                "-p",
                "utipc-node",
                "-p",
                "utipc-client",
                "-p",
                "utipc",
                // No `--lib --tests`: tests run the examples, which only a build of all targets makes as programs.
                "--no-fail-fast",
            ],
        )
    },
    Suite {
        obstacle: no_miri,
        required_in_ci: false,
        folder: Some("target/miri"),
        ..suite(
            "lane-miri",
            minutes(15),
            Judge::CargoTest,
            &[
                "env",
                // Miri's model of weak memory does not support words in memory that held bytes before; loom
                // covers that part.
                "MIRIFLAGS=-Zmiri-disable-weak-memory-emulation",
                "CARGO_TARGET_DIR=target/miri",
                "cargo",
                "+nightly",
                "miri",
                "test",
                "-p",
                "utipc-lanes",
                "--test",
                "lane_threads",
            ],
        )
    },
    Suite {
        obstacle: no_thread_sanitizer,
        required_in_ci: false,
        folder: Some("target/tsan"),
        ..suite(
            "lane-tsan",
            minutes(15),
            Judge::CargoTest,
            &[
                "env",
                "RUSTFLAGS=-Zsanitizer=thread",
                "CARGO_TARGET_DIR=target/tsan",
                "cargo",
                "+nightly",
                "test",
                "-Zbuild-std",
                "--target",
                "x86_64-unknown-linux-gnu",
                "-p",
                "utipc-lanes",
                "--test",
                "lane_threads",
            ],
        )
    },
    // Groups with virtual synchrony under all faults.
    suite(
        "vsync",
        minutes(5),
        Judge::Seeds,
        &["cargo", "run", "--quiet", "--release", "-p", "utipc-vsync-sim", "--", "--seeds", "200"],
    ),
    // Each fault planted in the view change must be caught by the model.
    suite(
        "vsync-planted",
        minutes(5),
        Judge::CargoTest,
        &[
            "cargo",
            "test",
            "--release",
            "-p",
            "utipc-vsync-sim",
            "--features",
            "planted-faults",
            "--test",
            "planted",
        ],
    ),
    // Two networks and two bearers a node: synchronisation and failover.
    suite(
        "sim-links",
        minutes(5),
        Judge::Seeds,
        &[
            "cargo",
            "run",
            "--quiet",
            "--release",
            "-p",
            "utipc-sim",
            "--",
            "--nodes",
            "8",
            "--bearers",
            "2",
            "--seeds",
            "60",
        ],
    ),
    // Debian's own `tipc`, unmodified, on a daemon.
    Suite {
        obstacle: no_tipc,
        ..suite(
            "stock-tipc",
            minutes(12),
            Judge::CargoTest,
            &[
                "cargo",
                "test",
                "-p",
                "utipc-tools",
                "--features",
                "stock-tipc",
                "--test",
                "golden",
                "--test",
                "shim",
            ],
        )
    },
    // Random calls of programs under the shim; `cargo xtask soak calls` alone runs longer.
    Suite {
        obstacle: no_c_tools,
        ..suite(
            "random-calls",
            minutes(12),
            Judge::LastLine("calls: ok"),
            &["xtask", "soak", "calls", "--seconds", "15"],
        )
    },
    // Hostile processes of several users beside honest ones; `cargo xtask soak hostile` alone runs longer.
    Suite {
        obstacle: no_root,
        required_in_ci: false,
        ..suite(
            "hostile",
            minutes(12),
            Judge::LastLine("hostile: ok"),
            &["xtask", "soak", "hostile", "--seconds", "7", "--quiet", "2"],
        )
    },
    // Hostile peers against a node; `cargo xtask soak peers` alone runs longer. The suite `tests` has a short run.
    suite(
        "peers",
        minutes(10),
        Judge::LastLine("peers: ok"),
        &["xtask", "soak", "peers", "--peers", "300", "--seconds", "4"],
    ),
    // The same attacks over UDP, from network namespaces; `cargo xtask soak peers --real` alone runs longer.
    Suite {
        // On a loaded machine fewer links of hostile peers come up than it expects.
        when: When::Named,
        obstacle: no_root,
        required_in_ci: false,
        ..suite(
            "real-peers",
            minutes(10),
            Judge::LastLine("peers: ok"),
            &["xtask", "soak", "peers", "--real", "--seconds", "20"],
        )
    },
    // Two daemons over a path that loses and reorders, and over one that becomes narrow: `cargo xtask soak path`.
    path_suite("lossy-path", &["xtask", "soak", "path", "--seconds", "8"]),
    path_suite("narrow-path", NARROW_PATH),
    // Lanes in perturbed schedules; `cargo xtask soak schedules` alone runs longer.
    suite("schedules", minutes(10), Judge::CargoTest, &["xtask", "soak", "schedules", "--runs", "40"]),
    // Programs made with the vendor's SDK, unmodified, against p2ps, src_dist and the load tools.
    Suite {
        live: true,
        obstacle: no_stock_programs,
        required_in_ci: false,
        ..suite(
            "rssl-stock",
            minutes(40),
            Judge::Total("rssl-stock"),
            &["python3", "interop/rssl/run.py", "--build"],
        )
    },
    // Our decoders on recorded packets of such programs.
    Suite {
        obstacle: no_captures,
        required_in_ci: false,
        ..suite(
            "rssl-captures",
            minutes(5),
            Judge::CargoTest,
            &[
                "cargo",
                "test",
                "-p",
                "rssl",
                "--test",
                "transport_captures",
                "--test",
                "rwf_captures",
                "--test",
                "rdm",
            ],
        )
    },
    // Corosync's own test programs on libcpg.so.4. By name, because it downloads Corosync's sources and packages.
    Suite {
        obstacle: no_c_tools,
        when: When::Named,
        required_in_ci: false,
        ..suite("cpg", minutes(20), Judge::Total("cpg"), &["xtask", "cpg"])
    },
    // The Python package and every example on it.
    Suite {
        live: true,
        obstacle: |root| no_python(root).or_else(|| no_lab(root)),
        when: When::Named,
        required_in_ci: false,
        ..suite("python-kernel", minutes(20), Judge::Total("python-kernel"), &["xtask", "python", "--kernel"])
    },
];

/// One pass over the kinds of traffic with a kernel node, over Ethernet: setup, messages, names, faults.
const INTEROP_QUICK: &[&str] = &[
    "xtask",
    "interop",
    "--dev",
    "discovery-identity/eth",
    "bindings-before-link/eth",
    "seqpacket-setup/eth",
    "stream-setup/eth",
    "implied-setup/eth",
    "connect-refused/eth",
    "rdm-unicast/eth",
    "rdm-anycast-round-robin/eth",
    "rdm-multicast/eth",
    "message-sizes/eth",
    "message-sizes/udp",
    "returned-message/eth",
    "remote-topology/eth",
    "names-vanish-with-their-socket/eth",
    "kernel-process-killed/eth",
    "node-killed/eth",
    "cut-off/eth",
];

/// The suite `tests` covers the bearers as root. Other users need a namespace for them.
fn bearers_without_root(_: &Path) -> Option<Skip> {
    if user_is_root() {
        return Some(Skip { reason: "run by root in the suite tests".into(), remedy: String::new() });
    }
    let probe = std::process::Command::new("unshare").args(["--map-root-user", "--net", "true"]).output();
    if probe.is_ok_and(|out| out.status.success()) {
        return None;
    }
    let reason = "this user may not make network namespaces".into();
    Some(Skip { reason, remedy: "sudo -E cargo test -p utipc-node --test bearers".into() })
}

/// Large messages over interfaces of 9000 bytes, between which 1500 pass from the fourth second on.
#[rustfmt::skip]
const NARROW_PATH: &[&str] = &[
    "xtask", "soak", "path", "--seconds", "8", "--loss", "0", "--delayed", "0", "--duplicated", "0", "--mtu", "9000",
    "--width", "1500", "--narrow-after", "3", "--size", "60000", "--rate", "100", "--longest", "3000",
];

const fn path_suite(name: &'static str, command: &'static [&'static str]) -> Suite {
    let suite = suite(name, minutes(10), Judge::LastLine("path: ok"), command);
    Suite { obstacle: no_root, required_in_ci: false, ..suite }
}

fn no_root(_: &Path) -> Option<Skip> {
    let reason = "only root starts processes of other users, and joins network namespaces".into();
    (!user_is_root()).then_some(Skip {
        reason,
        remedy: "sudo -E cargo xtask test hostile real-peers lossy-path narrow-path".into(),
    })
}

fn no_python(root: &Path) -> Option<Skip> {
    python::obstacle(root).map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_howto(root: &Path) -> Option<Skip> {
    howto::obstacle(root).map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_browser(_: &Path) -> Option<Skip> {
    web_page::obstacle().map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_promtool(_: &Path) -> Option<Skip> {
    let runs = std::process::Command::new("promtool").arg("--version").output();
    let remedy = "sudo apt-get install --no-install-recommends prometheus";
    runs.is_err().then(|| Skip { reason: "no promtool".into(), remedy: remedy.into() })
}

fn no_go(root: &Path) -> Option<Skip> {
    go::obstacle(root).map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_java(root: &Path) -> Option<Skip> {
    java::obstacle(root).map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_clean_root(root: &Path) -> Option<Skip> {
    clean_root::obstacle(root).map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_packages(_: &Path) -> Option<Skip> {
    packages::obstacle().map(|(reason, remedy)| Skip { reason, remedy })
}

fn no_c_tools(_: &Path) -> Option<Skip> {
    let missing = |tool: &&str| std::process::Command::new(tool).arg("--version").output().is_err();
    let tool = ["cc", "make", "pkg-config", "readelf", "nm"].into_iter().find(missing)?;
    let remedy = "apt-get install gcc make pkg-config binutils";
    Some(Skip { reason: format!("no program {tool}"), remedy: remedy.into() })
}

fn no_miri(_: &Path) -> Option<Skip> {
    let probe = std::process::Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    if probe.is_ok_and(|out| out.status.success()) {
        return None;
    }
    let remedy = "rustup component add --toolchain nightly miri rust-src";
    Some(Skip { reason: "no nightly toolchain with Miri".into(), remedy: remedy.into() })
}

fn no_sandbox(_: &Path) -> Option<Skip> {
    let remedy = "sudo sysctl user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0";
    sandbox::obstacle().map(|reason| Skip { reason, remedy: remedy.into() })
}

fn no_address_sanitizer(_: &Path) -> Option<Skip> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Some(Skip { reason: "set up for x86_64 Linux only".into(), remedy: "run it there".into() });
    }
    let probe = std::process::Command::new("cargo").args(["+nightly", "--version"]).output();
    if probe.is_ok_and(|out| out.status.success()) {
        return None;
    }
    let remedy = "rustup toolchain install nightly --profile minimal";
    Some(Skip { reason: "no nightly toolchain".into(), remedy: remedy.into() })
}

fn no_thread_sanitizer(_: &Path) -> Option<Skip> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Some(Skip { reason: "set up for x86_64 Linux only".into(), remedy: "run it there".into() });
    }
    let probe = std::process::Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    let sysroot = probe.ok().filter(|out| out.status.success());
    let source = sysroot.map(|out| {
        let root = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        Path::new(&root).join("lib/rustlib/src/rust/library/std/Cargo.toml")
    });
    if source.is_some_and(|source| source.exists()) {
        return None;
    }
    let remedy = "rustup component add --toolchain nightly rust-src";
    Some(Skip {
        reason: "no nightly toolchain with the standard library's source".into(),
        remedy: remedy.into(),
    })
}

fn no_make(_: &Path) -> Option<Skip> {
    let missing = ["cc", "make", "python3"].into_iter().find(|program| {
        !std::process::Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
    })?;
    let remedy = "sudo apt-get install gcc make linux-libc-dev python3-venv";
    Some(Skip { reason: format!("no {missing} to build and run C programs with"), remedy: remedy.into() })
}

fn no_make_or_root(root: &Path) -> Option<Skip> {
    let reason = "only root makes network namespaces with a name".into();
    let skip = Skip { reason, remedy: "sudo -E cargo xtask conformance --pair".into() };
    no_make(root).or_else(|| (!user_is_root()).then_some(skip))
}

fn no_lab_or_make(root: &Path) -> Option<Skip> {
    no_make(root).or_else(|| no_lab(root))
}

fn no_tipc(_: &Path) -> Option<Skip> {
    let found = ["/usr/sbin/tipc", "/sbin/tipc", "/usr/bin/tipc"].iter().any(|path| Path::new(path).exists());
    let reason = "this machine has no `tipc`".to_owned();
    (!found).then(|| Skip { reason, remedy: "sudo apt-get install iproute2".into() })
}

/// Skips a suite that needs files of the vendor, unless the environment variable names their folder.
fn no_folder(variable: &str, of: &str, suite: &str) -> Option<Skip> {
    let named = std::env::var_os(variable).is_some_and(|folder| Path::new(&folder).is_dir());
    let remedy = format!("{variable}=DIR cargo xtask test {suite} (interop/rssl/README.md)");
    (!named).then(|| Skip { reason: format!("{variable} names no folder of {of}"), remedy })
}

fn no_stock_programs(_: &Path) -> Option<Skip> {
    no_folder("UTIPC_RTSDK_BIN", "programs made with the Real-Time-SDK", "rssl-stock")
}

fn no_captures(_: &Path) -> Option<Skip> {
    no_folder("UTIPC_RSSL_VECTORS", "captures", "rssl-captures")
}

fn no_lab(root: &Path) -> Option<Skip> {
    let error = match lab::obstacle() {
        Some(why) => why,
        None => format!("{:#}", lab::build(root).err()?),
    };
    Some(Skip { reason: error, remedy: "cargo xtask lab build".into() })
}
