//! Images: cached values as payloads or whole refreshes.

use super::node::Node;
use super::table::split;
use super::{Cache, Record, Result};
use rssl::limits::MAX_MESSAGE;
use rssl::rwf::{DataType, Domain, Key, Refresh, RefreshFlags, State};
use rssl::wire::Writer;

/// One part of the payload of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartView<'a> {
    /// Type of the payload.
    pub container: DataType,
    /// The payload.
    pub payload: &'a [u8],
    /// Number of the part, from 0.
    pub part: u16,
    /// Whether it is the last part.
    pub complete: bool,
}

/// The parts of a refresh that do not come from the record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image<'a> {
    /// Domain of the item.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Whether the refresh answers a request.
    pub solicited: bool,
    /// Key; `None`: the refresh has none.
    pub key: Option<Key<'a>>,
    /// State; `None`: the record's.
    pub state: Option<State<'a>>,
}

impl Cache {
    /// Calls `f` with the payload of the image, in parts of at most `max_part` bytes. Field lists, element lists and
    /// values that are cached whole have one part of any size. An incomplete image is emitted as it is.
    ///
    /// # Errors
    /// [`super::Error::Wire`]: an entry, summary or nested container is larger than the wire can carry.
    pub fn parts(&mut self, record: &Record, max_part: usize, mut f: impl FnMut(PartView<'_>)) -> Result<()> {
        let container = record.container();
        let mut part = 0_u16;
        let each = |payload: &[u8], complete: bool| {
            f(PartView { container, payload, part, complete });
            part = part.saturating_add(1);
        };
        match &record.body {
            Node::Map(table) => split(&**table, max_part, each),
            Node::Vector(table) => split(&**table, max_part, each),
            Node::Series(table) => split(&**table, max_part, each),
            Node::Filters(table) => split(&**table, max_part, each),
            node => {
                self.out.clear();
                node.emit(&mut self.out)?;
                f(PartView { container, payload: &self.out, part, complete: true });
                Ok(())
            }
        }
    }

    /// Calls `f` with the messages of a refresh, with payloads of at most `max_part` bytes. Of several parts the first
    /// has CLEAR_CACHE, the last COMPLETE, and all have numbers. Spec: rssl.md §6.
    ///
    /// # Errors
    /// As [`Cache::parts`].
    pub fn image(
        &mut self,
        record: &Record,
        image: &Image<'_>,
        max_part: usize,
        mut f: impl FnMut(&[u8]),
    ) -> Result<()> {
        let about = record.about.as_deref();
        let mut refresh = Refresh {
            domain: image.domain,
            stream: image.stream,
            flags: RefreshFlags::NONE,
            container: record.container(),
            seq: record.seq(),
            state: image.state.or(about.map(|a| a.state.borrow())).unwrap_or_default(),
            group: about.map_or(&[], |a| &a.group),
            perm: about.and_then(|a| a.perm.as_deref()),
            qos: about.and_then(|a| a.qos),
            key: image.key,
            ext: about.and_then(|a| a.ext.as_deref()),
            ..Refresh::default()
        };
        let mut message = std::mem::take(&mut self.message);
        let mut result = Ok(());
        let parts = self.parts(record, max_part, |part| {
            refresh.flags = RefreshFlags::NONE;
            if image.solicited {
                refresh.flags.insert(RefreshFlags::SOLICITED);
            }
            if part.part == 0 {
                refresh.flags.insert(RefreshFlags::CLEAR_CACHE);
            }
            if part.complete {
                refresh.flags.insert(RefreshFlags::COMPLETE);
            }
            refresh.part = (part.part > 0 || !part.complete).then_some(part.part);
            match write(&mut message, &refresh, part.payload) {
                Ok(len) => f(message.get(..len).unwrap_or_default()),
                Err(why) => result = Err(why.into()),
            }
        });
        self.message = message;
        parts.and(result)
    }
}

/// Writes a message into memory that grows as needed; returns its length.
fn write(message: &mut Vec<u8>, refresh: &Refresh<'_>, payload: &[u8]) -> rssl::Result<usize> {
    let mut size = message.len().max(payload.len() + 1024);
    loop {
        if message.len() < size {
            message.resize(size, 0);
        }
        let mut w = Writer::new(message);
        match refresh.encode_header(&mut w).and_then(|()| w.bytes(payload)) {
            Ok(()) => return Ok(w.len()),
            Err(rssl::Error::Full) if size < MAX_MESSAGE => size = (size * 2).min(MAX_MESSAGE),
            Err(why) => return Err(why),
        }
    }
}
