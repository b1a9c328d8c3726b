//! Hostile clients: raw connections from chosen addresses, and clients that speak RSSL.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit for a read of a well-behaved client, far above what a loaded machine needs.
const LIMIT: Duration = Duration::from_secs(60);

/// Loopback address number `number`, of 127.80.0.0/16.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 80, (number / 200 % 256) as u8, (1 + number % 200) as u8)
}

/// Connects from a source address.
pub(crate) fn connect_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    rustix::net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// Number of connections for which this process may have descriptors, at most `wanted`; raises the soft limit.
pub(crate) fn affordable(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Refused only if the hard limit is lower, which the count below respects.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    // The other ends of those that stay open, and everything else.
    wanted.min(most.saturating_sub(3_000))
}

pub(crate) use crate::client_common::Client;

impl Client {
    /// Connects and completes the handshake.
    pub(crate) fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        Self::open(connect_from(from, to)?, LIMIT)
    }

    /// Connects and logs in; the error has the reason of a refusal.
    pub(crate) fn log_in(from: Ipv4Addr, to: SocketAddr, role: u64) -> io::Result<Self> {
        Self::log_in_as(b"user", from, to, role)
    }

    /// Connects and logs in under a name; the error has the reason of a refusal.
    pub(crate) fn log_in_as(user: &[u8], from: Ipv4Addr, to: SocketAddr, role: u64) -> io::Result<Self> {
        let mut client = Self::connect(from, to)?;
        client.login(user, role)?;
        Ok(client)
    }
}

/// Threads that attack until they are stopped, and count what they do.
#[derive(Default)]
pub(crate) struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<(&'static str, Arc<AtomicU64>, JoinHandle<()>)>,
}

impl Attack {
    /// Starts a thread that repeats `turn`, which returns how much it did; its errors are those of an attacker that the
    /// server disconnects.
    pub(crate) fn start(
        &mut self,
        what: &'static str,
        mut turn: impl FnMut(u64) -> io::Result<u64> + Send + 'static,
    ) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&done);
        let body = move || {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                match turn(round) {
                    Ok(more) => drop(count.fetch_add(more, Ordering::Relaxed)),
                    // As an attacker that backs off a little, so that it is the server that is busy.
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        };
        // The system shows 15 bytes of the name.
        let thread = std::thread::Builder::new().name(what.into()).spawn(body).unwrap();
        self.threads.push((what, done, thread));
    }

    /// Stops the threads; returns what each has done.
    pub(crate) fn stop(self) -> Vec<(&'static str, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let end = |(what, done, thread): (_, Arc<AtomicU64>, JoinHandle<()>)| {
            thread.join().unwrap();
            (what, done.load(Ordering::Relaxed))
        };
        self.threads.into_iter().map(end).collect()
    }
}
