//! Payloads of item requests: batches, views, behaviours of symbol lists. Spec: rssl.md §5.4, §6

use super::{elements, wrong};
use crate::Result;
use crate::rwf::{Array, DataType, ElementListWriter, int, uint};
use crate::wire::Writer;

const ITEM_LIST: &[u8] = b":ItemList";
const STREAM_ID_LIST: &[u8] = b":StreamIdList";
const VIEW_TYPE: &[u8] = b":ViewType";
const VIEW_DATA: &[u8] = b":ViewData";
const BEHAVIORS: &[u8] = b":SymbolListBehaviors";
const DATA_STREAMS: &[u8] = b":DataStreams";

const VIEW_FIELDS: u64 = 1;
const VIEW_ELEMENTS: u64 = 2;

/// The parts of an item that a stream requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// Fields by id.
    Fields(Vec<i16>),
    /// Elements by name.
    Names(Vec<Vec<u8>>),
}

/// The names of the items of a batch request, in its order; empty if the payload has no list of items.
///
/// # Errors
/// Content that is cut short, or a list of another type.
pub fn batch_names(payload: &[u8]) -> Result<Vec<&[u8]>> {
    let mut names = Vec::new();
    elements(payload, |e| {
        if e.name == ITEM_LIST {
            if e.data_type != DataType::ARRAY {
                return Err(wrong("item list"));
            }
            for item in Array::decode(e.data)?.items() {
                names.push(item?);
            }
        }
        Ok(())
    })?;
    Ok(names)
}

/// The streams of a batch close or batch reissue; `None` if the payload has no list of streams.
///
/// # Errors
/// Content that is cut short, a list of another type, or ids out of range.
pub fn stream_ids(payload: &[u8]) -> Result<Option<Vec<i32>>> {
    let mut ids = None;
    elements(payload, |e| {
        if e.name == STREAM_ID_LIST {
            if e.data_type != DataType::ARRAY {
                return Err(wrong("stream id list"));
            }
            let mut found = Vec::new();
            for item in Array::decode(e.data)?.items() {
                let id = int::decode(item?)?.and_then(|id| i32::try_from(id).ok());
                found.push(id.ok_or(wrong("stream id"))?);
            }
            ids = Some(found);
        }
        Ok(())
    })?;
    Ok(ids)
}

/// The view of a request.
///
/// # Errors
/// Content that is cut short, no view, or a view of an unknown type.
pub fn view(payload: &[u8]) -> Result<View> {
    let (mut kind, mut data) = (None, None);
    elements(payload, |e| {
        match e.name {
            VIEW_TYPE => kind = e.uint(),
            VIEW_DATA if e.data_type == DataType::ARRAY => data = Some(Array::decode(e.data)?),
            _ => {}
        }
        Ok(())
    })?;
    let data = data.ok_or(wrong("view data"))?;
    match kind {
        Some(VIEW_FIELDS) => {
            let unsigned = data.data_type == DataType::UINT;
            let fields = data.items().map(|item| {
                let item = item?;
                let id = if unsigned {
                    uint::decode(item)?.and_then(|id| i16::try_from(id).ok())
                } else {
                    int::decode(item)?.and_then(|id| i16::try_from(id).ok())
                };
                id.ok_or(wrong("field id of a view"))
            });
            fields.collect::<Result<_>>().map(View::Fields)
        }
        Some(VIEW_ELEMENTS) => {
            let names = data.items().map(|item| item.map(<[u8]>::to_vec));
            names.collect::<Result<_>>().map(View::Names)
        }
        _ => Err(wrong("view type")),
    }
}

/// Whether a symbol list opens its items too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SymbolListBehaviors {
    /// Bits: 1 streams, 2 snapshots.
    pub data_streams_bits: u64,
}

impl SymbolListBehaviors {
    /// Reads a request's payload.
    ///
    /// # Errors
    /// Content that is cut short.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut behaviors = Self::default();
        elements(payload, |e| {
            if e.name == BEHAVIORS && e.data_type == DataType::ELEMENT_LIST {
                return elements(e.data, |e| {
                    if e.name == DATA_STREAMS {
                        behaviors.data_streams_bits = e.uint().unwrap_or(0);
                    }
                    Ok(())
                });
            }
            Ok(())
        })?;
        Ok(behaviors)
    }

    /// Whether to open the items: `Some(true)` as streams, `Some(false)` as snapshots.
    #[must_use]
    pub const fn data_streams(&self) -> Option<bool> {
        match self.data_streams_bits {
            bits if bits & 1 != 0 => Some(true),
            bits if bits & 2 != 0 => Some(false),
            _ => None,
        }
    }
}

/// The payload of one request: an element list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPayload<'a> {
    /// Names of a batch.
    pub names: Option<&'a [&'a [u8]]>,
    /// Streams of a batch reissue or batch close.
    pub streams: Option<&'a [i32]>,
    /// A view.
    pub view: Option<&'a View>,
    /// Symbol lists: see [`SymbolListBehaviors`].
    pub data_streams: Option<u64>,
}

impl RequestPayload<'_> {
    /// Writes the payload.
    ///
    /// # Errors
    /// [`crate::Error::Full`], or a list that is too long for one message.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<()> {
        let mut list = ElementListWriter::new(w)?;
        if let Some(names) = self.names {
            list.array_ascii(ITEM_LIST, names)?;
        }
        if let Some(streams) = self.streams {
            let streams: Vec<i64> = streams.iter().map(|id| i64::from(*id)).collect();
            list.array_int(STREAM_ID_LIST, 4, &streams)?;
        }
        match self.view {
            Some(View::Fields(fields)) => {
                list.uint(VIEW_TYPE, VIEW_FIELDS)?;
                let fields: Vec<i64> = fields.iter().map(|id| i64::from(*id)).collect();
                list.array_int(VIEW_DATA, 2, &fields)?;
            }
            Some(View::Names(names)) => {
                list.uint(VIEW_TYPE, VIEW_ELEMENTS)?;
                list.array_ascii(VIEW_DATA, names)?;
            }
            None => {}
        }
        if let Some(bits) = self.data_streams {
            list.container(BEHAVIORS, DataType::ELEMENT_LIST, |w| {
                let mut list = ElementListWriter::new(w)?;
                list.uint(DATA_STREAMS, bits)?;
                list.finish()
            })?;
        }
        list.finish()
    }
}

/// Writes the payload of a batch request.
///
/// # Errors
/// As [`RequestPayload::encode`].
pub fn encode_batch(w: &mut Writer<'_>, names: &[&[u8]]) -> Result<()> {
    RequestPayload { names: Some(names), ..RequestPayload::default() }.encode(w)
}

/// Writes the payload of a request with a view.
///
/// # Errors
/// As [`RequestPayload::encode`].
pub fn encode_view(w: &mut Writer<'_>, view: &View) -> Result<()> {
    RequestPayload { view: Some(view), ..RequestPayload::default() }.encode(w)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn request_payloads_round_trip() {
        let view_of_fields = View::Fields(vec![22, -25]);
        let names: [&[u8]; 2] = [b"TRI", b"IBM.N"];
        let request = RequestPayload {
            names: Some(&names),
            streams: Some(&[5, -6]),
            view: Some(&view_of_fields),
            data_streams: Some(2),
        };
        let payload = to_vec(|w| request.encode(w)).unwrap();
        assert_eq!(batch_names(&payload).unwrap(), names);
        assert_eq!(stream_ids(&payload), Ok(Some(vec![5, -6])));
        assert_eq!(view(&payload), Ok(view_of_fields));
        assert_eq!(SymbolListBehaviors::decode(&payload).unwrap().data_streams(), Some(false));
        let by_name = View::Names(vec![b"Bid".to_vec()]);
        let payload = to_vec(|w| encode_view(w, &by_name)).unwrap();
        assert_eq!(view(&payload), Ok(by_name));
        assert_eq!((batch_names(&payload), stream_ids(&payload)), (Ok(vec![]), Ok(None)));
        assert_eq!(SymbolListBehaviors::decode(&payload).unwrap().data_streams(), None);
    }

    #[test]
    fn malformed_payloads_are_errors() {
        assert!(view(&to_vec(|w| encode_batch(w, &[b"A"])).unwrap()).is_err());
        let list = |name: &[u8]| {
            to_vec(|w| {
                let mut list = ElementListWriter::new(w)?;
                list.uint(name, 1)?;
                list.finish()
            })
        };
        for name in [ITEM_LIST, STREAM_ID_LIST, VIEW_TYPE, VIEW_DATA] {
            let payload = list(name).unwrap();
            assert!(
                batch_names(&payload).is_err() || stream_ids(&payload).is_err() || view(&payload).is_err()
            );
        }
        assert!(batch_names(&[8, 0, 1]).is_err());
    }
}
