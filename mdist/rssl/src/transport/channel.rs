//! One connection in either role.

use std::time::Duration;

use super::assemble::Assembler;
use super::compress::{Compressor, Expander};
use super::frame::{self, Part};
use super::handshake::{self, Answer, ClientOptions, Opened, ServerOptions, Verdict};
use super::ping::Pings;
use super::{Error, FRAME_HEADER, PING_FRAME, Packer, Result, Tick};

/// Longest message of `Channel::write`, in bytes: the length of a fragmented message has 32 bits, which stock receivers
/// store in a signed integer.
const MAX_WRITE: usize = i32::MAX as usize;

/// Result of pulling from the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Pulled<'x> {
    /// An incomplete frame or message: no bytes were used up.
    NeedMore,
    /// The connection is open. A client may have to send its key first: see `Channel::take_output`.
    Opened(&'x Opened),
    /// One complete, decompressed message.
    Message(&'x [u8]),
    /// A ping: the peer is alive.
    Ping,
    /// Bytes were used up without a result: a step of the handshake (see `Channel::take_output`) or a part of an
    /// incomplete message.
    Handshake,
    /// The connection is refused: at a client, by the server; at a server, by this side. A server then has to
    /// send the output of `Channel::take_output`, then close.
    Refused {
        /// The reason.
        text: &'x str,
    },
}

/// Counts of what a channel dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fragments without a first one, and messages that were too long to assemble or were restarted.
    pub fragments_dropped: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The client waits for the server's answer.
    Answer,
    /// The server waits for the client's request.
    Request,
    /// The server waits for the client's key.
    Key,
    Open,
    Closed,
}

enum Role {
    Client(ClientOptions),
    Server(ServerOptions),
}

/// One TCP connection as a state machine. The owner of the socket
/// 1. calls `received` when bytes arrive, and pulls them through an [`InputBuffer`](super::InputBuffer);
/// 2. sends the bytes that `take_output`, `write` and `ping` append, and calls `sent`;
/// 3. acts on `tick` at `deadline`.
///
/// Close the connection after an error.
pub struct Channel {
    /// Open, and no packed frame is partly delivered: the next bytes are a frame header.
    at_frame: bool,
    phase: Phase,
    wide_ids: bool,
    /// Longest frame accepted.
    frame_limit: usize,
    /// Payload bytes of a packed frame that are not delivered yet, at the front of the input.
    list_left: usize,
    /// The last expanded payload, and one more than the offset of the rest of a packed list in it; 0 without such a
    /// list.
    expanded: Vec<u8>,
    expanded_at: usize,
    assembler: Assembler,
    assembled: Vec<u8>,
    expander: Option<Expander>,
    compressor: Option<Compressor>,
    next_fragment_id: u16,
    pings: Pings,
    output: Vec<u8>,
    opened: Option<Box<Opened>>,
    refusal: String,
    role: Role,
}

impl Channel {
    /// The client's side of a new connection; `take_output` has its request at once.
    #[must_use]
    pub fn client(options: ClientOptions) -> Self {
        let request = handshake::connect_request(&options);
        let (ping, limit) = (options.ping_timeout, options.max_assembled);
        let mut channel = Channel::new(Role::Client(options), Phase::Answer, ping, limit);
        channel.output = request;
        channel
    }

    /// The server's side of an accepted connection.
    #[must_use]
    pub fn server(options: ServerOptions) -> Self {
        let (ping, limit) = (options.ping_timeout.1, options.max_assembled);
        Channel::new(Role::Server(options), Phase::Request, ping, limit)
    }

    fn new(role: Role, phase: Phase, ping_timeout: u8, max_assembled: usize) -> Self {
        Channel {
            at_frame: false,
            phase,
            wide_ids: true,
            frame_limit: 0,
            list_left: 0,
            expanded: Vec::new(),
            expanded_at: 0,
            assembler: Assembler::new(max_assembled),
            assembled: Vec::new(),
            expander: None,
            compressor: None,
            next_fragment_id: 1,
            pings: Pings::new(ping_timeout),
            output: Vec::new(),
            opened: None,
            refusal: String::new(),
            role,
        }
    }

    /// The agreed parameters, once the connection is open.
    #[must_use]
    pub fn opened(&self) -> Option<&Opened> {
        self.opened.as_deref()
    }

    /// Counts of what was dropped so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { fragments_dropped: self.assembler.dropped }
    }

    /// Pulls the next message or event from received bytes. Returns the number of bytes of `input` used up, and
    /// the result. Call again with the rest until `NeedMore` (which uses up nothing), also with an empty rest,
    /// because one frame can hold many messages. [`InputBuffer`](super::InputBuffer) does so.
    ///
    /// # Errors
    /// The peer broke the protocol; the channel is unusable afterwards.
    #[inline]
    pub fn pull<'x>(&'x mut self, input: &'x [u8]) -> Result<(usize, Pulled<'x>)> {
        if self.at_frame
            && let [hi, lo, frame::DATA, ..] = *input
        {
            let len = usize::from(u16::from_be_bytes([hi, lo]));
            if len > FRAME_HEADER && len <= self.frame_limit {
                return Ok(match input.get(FRAME_HEADER..len) {
                    Some(message) => (len, Pulled::Message(message)),
                    None => (0, Pulled::NeedMore),
                });
            }
        }
        // The next entry of a packed list; its end and its errors are handled below.
        if self.list_left > 0
            && let [hi, lo, ref rest @ ..] = *input
        {
            let len = usize::from(u16::from_be_bytes([hi, lo]));
            if len > 0
                && len + 4 <= self.list_left
                && let Some(message) = rest.get(..len)
            {
                self.list_left -= 2 + len;
                return Ok((2 + len, Pulled::Message(message)));
            }
        }
        self.pull_other(input)
    }

    /// Pulls anything but a plain frame.
    #[inline(never)]
    fn pull_other<'x>(&'x mut self, input: &'x [u8]) -> Result<(usize, Pulled<'x>)> {
        let step = match self.phase {
            Phase::Open if self.list_left > 0 => self.list_entry(input),
            Phase::Open if self.expanded_at > 0 => self.expanded_entry(),
            Phase::Open => self.frame(input),
            Phase::Closed => Err(Error::NotOpen),
            Phase::Request | Phase::Key | Phase::Answer => self.handshake(input),
        };
        match step {
            Ok((used, step)) => Ok((used, self.deliver(input, step))),
            Err(error) => {
                self.at_frame = false;
                self.list_left = 0;
                self.phase = Phase::Closed;
                Err(error)
            }
        }
    }

    fn deliver<'x>(&'x self, input: &'x [u8], found: Found) -> Pulled<'x> {
        let message = |bytes: Option<&'x [u8]>| match bytes {
            Some(bytes) if !bytes.is_empty() => Pulled::Message(bytes),
            _ => Pulled::Ping,
        };
        match found {
            Found::NeedMore => Pulled::NeedMore,
            Found::Ping => Pulled::Ping,
            Found::Part => Pulled::Handshake,
            Found::Input { from, to } => message(input.get(from..to)),
            Found::Expanded { from, to } => message(self.expanded.get(from..to)),
            Found::Assembled => message(Some(&self.assembled)),
            Found::Refused => Pulled::Refused { text: &self.refusal },
            Found::Opened => match &self.opened {
                Some(opened) => Pulled::Opened(opened),
                None => Pulled::Handshake,
            },
        }
    }

    /// Pulls the next entry of a packed list in the input.
    fn list_entry(&mut self, input: &[u8]) -> Result<(usize, Found)> {
        let Some(len) = input.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len))) else {
            return Ok((0, Found::NeedMore));
        };
        let used = 2 + len;
        if used > self.list_left {
            return Err(LIST_OVERRUN);
        }
        if input.len() < used {
            return Ok((0, Found::NeedMore));
        }
        self.list_left -= used;
        if self.list_left == 1 {
            return Err(LIST_OVERRUN);
        }
        self.at_frame = self.list_left == 0;
        Ok((used, Found::Input { from: 2, to: used }))
    }

    /// Pulls the next entry of a packed list that was compressed.
    fn expanded_entry(&mut self) -> Result<(usize, Found)> {
        let list = self.expanded.get(self.expanded_at - 1..).unwrap_or_default();
        let len = list.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len))).ok_or(LIST_OVERRUN)?;
        if 2 + len > list.len() {
            return Err(LIST_OVERRUN);
        }
        let from = self.expanded_at - 1 + 2;
        let to = from + len;
        let over = to == self.expanded.len();
        self.expanded_at = if over { 0 } else { to + 1 };
        self.at_frame = over;
        Ok((0, Found::Expanded { from, to }))
    }

    /// Pulls a frame that is not plain, or incomplete.
    fn frame(&mut self, input: &[u8]) -> Result<(usize, Found)> {
        let [hi, lo, flags, ..] = *input else { return Ok((0, Found::NeedMore)) };
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        if len > self.frame_limit {
            return Err(Error::FrameTooLong { len, max: self.frame_limit });
        }
        if len < FRAME_HEADER {
            return Err(Error::Frame { flags, what: "its length is less than its header" });
        }
        let Some(body) = input.get(FRAME_HEADER..len) else { return Ok((0, Found::NeedMore)) };
        if body.is_empty() {
            return Ok((len, Found::Ping));
        }
        if flags & frame::COMPRESSED != 0 {
            return Ok((len, self.compressed(flags, body)?));
        }
        let (part, payload) = frame::extended(flags, body, self.wide_ids)?;
        if part != Part::Whole {
            return Ok((len, self.fragment(part, payload)));
        }
        if flags & frame::PACKED == 0 {
            return Ok((len, Found::Input { from: FRAME_HEADER, to: len }));
        }
        // The whole list is in the input, so its first entry is delivered with the header.
        self.list_left = body.len();
        self.at_frame = false;
        match self.list_entry(body)? {
            (used, Found::Input { from, to }) => {
                Ok((FRAME_HEADER + used, Found::Input { from: FRAME_HEADER + from, to: FRAME_HEADER + to }))
            }
            _ => Err(LIST_OVERRUN),
        }
    }

    fn compressed(&mut self, flags: u8, body: &[u8]) -> Result<Found> {
        let expander = self
            .expander
            .as_mut()
            .ok_or(Error::Compressed("no compression was agreed for this connection"))?;
        let (part, payload) = frame::extended(flags, body, self.wide_ids)?;
        let (part, first_flags) = expander.begun().unwrap_or((part, flags));
        if flags & frame::COMPRESSED_MORE != 0 {
            expander.hold(part, first_flags, payload)?;
            return Ok(Found::Part);
        }
        expander.expand(payload, &mut self.expanded)?;
        if part != Part::Whole {
            let payload = std::mem::take(&mut self.expanded);
            let step = self.fragment(part, &payload);
            self.expanded = payload;
            return Ok(step);
        }
        if first_flags & frame::PACKED != 0 && !self.expanded.is_empty() {
            self.expanded_at = 1;
            self.at_frame = false;
            return self.expanded_entry().map(|(_, step)| step);
        }
        Ok(Found::Expanded { from: 0, to: self.expanded.len() })
    }

    fn fragment(&mut self, part: Part, payload: &[u8]) -> Found {
        if self.assembler.take(part, payload, &mut self.assembled) { Found::Assembled } else { Found::Part }
    }

    fn handshake(&mut self, input: &[u8]) -> Result<(usize, Found)> {
        let Some(message) = handshake::whole(input)? else { return Ok((0, Found::NeedMore)) };
        let step = match (&self.role, &self.phase) {
            (Role::Server(_), Phase::Key) => {
                handshake::key(message)?;
                self.open()
            }
            (Role::Server(options), _) => match handshake::answer(message, options)? {
                Answer::Accept { opened, ack, key_follows } => {
                    self.output.extend_from_slice(&ack);
                    self.opened = Some(Box::new(opened));
                    if key_follows {
                        self.phase = Phase::Key;
                        Found::Part
                    } else {
                        self.open()
                    }
                }
                Answer::Refuse { text, nak } => {
                    self.output.extend_from_slice(&nak);
                    self.refuse(text)
                }
            },
            (Role::Client(options), _) => match handshake::verdict(message, options)? {
                Verdict::Accepted { opened, key } => {
                    self.output.extend_from_slice(&key);
                    self.opened = Some(Box::new(opened));
                    self.open()
                }
                Verdict::Refused { text } => self.refuse(text),
            },
        };
        Ok((message.len(), step))
    }

    fn refuse(&mut self, text: String) -> Found {
        self.refusal = text;
        self.phase = Phase::Closed;
        Found::Refused
    }

    /// Applies the agreed parameters: frames follow.
    fn open(&mut self) -> Found {
        if let Some(opened) = &self.opened {
            self.wide_ids = opened.version >= 13;
            self.frame_limit = usize::from(opened.max_message) + frame::HEADER_SLACK;
            if let Some(kind) = opened.compression {
                self.expander = Some(Expander::new(kind, self.frame_limit));
                self.compressor = opened.compress_sent.then(|| Compressor::new(kind, opened.zlib_level));
            }
            let timeout = opened.ping_timeout.as_secs().min(255) as u8;
            self.pings.agree(timeout, opened.we_ping, opened.peer_pings);
        }
        self.phase = Phase::Open;
        self.at_frame = true;
        Found::Opened
    }

    /// Appends the messages of the handshake that the channel has to send.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.output);
    }

    /// Appends one message as frames: plain, compressed or in fragments.
    ///
    /// # Errors
    /// The connection is not open, or the message is empty or longer than 2 GiB.
    pub fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.phase != Phase::Open {
            return Err(Error::NotOpen);
        }
        let max = self.max_payload();
        if message.is_empty() || message.len() > MAX_WRITE {
            return Err(Error::MessageLength { len: message.len(), max: MAX_WRITE });
        }
        if message.len() <= max {
            return self.put(Part::Whole, 0, message, out);
        }
        let id = self.next_fragment_id;
        let last = if self.wide_ids { u16::MAX } else { u16::from(u8::MAX) };
        self.next_fragment_id = if id >= last { 1 } else { id + 1 };
        let mut part = Part::First { id, total: message.len() as u32 };
        let mut left = message;
        while !left.is_empty() {
            let header = frame::fragment_header(matches!(part, Part::First { .. }), self.wide_ids);
            let space = (max + FRAME_HEADER).saturating_sub(header).max(1).min(left.len());
            let (piece, rest) = left.split_at(space);
            self.put(part, 0, piece, out)?;
            part = Part::Next { id };
            left = rest;
        }
        Ok(())
    }

    /// Appends the packer's messages as one frame, compressed if that was agreed, and empties it.
    ///
    /// # Errors
    /// The connection is not open, or the packer was made for larger frames than this connection has.
    pub fn write_packed(&mut self, packer: &mut Packer, out: &mut Vec<u8>) -> Result<()> {
        if self.phase != Phase::Open {
            return Err(Error::NotOpen);
        }
        let (len, max) = (packer.list().len(), self.max_payload());
        if len > max {
            return Err(Error::MessageLength { len, max });
        }
        if self.compressor.is_none() || packer.count() < 2 {
            let start = out.len();
            packer.finish(out);
            // A single message has become a plain frame; compress that.
            if self.compressor.is_some() && out.len() > start {
                let message = out.split_off(start);
                return self.put(Part::Whole, 0, message.get(FRAME_HEADER..).unwrap_or_default(), out);
            }
            return Ok(());
        }
        let done = self.put(Part::Whole, frame::PACKED, packer.list(), out);
        packer.clear();
        done
    }

    /// Appends one frame with this payload; two if compression made it larger than a frame.
    fn put(&mut self, part: Part, flags: u8, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (max, wide) = (self.max_payload(), self.wide_ids);
        if let Some(compressor) = &mut self.compressor
            && let Some(packed) = compressor.compress(payload)?
        {
            let header = match part {
                Part::Whole => FRAME_HEADER,
                Part::First { .. } => frame::fragment_header(true, wide),
                Part::Next { .. } => frame::fragment_header(false, wide),
            };
            let space = (max + FRAME_HEADER).saturating_sub(header);
            if packed.len() <= space {
                put_frame(out, part, flags | frame::COMPRESSED, packed, wide);
            } else {
                let (first, rest) = packed.split_at(space);
                put_frame(out, part, flags | frame::COMPRESSED | frame::COMPRESSED_MORE, first, wide);
                put_frame(out, Part::Whole, frame::COMPRESSED, rest, wide);
            }
            return Ok(());
        }
        put_frame(out, part, flags | frame::DATA, payload, wide);
        Ok(())
    }

    fn max_payload(&self) -> usize {
        self.opened.as_ref().map_or(0, |opened| usize::from(opened.max_message))
    }

    /// Appends a ping.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&PING_FRAME);
    }

    /// Notes that bytes were sent to the peer.
    #[inline]
    pub fn sent(&mut self, now: Duration) {
        self.pings.sent(now);
    }

    /// Notes that bytes were received from the peer.
    #[inline]
    pub fn received(&mut self, now: Duration) {
        self.pings.received(now);
    }

    /// The action that is due. The first call starts the timers, if nothing was sent or received before.
    pub fn tick(&mut self, now: Duration) -> Tick {
        self.pings.tick(now)
    }

    /// Time at which `tick` is due next; `None` before the timers have started.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.pings.deadline()
    }
}

/// Location of the next [`Pulled`], without borrowing the input.
enum Found {
    NeedMore,
    Ping,
    Part,
    Input { from: usize, to: usize },
    Expanded { from: usize, to: usize },
    Assembled,
    Refused,
    Opened,
}

const LIST_OVERRUN: Error =
    Error::Frame { flags: frame::PACKED, what: "an entry of its packed list goes beyond the frame" };

fn put_frame(out: &mut Vec<u8>, part: Part, flags: u8, payload: &[u8], wide_ids: bool) {
    if part == Part::Whole {
        out.extend_from_slice(&((FRAME_HEADER + payload.len()) as u16).to_be_bytes());
        out.push(flags);
    } else {
        frame::put_fragment_header(out, part, flags, payload.len(), wide_ids);
    }
    out.extend_from_slice(payload);
}
