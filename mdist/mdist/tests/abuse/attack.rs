//! Hostile clients: raw connections from chosen addresses, and clients that speak RSSL.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use std::sync::Arc;

use rssl::rdm::login;
use rssl::rwf::{Domain, Message};
use rssl::transport::{Channel, ClientOptions, Pulled};
use rssl::wire::{Writer, to_vec};
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

/// A client that speaks RSSL.
pub(crate) struct Client {
    stream: TcpStream,
    channel: Channel,
    input: Vec<u8>,
}

impl Client {
    /// Connects and completes the handshake.
    pub(crate) fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        let stream = connect_from(from, to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let channel = Channel::client(ClientOptions::default());
        let mut client = Self { stream, channel, input: Vec::new() };
        client.flush()?;
        while client.channel.opened().is_none() {
            client.read()?;
        }
        Ok(client)
    }

    /// Connects and logs in; the error has the reason of a refusal.
    pub(crate) fn log_in(from: Ipv4Addr, to: SocketAddr, role: u64) -> io::Result<Self> {
        Self::log_in_as(b"user", from, to, role)
    }

    /// Connects and logs in under a name; the error has the reason of a refusal.
    pub(crate) fn log_in_as(user: &[u8], from: Ipv4Addr, to: SocketAddr, role: u64) -> io::Result<Self> {
        let mut client = Self::connect(from, to)?;
        let attributes = login::Attributes { role, ..login::Attributes::default() };
        client.say(|w| login::Request { user, name_type: 1, attributes: attributes.clone() }.encode(1, w))?;
        loop {
            for message in client.read()? {
                match Message::decode(&message).map_err(io::Error::other)? {
                    Message::Refresh(refresh) if refresh.domain == Domain::LOGIN => return Ok(client),
                    Message::Status(status) => return Err(io::Error::other(format!("{status:?}"))),
                    _ => {}
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.channel.take_output(&mut out);
        self.stream.write_all(&out)
    }

    /// Sends a message.
    pub(crate) fn say(&mut self, f: impl FnMut(&mut Writer<'_>) -> rssl::Result<()>) -> io::Result<()> {
        let mut out = Vec::new();
        let message = to_vec(f).map_err(io::Error::other)?;
        self.channel.write(&message, &mut out).map_err(io::Error::other)?;
        self.stream.write_all(&out)
    }

    /// Reads once; returns the complete messages.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut buffer = [0; 65536];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.input.extend_from_slice(&buffer[..count]);
        let mut messages = Vec::new();
        loop {
            let (used, pulled) = self.channel.pull(&self.input).map_err(io::Error::other)?;
            match pulled {
                Pulled::NeedMore => return Ok(messages),
                Pulled::Message(message) => messages.push(message.to_vec()),
                Pulled::Refused { text } => return Err(io::Error::other(text.to_owned())),
                Pulled::Opened(_) | Pulled::Ping | Pulled::Handshake => {}
            }
            self.input.drain(..used);
            self.flush()?;
        }
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
