//! Sockets and single messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use utipc::{Destination, Error, Importance, Method, ServiceRange, Socket, SocketKind};

use crate::Answer;
use crate::args::{Args, Refusal};
use crate::node::{Peer, Thing, port};
use crate::pattern;
use crate::tally::Tally;

/// The largest message, bytes.
const LARGEST: usize = 66_000;
/// Bytes of a message that an answer contains.
const SHOWN: usize = 64;

impl Peer {
    pub(crate) fn socket(&self, args: &Args) -> Answer {
        let kind = match args.text("kind")? {
            "rdm" => SocketKind::Rdm,
            "dgram" => SocketKind::Dgram,
            "seqpacket" => SocketKind::SeqPacket,
            "stream" => SocketKind::Stream,
            other => return Err(Refusal::Request(format!("unknown kind of socket: {other}"))),
        };
        let socket = self.node()?.socket(kind)?;
        let id = port(socket.port());
        Ok(json!({"s": self.keep(Thing::Socket(Arc::new(socket))), "port": id}))
    }

    pub(crate) fn option(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        match (args.text("name")?, args.maybe_text("value")) {
            ("mcast", Some("broadcast")) => socket.set_multicast_method(Method::Broadcast)?,
            ("mcast", Some("replicast")) => socket.set_multicast_method(Method::Replicast)?,
            ("importance", _) => {
                let importance = Importance::from_number(args.u32("value")?);
                socket.set_importance(importance.ok_or_else(|| Refusal::Request("0 to 3".into()))?)?;
            }
            ("droppable", _) => socket.set_returned(args.number("value")? == 0)?,
            ("nodelay", _) => socket.set_nodelay(args.number("value")? != 0)?,
            (other, _) => return Err(Refusal::Request(format!("unknown option {other}"))),
        }
        Ok(json!({}))
    }

    pub(crate) fn bind(&self, args: &Args) -> Answer {
        self.sock(args)?.bind(args.range()?, args.scope())?;
        Ok(json!({}))
    }

    pub(crate) fn unbind(&self, args: &Args) -> Answer {
        self.sock(args)?.unbind(args.range()?, args.scope())?;
        Ok(json!({}))
    }

    pub(crate) fn bind_many(&self, args: &Args) -> Answer {
        let (socket, service) = (self.sock(args)?, args.u32("type")?);
        for instance in 0..args.u32("count")? {
            socket.bind(ServiceRange::new(service, instance, instance), args.scope())?;
        }
        Ok(json!({}))
    }

    pub(crate) fn unbind_many(&self, args: &Args) -> Answer {
        let (socket, service) = (self.sock(args)?, args.u32("type")?);
        for instance in (0..args.u32("count")?).step_by(args.length("step")?) {
            socket.unbind(ServiceRange::new(service, instance, instance), args.scope())?;
        }
        Ok(json!({}))
    }

    pub(crate) fn send(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        let data = match args.maybe_text("text") {
            Some(text) => text.as_bytes().to_vec(),
            None => pattern::piece(args.seed()?, 0, args.length("length")?),
        };
        let end = Instant::now() + args.milliseconds("timeout_ms", 10_000)?;
        send_whole(&socket, &data, args.destination()?, end)?;
        Ok(json!({"adler": pattern::checksum(&data, 1)}))
    }

    /// `to` may be a list: message N then goes to the entry N modulo its length.
    pub(crate) fn send_many(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        let (count, first, length) =
            (args.u32("count")?, args.u32_or("first", Some(0))?, args.length("length")?);
        let to = args.destinations()?;
        let end = Instant::now() + args.milliseconds("timeout_ms", 60_000)?;
        let gap = args.microseconds("gap_us")?;
        for number in 0..count {
            let data = pattern::numbered(first + number, length);
            let there = to.get((first + number) as usize % to.len().max(1)).copied().flatten();
            if let Err(error) = send_whole(&socket, &data, there, end) {
                return Ok(json!({"sent": number, "error": Refusal::from(error).to_string()}));
            }
            if !gap.is_zero() {
                std::thread::sleep(gap);
            }
        }
        Ok(json!({"sent": count, "error": null}))
    }

    pub(crate) fn receive(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        socket.set_receive_timeout(Some(args.milliseconds("timeout_ms", 10_000)?));
        let got = socket.receive()?;
        let head: String = got.data.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect();
        let returned = got.returned.as_ref().filter(|r| !r.data.is_empty());
        Ok(json!({
            "length": got.data.len(),
            "adler": pattern::checksum(&got.data, 1),
            "head": head,
            "error": got.returned.as_ref().map_or(0, |r| u8::from(r.code)),
            "returned": returned.map(|r| json!({"length": r.data.len(), "adler": pattern::checksum(&r.data, 1)})),
            "name": got.destination.map(|d| json!([d.service, d.lower, d.upper])),
            "from": port(got.source),
        }))
    }

    pub(crate) fn receive_many(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        let (count, length) = (args.u32("count")?, args.length("length")?);
        let end = Instant::now() + args.milliseconds("timeout_ms", 60_000)?;
        let idle = args.milliseconds("idle_ms", 5_000)?;
        let mut tally = Tally::new(args.u32_or("first", Some(0))?);
        let mut buffer = vec![0; LARGEST];
        let mut error = None;
        while tally.got < count && error.is_none() {
            socket.set_receive_timeout(Some(idle.min(end.saturating_duration_since(Instant::now()))));
            match socket.receive_into(&mut buffer) {
                Ok(got) if got.len == 0 && got.returned.is_none() => error = Some("EOF".to_owned()),
                Ok(got) if got.len == 0 => error = Some("REJECTED".to_owned()),
                Ok(got) => tally.take(buffer.get(..got.len).unwrap_or_default(), length),
                Err(refused) => error = Some(Refusal::from(refused).to_string()),
            }
        }
        Ok(tally.answer(error))
    }

    pub(crate) fn listen(&self, args: &Args) -> Answer {
        self.sock(args)?.listen()?;
        Ok(json!({}))
    }

    pub(crate) fn accept(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        socket.set_receive_timeout(Some(args.milliseconds("timeout_ms", 10_000)?));
        let (accepted, from) = socket.accept()?;
        Ok(json!({"s": self.keep(Thing::Socket(Arc::new(accepted))), "from": port(from)}))
    }

    pub(crate) fn connect(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        let to = args.destination()?.ok_or_else(|| Refusal::Request("to is missing".into()))?;
        socket.set_connect_timeout(args.milliseconds("timeout_ms", 10_000)?)?;
        socket.connect(to)?;
        Ok(json!({"peer": socket.peer().map(port)}))
    }

    pub(crate) fn shutdown(&self, args: &Args) -> Answer {
        self.sock(args)?.shutdown()?;
        Ok(json!({}))
    }
}

/// Sends a whole message, which a stream may accept in pieces.
fn send_whole(socket: &Socket, data: &[u8], to: Option<Destination>, end: Instant) -> Result<(), Error> {
    let mut sent = 0;
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_send_timeout(Some(left));
        let rest = data.get(sent..).unwrap_or_default();
        sent += match to {
            Some(to) if sent == 0 => socket.send_to(rest, to)?,
            _ => socket.send(rest)?,
        };
        if sent >= data.len() {
            return Ok(());
        }
    }
}
