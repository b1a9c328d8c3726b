//! The demo chain: its publisher's items reach a consumer through distributor, backbone and server. The programs with
//! which a user tries it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mdist::backbone::memory::Memory;
use mdist::config::Config;
use mdist::metrics::Metrics;
use mdist::server::demo::Chain;
use mdist::server::{Backbone, quotes};
use rssl::rwf::Real;

#[test]
fn consumer_gets_an_image_and_updates_of_every_requested_item() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    let backbone = Backbone::on(Memory::new());
    let chain = Chain::start(&config, &Metrics::new("p2ps"), &backbone, &backbone, 500).unwrap();
    let names = ["TRI.N", "any name", "äöü"];
    // Images and updates of each item.
    let mut seen = [(0_u32, 0_u32); 3];
    quotes::watch(chain.server.addresses[0], &names, |quote| {
        let price = |real: Option<Real>| real.expect("a quote without a price").to_f64();
        let (bid, ask) = (price(quote.bid), price(quote.ask));
        assert!(bid >= 0.99 && (ask - bid - 0.02).abs() < 1e-9, "bid {bid}, ask {ask}");
        let (images, updates) = &mut seen[quote.item];
        if quote.image {
            *images += 1;
        } else {
            assert!(*images > 0, "an update before the image of {}", names[quote.item]);
            *updates += 1;
        }
        seen.iter().all(|(images, updates)| *images > 0 && *updates > 3)
    })
    .unwrap();
    assert!(chain.published() > 9);
}

/// Limit for every wait, far above what a busy machine needs.
const LONG: Duration = Duration::from_secs(60);

/// `p2ps --demo` in a process of its own; killed when dropped.
struct Demo {
    child: Child,
    log: BufReader<ChildStderr>,
    address: String,
    metrics: String,
    /// Its lines until it was ready.
    lines: Vec<String>,
}

impl Demo {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_p2ps"))
            .args(["--demo", "--listen", "0", "--metrics", "0"])
            .env("RUST_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = Vec::new();
        for line in out.lines().map(Result::unwrap) {
            let is_last = line == "p2ps: ready";
            lines.push(line);
            if is_last {
                break;
            }
        }
        let after = |mark: &str| {
            let rest =
                lines.iter().find_map(|line| line.split_once(mark)).unwrap_or_else(|| panic!("{lines:?}"));
            rest.1.to_owned()
        };
        let (address, metrics) =
            (after("listening at "), after("metrics at http://").replace("/metrics", ""));
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log, address, metrics, lines }
    }

    /// Reads the log until a line has all of these words.
    fn logged(&mut self, words: &[&str]) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the log ends before {words:?}");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    fn page(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.metrics).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, which comes within [`LONG`].
fn run(program: &str, arguments: &[&str]) -> Output {
    let child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("USER", "jane")
        .spawn()
        .unwrap();
    let id = child.id();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if wait.recv_timeout(LONG) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let pid = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    guard.join().unwrap();
    output
}

fn view(arguments: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_rmdsview"), arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn user_sees_values_of_the_demo_without_an_sdk() {
    let mut demo = Demo::start();
    assert!(demo.address.starts_with("127.0.0.1:"), "{}", demo.address);
    let hints = demo.lines.join("\n");
    let command = format!("rmdsview --server {} TRI.N", demo.address);
    assert!(hints.contains("service DIRECT_FEED") && hints.contains(&command), "{hints}");
    demo.logged(&["the service is up", "DIRECT_FEED"]);

    // A port alone is one of this host.
    let port = demo.address.rsplit(':').next().unwrap();
    let seen = view(&["--server", port, "--json", "-n", "6", "TRI.N", "IBM.N"]);
    assert!(seen.status.success(), "{}", text(&seen.stderr));
    let lines: Vec<serde_json::Value> =
        text(&seen.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    for item in ["TRI.N", "IBM.N"] {
        let image = lines.iter().find(|line| line["item"] == item).unwrap();
        assert_eq!((image["type"].as_str(), image["service"].as_str()), (Some("image"), Some("DIRECT_FEED")));
        assert_eq!(
            (image["state"]["stream"].as_str(), image["state"]["data"].as_str()),
            (Some("Open"), Some("Ok"))
        );
        assert!(image["fields"]["BID"].as_f64().unwrap() > 0.9, "{image}");
    }
    assert!(lines.iter().filter(|line| line["type"] == "update").count() >= 4);

    let shown = view(&["-s", &demo.address, "--snapshot", "-f", "BID,ask", "TRI.N"]);
    let shown_text = text(&shown.stdout);
    assert!(shown.status.success() && shown_text.contains("TRI.N"), "{shown_text}{}", text(&shown.stderr));
    assert!(shown_text.contains("    BID  ") && shown_text.contains("    ASK  "), "{shown_text}");
    assert!(!shown_text.contains("BIDSIZE"), "{shown_text}");

    let services = view(&["-s", &demo.address, "--services"]);
    assert_eq!(text(&services.stdout), "    1  DIRECT_FEED  up\n");

    let line = demo.logged(&["a consumer logged in"]);
    assert!(
        line.contains("jane") && line.contains("rmdsview (256)") && line.contains("127.0.0.1/"),
        "{line}"
    );
    let start = Instant::now();
    while !demo.page("/disconnects").contains("\"user\": \"jane\"") {
        assert!(start.elapsed() < LONG, "{}", demo.page("/disconnects"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn mistakes_of_users_are_named() {
    let demo = Demo::start();
    let unknown = view(&["-s", &demo.address, "--service", "NONE", "TRI.N"]);
    let why = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(why.contains("'NONE'") && why.contains("DIRECT_FEED") && why.contains(&demo.address), "{why}");

    // A port that is free when it is used is as good as certain to refuse.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let refused = view(&["-s", &free, "TRI.N"]);
    let why = text(&refused.stderr);
    assert_eq!((refused.status.code(), why.lines().count()), (Some(1), 1), "{why}");
    assert!(why.contains(&free) && why.to_lowercase().contains("refused"), "{why}");

    for (program, setting) in
        [(env!("CARGO_BIN_EXE_p2ps"), "--provider"), (env!("CARGO_BIN_EXE_src_dist"), "--provider")]
    {
        let own = run(program, &["--listen", &free, setting, &free]);
        let why = text(&own.stderr);
        assert!(!own.status.success(), "{why}");
        assert!(why.contains(&free) && why.contains("cannot get data from itself"), "{why}");
    }
}

#[test]
fn closed_pipe_ends_a_viewer_quietly() {
    let demo = Demo::start();
    assert!(view(&["-s", &demo.address, "-n", "1", "TRI.N"]).status.success(), "no value to see");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rmdsview"))
        .args(["-s", &demo.address, "TRI.N"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), (String::new(), Some(128 + 13)));
}
