//! Buffers received bytes for a channel.

use super::{Channel, Pulled, Result};

/// Keeps the bytes that a connection has received but its channel has not used up: the front of an incomplete
/// frame.
///
/// ```
/// # use rssl::transport::{Channel, InputBuffer, Pulled, Result, ServerOptions};
/// # fn read(channel: &mut Channel, input: &mut InputBuffer, bytes: &[u8]) -> Result<()> {
/// input.receive(bytes, |received| {
///     loop {
///         match received.pull(channel)? {
///             Pulled::NeedMore => return Ok(()),
///             Pulled::Message(message) => println!("a message of {} bytes", message.len()),
///             _ => {}
///         }
///     }
/// })
/// # }
/// # read(&mut Channel::server(ServerOptions::default()), &mut InputBuffer::default(), &[]).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct InputBuffer {
    unread: Vec<u8>,
}

impl InputBuffer {
    /// Calls `handle` with the unread bytes followed by `bytes`, and keeps those that it does not pull. `bytes` are
    /// copied only if unread bytes precede them.
    pub fn receive<T>(&mut self, bytes: &[u8], handle: impl FnOnce(&mut Received<'_>) -> T) -> T {
        if self.unread.is_empty() {
            return self.receive_joined(bytes, handle);
        }
        self.unread.extend_from_slice(bytes);
        let mut received = Received { bytes: &self.unread, used: 0 };
        let result = handle(&mut received);
        let used = received.used;
        self.unread.drain(..used);
        result
    }

    /// As [`InputBuffer::receive`], if `bytes` already begins with [`InputBuffer::unread`]. Copies
    /// only what is not pulled.
    #[inline]
    pub fn receive_joined<T>(&mut self, bytes: &[u8], handle: impl FnOnce(&mut Received<'_>) -> T) -> T {
        let mut received = Received { bytes, used: 0 };
        let result = handle(&mut received);
        self.unread.clear();
        self.unread.extend_from_slice(received.bytes.get(received.used..).unwrap_or_default());
        result
    }

    /// The front of an incomplete frame.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Drops the unread bytes, for another connection.
    pub fn clear(&mut self) {
        self.unread.clear();
    }
}

/// Received bytes, and how many of them a channel has used up.
#[derive(Debug)]
pub struct Received<'b> {
    bytes: &'b [u8],
    used: usize,
}

impl Received<'_> {
    /// Pulls the next thing out of these bytes; [`Pulled::NeedMore`] once only the front of a frame is left.
    ///
    /// # Errors
    /// As [`Channel::pull`].
    #[inline]
    pub fn pull<'x>(&'x mut self, channel: &'x mut Channel) -> Result<Pulled<'x>> {
        let (used, pulled) = channel.pull(self.bytes.get(self.used..).unwrap_or_default())?;
        self.used += used;
        Ok(pulled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{ClientOptions, ServerOptions};

    /// An open channel of a server, and the bytes of three frames for it.
    fn open() -> (Channel, Vec<u8>) {
        let (mut client, mut server) =
            (Channel::client(ClientOptions::default()), Channel::server(ServerOptions::default()));
        let mut bytes = Vec::new();
        for _ in 0..2 {
            client.take_output(&mut bytes);
            let used = server.pull(&bytes).unwrap().0;
            bytes.drain(..used);
            server.take_output(&mut bytes);
            let used = client.pull(&bytes).unwrap().0;
            bytes.drain(..used);
        }
        for message in [&[1; 40][..], &[2; 300], &[3; 1]] {
            client.write(message, &mut bytes).unwrap();
        }
        (server, bytes)
    }

    fn pull_all(received: &mut Received<'_>, channel: &mut Channel, found: &mut Vec<(u8, usize)>) {
        loop {
            match received.pull(channel).unwrap() {
                Pulled::NeedMore => return,
                Pulled::Message(message) => found.push((message[0], message.len())),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn incomplete_frames_wait_for_their_rest() {
        for step in 1..60 {
            let (mut channel, bytes) = open();
            let (mut input, mut found) = (InputBuffer::default(), Vec::new());
            for piece in bytes.chunks(step) {
                input.receive(piece, |received| pull_all(received, &mut channel, &mut found));
            }
            assert_eq!((&found[..], input.unread()), (&[(1, 40), (2, 300), (3, 1)][..], &[][..]), "{step}");
        }
    }

    #[test]
    fn callers_can_put_unread_bytes_in_front_themselves() {
        let (mut channel, bytes) = open();
        let (mut input, mut found) = (InputBuffer::default(), Vec::new());
        for piece in bytes.chunks(50) {
            let joined = [input.unread(), piece].concat();
            input.receive_joined(&joined, |received| pull_all(received, &mut channel, &mut found));
        }
        assert_eq!((&found[..], input.unread()), (&[(1, 40), (2, 300), (3, 1)][..], &[][..]));
    }
}
