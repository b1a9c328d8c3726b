//! Pulls everything from bytes through a channel.

use rssl::transport::{Channel, Error, Opened, Pulled};

/// Everything that a channel pulled.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) pings: usize,
    pub(crate) opened: Option<Opened>,
    pub(crate) refused: Option<String>,
}

/// Pulls until more bytes are needed, and removes the used bytes from `input`.
pub(crate) fn pull_all(channel: &mut Channel, input: &mut Vec<u8>, seen: &mut Seen) -> Result<(), Error> {
    let mut at = 0;
    loop {
        let (used, pulled) = channel.pull(&input[at..])?;
        at += used;
        match pulled {
            Pulled::NeedMore => {
                assert_eq!(used, 0);
                input.drain(..at);
                return Ok(());
            }
            Pulled::Message(message) => seen.messages.push(message.to_vec()),
            Pulled::Ping => seen.pings += 1,
            Pulled::Opened(opened) => seen.opened = Some(opened.clone()),
            Pulled::Handshake => assert!(used > 0),
            Pulled::Refused { text } => {
                seen.refused = Some(text.to_owned());
                input.drain(..at);
                return Ok(());
            }
        }
    }
}

/// Pulls `bytes` in pieces of `step`; all must be used up.
pub(crate) fn feed(channel: &mut Channel, bytes: &[u8], step: usize) -> Result<Seen, Error> {
    let (mut seen, mut input) = (Seen::default(), Vec::new());
    for piece in bytes.chunks(step) {
        input.extend_from_slice(piece);
        pull_all(channel, &mut input, &mut seen)?;
    }
    assert!(input.is_empty(), "{} bytes were left over", input.len());
    Ok(seen)
}
