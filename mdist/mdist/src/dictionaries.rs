//! Field and enumeration dictionaries: read from files, and encoded once in parts to be sent. Spec: rssl.md §5.3

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use rssl::dictionary::{Dictionary, ENUM_DICTIONARY, Enums, FIELD_DICTIONARY, Fields, VERBOSITY_VERBOSE};
use rssl::rwf::{
    DataState, DataType, Domain, Key, Refresh, RefreshFlags, Request, RequestFlags, State, Status,
    StreamState, code,
};

/// Reads a dictionary from these files; without a file, that half is taken from the built-in small dictionary.
///
/// # Errors
/// A file cannot be read or is not a dictionary; the error names the file and the line.
pub fn load<P: AsRef<Path>>(fields: Option<P>, enums: Option<P>) -> anyhow::Result<Dictionary> {
    let mut dictionary = Dictionary::small();
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| {
            format!("cannot read the dictionary {} (check dictionary.fields and .enums)", path.display())
        })
    };
    if let Some(path) = fields.as_ref().map(P::as_ref) {
        dictionary.fields = Fields::parse(&read(path)?).with_context(|| format!("in {}", path.display()))?;
    }
    if let Some(path) = enums.as_ref().map(P::as_ref) {
        dictionary.enums = Enums::parse(&read(path)?).with_context(|| format!("in {}", path.display()))?;
    }
    Ok(dictionary)
}

/// The verbosities with different contents: info, minimal, normal, verbose.
const VERBOSITIES: [u32; 4] = [0, 3, 7, 15];

#[derive(Debug)]
struct Named {
    name: &'static str,
    /// Number of the replacement that gave it its present contents.
    revision: u64,
    /// Payloads of the refreshes, for each of [`VERBOSITIES`].
    parts: Vec<Vec<Vec<u8>>>,
}

/// A dictionary as the stream of a consumer or publisher got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    name: &'static str,
    revision: u64,
}

/// The dictionaries that a program sends, encoded. All threads share them, and they can be replaced.
#[derive(Debug, Default)]
pub struct Dictionaries {
    list: RwLock<Arc<Vec<Named>>>,
    /// Number of replacements.
    revision: AtomicU64,
    /// Longest payload of a refresh, bytes.
    part: usize,
}

impl Dictionaries {
    /// Encodes a dictionary in refreshes of at most `max_message` bytes, the largest frame payload of the connections.
    /// A row that is longer, as a large enumerated type, has a refresh of its own: stock readers take no split rows.
    ///
    /// Some stock readers wait for seconds when a burst contains messages of more than one frame.
    ///
    /// # Errors
    /// A name or text is too long for the wire.
    pub fn of(dictionary: &Dictionary, max_message: usize) -> rssl::Result<Self> {
        let part = max_message.saturating_sub(longest_header()?);
        let list = RwLock::new(Arc::new(encode(dictionary, part)?));
        Ok(Self { list, revision: AtomicU64::new(0), part })
    }

    /// Replaces the dictionaries for later requests. Streams of those that differ get a notice.
    ///
    /// # Errors
    /// As [`Dictionaries::of`]; nothing is replaced.
    pub fn replace(&self, dictionary: &Dictionary) -> rssl::Result<()> {
        let mut new = encode(dictionary, self.part)?;
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let revision = self.revision.load(Ordering::Relaxed) + 1;
        for (new, old) in new.iter_mut().zip(list.iter()) {
            new.revision = if new.parts == old.parts { old.revision } else { revision };
        }
        *list = Arc::new(new);
        self.revision.store(revision, Ordering::Release);
        Ok(())
    }

    fn list(&self) -> Arc<Vec<Named>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.list().iter().any(|named| named.name == name)
    }

    /// Number of replacements so far; while it stays the same, no stream has a [`Dictionaries::notice`] to get.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The present dictionary of this name, to be recorded with the stream that gets it. `None`: there is none.
    pub(crate) fn current(&self, name: &[u8]) -> Option<Given> {
        let list = self.list();
        let named = list.iter().find(|named| named.name.as_bytes() == name)?;
        Some(Given { name: named.name, revision: named.revision })
    }

    /// The status for a stream whose dictionary has been replaced: the consumer requests it again on the stream. It
    /// also brings `given` up to date. `None`: the dictionary is the present one.
    pub(crate) fn notice(&self, stream: i32, given: &mut Given) -> Option<Vec<u8>> {
        let current = self.current(given.name.as_bytes()).filter(|current| current != given)?;
        *given = current;
        let text = format!("{} has changed: request it again on this stream", given.name);
        let state = State::new(StreamState::Open, DataState::Suspect, code::NONE, text.as_bytes());
        let domain = Domain::DICTIONARY;
        Status::new(domain, stream, state).to_vec().ok()
    }

    /// The refreshes that answer a request, on its stream; `None` for an unknown dictionary.
    #[must_use]
    pub fn answer(&self, request: &Request<'_>) -> Option<Vec<Vec<u8>>> {
        let list = self.list();
        let parts = find(&list, request.key.name.unwrap_or_default(), request.key.filter.unwrap_or(7))?;
        let streaming = request.flags.contains(RequestFlags::STREAMING);
        let message = |(payload, number): (&Vec<u8>, u16)| {
            let last = usize::from(number) + 1 == parts.len();
            let part = (parts.len() > 1).then_some(number);
            let refresh = Refresh { payload, ..refresh(request.stream, &request.key, streaming, part, last) };
            refresh.to_vec().ok()
        };
        // Encoding cannot fail: the key was decoded from a message.
        parts.iter().zip(0_u16..).map(message).collect()
    }
}

/// One refresh of a dictionary without its payload; `part`: its number among several.
fn refresh<'a>(stream: i32, key: &Key<'a>, streaming: bool, part: Option<u16>, last: bool) -> Refresh<'a> {
    let mut flags = RefreshFlags::SOLICITED;
    if part.unwrap_or(0) == 0 {
        flags.insert(RefreshFlags::CLEAR_CACHE);
    }
    if last {
        flags.insert(RefreshFlags::COMPLETE);
    }
    let kept = if streaming { StreamState::Open } else { StreamState::NonStreaming };
    Refresh {
        domain: Domain::DICTIONARY,
        stream,
        flags,
        container: DataType::SERIES,
        state: State::new(kept, DataState::Ok, code::NONE, b""),
        group: &[0, 0],
        key: Some(Key { service: key.service, name: key.name, filter: key.filter, ..Key::default() }),
        part,
        ..Refresh::default()
    }
}

/// Maximum number of bytes of a refresh before its payload.
fn longest_header() -> rssl::Result<usize> {
    let name =
        [FIELD_DICTIONARY, ENUM_DICTIONARY].into_iter().max_by_key(|name| name.len()).unwrap_or_default();
    let (service, filter) = (Some(u16::MAX), Some(u32::MAX));
    let key = Key { service, name: Some(name.as_bytes()), filter, ..Key::default() };
    // The highest number that fits the wire.
    let refresh = refresh(i32::MAX, &key, true, Some(0x7fff), true);
    Ok(refresh.to_vec()?.len())
}

fn encode(dictionary: &Dictionary, part: usize) -> rssl::Result<Vec<Named>> {
    let cut = |name, parts: &dyn Fn(u32) -> rssl::Result<Vec<Vec<u8>>>| {
        let parts = VERBOSITIES.map(parts).into_iter().collect::<rssl::Result<_>>()?;
        Ok(Named { name, revision: 0, parts })
    };
    Ok(vec![
        cut(FIELD_DICTIONARY, &|verbosity| dictionary.fields.parts(verbosity, part))?,
        cut(ENUM_DICTIONARY, &|verbosity| dictionary.enums.parts(verbosity, part))?,
    ])
}

fn find<'a>(list: &'a [Named], name: &[u8], verbosity: u32) -> Option<&'a [Vec<u8>]> {
    let named = list.iter().find(|named| named.name.as_bytes() == name)?;
    let at = VERBOSITIES.iter().rposition(|known| verbosity >= *known)?;
    named.parts.get(at).map(Vec::as_slice)
}

/// One of the two dictionaries, as a source sends it.
#[derive(Clone, Debug)]
pub enum Half {
    /// The fields.
    Fields(Fields),
    /// The enumerated types.
    Enums(Enums),
}

impl Half {
    /// The conventional name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fields(_) => FIELD_DICTIONARY,
            Self::Enums(_) => ENUM_DICTIONARY,
        }
    }

    /// The same kind of dictionary without contents.
    #[must_use]
    pub fn emptied(&self) -> Self {
        match self {
            Self::Fields(_) => Self::Fields(Fields::default()),
            Self::Enums(_) => Self::Enums(Enums::default()),
        }
    }

    /// Adds the payload of one refresh.
    ///
    /// # Errors
    /// The payload is malformed, or of the other kind.
    pub fn take_part(&mut self, payload: &[u8]) -> rssl::Result<()> {
        match self {
            Self::Fields(fields) => fields.take_part(payload),
            Self::Enums(enums) => enums.take_part(payload),
        }
    }

    /// All of it, in payloads of about `part` bytes.
    ///
    /// # Errors
    /// A name or text is too long for the wire.
    pub fn parts(&self, part: usize) -> rssl::Result<Vec<Vec<u8>>> {
        match self {
            Self::Fields(fields) => fields.parts(VERBOSITY_VERBOSE, part),
            Self::Enums(enums) => enums.parts(VERBOSITY_VERBOSE, part),
        }
    }
}

/// Maximum number of bytes of a dictionary that a source sends.
const MAX_RECEIVED: usize = 64 << 20;

/// A dictionary that a source sends in parts.
#[derive(Debug)]
pub struct Incoming {
    half: Half,
    bytes: usize,
    /// A part was refused: the others of its dictionary are ignored.
    refused: bool,
}

impl Incoming {
    /// Starts with nothing; `kind` is a dictionary of the kind that will arrive.
    #[must_use]
    pub fn new(kind: &Half) -> Self {
        Self { half: kind.emptied(), bytes: 0, refused: false }
    }

    /// The conventional name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.half.name()
    }

    /// Adds a part. The first one ever and the next one after a last one start a dictionary; any other starts it again
    /// if it is called `first`. Returns the dictionary after its last part.
    ///
    /// # Errors
    /// The part is malformed, or the dictionary longer than 64 MiB. Its other parts are ignored.
    pub fn take(&mut self, payload: &[u8], first: bool, last: bool) -> Result<Option<Half>, String> {
        if first {
            *self = Self::new(&self.half);
        }
        if self.refused {
            self.refused = !last;
            return Ok(None);
        }
        if let Err(why) = self.add(payload) {
            *self = Self { refused: !last, ..Self::new(&self.half) };
            return Err(why);
        }
        if !last {
            return Ok(None);
        }
        let next = Self::new(&self.half);
        Ok(Some(std::mem::replace(self, next).half))
    }

    fn add(&mut self, payload: &[u8]) -> Result<(), String> {
        self.bytes += payload.len();
        if self.bytes > MAX_RECEIVED {
            return Err(format!("it has more than {MAX_RECEIVED} bytes"));
        }
        self.half.take_part(payload).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
#[path = "dictionaries_tests.rs"]
mod tests;
