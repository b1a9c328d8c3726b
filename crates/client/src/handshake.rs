//! Attaching to a daemon: the first exchange on a new connection.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;

use utipc_attach::{Greeting, Hello, MAX_PACKET, Refusal, Welcome, agree, decode, encode};
use utipc_os::fdpass::{Channel, Got, MAX_FDS, Put};
use utipc_os::hidden::raise;

use crate::bell::Bell;
use crate::error::Error;
use crate::overdue::{LONG, SLICE};

/// Buffers of a round trip.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) out: Vec<u8>,
    pub(crate) input: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Number of the last packet that was sent; the handshake is 1.
    pub(crate) sent: u32,
    /// Replies that have not come in time.
    pub(crate) overdue: u32,
}

/// A connection after its handshake.
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    pub(crate) wire: Wire,
    pub(crate) welcome: Welcome,
    pub(crate) bell: Bell,
}

/// Attaches to the daemon at `path`; `None` if no daemon listens there.
pub(crate) fn connect(path: &Path) -> Result<Option<Connection>, Error> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, WouldBlock};
    let channel = match Channel::connect(path) {
        Ok(channel) => channel,
        Err(error) if error.kind() == WouldBlock => return Err(Error::Silent(path.to_owned())),
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | PermissionDenied) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let not_a_daemon = || Error::Nonsense(path.to_owned());
    let hung_up = || Error::HungUp(path.to_owned());
    let refused = |cause| Error::Refused { path: path.to_owned(), cause };
    let silent = || Error::Silent(path.to_owned());
    let mut channel = channel;
    channel.set_patience(SLICE)?;
    let mut wire = Wire { input: vec![0; MAX_PACKET], sent: 1, ..Wire::default() };
    wire.out.extend_from_slice(&Greeting::OWN.to_bytes());
    encode(&Hello { program: program(), takes_lanes: true }, &[], &mut wire.out);
    match channel.send(&[IoSlice::new(&wire.out)], &[], true)? {
        Put::Sent => {}
        Put::Full | Put::Busy => return Err(silent()),
        Put::Gone => return Err(hung_up()),
    }
    let mut got = Got::Nothing;
    for _ in 0..LONG {
        got = channel.receive(&mut wire.input, &mut wire.fds, MAX_FDS, true)?;
        if got != Got::Nothing {
            break;
        }
    }
    let len = match got {
        Got::Packet(len) => len,
        Got::Nothing => return Err(silent()),
        Got::End => return Err(hung_up()),
    };
    let (greeting, rest) = Greeting::from_bytes(&wire.input[..len]).ok_or_else(not_a_daemon)?;
    if agree(Greeting::OWN, greeting).is_none() {
        let release = format!("(protocol {} to {})", greeting.oldest, greeting.newest);
        return Err(refused(Refusal::Version { release }));
    }
    let (answer, _) = decode::<Result<Welcome, Refusal>>(rest).map_err(|_| not_a_daemon())?;
    let welcome = answer.map_err(refused)?;
    let bell = Bell::open(wire.fds.first().ok_or_else(not_a_daemon)?)?;
    wire.fds.clear();
    let channel = channel.renumbered(raise);
    Ok(Some(Connection { channel, wire, welcome, bell }))
}

/// Name of this process in the daemon's lists.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}
