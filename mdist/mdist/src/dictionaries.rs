//! Field and enumeration dictionaries: read from files, and encoded once in parts to be sent. Spec: rssl.md §5.3

use std::path::Path;

use anyhow::Context as _;
use rssl::dictionary::{Dictionary, ENUM_DICTIONARY, Enums, FIELD_DICTIONARY, Fields};
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
    let read =
        |path: &Path| std::fs::read(path).with_context(|| format!("read the dictionary {}", path.display()));
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

/// The dictionaries that a program sends, encoded.
#[derive(Debug, Default)]
pub struct Dictionaries {
    list: Vec<Named>,
}

impl Dictionaries {
    /// Encodes a dictionary in parts of at most `part` bytes.
    ///
    /// # Errors
    /// A name or text is too long for the wire.
    pub fn of(dictionary: &Dictionary, part: usize) -> rssl::Result<Self> {
        let cut = |name, parts: &dyn Fn(u32) -> rssl::Result<Vec<Vec<u8>>>| {
            Ok(Named { name, parts: VERBOSITIES.map(parts).into_iter().collect::<rssl::Result<_>>()? })
        };
        Ok(Self {
            list: vec![
                cut(FIELD_DICTIONARY, &|verbosity| dictionary.fields.parts(verbosity, part))?,
                cut(ENUM_DICTIONARY, &|verbosity| dictionary.enums.parts(verbosity, part))?,
            ],
        })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|named| named.name == name)
    }

    fn find(&self, name: &[u8], verbosity: u32) -> Option<&[Vec<u8>]> {
        let named = self.list.iter().find(|named| named.name.as_bytes() == name)?;
        let at = VERBOSITIES.iter().rposition(|known| verbosity >= *known)?;
        named.parts.get(at).map(Vec::as_slice)
    }

    /// The refreshes that answer a request, on its stream; `None` for an unknown dictionary.
    #[must_use]
    pub fn answer(&self, request: &Request<'_>) -> Option<Vec<Vec<u8>>> {
        let parts = self.find(request.key.name.unwrap_or_default(), request.key.filter.unwrap_or(7))?;
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
