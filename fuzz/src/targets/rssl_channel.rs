//! The RSSL transport in either role: bytes in pieces, from the handshake on or on an open connection; and messages
//! that one side writes arrive at the other.

use std::time::Duration;

use rssl::transport::{Channel, ClientOptions, Compression, Error, Packer, Pulled, ServerOptions};

use crate::source::Source;
use crate::{Seen, magnitude};

/// Longest message that is assembled; small, so that inputs reach the limit.
const MAX_ASSEMBLED: usize = 20_000;

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let (options, piece) = (source.u8(), usize::from(source.u8()));
    let compression = match options >> 2 & 3 {
        0 => Vec::new(),
        1 => vec![Compression::Zlib],
        2 => vec![Compression::Lz4],
        _ => vec![Compression::Lz4, Compression::Zlib],
    };
    let client = ClientOptions {
        version: 10 + (options >> 4) % 5,
        compression: compression.clone(),
        max_assembled: MAX_ASSEMBLED,
        ..ClientOptions::default()
    };
    let server = ServerOptions {
        compression,
        force_compression: options & 0x80 != 0,
        max_assembled: MAX_ASSEMBLED,
        ..ServerOptions::default()
    };
    let (mut client, mut server) = (Channel::client(client), Channel::server(server));
    let raw = options & 2 != 0;
    if !raw {
        open(&mut client, &mut server);
    }
    let (channel, peer) =
        if options & 1 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
    let bytes = source.bytes(data.len());
    if !raw {
        // The reverse direction: data that `channel` reads from now on starts its own zlib stream.
        round_trip(channel, peer, bytes, seen);
    }
    foreign(channel, bytes, piece, seen);
}

fn open(client: &mut Channel, server: &mut Channel) {
    for _ in 0..2 {
        for swap in [false, true] {
            let (from, to) = if swap { (&mut *server, &mut *client) } else { (&mut *client, &mut *server) };
            let mut bytes = Vec::new();
            from.take_output(&mut bytes);
            let mut at = 0;
            while at < bytes.len() {
                at += to.pull(&bytes[at..]).expect("the handshake is valid").0;
            }
        }
    }
    assert!(client.opened().is_some() && server.opened().is_some());
}

/// Checks that `to` reads the messages that `from` writes: whole, packed and fragmented.
fn round_trip(from: &mut Channel, to: &mut Channel, bytes: &[u8], seen: &mut Seen) {
    let mut wire = Vec::new();
    let mut sent: Vec<Vec<u8>> = bytes.chunks(97).map(<[u8]>::to_vec).collect();
    sent.push(bytes.iter().copied().cycle().take(bytes.len() * 4).collect());
    sent.retain(|message| !message.is_empty());
    let mut packer = Packer::new(6144);
    for message in &sent {
        if !packer.push(message) {
            from.write_packed(&mut packer, &mut wire).expect("a packed frame");
            from.write(message, &mut wire).expect("a message");
        }
    }
    from.write_packed(&mut packer, &mut wire).expect("a packed frame");
    let mut received = Vec::new();
    let mut at = 0;
    loop {
        match to.pull(&wire[at..]).expect("the frames are valid") {
            (_, Pulled::NeedMore) => break,
            (used, Pulled::Message(message)) => {
                received.push(message.to_vec());
                at += used;
            }
            (used, _) => at += used,
        }
    }
    assert_eq!(at, wire.len());
    assert!(received == sent, "messages read differ from those written");
    seen.note(("round trip", magnitude(wire.len()), wire.len() < bytes.len() * 4));
}

fn foreign(channel: &mut Channel, bytes: &[u8], piece: usize, seen: &mut Seen) {
    let mut input = Vec::new();
    let mut now = Duration::ZERO;
    let piece = if piece == 0 { bytes.len().max(1) } else { piece };
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        now += Duration::from_secs(1);
        channel.received(now);
        let mut at = 0;
        // Every entry of a packed list has a length of two bytes, also in the expanded contents of a frame.
        let bound = input.len() + 70_000;
        for steps in 0.. {
            assert!(steps < bound, "pull makes no progress");
            match channel.pull(&input[at..]) {
                Ok((used, pulled)) => {
                    assert!(used <= input.len() - at);
                    let kind = match pulled {
                        Pulled::NeedMore => {
                            assert_eq!(used, 0);
                            break;
                        }
                        Pulled::Message(message) => {
                            assert!(!message.is_empty() && message.len() <= MAX_ASSEMBLED.max(6161));
                            ("message", magnitude(message.len()))
                        }
                        Pulled::Opened(opened) => ("opened", u32::from(opened.version)),
                        Pulled::Ping => ("ping", 0),
                        Pulled::Handshake => ("progress", 0),
                        Pulled::Refused { text } => ("refused", text.len() as u32),
                    };
                    seen.note(kind);
                    at += used;
                }
                Err(error) => {
                    seen.note(("error", core::mem::discriminant(&error), what(&error)));
                    assert_eq!(channel.pull(&[0, 3, 2]), Err(Error::NotOpen));
                    return;
                }
            }
        }
        input.drain(..at);
        let mut out = Vec::new();
        channel.take_output(&mut out);
        seen.note(("tick", channel.tick(now) as u8, out.len()));
        seen.note(("dropped", magnitude(channel.counts().fragments_dropped as usize)));
    }
}

fn what(error: &Error) -> &'static str {
    match error {
        Error::Handshake { what, .. } | Error::Frame { what, .. } => what,
        Error::Compressed(what) => what,
        _ => "",
    }
}
