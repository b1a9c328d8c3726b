//! A hostile peer: a process in a separate network namespace that speaks TIPC over UDP.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use utipc::NodeAddr;
use utipc_bench_kit::counts;
use utipc_sim::peers::{Attack, Hostile, Victim};

use super::network::{self, PORT};

/// Largest frame, bytes.
const FRAME_MAX: usize = 66_000;

/// The task of a hostile peer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// Its number, which determines its address.
    pub(super) number: u32,
    pub(super) attack: Attack,
    /// Frames of the attack each time that it speaks.
    pub(super) burst: usize,
    /// Milliseconds between two of these times.
    pub(super) pause: u64,
    pub(super) seed: u64,
}

counts! {
    /// Counts of what a peer has done.
    pub(crate) struct Done {
        /// Frames and bytes sent.
        frames,
        bytes,
        /// Frames that its system refused.
        refused,
        /// Frames and bytes of answers.
        heard,
        heard_bytes,
    }
}

/// Attacks until its input ends; prints what it has done.
pub(crate) fn attack(peer: &Peer) -> Result<()> {
    let own = network::hostile_address(peer.number);
    let socket = UdpSocket::bind((own, PORT)).with_context(|| format!("bind {own}"))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read(&mut [0]);
        over.store(true, Relaxed);
    });
    let at = |address: Ipv4Addr| SocketAddr::from((address, PORT));
    let node = |number| NodeAddr::legacy(1, 1, number);
    let target = at(network::VICTIM);
    let victim = Victim::over_udp(node(1), target, vec![node(2), node(3)]);
    let mut hostile = Hostile::over_udp(peer.number, peer.attack, at(own), peer.seed);
    let pause = Duration::from_millis(peer.pause.max(1));
    // Peers that start together do not speak together.
    let mut next = Instant::now() + pause * (peer.number % 16) / 16;
    let (mut done, mut frames, mut buffer) = (Done::default(), Vec::new(), vec![0; FRAME_MAX]);
    while !is_over.load(Relaxed) {
        hear(&socket, next, &mut buffer, &mut hostile, &mut done)?;
        hostile.speak(&victim, peer.burst, &mut frames);
        for (_, frame) in frames.drain(..) {
            match socket.send_to(&frame, target) {
                Ok(sent) => {
                    done.frames += 1;
                    done.bytes += sent as u64;
                }
                Err(_) => done.refused += 1,
            }
        }
        // After a stop it does not catch up: silence is an attack too, but a burst of all that was missed is none.
        next = (next + pause).max(Instant::now());
    }
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

/// Listens until it is time to speak.
fn hear(
    socket: &UdpSocket,
    until: Instant,
    buffer: &mut [u8],
    hostile: &mut Hostile,
    done: &mut Done,
) -> Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).context("set a time limit")?;
        match socket.recv(buffer) {
            Ok(len) => {
                done.heard += 1;
                done.heard_bytes += len as u64;
                hostile.hear(buffer.get(..len).unwrap_or_default());
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // The port of the victim may be closed for a moment.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
}
