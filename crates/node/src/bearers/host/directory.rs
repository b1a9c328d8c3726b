//! The directory of the nodes on a host: a socket for each, named by its address.
//!
//! A process that changes the directory holds the lock of `.lock`. So all nodes have an order: each connects to the
//! nodes before it. A socket on which no process listens was left by a dead node.

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use utipc_core::NodeAddr;
use utipc_core::wire::MediaAddr;
use utipc_os::fdpass::{Channel, Doorway};
use utipc_os::file_lock::FileLock;
use utipc_os::{OsError, Result, random};

/// Longest wait for another node that changes the directory. It takes microseconds, unless the process is stopped.
const LOCK_WAIT: Duration = Duration::from_secs(5);

const LOCK_NAME: &str = ".lock";

/// First byte of an address made from a node's address, and of a random address: both locally administered.
const OF_NODE: [u8; 2] = [0x02, 0];
const RANDOM: u8 = 0x06;

/// An address on the host's medium: six bytes, like a locally administered Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostAddress(pub(super) [u8; 6]);

impl HostAddress {
    /// The address that belongs to a node address.
    pub(super) fn of_node(node: NodeAddr) -> HostAddress {
        let ([first, second], [a, b, c, d]) = (OF_NODE, node.0.to_be_bytes());
        HostAddress([first, second, a, b, c, d])
    }

    fn random() -> Result<HostAddress> {
        let [_, a, b, c, d, e, ..] = random::seed()?.to_be_bytes();
        Ok(HostAddress([RANDOM, a, b, c, d, e]))
    }

    pub(super) fn media(self) -> MediaAddr {
        MediaAddr::Ethernet(self.0)
    }

    /// The address that a file is named by.
    fn parse(name: &str) -> Option<HostAddress> {
        let mut bytes = [0; 6];
        let (pairs, []) = name.as_bytes().as_chunks::<2>() else { return None };
        if pairs.len() != bytes.len() || name.bytes().any(|c| c.is_ascii_uppercase()) {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        matches!(bytes, [0x02 | RANDOM, ..]).then_some(HostAddress(bytes))
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A node in the directory, connected.
pub(super) struct Found {
    pub(super) address: HostAddress,
    pub(super) channel: Channel,
}

/// This node's place in the directory.
pub(super) struct Directory {
    path: PathBuf,
    own: HostAddress,
    /// Absent after a failed [`Directory::restore`].
    door: Option<Doorway>,
}

impl Directory {
    /// Opens the own socket in the directory: at `wanted` if that is free, else at a random address. Returns the nodes
    /// that were present before.
    ///
    /// # Errors
    /// The directory cannot be changed.
    pub(super) fn join(path: &Path, wanted: Option<HostAddress>) -> Result<(Directory, Vec<Found>)> {
        let _guard = FileLock::lock(&path.join(LOCK_NAME), LOCK_WAIT)?;
        let found = connect_to_all(path, &[])?;
        let is_free = |address: &HostAddress| found.iter().all(|other| other.address != *address);
        let own = match wanted.filter(is_free) {
            Some(own) => own,
            None => HostAddress::random()?,
        };
        let door = Doorway::replace(&path.join(own.to_string()), 0o600)?;
        Ok((Directory { path: path.to_owned(), own, door: Some(door) }, found))
    }

    /// Opens the own socket again if it was removed. Returns the nodes that have joined since.
    ///
    /// # Errors
    /// `WouldBlock`: another node changes the directory. Others: the directory cannot be changed.
    pub(super) fn restore(&mut self, known: &[HostAddress]) -> Result<Vec<Found>> {
        let path = self.path.join(self.own.to_string());
        if self.door.is_some() && path.exists() {
            return Ok(Vec::new());
        }
        let _guard = FileLock::lock(&self.path.join(LOCK_NAME), Duration::ZERO)?;
        // Dropped before the new one, because it removes the file at its path.
        self.door = None;
        self.door = Some(Doorway::replace(&path, 0o600)?);
        connect_to_all(&self.path, &[known, &[self.own]].concat())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn own(&self) -> HostAddress {
        self.own
    }

    /// Readable when another node connects.
    pub(super) fn door(&self) -> Option<BorrowedFd<'_>> {
        self.door.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn accept(&self) -> Result<Option<Channel>> {
        self.door.as_ref().map_or(Ok(None), Doorway::accept)
    }
}

/// Connects to all nodes but the `known` ones, and removes the sockets of dead ones. The caller holds the lock.
fn connect_to_all(directory: &Path, known: &[HostAddress]) -> Result<Vec<Found>> {
    let failed = |cause| OsError::new("read directory", directory.display(), cause);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let address = entry.file_name().to_str().and_then(HostAddress::parse);
        let Some(address) = address.filter(|address| !known.contains(address)) else { continue };
        match Channel::connect_now(&entry.path()) {
            Ok(channel) => found.push(Found { address, channel }),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(entry.path());
            }
            Err(error) => tracing::warn!(%address, %error, "a node on this host does not answer"),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_addresses_only_in_their_own_form() {
        let address = HostAddress::of_node(NodeAddr(0x0100_1001));
        assert_eq!(address.to_string(), "020001001001");
        assert_eq!(HostAddress::parse("020001001001"), Some(address));
        for other in
            ["", ".lock", "02000100100", "0200010010011", "02000100100g", "0200010010AA", "010001001001"]
        {
            assert_eq!(HostAddress::parse(other), None, "{other}");
        }
        let random = HostAddress::random().unwrap();
        assert_eq!(HostAddress::parse(&random.to_string()), Some(random));
    }
}
