//! One attachment: the connection of this process to a daemon, shared by all its sockets.
//!
//! One round trip at a time; the daemon answers each at once. Replies bring notices of what changed meanwhile. A thread
//! per attachment does nothing but wait for the end of the connection: the daemon's death wakes every call at once.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use utipc_attach::{
    Envelope, Greeting, Hello, MAX_PACKET, Notice, Refusal, Reply, Request, Welcome, agree, decode, encode,
};
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::{Channel, Got, MAX_FDS, Put};
use utipc_os::{OsError, hangup};

use crate::bell::Bell;
use crate::error::Error;

/// The connection, and whether the daemon is still there.
#[derive(Debug)]
pub(crate) struct Attachment {
    path: PathBuf,
    channel: Channel,
    wire: Mutex<Wire>,
    /// Address of the node.
    address: AtomicU32,
    life: Arc<Life>,
}

/// What the watching thread shares with the attachment.
#[derive(Debug)]
struct Life {
    over: AtomicBool,
    bell: Bell,
}

impl Life {
    /// The daemon is gone: whoever waits shall see it.
    fn end(&self) {
        self.over.store(true, Release);
        self.bell.ring();
    }
}

/// Buffers of the round trip.
#[derive(Debug, Default)]
struct Wire {
    out: Vec<u8>,
    input: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// What a reply brought beside its value.
pub(crate) struct Extra<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) fds: &'a mut Vec<OwnedFd>,
}

impl Attachment {
    /// Attaches this process to the daemon at `path`; `None` if nobody is there.
    pub(crate) fn open(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        let channel = match Channel::connect(path) {
            Ok(channel) => channel,
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | PermissionDenied) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let nonsense = || Error::Nonsense(path.to_owned());
        let mut wire = Wire { input: vec![0; MAX_PACKET], ..Wire::default() };
        wire.out.extend_from_slice(&Greeting::OWN.to_bytes());
        encode(&Hello { program: program() }, &[], &mut wire.out);
        if channel.send(&[IoSlice::new(&wire.out)], &[], true)? != Put::Sent {
            return Ok(None);
        }
        let Got::Packet(len) = channel.receive(&mut wire.input, &mut wire.fds, MAX_FDS, true)? else {
            return Ok(None);
        };
        let (greeting, rest) = Greeting::from_bytes(&wire.input[..len]).ok_or_else(nonsense)?;
        let refused = |why| Error::Refused { path: path.to_owned(), why };
        if agree(Greeting::OWN, greeting).is_none() {
            let release = format!("(protocol {} to {})", greeting.oldest, greeting.newest);
            return Err(refused(Refusal::Version { release }));
        }
        let (answer, _) = decode::<Result<Welcome, Refusal>>(rest).map_err(|_| nonsense())?;
        let welcome = answer.map_err(refused)?;
        let bell = Bell::open(wire.fds.first().ok_or_else(nonsense)?)?;
        wire.fds.clear();
        let attachment = Arc::new(Self {
            path: path.to_owned(),
            channel,
            wire: Mutex::new(wire),
            address: AtomicU32::new(welcome.node.0),
            life: Arc::new(Life { over: AtomicBool::new(false), bell }),
        });
        attachment.watch()?;
        Ok(Some(attachment))
    }

    /// Starts the thread that notices the daemon's death.
    fn watch(&self) -> Result<(), Error> {
        let connection = self.channel.as_fd().try_clone_to_owned();
        let connection =
            connection.map_err(|cause| OsError::new("copy", "the connection's descriptor", cause))?;
        let life = Arc::clone(&self.life);
        let run = move || {
            hangup::wait(&connection);
            life.end();
        };
        let started = std::thread::Builder::new().name("utipc daemon".to_owned()).spawn(run);
        started.map(drop).map_err(|cause| {
            let error = OsError::new("start", "the thread that watches the daemon", cause);
            Error::System(error.with_remedy("raise the limit of threads, `ulimit -u`"))
        })
    }

    /// Address of the node, as far as it is known.
    pub(crate) fn address(&self) -> NodeAddr {
        NodeAddr(self.address.load(Relaxed))
    }

    pub(crate) fn know_address(&self, node: NodeAddr) {
        self.address.store(node.0, Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life.over.load(Acquire)
    }

    /// What wakes a thread that waits for the node.
    pub(crate) fn bell(&self) -> &Bell {
        &self.life.bell
    }

    /// The error of every call once the daemon is gone.
    pub(crate) fn died(&self) -> Error {
        Error::Died(self.path.clone())
    }

    /// One round trip; `take` gets the reply, unless the command failed, and what came with it.
    pub(crate) fn call<T>(
        &self,
        request: &Request,
        payload: &[u8],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let mut wire = lock(&self.wire);
        let Wire { out, input, fds } = &mut *wire;
        out.clear();
        encode(request, &[], out);
        fds.clear();
        let parts = [IoSlice::new(out), IoSlice::new(payload)];
        let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
        if self.is_over() || self.channel.send(parts, &[], true)? != Put::Sent {
            return Err(self.lost());
        }
        let Got::Packet(len) = self.channel.receive(input, fds, MAX_FDS, true)? else {
            return Err(self.lost());
        };
        let nonsense = || Error::Nonsense(self.path.clone());
        let (envelope, payload) = decode::<Envelope>(&input[..len]).map_err(|_| nonsense())?;
        self.heed(&envelope.notices);
        match envelope.reply {
            Reply::Failed(failure) => Err(Error::Failed(failure)),
            reply => take(reply, Extra { payload, fds }).ok_or_else(nonsense),
        }
    }

    /// A command whose answer is that it is done.
    pub(crate) fn command(&self, request: &Request, payload: &[u8]) -> Result<(), Error> {
        self.call(request, payload, |reply, _| (reply == Reply::Done).then_some(()))
    }

    /// The connection has just broken.
    fn lost(&self) -> Error {
        self.life.end();
        self.died()
    }

    fn heed(&self, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        for notice in notices {
            if let Notice::Address(node) = notice {
                self.know_address(*node);
            }
        }
        // The thread that fetched them is not the one that waits for them.
        self.life.bell.ring();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Ends the watching thread; the daemon sees that this process has left.
        self.channel.shut();
    }
}

/// The name under which operators see this process.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A thread that panicked in a call left nothing half done that another one would trip over.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
