//! Mistakes of operators: each ends with an exit code and one line on standard error that names cause and remedy.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::text;

/// A limit far above the duration of any step on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// User without rights.
const NOBODY: u32 = 65_534;

/// Programs by their names.
const PROGRAMS: [(&str, &str); 3] = [
    ("utipc", env!("CARGO_BIN_EXE_utipc")),
    ("utipcd", env!("CARGO_BIN_EXE_utipcd")),
    ("utipc-pipe", env!("CARGO_BIN_EXE_utipc-pipe")),
];

/// A daemon for those mistakes that need one; DIR/live.sock, with a UDP bearer at its own address.
pub(super) struct Stage {
    folder: PathBuf,
    daemon: Child,
    taken: UdpSocket,
}

impl Stage {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("utipc-mistakes-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let own =
            std::net::Ipv4Addr::from(0x7f30_0000 | ((std::process::id() << 3) & 0x0f_fff8) | (number + 1));
        let config = format!(
            "[[bearer]]\nmedia = \"udp\"\nlocal = \"{own}\"\nremotes = [\"127.0.0.1\"]\n\
             [policy]\nsocket_mode = \"0666\"\n"
        );
        fs::write(folder.join("live.toml"), config).unwrap();
        fs::write(folder.join("file"), "no socket").unwrap();
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_utipcd"));
        daemon.arg("--config").arg(folder.join("live.toml")).arg("--socket").arg(folder.join("live.sock"));
        let daemon = daemon.env_remove("UTIPC_LOG").stderr(Stdio::null()).spawn().unwrap();
        let taken = UdpSocket::bind((own, 0)).unwrap();
        let stage = Self { folder, daemon, taken };
        let begun = Instant::now();
        while !stage.run("utipc", "LIVE node get clusterid", None).status.success() {
            assert!(begun.elapsed() < LIMIT, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        stage
    }

    /// Replaces DIR, USED (an address and port in use) and LONG (a long name).
    fn word(&self, word: &str) -> String {
        word.replace("DIR", self.folder.to_str().unwrap())
            .replace("USED", &self.taken.local_addr().unwrap().to_string())
            .replace("LONG", &"x".repeat(120))
            .replace('_', " ")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("live.sock")
    }

    /// Runs a line. Words before the first without `=` in capitals set variables; LIVE stands for the daemon.
    pub(super) fn run(&self, program: &str, line: &str, config: Option<&str>) -> Output {
        let mut words = line.split_whitespace().peekable();
        let mut command = Command::new(PROGRAMS.iter().find(|(name, _)| *name == program).unwrap().1);
        for name in ["UTIPC_LOG", "UTIPC_INSTANCE", "UTIPC_PRELOAD", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        command.env("UTIPC_SOCKET", self.folder.join("none.sock")).env("UTIPC_ENGINE", "daemon");
        if words.next_if_eq(&"NOBODY").is_some() {
            // Another user may not reach the program where it was built.
            let copy = self.folder.join(program);
            if !copy.exists() {
                fs::copy(command.get_program(), &copy).unwrap();
            }
            let mut other = Command::new(&copy);
            for (name, value) in command.get_envs() {
                let _ = match value {
                    Some(value) => other.env(name, value),
                    None => other.env_remove(name),
                };
            }
            command = other;
            command.uid(NOBODY).gid(NOBODY);
        }
        if words.next_if_eq(&"LIVE").is_some() {
            command.env("UTIPC_SOCKET", self.folder.join("live.sock"));
        }
        if let Some(instance) = words.next_if(|word| word.starts_with("INSTANCE=")) {
            command.env_remove("UTIPC_SOCKET").env("UTIPC_INSTANCE", &instance["INSTANCE=".len()..]);
        }
        if let Some(level) = words.next_if(|word| word.starts_with("LOG=")) {
            command.env("UTIPC_LOG", &level["LOG=".len()..]);
        }
        if let Some(config) = config {
            let path = self.folder.join("c.toml");
            fs::write(&path, config.replace("; ", "\n")).unwrap();
            command.arg("--config").arg(path);
        }
        command.args(words.map(|word| self.word(word))).stdin(Stdio::null());
        ended(command)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The output of a command; it is killed if it does not end, because then it accepted the mistake.
fn ended(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// Whether a text has the form of a pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        let Some(at) = (if part.is_empty() { Some(rest.len()) } else { rest.find(part) }) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// Mistakes on the command line of utipcd: words, exit code, line. `_` stands for a blank in a word.
const DAEMON: &[(&str, u8, &str)] = &[
    ("--bogus", 2, "utipcd: unexpected argument '--bogus' found (*see `utipcd --help`)"),
    (
        "--udp 10.0.0.300",
        2,
        "utipcd: invalid value '10.0.0.300' for '--udp <ADDRESS>': not an IP address with or without a port (write an address of this host, as in 10.0.0.1)",
    ),
    (
        "--cluster 0",
        2,
        "utipcd: invalid value '0' for '--cluster <NUMBER>': 0 is not in 1..=9999 (see `utipcd --help`)",
    ),
    (
        "--identity seventeen_letters",
        2,
        "utipcd: invalid value 'seventeen letters' for '--identity <NAME>': * (write 1 to 16 characters)",
    ),
    (
        "--instance a/b",
        2,
        "utipcd: invalid value 'a/b' for '--instance <NAME>': * (use letters, digits, - and _)",
    ),
    (
        "--config DIR/absent.toml",
        1,
        "utipcd: cannot read the configuration DIR/absent.toml: No such file or directory (check the path; *)",
    ),
    (
        "--udp 203.0.113.9",
        1,
        "utipcd: --udp 203.0.113.9: cannot find the interface of 203.0.113.9: * (give an address of this host; *)",
    ),
    (
        "--udp 0.0.0.0",
        1,
        "utipcd: --udp 0.0.0.0: local = \"0.0.0.0\": peers cannot send to it (write the address of one interface)",
    ),
    (
        "--udp USED",
        1,
        "utipcd: --udp USED: cannot bind a UDP socket to USED: Address already in use (*`ss -ulnp` names it)",
    ),
    (
        "--ethernet nope0",
        1,
        "utipcd: --ethernet nope0: cannot find interface nope0: No such device (`ip link` lists the interfaces)",
    ),
    (
        "--ethernet lo",
        1,
        "utipcd: --ethernet lo: cannot use for Ethernet the interface lo: * (it has no Ethernet address: *)",
    ),
    (
        "--socket DIR/no/s.sock",
        1,
        "utipcd: cannot create the socket DIR/no/s.sock: the directory DIR/no does not exist (create it, *)",
    ),
    (
        "--socket DIR/LONG",
        1,
        "utipcd: cannot create the socket DIR/*: the path has * bytes (use at most 106, *)",
    ),
    (
        "--socket DIR/file",
        1,
        "utipcd: cannot create the socket DIR/file: this path exists and is not a socket (remove it, *)",
    ),
    ("LOG=loud", 1, "utipcd: UTIPC_LOG=loud: not a log level (write one of off, error, *)"),
];

/// Mistakes in the configuration, where `; ` ends a line; the line follows DIR/c.toml.
const CONFIGURATION: &[(&str, &str)] = &[
    ("[node", ":1: not valid TOML: * (*)"),
    ("[node]; clutser = 5", ":2: unknown key clutser in node (did you mean cluster?)"),
    ("[limit]; sockets = 5", ":1: unknown table limit (did you mean limits?)"),
    ("level = \"info\"", ":1: level is outside of its table (write it below [log])"),
    ("[node]; cluster = \"x\"", ":2: cluster = \"x\": text in quotes (write 1 to 9999)"),
    ("[node]; cluster = 10000", ":2: cluster = 10000: out of range (write 1 to 9999)"),
    ("[node]; identity = \"seventeen letters\"", ":2: identity = * (write 1 to 16 characters)"),
    ("[node]; address = \"1.1\"", ":2: address = \"1.1\": not a node address (write *)"),
    ("[node]; user = \"no-such-user\"", ":2: user = \"no-such-user\": there is no user * (create it, *)"),
    ("[[bearer]]; media = \"pigeon\"", ":2: media = \"pigeon\": unknown (write *)"),
    ("[[bearer]]; media = \"udp\"", ":1: the udp bearer has no local address (write *)"),
    (
        "[[bearer]]; media = \"udp\"; local = \"10.0.0.300\"",
        ":3: local = \"10.0.0.300\": not an address (write *)",
    ),
    (
        "[[bearer]]; media = \"udp\"; local = \"203.0.113.9\"",
        ":3: cannot find the interface of 203.0.113.9: * (give *)",
    ),
    (
        "[[bearer]]; media = \"eth\"; name = \"nope0\"",
        ":3: cannot find interface nope0: No such device (`ip link` *)",
    ),
    (
        "[[bearer]]; media = \"udp\"; local = \"127.0.0.1\"; tolerance_ms = 5",
        ":4: tolerance_ms = 5: out of range (write 50 to 30000 ms)",
    ),
    (
        "[[bearer]]; media = \"eth\"; name = \"a\"; [[bearer]]; media = \"eth\"; name = \"a\"",
        ":6: two bearers are called eth:a (give each *)",
    ),
    (
        "[[bearer]]; media = \"udp\"; local = \"127.0.0.1\"; group = \"10.1.1.1\"",
        ":4: group = \"10.1.1.1:6118\": not a multicast group * (write *)",
    ),
    ("[policy]; attach = \"root\"", ":2: attach = \"root\": text in quotes (write a list of users, *)"),
    (
        "[policy]; attach = [\"no-such-user\"]",
        ":2: attach: there is no user \"no-such-user\" (create it, or correct the name)",
    ),
    ("[policy]; manage = [\"@no-such-group\"]", ":2: manage: there is no group \"no-such-group\" (*)"),
    ("[policy]; socket_mode = \"rw\"", ":2: socket_mode = \"rw\": not a file mode (write \"0660\")"),
    (
        "[policy.bind]; \"200-100\" = [\"*\"]",
        ":2: bind.\"200-100\": the range ends before it begins (write \"100-200\")",
    ),
    ("[limits]; bindings = 300000", ":2: bindings = 300000: out of range (write 1 to 262143)"),
    ("[log]; level = \"loud\"", ":2: level = \"loud\": not a log level (write one of off, *)"),
];

/// Mistakes with the other programs.
const PROGRAMS_LINES: &[(&str, &str, u8, &str)] = &[
    (
        "utipc",
        "link list",
        1,
        "utipc: link list: no daemon answers at DIR/none.sock (start one with `utipcd`, *)",
    ),
    (
        "utipc",
        "INSTANCE=nowhere link list",
        1,
        "utipc: link list: no daemon answers at */nowhere.sock (start one *)",
    ),
    ("utipc", "LOG=loud demo", 1, "utipc: UTIPC_LOG=loud: not a log level (*)"),
    ("utipc", "lnik list", 2, "utipc: unrecognized subcommand 'lnik' (*see `utipc --help`)"),
    ("utipc", "link lst", 2, "utipc: link: unknown command \"lst\" (use one of get, list, *)"),
    ("utipc", "link", 2, "utipc: link: a command is missing (use one of get, list, *)"),
    ("utipc", "link list --wy", 2, "utipc: unknown option --wy (*)"),
    (
        "utipc",
        "LIVE --engine warp link list",
        2,
        "utipc: link list: unknown engine \"warp\" (use daemon or kernel)",
    ),
    ("utipc", "LIVE bearer list x", 2, "utipc: bearer list: unexpected word \"x\" (see `--help`)"),
    ("utipc", "LIVE link get tolerance link nope", 1, "utipc: link get tolerance: there is no link nope (*)"),
    (
        "utipc",
        "LIVE link set tolerance 3s link nope",
        2,
        "utipc: link set tolerance: \"3s\" is not a number (write digits without a unit; *)",
    ),
    (
        "utipc",
        "LIVE bearer disable media udp name nope",
        1,
        "utipc: bearer disable: Bearer not found (`bearer list` *)",
    ),
    (
        "utipc",
        "LIVE bearer disable media tcp name nope",
        2,
        "utipc: bearer disable: unknown medium tcp (use udp or eth)",
    ),
    (
        "utipc",
        "LIVE bearer enable media udp name X localip 203.0.113.9 remoteip 127.0.0.1",
        1,
        "utipc: bearer enable: cannot find the interface of 203.0.113.9: * (give *)",
    ),
    (
        "utipc",
        "LIVE bearer enable media eth device nope0",
        1,
        "utipc: bearer enable: cannot find interface nope0: No such device (*)",
    ),
    (
        "utipc",
        "LIVE media set tolerance 5 media udp",
        1,
        "utipc: media set tolerance: tolerance must be 50 to 30000 ms (give a value in that range)",
    ),
    (
        "utipc",
        "LIVE media get priority media tcp",
        1,
        "utipc: media get priority: Media not found (use udp or eth)",
    ),
    ("utipc", "LIVE node set address 1.1", 2, "utipc: node set address: \"1.1\" is not an address (write *)"),
    (
        "utipc",
        "LIVE node set clusterid 5",
        1,
        "utipc: node set clusterid: the node has its address (set this before its first bearer, *)",
    ),
    ("utipc", "LIVE nametable show type x", 2, "utipc: nametable show: \"x\" is not a number (*)"),
    (
        "utipc",
        "LIVE nametable show colour 5",
        2,
        "utipc: nametable show: unexpected word \"colour\" (use one of type, *)",
    ),
    (
        "utipc",
        "LIVE peer remove address 1.1.99",
        1,
        "utipc: peer remove address: no peer has this address or identity (see the list of nodes)",
    ),
    (
        "utipc",
        "completion tcsh",
        2,
        "utipc: invalid value 'tcsh' for '<SHELL>' [possible values: bash, *] (*)",
    ),
    (
        "utipc",
        "install-tipc DIR/no",
        1,
        "utipc: cannot make DIR/no/tipc (choose a writable folder of your PATH): *",
    ),
    (
        "utipc",
        "run",
        2,
        "utipc: the following required arguments were not provided: <PROGRAM>... (see `utipc --help`)",
    ),
    ("utipc", "run --library DIR/none.so -- true", 1, "utipc: cannot find the library DIR/none.so (name *)"),
    (
        "utipc",
        "run --library DIR/file -- true",
        1,
        "utipc: no daemon answers at DIR/none.sock (*); the environment names that daemon (--private starts another)",
    ),
    (
        "utipc",
        "LIVE run --library DIR/file -- DIR/none",
        1,
        "utipc: cannot start DIR/none: No such file or directory (check the path)",
    ),
    (
        "utipc",
        "LIVE run --library DIR/file -- DIR/file",
        1,
        "utipc: cannot start DIR/file: Permission denied (make the file executable)",
    ),
    (
        "utipc",
        "run --config DIR/absent.toml --library DIR/file -- true",
        1,
        "utipc: cannot read the configuration DIR/absent.toml: * (check the path; *)",
    ),
    (
        "utipc-pipe",
        "--rdm --sqp",
        2,
        "utipc-pipe: the argument '--rdm' cannot be used with '--sqp' (see `utipc-pipe --help`)",
    ),
    (
        "utipc-pipe",
        "abc",
        2,
        "utipc-pipe: invalid value 'abc' for '[ADDRESS1]': not a number of 32 bits (decimal, or hexadecimal after 0x)",
    ),
    ("utipc-pipe", "--mc 1 2", 2, "utipc-pipe: a connection goes to one instance, not to a range (*)"),
    ("utipc-pipe", "17", 1, "utipc-pipe: no daemon answers at DIR/none.sock (start one *)"),
    (
        "utipc-pipe",
        "LIVE -w 50 17",
        1,
        "utipc-pipe: {1000,17,17} has no binding after 50 ms (start the server, or wait longer: -w)",
    ),
];

/// Mistakes of a user without rights; only root can run these.
const NOBODYS: &[(&str, &str, u8, &str)] = &[
    (
        "utipcd",
        "NOBODY --socket DIR/s.sock",
        1,
        "utipcd: cannot create the socket DIR/s.sock: user 65534 cannot create files in DIR: Permission denied (make *)",
    ),
    (
        "utipc",
        "NOBODY LIVE node set clusterid 5",
        1,
        "utipc: node set clusterid: the daemon's policy does not allow user 65534 to change the node (see `policy.manage` *)",
    ),
];

#[test]
fn each_mistake_ends_with_one_line_that_names_cause_and_remedy() {
    let stage = Stage::new();
    let mut wrong = Vec::new();
    let mut check = |what: String, output: &Output, code: u8, line: &str| {
        let (said, expected) =
            (text(&output.stderr), stage.word(&line.replace('_', "\u{1}")).replace('\u{1}', "_"));
        let is_line = said.lines().count() == 1 && fits(&expected, said.trim_end());
        if !is_line || output.status.code() != Some(code.into()) {
            wrong.push(format!(
                "{what}\n  expected {code}: {expected}\n  got {:?}: {said}",
                output.status.code()
            ));
        }
    };
    for (line, code, expected) in DAEMON {
        check(format!("utipcd {line}"), &stage.run("utipcd", line, None), *code, expected);
        let checked = stage.run("utipcd", &format!("{line} --check"), None);
        check(format!("utipcd {line} --check"), &checked, *code, expected);
    }
    let second = "utipcd: cannot serve at DIR/live.sock: another daemon does (stop that one, *)";
    check("a second daemon".to_owned(), &stage.run("utipcd", "--socket DIR/live.sock", None), 1, second);
    for (config, expected) in CONFIGURATION {
        for line in ["", "--check"] {
            let output = stage.run("utipcd", line, Some(config));
            check(format!("{config} {line}"), &output, 1, &format!("utipcd: DIR/c.toml{expected}"));
        }
    }
    let nobodys = NOBODYS.iter().filter(|_| nix::unistd::geteuid().is_root());
    for (program, line, code, expected) in PROGRAMS_LINES.iter().chain(nobodys) {
        check(format!("{program} {line}"), &stage.run(program, line, None), *code, expected);
    }
    let count = 2 * (DAEMON.len() + CONFIGURATION.len()) + 1 + PROGRAMS_LINES.len();
    assert!(wrong.is_empty(), "{} of {count} mistakes:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn check_of_the_configuration_of_a_running_daemon_succeeds_and_changes_nothing() {
    let stage = Stage::new();
    let output = stage.run("utipcd", "--config DIR/live.toml --socket DIR/live.sock --check", None);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        said.starts_with("utipcd: the configuration is valid\n")
            && said.contains("may be announced by root, the daemon's own user\n")
            && said.contains("not checked"),
        "{said}"
    );
    let before: Vec<PathBuf> = list(&stage.folder);
    let output = stage.run("utipcd", "--socket DIR/new.sock --check", None);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(list(&stage.folder), before);
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn patterns_fit_whole_lines() {
    assert!(fits("a*c", "abc") && fits("a*", "abc") && fits("*", "x") && fits("abc", "abc"));
    assert!(!fits("a*c", "abcd") && !fits("abc", "abcd") && !fits("b*", "abc"));
}
