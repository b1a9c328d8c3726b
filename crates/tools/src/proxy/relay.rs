//! One connection: copies bytes in both directions, each through one buffer, until both have ended.
//!
//! A connection of TIPC ends in both directions at once. By default, therefore, the end of a TCP client's data is not
//! passed to the service, so that the reply still passes. Two proxies with `--half-close` send each piece as a message
//! whose first byte tells data from the end of the direction.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use utipc::tokio::Connection;

/// Bytes that one direction holds: more are read when these are written.
const BUFFER: usize = 64 * 1024;
/// First message of each end with `--half-close`: name and version.
const HELLO: &[u8] = b"utipc proxy 1\n";
/// Longest wait for the other proxy's first message.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// After the service has ended, data of the client is discarded until none has come for this long: the kernel resets a
/// connection that is closed with unread data, and drops what the client has not yet received.
const DISCARD_QUIET: Duration = Duration::from_secs(2);
/// Longest time for which data of a client is discarded.
const DISCARD_LIMIT: Duration = Duration::from_secs(30);
/// First byte of a message with `--half-close`.
const DATA: u8 = 0;
const END: u8 = 1;

/// The connection of TIPC.
#[derive(Debug)]
pub(super) struct Service {
    connection: Connection,
    /// `--half-close`.
    framed: bool,
}

/// The result of a connection: bytes to and from the service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) to_service: u64,
    pub(super) from_service: u64,
}

/// The end of the direction from the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The other direction goes on.
    Half,
    /// The connection is over.
    Whole,
}

impl Service {
    /// Takes a new connection; with `framed` checks that the peer is a proxy that frames too.
    pub(super) async fn new(connection: Connection, framed: bool) -> io::Result<Self> {
        if framed {
            connection.send(HELLO).await?;
            let answer = timeout(HELLO_LIMIT, connection.receive()).await;
            if !matches!(answer, Ok(Ok(ref hello)) if hello.data == HELLO) {
                let why = "the peer does not use --half-close (start the proxy at the other end with it, or both without)";
                return Err(io::Error::other(why));
            }
        }
        Ok(Self { connection, framed })
    }

    /// Sends the bytes of `buffer` after its first byte, which is reserved.
    async fn send(&self, buffer: &mut [u8]) -> io::Result<()> {
        let skipped = if self.framed {
            buffer[0] = DATA;
            0
        } else {
            1
        };
        Ok(self.connection.send(&buffer[skipped..]).await?)
    }

    async fn send_end(&self) -> io::Result<()> {
        if self.framed {
            self.connection.send(&[END]).await?;
        }
        Ok(())
    }

    /// Receives into `buffer` and returns the place of the data, or how the direction ended.
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<Result<std::ops::Range<usize>, Ended>> {
        let len = self.connection.receive_into(buffer).await?.len;
        match (self.framed, buffer.first()) {
            (false, _) if len == 0 => Ok(Err(Ended::Whole)),
            (false, _) => Ok(Ok(0..len)),
            (true, _) if len == 0 => Err(io::ErrorKind::ConnectionReset.into()),
            (true, Some(&END)) => Ok(Err(Ended::Half)),
            (true, _) => Ok(Ok(1..len)),
        }
    }
}

/// The end of the direction to the service.
#[derive(Debug)]
enum Sent {
    /// Everything was sent.
    All,
    /// The service has ended the connection; what it sent before may be unread.
    Refused(io::Error),
}

/// The time of the last data from the service, for the limit on a service that does not end.
#[derive(Debug)]
struct Last(std::sync::Mutex<Instant>);

impl Last {
    fn set(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    /// Returns when nothing has arrived for `limit`.
    async fn quiet(&self, limit: Duration) {
        loop {
            let last = *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if last.elapsed() >= limit {
                return;
            }
            sleep_until(last + limit).await;
        }
    }
}

/// The party that is not a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    /// After its end, wait until the service has sent nothing for this long, unless it frames.
    Client(Duration),
    /// Its end is the end of the connection, unless the service frames.
    Server,
}

/// Copies until both directions have ended.
pub(super) async fn relay<R, W>(
    mut reader: R,
    mut writer: W,
    service: &Service,
    party: Party,
    totals: &mut Totals,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let last = Last(std::sync::Mutex::new(Instant::now()));
    let Totals { to_service, from_service } = totals;
    let whole = {
        let mut up = std::pin::pin!(upwards(&mut reader, service, to_service));
        let mut down = std::pin::pin!(downwards(&mut writer, service, from_service, &last));
        tokio::select! {
            sent = &mut up => match sent? {
                Sent::All => {
                    last.set();
                    finish_down(down, service.framed, &last, party).await?;
                    false
                }
                Sent::Refused(error) => match down.await? {
                    Ended::Whole => true,
                    Ended::Half => return Err(error),
                }
            },
            received = &mut down => match received? {
                Ended::Whole => true,
                Ended::Half => match up.await? {
                    Sent::All => false,
                    Sent::Refused(error) => return Err(error),
                }
            }
        }
    };
    if whole {
        discard(&mut reader).await;
    }
    // It may have ended already.
    let _ = service.connection.shutdown();
    Ok(())
}

async fn finish_down(
    down: impl Future<Output = io::Result<Ended>>,
    framed: bool,
    last: &Last,
    party: Party,
) -> io::Result<()> {
    match party {
        _ if framed => down.await.map(drop),
        Party::Server => Ok(()),
        Party::Client(linger) => tokio::select! {
            ended = down => ended.map(drop),
            () = last.quiet(linger) => Ok(()),
        },
    }
}

async fn upwards(
    reader: &mut (impl AsyncRead + Unpin),
    service: &Service,
    total: &mut u64,
) -> io::Result<Sent> {
    let mut buffer = vec![0; 1 + BUFFER];
    loop {
        let len = reader.read(&mut buffer[1..]).await?;
        let sent = match len {
            0 => service.send_end().await,
            _ => service.send(&mut buffer[..=len]).await,
        };
        match sent {
            Ok(()) if len == 0 => return Ok(Sent::All),
            Ok(()) => *total += len as u64,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Sent::Refused(error)),
            Err(error) => return Err(error),
        }
    }
}

async fn downwards(
    writer: &mut (impl AsyncWrite + Unpin),
    service: &Service,
    total: &mut u64,
    last: &Last,
) -> io::Result<Ended> {
    let mut buffer = vec![0; 1 + BUFFER];
    loop {
        match service.receive(&mut buffer).await? {
            Ok(data) => {
                *total += data.len() as u64;
                writer.write_all(&buffer[data]).await?;
                last.set();
            }
            Err(ended) => {
                // The client may be gone.
                let _ = writer.shutdown().await;
                return Ok(ended);
            }
        }
    }
}

/// Reads until the client ends or pauses, for a limited time.
async fn discard(reader: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; 4096];
    let read = async { while let Ok(Ok(1..)) = timeout(DISCARD_QUIET, reader.read(&mut buffer)).await {} };
    let _ = timeout(DISCARD_LIMIT, read).await;
}
