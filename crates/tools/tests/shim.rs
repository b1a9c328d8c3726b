//! Programs under the shim whose daemon dies.
#![cfg(feature = "stock-tipc")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A listener that two threads wait for, in `accept` and in `poll`; then it accepts again and again.
const LISTENER: &str = r#"
import errno, select, socket, threading
server = socket.socket(socket.AF_TIPC, socket.SOCK_STREAM)
server.bind((socket.TIPC_ADDR_NAMESEQ, 9400, 1, 1))
server.listen()
def told(code):
    print(errno.errorcode[code], flush=True)
def accept():
    try:
        server.accept()
    except OSError as error:
        told(error.errno)
waits = threading.Thread(target=accept)
waits.start()
print("ready", flush=True)
waits.join()
assert select.select([server], [], [], 30)[0]
for blocking in (True, False, True):
    server.setblocking(blocking)
    accept()
try:
    server.listen()
except OSError as error:
    told(error.errno)
"#;

fn build_shim() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "-p", "utipc-preload"]).status().unwrap();
    assert!(built.success());
}

fn daemon(socket: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipcd"));
    command.arg("--socket").arg(socket).env_remove("NOTIFY_SOCKET").stderr(Stdio::null());
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < LIMIT, "the daemon does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// libzmq, for one, aborts on ENETDOWN; the errnos that it tolerates are those of pending connections.
#[test]
fn accept_fails_with_a_tolerated_errno_after_the_daemons_death() {
    build_shim();
    let socket = std::env::temp_dir().join(format!("utipc-shim-{}.sock", std::process::id()));
    let mut daemon = daemon(&socket);
    let mut command = Command::new(env!("CARGO_BIN_EXE_utipc"));
    command.args(["run", "--", "python3", "-c", LISTENER]).env("UTIPC_SOCKET", &socket);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let said: Vec<String> = lines.collect();
    assert!(program.wait().unwrap().success());
    assert_eq!(said, ["ECONNABORTED", "ECONNABORTED", "ECONNABORTED", "ECONNABORTED", "ENETDOWN"]);
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
}
