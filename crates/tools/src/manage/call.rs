//! One command in progress: its words, its connection to the node, its output, and the reason if it fails.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use utipc::manage::Management;
use utipc::{Engine, NodeAddr};
use utipc_manage::{Entry, Errno, Net, Refusal, Reply, Request, replies};

use super::identity;
use super::output::{Output, Value};
use super::words::{Key, Options, Words};

/// Reason why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Help was asked for: its text.
    Help(String),
    /// The command line is wrong.
    Words(String),
    /// The node cannot do it.
    Unable(String),
    /// The node refuses the request.
    Refused(Refusal),
    /// No node can be reached.
    Unreachable(utipc::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Help(text) | Self::Words(text) | Self::Unable(text) => f.write_str(text),
            Self::Refused(refusal) => {
                let text = utipc_cli::plain(&refusal.to_string());
                match remedy_of_text(&text)
                    .or(remedy(refusal.errno))
                    .filter(|_| !text.contains('(') || refusal.text.is_empty())
                {
                    Some(remedy) => write!(f, "{text} ({remedy})"),
                    None => f.write_str(&text),
                }
            }
            Self::Unreachable(error) => error.fmt(f),
        }
    }
}

/// The remedy for a refusal with a text that Linux also has.
fn remedy_of_text(text: &str) -> Option<&'static str> {
    Some(match text {
        "Bearer not found" => "`bearer list` has the names: media udp name NAME, or media eth device DEVICE",
        "Media not found" | "Media not registered" => "use udp or eth",
        "Already enabled" => "`bearer list` has it; disable it first to change its address",
        text if text.contains(" must be ") => "give a value in that range",
        _ => return None,
    })
}

/// The remedy for a refusal.
const fn remedy(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOT_PERMITTED | Errno::NO_ACCESS => {
            "run as root or as a user in the daemon's policy.manage; set a node's name before its first bearer"
        }
        Errno::INVALID | Errno::RANGE => "see the lists for names, and `--help` for what may be set",
        Errno::NO_DEVICE_OR_ADDRESS => "see `node list`",
        Errno::BUSY => "a peer can be removed when it is down: see `node list`",
        Errno::NO_DEVICE => "see `ip address` for the addresses and devices of this host",
        Errno::ADDRESS_IN_USE => "another bearer or program has it: see `ss -uap`",
        Errno::NOT_SUPPORTED => "this node does not support it",
        Errno::OWN_NODE => "name another node: see `node list`",
        _ => return None,
    })
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Words(text)
    }
}

/// The result of a command.
pub(super) type Ended = Result<(), Failure>;

/// A command in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) options: Options,
    pub(super) words: Words,
    pub(super) out: Output,
    asked: OnceCell<Management>,
    identities: OnceCell<BTreeMap<u32, [u8; 16]>>,
}

impl Call {
    pub(super) fn new(options: Options, words: Vec<String>) -> Self {
        Self {
            options,
            words: Words::new(words),
            out: Output::default(),
            asked: OnceCell::new(),
            identities: OnceCell::new(),
        }
    }

    fn connection(&self) -> Result<&Management, Failure> {
        if let Some(connection) = self.asked.get() {
            return Ok(connection);
        }
        let engine = self.options.engine.as_deref();
        let wrong = |name: &str| Failure::Words(format!("unknown engine {name:?} (use daemon or kernel)"));
        let engine = engine.map(|name| name.parse::<Engine>().map_err(|_| wrong(name))).transpose()?;
        let connection = Management::open(engine).map_err(Failure::Unreachable)?;
        Ok(self.asked.get_or_init(|| connection))
    }

    /// Sends a request and returns the answer.
    pub(super) fn ask(&self, request: &Request) -> Result<Vec<Entry>, Failure> {
        let answer = self.connection()?.ask(request).map_err(Failure::Unreachable)?;
        let mut entries = Vec::new();
        for reply in replies(&answer) {
            match reply {
                Ok(Reply::Entry(entry)) => entries.push(entry),
                Ok(Reply::Done) => break,
                Ok(Reply::Refused(refusal)) => return Err(Failure::Refused(refusal)),
                Err(errno) => return Err(Failure::Refused(Refusal::new(errno, "the answer is malformed"))),
            }
        }
        Ok(entries)
    }

    /// The counters of the node and its daemon, as a JSON object.
    pub(super) fn counters(&self) -> Result<Vec<u8>, Failure> {
        let counters = self.connection()?.counters().map_err(Failure::Unreachable)?;
        counters.ok_or_else(|| {
            let why = "the kernel does not count this (see `link statistics`, or choose the daemon)";
            Failure::Unable(why.to_owned())
        })
    }

    /// Sends a request that changes something; the reply has no entries.
    pub(super) fn order(&self, request: &Request) -> Ended {
        self.ask(request).map(drop)
    }

    /// The node's own identity and address.
    pub(super) fn net(&self) -> Result<Net, Failure> {
        let reply = self.ask(&Request::Net)?;
        let mut net =
            reply.into_iter().find_map(|entry| if let Entry::Net(net) = entry { Some(net) } else { None });
        if let Some(net) = net.as_mut().filter(|net| net.address.is_none()) {
            net.address = Some(Management::kernel_address().0);
        }
        net.ok_or_else(|| {
            Failure::Unable("the node does not report its address (use the same release for both)".to_owned())
        })
    }

    /// The identity of a node by its address, as text; empty if it is not known.
    pub(super) fn identity_of(&self, address: u32) -> Result<String, Failure> {
        if self.connection()?.is_kernel() {
            let known = Management::kernel_identity(NodeAddr(address));
            return Ok(known.map(|id| identity::show(&id.0)).unwrap_or_default());
        }
        if self.identities.get().is_none() {
            let mut known = BTreeMap::new();
            for entry in self.ask(&Request::Nodes)? {
                if let Entry::Node(node) = entry {
                    known.extend(node.identity.map(|identity| (node.address, identity)));
                }
            }
            let own = self.net()?;
            known.extend(own.address.map(|address| (address, own.identity)));
            // It was not set above, and no other thread sets it.
            let _ = self.identities.set(known);
        }
        let known = self.identities.get().and_then(|known| known.get(&address));
        Ok(known.map(identity::show).unwrap_or_default())
    }

    /// The remaining words as keys.
    pub(super) fn keys(&mut self, keys: &[Key]) -> Result<super::words::Given, Failure> {
        self.words.keys(keys).map_err(Failure::Words)
    }

    /// The next word as a number.
    pub(super) fn number(&mut self) -> Result<u32, Failure> {
        let word = self.words.next().ok_or("a value is missing (see `--help`)".to_owned())?;
        number(&word)
    }

    /// Refuses words that are left.
    pub(super) fn finish(&mut self) -> Ended {
        match self.words.next() {
            Some(word) => Err(Failure::Words(format!("unexpected word {word:?} (see `--help`)"))),
            None => Ok(()),
        }
    }

    /// Prints one value: alone as text, or with its key.
    pub(super) fn print<'v>(&mut self, key: &str, value: impl Into<Value<'v>>, text: &str) {
        self.begin();
        self.out.object("", |out| out.any(key, value, text));
        self.out.end();
    }

    /// Begins JSON output, which lasts until [`Output::end`], if JSON was requested.
    pub(super) fn begin(&mut self) {
        self.out.begin(self.options.json, self.options.pretty);
    }
}

pub(super) fn number(word: &str) -> Result<u32, Failure> {
    word.parse().map_err(|_| {
        Failure::Words(format!(
            "{word:?} is not a number (write digits without a unit; --help names the unit)"
        ))
    })
}

/// A value, or an error that it is missing.
pub(super) fn needed<T>(value: Option<T>, what: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::Words(format!("{what} is missing (see `--help`)")))
}
