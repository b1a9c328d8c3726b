//! The suites of `cargo xtask test`. To add one, add an entry.

use crate::judge::Judge::{self, CargoTest, LastLine, Seeds, Total};
use crate::needs::{self, Need};
use crate::step::Step;
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

/// A set of tests that one step runs.
#[derive(Clone, Copy)]
pub(crate) struct Suite {
    pub(crate) step: Step,
    /// The command of a run without `--all`, if it is another one.
    pub(crate) quick: Option<&'static str>,
    /// Whether to show its output while it runs.
    pub(crate) live: bool,
    /// Checks of this machine; one that fails skips the suite.
    pub(crate) needs: &'static [Need],
    /// Whether continuous integration must run it.
    pub(crate) required_in_ci: bool,
    pub(crate) when: When,
    /// Whether it runs in the lab's machine, at the same time as suites that do not.
    pub(crate) beside: bool,
    /// Target folder of its own, which continuous integration removes after it: its machine has little disk.
    pub(crate) folder: Option<&'static str>,
}

const fn suite(name: &'static str, minutes: u64, judge: Judge, command: &'static str) -> Suite {
    Suite {
        step: Step::new(name, minutes, judge, command),
        quick: None,
        live: false,
        needs: &[],
        required_in_ci: true,
        when: When::All,
        beside: false,
        folder: None,
    }
}

impl Suite {
    const fn always(self) -> Self {
        Self { when: When::Always, ..self }
    }

    const fn by_name(self) -> Self {
        Self { when: When::Named, ..self }
    }

    const fn quick(self, command: &'static str) -> Self {
        Self { quick: Some(command), ..self }
    }

    const fn live(self) -> Self {
        Self { live: true, ..self }
    }

    const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    const fn optional(self) -> Self {
        Self { required_in_ci: false, ..self }
    }

    const fn beside(self) -> Self {
        Self { beside: true, ..self }
    }

    const fn folder(self, folder: &'static str) -> Self {
        Self { folder: Some(folder), ..self }
    }

    const fn with(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { step: self.step.with(env), ..self }
    }
}

/// All suites, in the order in which they run. When the first suite of the lab's machine begins, those after it
/// run at the same time, so suites that build something for it come before, and those whose time limits are short.
pub(crate) const SUITES: &[Suite] = &[
    // Unit tests, vectors, replay of the fuzz corpora, scenarios, documentation examples; also the party of `utipc
    // bench` that an ordinary build leaves out.
    suite(
        "tests",
        25,
        Total("tests"),
        "xtask run-tests --workspace --exclude utipc-c --exclude utipc-cpg \
         --features utipc/tokio,utipc-lab/iceoryx2",
    )
    .always()
    .live(),
    // The C libraries as C programmers use them: installed, compiled against, with their manual pages.
    suite("c-library", 12, CargoTest, "cargo test -p utipc-c -p utipc-cpg --no-fail-fast")
        .always()
        .needs(&[needs::c_tools]),
    suite("bearers", 5, CargoTest, "unshare --map-root-user --net cargo test -p utipc-node --test bearers")
        .always()
        .needs(&[needs::namespace_without_root]),
    suite("demo", 8, LastLine("demo: ok"), "cargo run --quiet --release -- demo")
        .always()
        .quick("cargo run --quiet -- demo"),
    // Every example in Rust, C, Python, Go and Java prints the output that examples/README.md shows.
    suite("examples", 20, Total("examples"), "xtask examples").always(),
    // The commands on the pages of the manual do what the pages say.
    suite("howto", 10, Total("howto"), "xtask howto").needs(&[howto::obstacle]),
    // The wheel in a clean environment, on an embedded node and on the daemon.
    suite("python", 20, Total("python"), "xtask python").needs(&[python::obstacle]),
    // Every program of the market-data chain is killed, stopped and restarted, and every item compared afterwards.
    suite("events", 15, Total("events"), "cargo run --quiet -p mdist-bench -- events --quick --rate 5000"),
    // The web page of daemons and of p2ps, in Chromium.
    suite("web-page", 10, Total("web-page"), "xtask web-page").needs(&[web_page::obstacle]),
    // The alert rules for Prometheus, with their tests; that their metrics exist is a test of utipcd.
    suite(
        "alert-rules",
        2,
        LastLine("  SUCCESS"),
        "promtool test rules packaging/monitoring/alerts_test.yml",
    )
    .needs(&[needs::promtool]),
    // The rules of AF_TIPC, case by case, under the shim.
    suite("conformance", 12, Total("conformance"), "xtask conformance -t 60").needs(&[needs::make]),
    // The end of connections between two daemons, a thousand times for each kind of socket and bearer.
    suite("conformance-pair", 10, Total("conformance"), "xtask conformance --pair")
        .needs(&[needs::make, needs::root_for_pair]),
    // Programs that were not written for utipc, under the shim.
    suite("programs", 10, Total("programs"), "xtask programs").needs(&[needs::make]),
    // Before the suites of the lab: beside its machine it takes twice the time. The command that
    // docs/operating/simulator.md shows runs 500 seeds.
    suite(
        "sim",
        10,
        Seeds,
        "cargo run --quiet --release -p utipc-sim -- --nodes 8 --seeds 200 \
         --faults loss,reorder,duplicate,partition,crash",
    )
    .always()
    .quick(
        "cargo run --quiet -p utipc-sim -- --nodes 8 --seeds 50 --faults loss,reorder,duplicate,partition,crash",
    ),
    // The same cases on the kernel's own TIPC.
    suite("conformance-kernel", 10, Total("conformance"), "xtask conformance --kernel -t 60")
        .beside()
        .needs(&[needs::make, lab::obstacle]),
    // The same under the shim, with a kernel node as the peer.
    suite("conformance-mixed", 15, Total("conformance"), "xtask conformance --mixed -t 60")
        .beside()
        .needs(&[needs::make, lab::obstacle]),
    // Programs that were not written for utipc, between a kernel node and the shim, in both directions.
    suite("programs-mixed", 15, Total("programs"), "xtask programs --mixed")
        .beside()
        .needs(&[needs::make, lab::obstacle]),
    // The library, the demo and the benchmark on the kernel's own TIPC.
    suite("kernel-engine", 20, Total("interop"), "xtask interop --peer kernel-engine udp demo bench")
        .beside()
        .live()
        .needs(&[lab::obstacle]),
    // The output of `tipc` on a kernel node equals the recorded one, and `utipc` prints the same for that node.
    suite("golden", 15, LastLine("golden: ok"), "xtask golden").beside().needs(&[lab::obstacle]),
    suite("interop", 37, Total("interop"), "xtask interop --wireshark")
        .always()
        .quick(INTEROP_QUICK)
        .beside()
        .live()
        .needs(&[lab::obstacle]),
    // The Go package, built against the C library as a user installs it.
    suite("go", 15, Total("go"), "xtask go").needs(&[go::obstacle]),
    // The Java package, on the oldest and a newer version of Java.
    suite("java", 15, Total("java"), "xtask java").needs(&[java::obstacle]),
    // gRPC by service name; a workspace of its own, because no other suite needs hyper and tonic.
    suite(
        "grpc",
        15,
        CargoTest,
        "cargo test --manifest-path crates/tonic/Cargo.toml --target-dir target/tonic",
    )
    .folder("target/tonic"),
    // Wheel and C library as a new user installs them, where nothing else of the project is.
    suite("clean-root", 10, Total("clean-root"), "xtask clean-root")
        .needs(&[clean_root::obstacle])
        .optional(),
    // The packages in clean roots of Debian 12 and 13: installed, started, upgraded, removed and purged.
    suite("packages", 25, Total("packages"), "xtask packages")
        .live()
        .needs(&[packages::obstacle])
        .folder("target/package-builder"),
    // Each fault planted in the protocol must be caught by the simulator's invariants.
    suite("planted", 6, CargoTest, "cargo test --release -p utipc-sim --features planted-faults"),
    // Lanes and doorbells in all interleavings, also with faults planted in them, which must be found.
    suite(
        "lane-models",
        6,
        CargoTest,
        "cargo test --release -p utipc-lanes --features loom --test lane_loom",
    ),
    // Readers of the binding table's replica at the same time as its writer, also with faults planted in the writer.
    suite(
        "table-models",
        8,
        CargoTest,
        "cargo test --release -p utipc-node --features loom --test table_loom",
    ),
    suite("sandbox", 15, LastLine("sandbox: ok"), "xtask sandbox").needs(&[sandbox::obstacle]).optional(),
    // No `--lib --tests`: tests run the examples, which only a build of all targets makes as programs.
    suite(
        "asan",
        25,
        CargoTest,
        "env cargo +nightly test --target x86_64-unknown-linux-gnu -p utipc-os -p utipc-lanes -p utipc-node \
         -p utipc-client -p utipc --no-fail-fast",
    )
    .with(&[
        ("RUSTFLAGS", "-Zsanitizer=address --cfg=asan"),
        ("RUSTDOCFLAGS", "-Zsanitizer=address"),
        ("CARGO_TARGET_DIR", "target/asan"),
    ])
    .needs(&[needs::address_sanitizer])
    .optional()
    .folder("target/asan"),
    // Miri's model of weak memory does not support words in memory that held bytes before; loom covers that part.
    suite("lane-miri", 15, CargoTest, "env cargo +nightly miri test -p utipc-lanes --test lane_threads")
        .with(&[
            ("MIRIFLAGS", "-Zmiri-disable-weak-memory-emulation"),
            ("CARGO_TARGET_DIR", "target/miri"),
        ])
        .needs(&[needs::miri])
        .optional()
        .folder("target/miri"),
    suite(
        "lane-tsan",
        15,
        CargoTest,
        "env cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu -p utipc-lanes --test lane_threads",
    )
    .with(&[("RUSTFLAGS", "-Zsanitizer=thread"), ("CARGO_TARGET_DIR", "target/tsan")])
    .needs(&[needs::thread_sanitizer])
    .optional()
    .folder("target/tsan"),
    // Groups with virtual synchrony under all faults.
    suite("vsync", 5, Seeds, "cargo run --quiet --release -p utipc-vsync-sim -- --seeds 200"),
    // Each fault planted in the view change must be caught by the model.
    suite(
        "vsync-planted",
        5,
        CargoTest,
        "cargo test --release -p utipc-vsync-sim --features planted-faults --test planted",
    ),
    // Two networks and two bearers a node: synchronisation and failover.
    suite(
        "sim-links",
        5,
        Seeds,
        "cargo run --quiet --release -p utipc-sim -- --nodes 8 --bearers 2 --seeds 60",
    ),
    // Debian's own `tipc`, unmodified, on a daemon.
    suite(
        "stock-tipc",
        12,
        CargoTest,
        "cargo test -p utipc-tools --features stock-tipc --test golden --test shim",
    )
    .needs(&[needs::tipc]),
    // Random calls of programs under the shim; `cargo xtask soak calls` alone runs longer.
    suite("random-calls", 12, LastLine("calls: ok"), "xtask soak calls --seconds 15")
        .needs(&[needs::c_tools]),
    // Hostile processes of several users beside honest ones; `cargo xtask soak hostile` alone runs longer.
    suite("hostile", 12, LastLine("hostile: ok"), "xtask soak hostile --seconds 7 --quiet 2")
        .needs(&[needs::root_for_users])
        .optional(),
    // Hostile peers against a node; `cargo xtask soak peers` alone runs longer. The suite `tests` has a short run.
    suite("peers", 10, LastLine("peers: ok"), "xtask soak peers --peers 300 --seconds 4"),
    // The same attacks over UDP, from network namespaces; `cargo xtask soak peers --real` alone runs longer. On a
    // loaded machine fewer links of hostile peers come up than it expects.
    suite("real-peers", 10, LastLine("peers: ok"), "xtask soak peers --real --seconds 20")
        .by_name()
        .needs(&[needs::root_for_users])
        .optional(),
    // Two daemons over a path that loses and reorders, and over one that becomes narrow: `cargo xtask soak path`.
    suite("lossy-path", 10, LastLine("path: ok"), "xtask soak path --seconds 8")
        .needs(&[needs::root_for_users])
        .optional(),
    // Large messages over interfaces of 9000 bytes, between which 1500 pass from the fourth second on.
    suite(
        "narrow-path",
        10,
        LastLine("path: ok"),
        "xtask soak path --seconds 8 --loss 0 --delayed 0 --duplicated 0 --mtu 9000 --width 1500 \
         --narrow-after 3 --size 60000 --rate 100 --longest 3000",
    )
    .needs(&[needs::root_for_users])
    .optional(),
    // Lanes in perturbed schedules; `cargo xtask soak schedules` alone runs longer.
    suite("schedules", 10, CargoTest, "xtask soak schedules --runs 40"),
    // Programs made with the vendor's SDK, unmodified, against p2ps, src_dist and the load tools.
    suite("rssl-stock", 40, Total("rssl-stock"), "python3 interop/rssl/run.py --build")
        .live()
        .needs(&[needs::stock_programs])
        .optional(),
    // The vendor's message interface for Java, which Maven fetches, with its default settings.
    suite("rssl-ema", 15, Total("rssl-ema"), "python3 interop/rssl/ema/run.py --build")
        .needs(&[needs::jdk_and_maven])
        .by_name(),
    // Our decoders on recorded packets of such programs.
    suite(
        "rssl-captures",
        5,
        CargoTest,
        "cargo test -p rssl --test transport_captures --test rwf_captures --test rdm",
    )
    .needs(&[needs::captures])
    .optional(),
    // Corosync's own test programs on libcpg.so.4. By name, because it downloads Corosync's sources and packages.
    suite("cpg", 20, Total("cpg"), "xtask cpg").by_name().needs(&[needs::c_tools, needs::make]).optional(),
    // The Python package and every example on it.
    suite("python-kernel", 20, Total("python-kernel"), "xtask python --kernel")
        .by_name()
        .live()
        .needs(&[python::obstacle, lab::obstacle])
        .optional(),
];

/// One pass over the kinds of traffic with a kernel node, over Ethernet: setup, messages, names, faults.
const INTEROP_QUICK: &str = "xtask interop --dev discovery-identity/eth bindings-before-link/eth seqpacket-setup/eth \
    stream-setup/eth implied-setup/eth connect-refused/eth rdm-unicast/eth rdm-anycast-round-robin/eth \
    rdm-multicast/eth message-sizes/eth message-sizes/udp returned-message/eth remote-topology/eth \
    names-vanish-with-their-socket/eth kernel-process-killed/eth node-killed/eth cut-off/eth";
