//! The messages that open a connection. Spec: rssl.md §1.1–1.5

use std::time::Duration;

use super::{Compression, Error, MAX_ASSEMBLED, MAX_FRAGMENT, Result, VERSION_NEWEST, VERSION_OLDEST};

/// Longest handshake message: its variable strings have one-byte lengths.
const LONGEST: usize = 1024;
/// RWF version of all stock programs.
const RWF: (u8, u8) = (14, 1);
const KEY_EXCHANGE: u8 = 0x08;
/// Prime, generator and public key of a server. Nothing is encrypted, so any numbers except zeros will do: the Java
/// client divides by the prime.
const SERVER_KEY: [u64; 3] = [(1 << 61) - 1, 37, 0x1a11_ac5d_ecce_275b];
const FORCED: u8 = 0x80;
const CONNECT_ACK: u8 = 0x01;
const CONNECT_NAK: u8 = 0x02;
const CLIENT_PINGS: u8 = 0x01;
const SERVER_PINGS: u8 = 0x02;
/// Smallest payload of a frame that is offered or accepted: a smaller fragment carries little more than its
/// header.
const SMALLEST_FRAGMENT: u16 = 64;
/// Largest payload of a frame that is offered or accepted: the length of a longer frame does not fit its 16
/// bits.
const LARGEST_FRAGMENT: u16 = 65_518;

crate::with_defaults! {
    /// Options of a client's connection.
    #[derive(Clone, Debug)]
    pub struct ClientOptions {
        /// Version to ask for, 10 to 14. If a server closes the connection without a reply, try an older one.
        pub version: u8 = VERSION_NEWEST,
        /// Name of this host; at most 160 bytes are sent.
        pub host: String = String::new(),
        /// Address of this host as text; at most 64 bytes are sent.
        pub ip: String = String::new(),
        /// Name and version of this program, at most 253 bytes are sent.
        pub component: String = component(),
        /// Ping timeout to propose, in seconds; the server decides.
        pub ping_timeout: u8 = 60,
        /// Compression to offer; the server chooses.
        pub compression: Vec<Compression> = Vec::new(),
        /// This side's secret number of the key exchange, taken from a random source. Nothing is encrypted with the
        /// result; servers that ask for a key get a valid one.
        pub secret: u64 = 1,
        /// Longest message put together from fragments, in bytes.
        pub max_assembled: usize = MAX_ASSEMBLED,
    }
}

crate::with_defaults! {
    /// Options of a server's connections.
    #[derive(Clone, Debug)]
    pub struct ServerOptions {
        /// Oldest and newest version accepted.
        pub versions: (u8, u8) = (VERSION_OLDEST, VERSION_NEWEST),
        /// Largest payload of a frame, in bytes; 64 to 65,518.
        pub max_fragment: u16 = MAX_FRAGMENT,
        /// Shortest and longest ping timeout, in seconds; the client's proposal is clamped to this range.
        pub ping_timeout: (u8, u8) = (20, 60),
        /// Compression that this server supports, preferred first.
        pub compression: Vec<Compression> = Vec::new(),
        /// Whether clients must compress as well.
        pub force_compression: bool = false,
        /// Compression level of zlib, 0 to 9.
        pub zlib_level: u8 = 6,
        /// Name and version of this program, at most 253 bytes are sent.
        pub component: String = component(),
        /// Longest message put together from fragments, in bytes.
        pub max_assembled: usize = MAX_ASSEMBLED,
        /// Refuses every client with this text; at most 253 bytes of it are sent.
        pub refuse: Option<String> = None,
    }
}

fn component() -> String {
    concat!("utipc-", env!("CARGO_PKG_VERSION")).to_owned()
}

/// The agreed parameters, and how the peer identified itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Version of the connection protocol (RIPC), 10 to 14.
    pub version: u8,
    /// Largest payload of a frame, in bytes.
    pub max_message: u16,
    /// Time without received bytes after which a side closes the connection.
    pub ping_timeout: Duration,
    /// Whether this side must ping when it has nothing to send.
    pub we_ping: bool,
    /// Whether the peer pings, so that its silence is an error.
    pub peer_pings: bool,
    /// Compression of received frames, and of sent ones if `compress_sent`.
    pub compression: Option<Compression>,
    /// Whether this side's frames are to be compressed.
    pub compress_sent: bool,
    /// Compression level of zlib for this side's frames, 0 to 9.
    pub zlib_level: u8,
    /// Version of the message format that the peer announced: major, minor.
    pub rwf: (u8, u8),
    /// The client's host name; empty at a client.
    pub host: String,
    /// The address that the client sent; empty at a client.
    pub ip: String,
    /// Name and version of the peer's program; empty below version 13.
    pub component: String,
}

/// Reads fields of a handshake message.
struct Fields<'a> {
    message: &'static str,
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    fn err(&self, what: &'static str) -> Error {
        Error::Handshake { message: self.message, what }
    }

    fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(n).ok_or_else(|| self.err(what))?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let (taken, left) = self.left.split_first_chunk().ok_or_else(|| self.err(what))?;
        self.left = left;
        Ok(*taken)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8> {
        self.array(what).map(u8::from_be_bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16> {
        self.array(what).map(u16::from_be_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_be_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_be_bytes)
    }

    fn text(&mut self, what: &'static str) -> Result<String> {
        let n = usize::from(self.u8(what)?);
        Ok(String::from_utf8_lossy(self.take(n, what)?).into_owned())
    }
}

fn put_text(out: &mut Vec<u8>, text: &str, max: usize) {
    let bytes = text.as_bytes().get(..max).unwrap_or(text.as_bytes());
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

/// The component block: its length, then the text with its own length.
fn put_component(out: &mut Vec<u8>, text: &str) {
    out.push(text.len().min(253) as u8 + 1);
    put_text(out, text, 253);
}

fn patch_length(out: &mut [u8]) {
    let len = (out.len() as u16).to_be_bytes();
    for (to, byte) in out.iter_mut().zip(len) {
        *to = byte;
    }
}

/// The complete handshake message at the front of `input`; `None` if more bytes are needed.
pub(super) fn whole(input: &[u8]) -> Result<Option<&[u8]>> {
    if let Some(first) = input.first_chunk::<4>() {
        match first {
            b"GET " | b"POST" | b"HTTP" | b"OPTI" | b"HEAD" => return Err(Error::Http),
            [hi, lo, ..] if usize::from(u16::from_be_bytes([*hi, *lo])) > LONGEST => {
                return Err(Error::NotRssl(*first));
            }
            _ => {}
        }
    }
    let Some(len) = input.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len))) else {
        return Ok(None);
    };
    if let (true, Some(first)) = (len < 4, input.first_chunk()) {
        return Err(Error::NotRssl(*first));
    }
    Ok(input.get(..len))
}

/// The client's first message.
pub(super) fn connect_request(options: &ClientOptions) -> Vec<u8> {
    let version = options.version.clamp(VERSION_OLDEST, VERSION_NEWEST);
    let mut out = vec![0, 0, 0];
    out.extend_from_slice(&(u32::from(version) + 9).to_be_bytes());
    out.push(if version >= 14 { KEY_EXCHANGE } else { 0 });
    let header_size = out.len();
    out.push(0);
    let offered = options.compression.iter().fold(0, |bits, c| bits | c.bit());
    if offered == 0 {
        out.push(0);
    } else {
        out.extend_from_slice(&[1, offered]);
    }
    out.extend_from_slice(&[options.ping_timeout, 0]);
    if version >= 12 {
        out.push(0);
    }
    out.extend_from_slice(&[RWF.0, RWF.1]);
    // The header's size has one byte, so both texts are limited.
    put_text(&mut out, &options.host, 160);
    put_text(&mut out, &options.ip, 64);
    let size = out.len() as u8;
    if let Some(at) = out.get_mut(header_size) {
        *at = size;
    }
    if version >= 13 {
        put_component(&mut out, &options.component);
    }
    patch_length(&mut out);
    out
}

/// A server's decision on a connect request.
pub(super) enum Answer {
    Accept { opened: Opened, ack: Vec<u8>, key_follows: bool },
    Refuse { text: String, nak: Vec<u8> },
}

/// Decides on a connect request.
pub(super) fn answer(message: &[u8], options: &ServerOptions) -> Result<Answer> {
    let mut f = Fields { message: "connect request", left: message };
    f.u16("length")?;
    if f.u8("opcode")? != 0 {
        return Err(Error::NotRssl(message.first_chunk().copied().unwrap_or_default()));
    }
    let number = f.u32("connection version")?;
    let version = match number {
        0x13..=0x17 => number as u8 - 9,
        _ => return Err(Error::Version(number)),
    };
    if version < options.versions.0 || version > options.versions.1 {
        return Err(Error::Version(number));
    }
    let flags = f.u8("flags")?;
    let header_size = usize::from(f.u8("header size")?);
    let bitmap_size = usize::from(f.u8("compression bitmap size")?);
    let bitmap = f.take(bitmap_size, "compression bitmap")?.first().copied().unwrap_or(0);
    let ping_timeout = f.u8("ping timeout")?;
    f.u8("RSSL flags")?;
    let protocol = if version >= 12 { f.u8("protocol type")? } else { 0 };
    let rwf = (f.u8("RWF version")?, f.u8("RWF version")?);
    let host = f.text("host name")?;
    let ip = f.text("IP address")?;
    if message.len() - f.left.len() != header_size {
        return Ok(refuse("header size does not match"));
    }
    let mut peer = String::new();
    if version >= 13 {
        let block = usize::from(f.u8("component block")?);
        let expected = header_size + 1 + block;
        // Some proxies append a line end.
        let tail = message.get(expected..);
        if !matches!(tail, Some(b"" | b"\r\n")) {
            return Ok(refuse("length does not match"));
        }
        if block > 0 {
            peer = f.text("component")?;
        }
    }
    if protocol != 0 {
        return Ok(refuse("only RWF is spoken here"));
    }
    if let Some(text) = &options.refuse {
        return Ok(refuse(text));
    }
    let compression = options.compression.iter().copied().find(|c| bitmap & c.bit() != 0);
    let forced = compression.is_some() && options.force_compression && version >= 11;
    let (low, high) = options.ping_timeout;
    let opened = Opened {
        version,
        max_message: options.max_fragment.clamp(SMALLEST_FRAGMENT, LARGEST_FRAGMENT),
        ping_timeout: Duration::from_secs(u64::from(ping_timeout.min(high).max(low).max(1))),
        we_ping: true,
        peer_pings: true,
        compression,
        compress_sent: compression.is_some(),
        zlib_level: options.zlib_level,
        rwf,
        host,
        ip,
        component: peer,
    };
    let key_follows = version >= 14 && flags & KEY_EXCHANGE != 0;
    let ack = connect_ack(&opened, options, forced, key_follows);
    Ok(Answer::Accept { opened, ack, key_follows })
}

fn connect_ack(opened: &Opened, options: &ServerOptions, forced: bool, key_exchange: bool) -> Vec<u8> {
    let mut out = vec![0, 0, CONNECT_ACK | if forced { FORCED } else { 0 }, CONNECT_ACK, 10, 0];
    out.extend_from_slice(&(u32::from(opened.version) - 5).to_be_bytes());
    out.extend_from_slice(&opened.max_message.to_be_bytes());
    out.extend_from_slice(&[CLIENT_PINGS | SERVER_PINGS, opened.ping_timeout.as_secs() as u8, RWF.0, RWF.1]);
    out.extend_from_slice(&opened.compression.map_or(0, Compression::number).to_be_bytes());
    if opened.version >= 11 {
        let zlib = opened.compression == Some(Compression::Zlib);
        out.push(if zlib { opened.zlib_level.min(9) } else { 0 });
    }
    if key_exchange {
        out.extend_from_slice(&[KEY_EXCHANGE, 1, 24]);
        for number in SERVER_KEY {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
    if opened.version >= 13 {
        put_component(&mut out, &options.component);
    }
    patch_length(&mut out);
    out
}

fn refuse(text: &str) -> Answer {
    let text: String = text.chars().filter(char::is_ascii).take(253).collect();
    let mut nak = vec![0, 0, 1, CONNECT_NAK, 8, 0];
    nak.extend_from_slice(&(text.len() as u16).to_be_bytes());
    nak.extend_from_slice(text.as_bytes());
    patch_length(&mut nak);
    Answer::Refuse { text, nak }
}

/// The server's answer, as read by a client.
pub(super) enum Verdict {
    Accepted { opened: Opened, key: Vec<u8> },
    Refused { text: String },
}

/// Reads the server's answer.
pub(super) fn verdict(message: &[u8], options: &ClientOptions) -> Result<Verdict> {
    let mut f = Fields { message: "connect answer", left: message };
    f.u16("length")?;
    let flags = f.u8("flags")?;
    match f.u8("extended flags")? {
        CONNECT_ACK => {}
        CONNECT_NAK => return nak(message),
        _ => return Err(f.err("neither ACK nor NAK")),
    }
    f.take(2, "header length")?;
    let number = f.u32("connection version")?;
    let version = match number {
        5..=9 => number as u8 + 5,
        _ => return Err(Error::Version(number)),
    };
    if version > options.version {
        return Err(f.err("a newer version than was asked for"));
    }
    let max_message = f.u16("max message size")?;
    if !(SMALLEST_FRAGMENT..=LARGEST_FRAGMENT).contains(&max_message) {
        return Err(f.err("max message size out of range"));
    }
    let pings = f.u8("RSSL flags")?;
    let ping_timeout = f.u8("ping timeout")?;
    let rwf = (f.u8("RWF version")?, f.u8("RWF version")?);
    let compression = match f.u16("compression")? {
        0 => None,
        1 => Some(Compression::Zlib),
        2 => Some(Compression::Lz4),
        _ => return Err(f.err("unknown compression")),
    };
    let level = if version >= 11 { f.u8("zlib level")? } else { 0 };
    let mut key = Vec::new();
    if version >= 14 {
        key = client_key(&mut f, options.secret)?;
    }
    let mut peer = String::new();
    if version >= 13 && !f.left.is_empty() {
        // Stock servers send a block length that is off by one: use the text's own length.
        f.u8("component block")?;
        if !f.left.is_empty() {
            peer = f.text("component")?;
        }
    }
    let opened = Opened {
        version,
        max_message,
        ping_timeout: Duration::from_secs(u64::from(ping_timeout.max(1))),
        we_ping: pings & CLIENT_PINGS != 0,
        peer_pings: pings & SERVER_PINGS != 0,
        compression,
        compress_sent: compression.is_some() && flags & FORCED != 0,
        zlib_level: level,
        rwf,
        host: String::new(),
        ip: String::new(),
        component: peer,
    };
    Ok(Verdict::Accepted { opened, key })
}

/// Reads the server's key exchange block and makes the client key message.
fn client_key(f: &mut Fields<'_>, secret: u64) -> Result<Vec<u8>> {
    let kind = (f.u8("key exchange")?, f.u8("key exchange type")?);
    let len = usize::from(f.u8("key exchange length")?);
    let mut block = Fields { message: f.message, left: f.take(len, "key exchange")? };
    let mut out = vec![0, 0, KEY_EXCHANGE];
    let prime = if kind == (KEY_EXCHANGE, 1) && len == 24 { block.u64("prime")? } else { 0 };
    if prime == 0 {
        out.push(0);
    } else {
        let generator = block.u64("generator")?;
        out.push(8);
        out.extend_from_slice(&power(generator, secret, prime).to_be_bytes());
    }
    patch_length(&mut out);
    Ok(out)
}

/// `base` to the `exponent`, modulo `prime` (not 0).
fn power(base: u64, mut exponent: u64, prime: u64) -> u64 {
    let prime = u128::from(prime);
    let (mut base, mut result) = (u128::from(base) % prime, 1 % prime);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * base % prime;
        }
        base = base * base % prime;
        exponent >>= 1;
    }
    result as u64
}

fn nak(message: &[u8]) -> Result<Verdict> {
    let mut f = Fields { message: "connection refusal", left: message };
    f.take(6, "header")?;
    let len = usize::from(f.u16("text length")?);
    let text = String::from_utf8_lossy(f.take(len, "text")?).trim_end_matches('\0').to_owned();
    Ok(Verdict::Refused { text })
}

/// Checks the form of the client's key message. The key in it is not used, because nothing is encrypted.
pub(super) fn key(message: &[u8]) -> Result<()> {
    let mut f = Fields { message: "client key", left: message };
    f.u16("length")?;
    if f.u8("flags")? != KEY_EXCHANGE {
        return Err(f.err("its flags are not those of a key"));
    }
    let len = usize::from(f.u8("key length")?);
    f.take(len, "key").map(|_| ())
}
