//! Prints the headers of messages.

use core::fmt;

use super::{Bytes, Printer, Sets};
use crate::rwf::rmtes::Text;
use crate::rwf::{Key, Message, PostUser, Qos, State, update_kind};

/// Shows each part that is present on a separate line.
macro_rules! parts {
    ($printer:expr, $depth:expr, $message:expr, $($part:ident $text:literal),*) => {
        $(if let Some(value) = &$message.$part {
            $printer.line($depth, format_args!("{} {}", $text, value))?;
        })*
    };
}

impl Printer<'_, '_> {
    pub(super) fn message(&mut self, depth: usize, bytes: &[u8]) -> fmt::Result {
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(e) => return self.bad(depth, &e),
        };
        let head = message.head();
        let title = format_args!("{:?} {} stream {}", head.class, head.domain, head.stream);
        let inner = depth + 1;
        self.header(depth, &title, &message)?;
        if message.payload().is_empty() {
            return Ok(());
        }
        self.line(inner, format_args!("payload {}", message.container()))?;
        self.container(inner + 1, message.container(), message.payload(), &Sets::default())
    }

    /// The parts of a header that `message` has; its first line begins with `title`.
    fn header(&mut self, depth: usize, title: &fmt::Arguments<'_>, message: &Message<'_>) -> fmt::Result {
        let inner = depth + 1;
        match message {
            Message::Request(m) => {
                self.line(depth, format_args!("{title} {}", m.flags))?;
                if let Some(p) = m.priority {
                    self.line(inner, format_args!("priority class {} count {}", p.class, p.count))?;
                }
                self.qos(inner, "QoS", m.qos)?;
                self.qos(inner, "worst QoS", m.worst_qos)?;
                self.key(inner, "key", Some(&m.key))?;
                self.bytes(inner, "extended header", m.ext)?;
            }
            Message::Refresh(m) => {
                self.line(depth, format_args!("{title} {}", m.flags))?;
                parts!(self, inner, m, seq "sequence number");
                self.state(inner, Some(&m.state))?;
                self.bytes(inner, "group", Some(m.group).filter(|g| !g.is_empty()))?;
                self.bytes(inner, "permission", m.perm)?;
                self.qos(inner, "QoS", m.qos)?;
                self.key(inner, "key", m.key.as_ref())?;
                self.bytes(inner, "extended header", m.ext)?;
                self.post_user(inner, m.post_user)?;
                parts!(self, inner, m, part "part");
                self.key(inner, "request key", m.req_key.as_ref())?;
            }
            Message::Status(m) => {
                self.line(depth, format_args!("{title} {}", m.flags))?;
                self.state(inner, m.state.as_ref())?;
                self.bytes(inner, "group", m.group)?;
                self.bytes(inner, "permission", m.perm)?;
                self.key(inner, "key", m.key.as_ref())?;
                self.bytes(inner, "extended header", m.ext)?;
                self.post_user(inner, m.post_user)?;
                self.key(inner, "request key", m.req_key.as_ref())?;
            }
            Message::Update(m) => {
                match update_kind::name(m.kind) {
                    Some(kind) => self.line(depth, format_args!("{title} {kind} {}", m.flags))?,
                    None => self.line(depth, format_args!("{title} kind {} {}", m.kind, m.flags))?,
                }
                parts!(self, inner, m, seq "sequence number");
                if let Some(c) = m.conflation {
                    self.line(inner, format_args!("{} updates of {} ms", c.count, c.time_ms))?;
                }
                self.bytes(inner, "permission", m.perm)?;
                self.key(inner, "key", m.key.as_ref())?;
                self.bytes(inner, "extended header", m.ext)?;
                self.post_user(inner, m.post_user)?;
            }
            Message::Close(_) | Message::Ack(_) | Message::Generic(_) | Message::Post(_) => {
                return self.other_header(depth, title, message);
            }
        }
        Ok(())
    }

    /// As [`Printer::header`], for the classes that do not carry the state or the data of an item.
    fn other_header(
        &mut self,
        depth: usize,
        title: &fmt::Arguments<'_>,
        message: &Message<'_>,
    ) -> fmt::Result {
        let inner = depth + 1;
        match message {
            Message::Close(m) => {
                self.line(depth, format_args!("{title} {}", m.flags))?;
                self.bytes(inner, "extended header", m.ext)?;
            }
            Message::Ack(m) => {
                self.line(depth, format_args!("{title} {} of {}", m.flags, m.ack_id))?;
                parts!(self, inner, m, nak "NAK", seq "sequence number");
                if let Some(text) = m.text {
                    self.line(inner, format_args!("text \"{}\"", Text(text)))?;
                }
                self.key(inner, "key", m.key.as_ref())?;
                self.bytes(inner, "extended header", m.ext)?;
            }
            Message::Generic(m) => {
                self.line(depth, format_args!("{title} {}", m.flags))?;
                parts!(self, inner, m, seq "sequence number", secondary_seq "secondary sequence number");
                self.bytes(inner, "permission", m.perm)?;
                self.key(inner, "key", m.key.as_ref())?;
                self.bytes(inner, "extended header", m.ext)?;
                parts!(self, inner, m, part "part");
                self.key(inner, "request key", m.req_key.as_ref())?;
            }
            Message::Post(m) => {
                self.line(depth, format_args!("{title} {}", m.flags))?;
                self.post_user(inner, Some(m.post_user))?;
                parts!(self, inner, m, seq "sequence number", post_id "post id");
                self.bytes(inner, "permission", m.perm)?;
                self.key(inner, "key", m.key.as_ref())?;
                self.bytes(inner, "extended header", m.ext)?;
                parts!(self, inner, m, part "part", rights "rights");
            }
            Message::Request(_) | Message::Refresh(_) | Message::Status(_) | Message::Update(_) => {}
        }
        Ok(())
    }

    fn bytes(&mut self, depth: usize, label: &str, bytes: Option<&[u8]>) -> fmt::Result {
        match bytes {
            Some(bytes) => self.line(depth, format_args!("{label} {}", Bytes(bytes))),
            None => Ok(()),
        }
    }

    fn qos(&mut self, depth: usize, label: &str, qos: Option<Qos>) -> fmt::Result {
        match qos {
            Some(qos) => self.line(depth, format_args!("{label} {qos}")),
            None => Ok(()),
        }
    }

    fn state(&mut self, depth: usize, state: Option<&State<'_>>) -> fmt::Result {
        match state {
            Some(state) => self.line(depth, format_args!("state {state}")),
            None => Ok(()),
        }
    }

    fn post_user(&mut self, depth: usize, user: Option<PostUser>) -> fmt::Result {
        match user {
            Some(user) => {
                let [a, b, c, d] = user.addr.to_be_bytes();
                self.line(depth, format_args!("post user {a}.{b}.{c}.{d} id {}", user.id))
            }
            None => Ok(()),
        }
    }

    fn key(&mut self, depth: usize, label: &str, key: Option<&Key<'_>>) -> fmt::Result {
        let Some(key) = key else { return Ok(()) };
        write!(self.out, "{:1$}{label}", "", depth * 2)?;
        if let Some(service) = key.service {
            write!(self.out, " service {service}")?;
        }
        if let Some(name) = key.name {
            write!(self.out, " name \"{}\"", Text(name))?;
        }
        if let Some(name_type) = key.name_type {
            write!(self.out, " type {name_type}")?;
        }
        if let Some(filter) = key.filter {
            write!(self.out, " filter {filter:#x}")?;
        }
        if let Some(identifier) = key.identifier {
            write!(self.out, " identifier {identifier}")?;
        }
        writeln!(self.out)?;
        match key.attrib {
            Some(attrib) => {
                self.line(depth + 1, format_args!("attributes {}", attrib.container))?;
                self.container(depth + 2, attrib.container, attrib.data, &Sets::default())
            }
            None => Ok(()),
        }
    }
}
