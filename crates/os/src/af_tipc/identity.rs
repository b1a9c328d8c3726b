//! Names of links and identities of nodes, which the kernel reports by ioctl. Spec: tipc.md §8.9.

use std::io;
use std::os::fd::AsRawFd;

use super::KernelSocket;

const GET_LINK_NAME: u64 = 0x89e0;
const GET_NODE_IDENTITY: u64 = 0x89e1;
const LINK_NAME: usize = 68;

#[repr(C)]
struct LinkRequest {
    peer: u32,
    bearer: u32,
    name: [u8; LINK_NAME],
}

#[repr(C)]
struct NodeRequest {
    peer: u32,
    identity: [u8; 16],
}

/// Queries the kernel through any TIPC socket; it reads and writes `request`.
fn ask<T>(socket: &KernelSocket, question: u64, request: &mut T) -> io::Result<()> {
    // The type of the number depends on the C library.
    // SAFETY: both requests read and write exactly the structure that is passed, which is live.
    let result = unsafe {
        libc::ioctl(std::os::fd::AsFd::as_fd(socket).as_raw_fd(), question as _, request as *mut T)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Name of the link to `peer` over the bearer with this number.
pub fn link_name(socket: &KernelSocket, peer: u32, bearer: u32) -> io::Result<String> {
    let mut request = LinkRequest { peer, bearer, name: [0; LINK_NAME] };
    ask(socket, GET_LINK_NAME, &mut request)?;
    let end = request.name.iter().position(|byte| *byte == 0).unwrap_or(LINK_NAME);
    Ok(String::from_utf8_lossy(&request.name[..end]).into_owned())
}

/// Identity of a node.
pub fn node_identity(socket: &KernelSocket, peer: u32) -> io::Result<[u8; 16]> {
    let mut request = NodeRequest { peer, identity: [0; 16] };
    ask(socket, GET_NODE_IDENTITY, &mut request)?;
    Ok(request.identity)
}
