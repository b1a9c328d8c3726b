//! Field and enumeration dictionaries: read from files, and encoded once in parts to be sent. Spec: rssl.md §5.3

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use rssl::dictionary::{Dictionary, ENUM_DICTIONARY, Enums, FIELD_DICTIONARY, Fields, VERBOSITY_VERBOSE};
use rssl::rwf::{
    DataState, DataType, Domain, Key, Refresh, RefreshFlags, Request, RequestFlags, State, StreamState, code,
};
use rssl::wire::to_vec;

/// Default of the longest part, bytes.
pub const PART: usize = 8192;

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
    /// Payloads of the refreshes, for each of [`VERBOSITIES`].
    parts: Vec<Vec<Vec<u8>>>,
}

/// The dictionaries that a program sends, encoded. All threads share them, and they can be replaced.
#[derive(Debug, Default)]
pub struct Dictionaries {
    list: RwLock<Arc<Vec<Named>>>,
    part: usize,
}

impl Dictionaries {
    /// Encodes a dictionary in parts of at most `part` bytes.
    ///
    /// # Errors
    /// A name or text is too long for the wire.
    pub fn of(dictionary: &Dictionary, part: usize) -> rssl::Result<Self> {
        Ok(Self { list: RwLock::new(Arc::new(encode(dictionary, part)?)), part })
    }

    /// Replaces the dictionaries for later requests.
    ///
    /// # Errors
    /// As [`Dictionaries::of`]; nothing is replaced.
    pub fn replace(&self, dictionary: &Dictionary) -> rssl::Result<()> {
        let list = Arc::new(encode(dictionary, self.part)?);
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
        Ok(())
    }

    fn list(&self) -> Arc<Vec<Named>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.list().iter().any(|named| named.name == name)
    }

    /// The refreshes that answer a request, on its stream; `None` for an unknown dictionary.
    #[must_use]
    pub fn answer(&self, request: &Request<'_>) -> Option<Vec<Vec<u8>>> {
        let list = self.list();
        let parts = find(&list, request.key.name.unwrap_or_default(), request.key.filter.unwrap_or(7))?;
        let streaming = request.flags.contains(RequestFlags::STREAMING);
        let stream = if streaming { StreamState::Open } else { StreamState::NonStreaming };
        let message = |(part, number): (&Vec<u8>, u16)| {
            let mut flags = RefreshFlags::SOLICITED;
            if number == 0 {
                flags.insert(RefreshFlags::CLEAR_CACHE);
            }
            if usize::from(number) + 1 == parts.len() {
                flags.insert(RefreshFlags::COMPLETE);
            }
            let refresh = Refresh {
                domain: Domain::DICTIONARY,
                stream: request.stream,
                flags,
                container: DataType::SERIES,
                state: State::new(stream, DataState::Ok, code::NONE, b""),
                group: &[0, 0],
                key: Some(Key { name_type: None, attrib: None, identifier: None, ..request.key }),
                part: (parts.len() > 1).then_some(number),
                payload: part,
                ..Refresh::default()
            };
            to_vec(|w| refresh.encode(w)).ok()
        };
        // Encoding cannot fail: the key was decoded from a message.
        parts.iter().zip(0_u16..).map(message).collect()
    }
}

fn encode(dictionary: &Dictionary, part: usize) -> rssl::Result<Vec<Named>> {
    let cut = |name, parts: &dyn Fn(u32) -> rssl::Result<Vec<Vec<u8>>>| {
        Ok(Named { name, parts: VERBOSITIES.map(parts).into_iter().collect::<rssl::Result<_>>()? })
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

/// Most bytes of a dictionary that a source sends.
const MAX_RECEIVED: usize = 64 << 20;

/// A dictionary that a source sends in parts.
#[derive(Debug)]
pub struct Incoming {
    half: Half,
    bytes: usize,
}

impl Incoming {
    /// Starts with nothing; `kind` is a dictionary of the kind that will arrive.
    #[must_use]
    pub fn new(kind: &Half) -> Self {
        Self { half: kind.emptied(), bytes: 0 }
    }

    /// The conventional name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.half.name()
    }

    /// Adds a part. Returns the dictionary after its last part.
    ///
    /// # Errors
    /// The part is malformed, or the dictionary longer than 64 MiB. The next part has to be a first one.
    pub fn take(&mut self, payload: &[u8], first: bool, last: bool) -> Result<Option<Half>, String> {
        if first {
            *self = Self::new(&self.half);
        }
        self.bytes += payload.len();
        if self.bytes > MAX_RECEIVED {
            return Err(format!("it has more than {MAX_RECEIVED} bytes"));
        }
        self.half.take_part(payload).map_err(|why| why.to_string())?;
        if !last {
            return Ok(None);
        }
        let next = Self::new(&self.half);
        Ok(Some(std::mem::replace(self, next).half))
    }
}
