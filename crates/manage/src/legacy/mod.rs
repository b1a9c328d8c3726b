//! The generic netlink family "TIPC" of kernels before TIPCv2, which `tipc-config` of tipcutils speaks.
//!
//! A request has a fixed header and a record; the reply has records, or one text. Each is translated to requests of
//! TIPCv2 and back, as the kernel does. Numbers in records are big-endian. Source: linux/tipc_config.h; the texts are
//! those of Linux.

mod text;

use crate::entry::{Entry, Properties};
use crate::errno::{Errno, Refusal};
use crate::netlink::{self, Header, Messages, padded};
use crate::request::Request;

/// Name of the family.
pub const NAME: &str = "TIPC";
/// The family's own header, in bytes: destination, command, and a reserved word of 16 bits, in host byte order.
pub(crate) const HEADER: usize = 8;
/// The only command of the family in the generic netlink header.
const CALL: u8 = 1;
/// Length and type of a record, in bytes.
const RECORD: usize = 4;
/// Longest text in a reply, in bytes.
const MAX_TEXT: usize = 32_000;
/// Ends a truncated text.
const TRUNCATED: &str = "<truncated>\n";
/// Length of a link's name in a record, in bytes.
const LINK_NAME: usize = 68;
/// Highest priority of a bearer; a higher number in a request stands for the medium's.
const MAX_PRIORITY: u32 = 31;

mod command {
    pub(super) const NOOP: u16 = 0x0000;
    pub(super) const GET_NODES: u16 = 0x0001;
    pub(super) const GET_MEDIA_NAMES: u16 = 0x0002;
    pub(super) const GET_BEARER_NAMES: u16 = 0x0003;
    pub(super) const GET_LINKS: u16 = 0x0004;
    pub(super) const SHOW_NAME_TABLE: u16 = 0x0005;
    pub(super) const SHOW_PORTS: u16 = 0x0006;
    pub(super) const SHOW_LINK_STATS: u16 = 0x000b;
    pub(super) const SHOW_STATS: u16 = 0x000f;
    pub(super) const GET_NETID: u16 = 0x400b;
    pub(super) const ENABLE_BEARER: u16 = 0x4101;
    pub(super) const DISABLE_BEARER: u16 = 0x4102;
    pub(super) const SET_LINK_TOL: u16 = 0x4107;
    pub(super) const SET_LINK_PRI: u16 = 0x4108;
    pub(super) const SET_LINK_WINDOW: u16 = 0x4109;
    pub(super) const RESET_LINK_STATS: u16 = 0x410c;
    pub(super) const SET_NODE_ADDR: u16 = 0x8001;
    pub(super) const SET_NETID: u16 = 0x800b;
}

/// Types of records.
mod record {
    pub(super) const UNSIGNED: u16 = 2;
    pub(super) const TEXT: u16 = 5;
    pub(super) const ERROR: u16 = 16;
    pub(super) const ADDRESS: u16 = 17;
    pub(super) const MEDIA_NAME: u16 = 18;
    pub(super) const BEARER_NAME: u16 = 19;
    pub(super) const LINK_NAME: u16 = 20;
    pub(super) const NODE_INFO: u16 = 21;
    pub(super) const LINK_INFO: u16 = 22;
    pub(super) const BEARER_CONFIG: u16 = 23;
    pub(super) const LINK_CONFIG: u16 = 24;
    pub(super) const NAME_QUERY: u16 = 25;
}

/// First bytes of error texts that stand for a fixed reason.
mod reason {
    pub(super) const RECORD: u8 = 0x80;
    pub(super) const NOT_ADMINISTRATOR: u8 = 0x81;
    pub(super) const NOT_SUPPORTED: u8 = 0x84;
}

/// Executes a request of TIPCv2: the entries of its reply.
pub type Ask<'a> = &'a mut dyn FnMut(&Request) -> Result<Vec<Entry>, Refusal>;

/// The reply to the first message of `packet`, a request of this family; `ask` is called for each request of TIPCv2
/// that it takes. `None` if the request is incomplete.
///
/// ```
/// use utipc_manage::{Entry, Media, Properties, legacy};
/// // Header of netlink (24 bytes long, family 30, a request), command 1, then: own node, media names.
/// let mut request = vec![0; 28];
/// request[0] = 28;
/// request[4] = 30;
/// request[16] = 1;
/// request[24..26].copy_from_slice(&2u16.to_ne_bytes());
/// let udp = || Entry::Media(Media { name: "udp".to_owned(), properties: Properties::default() });
/// let reply = legacy::reply(&request, &mut |_| Ok(vec![udp()])).unwrap();
/// assert_eq!(reply[28..], [0, 8, 0, 18, b'u', b'd', b'p', 0]);
/// ```
pub fn reply(packet: &[u8], ask: Ask<'_>) -> Option<Vec<u8>> {
    let message = Messages::new(packet).next()?;
    let own = message.body.get(..HEADER).filter(|_| message.header.command == CALL)?;
    let command = netlink::word16(own, 4)?;
    let call = Call { command, record: Record::read(message.body.get(HEADER..)?) };
    let mut records = Records::default();
    if let Err(refusal) = call.execute(ask, &mut records) {
        records = Records::default();
        records.error(&refusal);
    }
    let mut out = Vec::new();
    // Like Linux, the reply begins with the headers of the request.
    netlink::put(&mut out, &Header { ..message.header }, |out| {
        out.extend_from_slice(own);
        out.extend_from_slice(&records.0);
    });
    Some(out)
}

/// A record of a request.
#[derive(Clone, Copy, Default)]
struct Record<'a> {
    kind: u16,
    data: &'a [u8],
}

impl<'a> Record<'a> {
    /// The first record; an empty one of type 0 if there is none.
    fn read(bytes: &'a [u8]) -> Self {
        let word = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
        let read = || {
            let (len, kind) = (usize::from(word(0)?), word(2)?);
            Some(Self { kind, data: bytes.get(RECORD..len)? })
        };
        read().unwrap_or_default()
    }

    fn number(self, index: usize) -> Result<u32, Errno> {
        let bytes = self.data.get(index * 4..index * 4 + 4).ok_or(Errno::INVALID)?;
        bytes.try_into().map(u32::from_be_bytes).map_err(|_| Errno::INVALID)
    }

    /// The text from byte `at` to its NUL.
    fn text(self, at: usize) -> Result<String, Errno> {
        let bytes = self.data.get(at..).ok_or(Errno::INVALID)?;
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::INVALID)?;
        let text = bytes.get(..end).ok_or(Errno::INVALID)?;
        String::from_utf8(text.to_vec()).map_err(|_| Errno::INVALID)
    }
}

/// Writes the records of a reply.
#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn put(&mut self, kind: u16, data: &[u8]) {
        let len = u16::try_from(RECORD + data.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&len.to_be_bytes());
        self.0.extend_from_slice(&kind.to_be_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(padded(self.0.len()), 0);
    }

    fn numbers(&mut self, kind: u16, numbers: &[u32], name: &[u8]) {
        let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        data.extend_from_slice(name);
        self.put(kind, &data);
    }

    fn name(&mut self, kind: u16, name: &str) {
        self.put(kind, &[name.as_bytes(), &[0]].concat());
    }

    fn text(&mut self, mut text: String) {
        if text.len() > MAX_TEXT {
            let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text.push_str(TRUNCATED);
        }
        self.name(record::TEXT, &text);
    }

    fn error(&mut self, refusal: &Refusal) {
        let code = match refusal.errno {
            _ if !refusal.text.is_empty() => None,
            Errno::INVALID => Some(reason::RECORD),
            Errno::NOT_SUPPORTED => Some(reason::NOT_SUPPORTED),
            Errno::NOT_PERMITTED | Errno::NO_ACCESS => Some(reason::NOT_ADMINISTRATOR),
            _ => None,
        };
        match code {
            Some(code) => self.put(record::ERROR, &[code, 0]),
            None => self.name(record::ERROR, &refusal.to_string()),
        }
    }
}

/// A request: its command and record.
struct Call<'a> {
    command: u16,
    record: Record<'a>,
}

impl<'a> Call<'a> {
    /// The record, which must have this type.
    fn record(&self, kind: u16) -> Result<Record<'a>, Errno> {
        if self.record.kind == kind { Ok(self.record) } else { Err(Errno::INVALID) }
    }

    fn execute(&self, ask: Ask<'_>, out: &mut Records) -> Result<(), Refusal> {
        match self.command {
            command::NOOP => Ok(()),
            command::GET_NODES
            | command::GET_MEDIA_NAMES
            | command::GET_BEARER_NAMES
            | command::GET_LINKS
            | command::GET_NETID => self.list(ask, out),
            command::SHOW_NAME_TABLE => {
                let query = text::NameQuery::read(self.record(record::NAME_QUERY)?)?;
                out.text(query.text(&ask(&Request::Names)?));
                Ok(())
            }
            command::SHOW_PORTS => {
                out.text(text::ports(ask)?);
                Ok(())
            }
            command::SHOW_LINK_STATS => {
                let name = self.record(record::LINK_NAME)?.text(0)?;
                let all = ask(&Request::Links { broadcast: false })?;
                let found = all.iter().find_map(|entry| match entry {
                    Entry::Link(link) if link.name == name => Some(text::link(link)),
                    _ => None,
                });
                out.text(found.unwrap_or_default());
                Ok(())
            }
            command::SHOW_STATS => {
                out.text("TIPC version 2.0.0\n".to_owned());
                Ok(())
            }
            _ => {
                let change = self.change(ask)?;
                ask(&change).map(drop)
            }
        }
    }

    /// Commands whose reply is a list of records.
    fn list(&self, ask: Ask<'_>, out: &mut Records) -> Result<(), Refusal> {
        let request = match self.command {
            command::GET_NODES => Request::Nodes,
            command::GET_MEDIA_NAMES => Request::Media,
            command::GET_BEARER_NAMES => Request::Bearers,
            command::GET_NETID => Request::Net,
            _ => {
                self.record(record::ADDRESS)?;
                Request::Links { broadcast: false }
            }
        };
        for entry in ask(&request)? {
            match entry {
                Entry::Node(node) => {
                    out.numbers(record::NODE_INFO, &[node.address, node.up.into()], &[]);
                }
                Entry::Media(media) => out.name(record::MEDIA_NAME, &media.name),
                Entry::Bearer(bearer) => out.name(record::BEARER_NAME, &bearer.name),
                Entry::Net(net) => out.numbers(record::UNSIGNED, &[net.id], &[]),
                Entry::Link(link) => {
                    let mut name = link.name.into_bytes();
                    name.resize(LINK_NAME, 0);
                    out.numbers(record::LINK_INFO, &[link.destination, link.up.into()], &name);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Commands that change the node.
    fn change(&self, ask: Ask<'_>) -> Result<Request, Refusal> {
        Ok(match self.command {
            command::ENABLE_BEARER => {
                let record = self.record(record::BEARER_CONFIG)?;
                let priority = Some(record.number(0)?).filter(|priority| *priority <= MAX_PRIORITY);
                Request::BearerEnable {
                    name: record.text(8)?,
                    domain: record.number(1)?,
                    priority,
                    udp: None,
                }
            }
            command::DISABLE_BEARER => {
                Request::BearerDisable { name: self.record(record::BEARER_NAME)?.text(0)? }
            }
            command::SET_LINK_TOL | command::SET_LINK_PRI | command::SET_LINK_WINDOW => self.set(ask)?,
            command::RESET_LINK_STATS => {
                Request::LinkReset { name: self.record(record::LINK_NAME)?.text(0)? }
            }
            command::SET_NODE_ADDR => {
                let address = Some(self.record(record::ADDRESS)?.number(0)?);
                Request::NetSet { id: None, address, identity: None }
            }
            command::SET_NETID => {
                let id = Some(self.record(record::UNSIGNED)?.number(0)?);
                Request::NetSet { id, address: None, identity: None }
            }
            _ => return Err(Errno::NOT_SUPPORTED.into()),
        })
    }

    /// Sets a property of the medium, else the bearer, else the link with this name.
    fn set(&self, ask: Ask<'_>) -> Result<Request, Refusal> {
        let record = self.record(record::LINK_CONFIG)?;
        let (value, name) = (Some(record.number(0)?), record.text(4)?);
        let properties = match self.command {
            command::SET_LINK_TOL => Properties { tolerance: value, ..Properties::default() },
            command::SET_LINK_PRI => Properties { priority: value, ..Properties::default() },
            _ => Properties { window: value, ..Properties::default() },
        };
        let media = ask(&Request::Media)?;
        if media.iter().any(|entry| matches!(entry, Entry::Media(media) if media.name == name)) {
            return Ok(Request::MediaSet { name, properties });
        }
        let bearers = ask(&Request::Bearers)?;
        if bearers.iter().any(|entry| matches!(entry, Entry::Bearer(bearer) if bearer.name == name)) {
            return Ok(Request::BearerSet { name, properties });
        }
        Ok(Request::LinkSet { name, properties })
    }
}
