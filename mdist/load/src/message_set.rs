//! The encoded messages of one domain, which a publisher copies and patches, and the images that result from them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rssl::rwf::{DataType, Domain, FieldList, FieldListWriter, Map, MapAction, MapWriter, Update};
use rssl::transport::frame_header;
use rssl::wire::{Writer, to_vec};

use super::values::{SEQUENCE_BASE, vary};

/// Field of the stamp of an update: the time when it was sent.
pub const TIM_TRK_1: i16 = 3902;
/// Field of the stamp of a post.
pub const TIM_TRK_2: i16 = 3903;
/// Field of the stamp of a generic message.
pub const TIM_TRK_3: i16 = 3904;

/// One field with its encoded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Id in the dictionary.
    pub id: i16,
    /// Type of the value.
    pub kind: DataType,
    /// The value as on the wire; empty is blank.
    pub value: Vec<u8>,
}

/// One order: an entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Action.
    pub action: MapAction,
    /// Key.
    pub key: Vec<u8>,
    /// Fields; none if the order is deleted.
    pub fields: Vec<Field>,
}

/// The data of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A field list: MarketPrice.
    Fields(Vec<Field>),
    /// A map of field lists: MarketByOrder and similar domains.
    Orders(Vec<Order>),
}

impl Body {
    /// Container type of the payload.
    #[must_use]
    pub fn container(&self) -> DataType {
        match self {
            Self::Fields(_) => DataType::FIELD_LIST,
            Self::Orders(_) => DataType::MAP,
        }
    }

    /// All field lists in it.
    fn lists(&mut self) -> impl Iterator<Item = &mut Vec<Field>> {
        let (fields, orders) = match self {
            Self::Fields(fields) => (Some(fields), None),
            Self::Orders(orders) => (None, Some(orders)),
        };
        fields
            .into_iter()
            .chain(orders.into_iter().flatten().map(|order| &mut order.fields).filter(|f| !f.is_empty()))
    }

    /// Encodes the payload.
    ///
    /// # Errors
    /// A value is too long for the wire.
    pub fn encode(&self) -> rssl::Result<Vec<u8>> {
        to_vec(|w| match self {
            Self::Fields(fields) => write_fields(w, fields),
            Self::Orders(orders) => {
                let mut map = MapWriter::new(w, DataType::BUFFER, DataType::FIELD_LIST)?;
                for order in orders {
                    if order.action == MapAction::Delete {
                        map.delete(&order.key)?;
                    } else {
                        map.entry(order.action, &order.key, |w| write_fields(w, &order.fields))?;
                    }
                }
                map.finish()
            }
        })
    }

    /// This body with the values of update `n` of an item: all of them if `running`, else only the count of updates.
    #[must_use]
    pub fn at(&self, seed: u32, n: u32, sequence: Option<i16>, running: bool) -> Self {
        let mut body = self.clone();
        for field in body.lists().flatten() {
            if Some(field.id) == sequence && field.value.len() == 4 {
                field.value.copy_from_slice(&(SEQUENCE_BASE.wrapping_add(n)).to_be_bytes());
            } else if running {
                vary(field.kind, &mut field.value, seed, field.id, n);
            }
        }
        body
    }

    /// This body with a stamp as the last field of the last list.
    #[must_use]
    pub fn stamped(mut self, id: i16, stamp: u64) -> Self {
        if let Some(list) = self.lists().last() {
            let value = stamp.to_be_bytes();
            let skip = (stamp.leading_zeros() as usize / 8).min(7);
            list.push(Field { id, kind: DataType::UINT, value: value[skip..].to_vec() });
        }
        self
    }
}

fn write_fields(w: &mut Writer<'_>, fields: &[Field]) -> rssl::Result<()> {
    let mut list = FieldListWriter::new(w)?;
    for field in fields {
        list.field(field.id, &field.value)?;
    }
    list.finish()
}

/// Offset of a value in a template.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: i16,
    kind: DataType,
    at: usize,
    len: usize,
}

/// An encoded update in its frame, without its stream id and its values.
#[derive(Clone, Debug)]
pub struct Template {
    body: Body,
    frame: Vec<u8>,
    slots: Vec<Slot>,
    sequence: Vec<usize>,
}

/// Offset of the stream id in a frame.
const STREAM_AT: usize = rssl::transport::FRAME_HEADER + 4;

impl Template {
    fn new(domain: Domain, body: Body, sequence: Option<i16>) -> Result<Self> {
        let frame = framed_update(domain, &body)?;
        let mut slots = Vec::new();
        let mut kinds: Vec<DataType> = Vec::new();
        for field in body.clone().lists().flatten() {
            kinds.push(field.kind);
        }
        let payload = frame.get(frame.len() - body.encode()?.len()..).unwrap_or_default();
        let mut kinds = kinds.into_iter();
        let mut walk = |list: &[u8]| -> Result<()> {
            for field in FieldList::decode(list, None)?.entries() {
                let field = field?;
                let at = field.data.as_ptr().addr() - frame.as_ptr().addr();
                let kind = kinds.next().context("fewer fields than were written")?;
                slots.push(Slot { id: field.id, kind, at, len: field.data.len() });
            }
            Ok(())
        };
        match &body {
            Body::Fields(_) => walk(payload)?,
            Body::Orders(_) => {
                for entry in Map::decode(payload)?.entries() {
                    let entry = entry?;
                    if !entry.data.is_empty() {
                        walk(entry.data)?;
                    }
                }
            }
        }
        let of_sequence = |slot: &&Slot| Some(slot.id) == sequence && slot.len == 4;
        let sequence = slots.iter().filter(of_sequence).map(|slot| slot.at).collect::<Vec<_>>();
        slots.retain(|slot| !sequence.contains(&slot.at));
        Ok(Self { body, frame, slots, sequence })
    }

    /// Appends update `n` of an item to `out`: with the values of that update if `vary_values`, else with those of the
    /// template and the count of updates.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>, stream: i32, seed: u32, n: u32, vary_values: bool) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let Some(frame) = out.get_mut(start..) else { return };
        if let Some(place) = frame.get_mut(STREAM_AT..STREAM_AT + 4) {
            place.copy_from_slice(&stream.to_be_bytes());
        }
        for &at in &self.sequence {
            if let Some(place) = frame.get_mut(at..at + 4) {
                place.copy_from_slice(&SEQUENCE_BASE.wrapping_add(n).to_be_bytes());
            }
        }
        if vary_values {
            for slot in &self.slots {
                if let Some(place) = frame.get_mut(slot.at..slot.at + slot.len) {
                    vary(slot.kind, place, seed, slot.id, n);
                }
            }
        }
    }

    /// The decoded payload.
    #[must_use]
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.frame.len()
    }

    /// Offset of the count of updates in the message, without its frame.
    #[must_use]
    pub fn sequence_at(&self) -> Option<usize> {
        self.sequence.first().map(|at| at - rssl::transport::FRAME_HEADER)
    }
}

fn framed_update(domain: Domain, body: &Body) -> Result<Vec<u8>> {
    let payload = body.encode()?;
    let update =
        Update { domain, container: body.container(), kind: 1, payload: &payload, ..Update::default() };
    let message = update.to_vec()?;
    ensure!(message.len() <= 6144, "an update of {} bytes is too long for one frame of 6144", message.len());
    let mut frame = frame_header(message.len()).to_vec();
    frame.extend_from_slice(&message);
    Ok(frame)
}

/// All messages of one domain.
#[derive(Clone, Debug)]
pub struct MessageSet {
    /// The domain.
    pub domain: Domain,
    /// The image before the first update.
    pub refresh: Body,
    /// Updates, sent in turn.
    pub updates: Vec<Template>,
    /// Posts of consumers, sent in turn.
    pub posts: Vec<Body>,
    /// Generic messages of consumers, sent in turn.
    pub generics: Vec<Body>,
    /// The field that counts an item's updates: the first unsigned one of four bytes that all updates have.
    pub sequence: Option<i16>,
    /// Whether all values change with each update, or only the count of updates.
    pub running: bool,
}

impl MessageSet {
    /// Encodes the messages.
    ///
    /// # Errors
    /// There is no update, or a message does not fit.
    pub fn new(
        domain: Domain,
        refresh: Body,
        updates: Vec<Body>,
        posts: Vec<Body>,
        generics: Vec<Body>,
    ) -> Result<Self> {
        ensure!(!updates.is_empty(), "there is no update message");
        let counts = |body: &Body| -> Vec<i16> {
            let of = |f: &&mut Field| f.kind == DataType::UINT && f.value.len() == 4;
            body.clone().lists().flatten().filter(of).map(|field| field.id).collect()
        };
        let sequence = updates
            .first()
            .map(counts)
            .unwrap_or_default()
            .into_iter()
            .find(|id| updates.iter().all(|body| counts(body).contains(id)));
        let updates =
            updates.into_iter().map(|body| Template::new(domain, body, sequence)).collect::<Result<_>>()?;
        Ok(Self { domain, refresh, updates, posts, generics, sequence, running: false })
    }

    /// The template of an item's update `n`, from 1.
    #[inline]
    #[must_use]
    pub fn update(&self, n: u32) -> Option<&Template> {
        let count = self.updates.len() as u32;
        // Two updates are the usual case, and a division by a variable costs more than the rest of this.
        let which = if count == 2 { (n & 1) ^ 1 } else { n.wrapping_sub(1) % count.max(1) };
        self.updates.get(which as usize)
    }

    /// The image of an item after `n` updates.
    #[must_use]
    pub fn image(&self, seed: u32, n: u32) -> Image {
        let mut image = Image::default();
        image.apply(&self.refresh.at(seed, 0, self.sequence, self.running));
        // The last two rounds determine every field; fields that they do not touch are those of the refresh.
        let rounds = 2 * self.updates.len() as u32;
        for k in n.saturating_sub(rounds).saturating_add(1)..=n {
            if let Some(template) = self.update(k) {
                image.apply(&template.body.at(seed, k, self.sequence, self.running));
            }
        }
        image
    }
}

/// Values by field id.
type List = BTreeMap<i16, (DataType, Vec<u8>)>;

/// The state of one item: lists of field values by key; the one list of a MarketPrice item has an empty key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    lists: BTreeMap<Vec<u8>, List>,
    keyed: bool,
}

impl Image {
    fn apply(&mut self, body: &Body) {
        match body {
            Body::Fields(fields) => self.put(&[], fields),
            Body::Orders(orders) => {
                self.keyed = true;
                for order in orders {
                    if order.action != MapAction::Update {
                        self.lists.remove(&order.key);
                    }
                    if order.action != MapAction::Delete {
                        self.put(&order.key, &order.fields);
                    }
                }
            }
        }
    }

    fn put(&mut self, key: &[u8], fields: &[Field]) {
        let list = self.lists.entry(key.to_vec()).or_default();
        for field in fields {
            list.insert(field.id, (field.kind, field.value.clone()));
        }
    }

    /// Applies the payload of a message.
    ///
    /// # Errors
    /// The payload cannot be decoded.
    pub fn apply_payload(&mut self, container: DataType, payload: &[u8]) -> Result<()> {
        let fields = |list: &[u8]| -> Result<Vec<Field>> {
            FieldList::decode(list, None)?
                .entries()
                .map(|field| {
                    let field = field?;
                    Ok(Field { id: field.id, kind: DataType::UNKNOWN, value: field.data.to_vec() })
                })
                .collect()
        };
        let body = match container {
            DataType::FIELD_LIST => Body::Fields(fields(payload)?),
            DataType::MAP => Body::Orders(
                Map::decode(payload)?
                    .entries()
                    .map(|entry| {
                        let entry = entry?;
                        let fields = if entry.data.is_empty() { Vec::new() } else { fields(entry.data)? };
                        Ok(Order { action: entry.action, key: entry.key.to_vec(), fields })
                    })
                    .collect::<Result<_>>()?,
            ),
            other => anyhow::bail!("data of type {other} cannot be compared"),
        };
        self.apply(&body);
        Ok(())
    }

    /// This image as the body of a refresh, with the blank stamps of the vendor's tools.
    #[must_use]
    pub fn body(&self) -> Body {
        let fields = |list: &List| -> Vec<Field> {
            list.iter().map(|(&id, (kind, value))| Field { id, kind: *kind, value: value.clone() }).collect()
        };
        if self.keyed {
            let order = |(key, list): (&Vec<u8>, &_)| Order {
                action: MapAction::Add,
                key: key.clone(),
                fields: fields(list),
            };
            return Body::Orders(self.lists.iter().map(order).collect());
        }
        let mut all = self.lists.values().next().map(fields).unwrap_or_default();
        all.extend([TIM_TRK_1, TIM_TRK_2, TIM_TRK_3].map(|id| Field {
            id,
            kind: DataType::UINT,
            value: Vec::new(),
        }));
        Body::Fields(all)
    }

    /// Number of updates in this image, by the field that counts them.
    #[must_use]
    pub fn count(&self, sequence: i16) -> Option<u32> {
        let of = |list: &List| -> Option<u32> {
            let value: [u8; 4] = list.get(&sequence)?.1.as_slice().try_into().ok()?;
            u32::from_be_bytes(value).checked_sub(SEQUENCE_BASE)
        };
        self.lists.values().filter_map(of).max()
    }

    /// The first difference as text, stamps excluded; `None` if the images are equal.
    #[must_use]
    pub fn difference(&self, published: &Self) -> Option<String> {
        let keys = |image: &Self| image.lists.keys().cloned().collect::<Vec<_>>();
        if keys(self) != keys(published) {
            return Some(format!("{} entries, published are {}", self.lists.len(), published.lists.len()));
        }
        for (key, list) in &published.lists {
            let seen = self.lists.get(key)?;
            for (id, (_, value)) in list {
                let got = seen.get(id).map(|(_, value)| value);
                if got != Some(value) {
                    let entry = String::from_utf8_lossy(key);
                    return Some(format!("field {id} {entry}: {got:02x?}, published is {value:02x?}"));
                }
            }
            let stray =
                seen.keys().find(|id| !list.contains_key(id) && !(TIM_TRK_1..=TIM_TRK_3).contains(*id));
            if let Some(id) = stray {
                return Some(format!("field {id}, which was never published"));
            }
        }
        None
    }

    /// Number of fields.
    #[must_use]
    pub fn fields(&self) -> usize {
        self.lists.values().map(BTreeMap::len).sum()
    }
}
