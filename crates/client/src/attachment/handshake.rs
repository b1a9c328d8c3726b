//! Attaching to a daemon: the first exchange on a new connection.

use std::io::IoSlice;
use std::path::Path;

use utipc_attach::{Greeting, Hello, Refusal, Welcome, agree, decode, encode};
use utipc_os::fdpass::{Channel, Got, MAX_FDS, Put};
use utipc_os::hidden::raise;

use crate::attachment::bell::Bell;
use crate::attachment::connection::{LONG, SLICE, Wire};
use crate::error::Error;

/// A connection after its handshake.
pub(super) struct Welcomed {
    pub(super) channel: Channel,
    pub(super) wire: Wire,
    pub(super) welcome: Welcome,
    pub(super) bell: Bell,
}

/// Attaches to the daemon at `path`; `None` if no daemon listens there.
pub(super) fn connect(path: &Path) -> Result<Option<Welcomed>, Error> {
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
    let mut wire = Wire::new();
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
    Ok(Some(Welcomed { channel, wire, welcome, bell }))
}

/// Name of this process in the daemon's lists.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}
