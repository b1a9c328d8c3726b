//! A client that speaks RSSL on a blocking socket.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rssl::rdm::login;
use rssl::rwf::{Domain, Message};
use rssl::transport::{Channel, ClientOptions, Pulled};
use rssl::wire::{Writer, to_vec};

pub(crate) struct Client {
    stream: TcpStream,
    channel: Channel,
    input: Vec<u8>,
}

impl Client {
    /// Completes the handshake; no call waits longer than `limit`.
    pub(crate) fn open(stream: TcpStream, limit: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let channel = Channel::client(ClientOptions::default());
        let mut client = Self { stream, channel, input: Vec::new() };
        client.flush()?;
        while client.channel.opened().is_none() {
            client.read()?;
        }
        Ok(client)
    }

    /// Logs in on stream 1; the error has the reason of a refusal.
    pub(crate) fn login(&mut self, user: &[u8], role: u64) -> io::Result<()> {
        let attributes = login::Attributes { role, ..login::Attributes::default() };
        self.say(|w| login::Request { user, name_type: 1, attributes: attributes.clone() }.encode(1, w))?;
        loop {
            for message in self.read()? {
                match Message::decode(&message).map_err(io::Error::other)? {
                    Message::Refresh(refresh) if refresh.domain == Domain::LOGIN => return Ok(()),
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
