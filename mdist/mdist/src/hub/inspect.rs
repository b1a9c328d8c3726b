//! What the web page shows of the hub. The work is bounded, and nothing changes.

use std::fmt::Write as _;

use rssl::dictionary::Dictionary;
use rssl::rwf::{
    DataState, DataType, Domain, Enum, FieldList, Key, Printed, StreamState, Value, rmtes::Text,
};
use rssl::rwf::{Names as _, Refresh};
use serde::Serialize;

use super::ItemSpec;
use super::state::Hub;
use crate::cache::Image;

/// Maximum number of places of the item table that a list visits.
const VISITED: usize = 20_000;
/// Maximum number of fields, or lines of another container, of one item.
const FIELDS: usize = 300;
/// Longest value, characters.
const VALUE: usize = 200;

/// A service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceView {
    /// The hub's id.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Whether a source offers it now.
    pub up: bool,
    /// Whether it takes requests.
    pub accepting: bool,
    /// Whether its last values are cached.
    pub cached: bool,
}

/// An open item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ItemView {
    /// Name of its service.
    pub service: String,
    /// Its name.
    pub name: String,
    /// The kind of data.
    pub domain: String,
    /// Whether its values are current.
    pub ok: bool,
    /// State of its stream, and the text of the source.
    pub state: String,
    /// Requests of consumers that hold it open.
    pub holders: u32,
}

/// A field and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldView {
    /// Number and name; empty in a line of another container than a field list.
    pub name: String,
    /// The value as text.
    pub value: String,
}

fn cut(text: impl std::fmt::Display) -> String {
    text.to_string().chars().take(VALUE).collect()
}

impl Hub {
    /// The services that the sides see.
    #[must_use]
    pub fn view_services(&self) -> Vec<ServiceView> {
        let listed = self.services().services.iter();
        let view = listed.filter_map(|service| {
            let state = service.state.as_ref();
            let name = service.info.as_ref()?.name.clone();
            let cached = self.services.index(service.id).and_then(|at| self.services.list.get(at));
            Some(ServiceView {
                id: service.id,
                name,
                up: state.is_some_and(|state| state.up),
                accepting: state.is_some_and(|state| state.accepting),
                cached: cached.is_some_and(|service| service.cached),
            })
        });
        view.collect()
    }

    fn name_of_service(&self, id: u16) -> String {
        let listed = self.services().services.iter().find(|service| service.id == id);
        listed
            .and_then(|service| service.info.as_ref())
            .map_or_else(|| id.to_string(), |info| info.name.clone())
    }

    /// The first `most` open items.
    #[must_use]
    pub fn view_items(&self, most: usize) -> Vec<ItemView> {
        self.items
            .in_places(VISITED)
            .take(most)
            .map(|item| {
                let key = item.spec.key(item.spec.service);
                let text = Text(&item.state.text);
                let stream = match item.state.stream {
                    StreamState::Open => "open",
                    StreamState::NonStreaming => "snapshot",
                    StreamState::ClosedRecover => "being recovered",
                    StreamState::Closed => "closed",
                    _ => "being opened",
                };
                ItemView {
                    service: self.name_of_service(item.spec.service),
                    name: cut(Text(key.name.unwrap_or_default())),
                    domain: item.spec.domain.to_string(),
                    ok: item.state.data == DataState::Ok,
                    state: cut(format_args!("{stream} {text}")).trim_end().to_owned(),
                    holders: item.holders.iter().fold(0, |sum, (_, holds)| sum.saturating_add(*holds)),
                }
            })
            .collect()
    }

    /// The cached values of an item with the default quality of service, decoded with `dictionary`.
    ///
    /// # Errors
    /// Why there are none, in one line.
    pub fn view_values(
        &mut self,
        service: &str,
        item: &str,
        dictionary: &Dictionary,
    ) -> Result<Vec<FieldView>, &'static str> {
        self.apply_pending_first();
        let services = self.services().services.iter();
        let id =
            { services }.find(|s| s.info.as_ref().is_some_and(|info| info.name == service)).map(|s| s.id);
        let id = id.ok_or("no such service")?;
        let key = Key { name: Some(item.as_bytes()), ..Key::default() };
        let found = [
            Domain::MARKET_PRICE,
            Domain::MARKET_BY_ORDER,
            Domain::MARKET_BY_PRICE,
            Domain::MARKET_MAKER,
            Domain::SYMBOL_LIST,
        ];
        let found = { found }.into_iter().find_map(|domain| {
            let spec = ItemSpec::new(id, domain, &key, None, false).ok()?;
            self.items.find(&spec)
        });
        let found = found.ok_or("not open: no consumer has requested it")?;
        let Some(item) = self.items.get(found).filter(|_| self.values.get(found).is_some()) else {
            return Err(
                "its values are not cached (turn the cache of its service on, or raise cache.total-mib)",
            );
        };
        let image = Image { domain: item.spec.domain, stream: 1, ..Image::default() };
        let mut fields = Vec::new();
        let shown = self.values.image(found, &image, self.options.max_part, |message| {
            if fields.len() < FIELDS {
                decode(message, dictionary, &mut fields);
            }
        });
        fields.truncate(FIELDS);
        shown.map(|()| fields).map_err(|_| "its image cannot be encoded")
    }
}

fn decode(message: &[u8], dictionary: &Dictionary, fields: &mut Vec<FieldView>) {
    let Ok(refresh) = Refresh::decode(message) else { return };
    if refresh.container != DataType::FIELD_LIST {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", Printed::new(message, dictionary));
        let lines = text.lines().take(FIELDS).map(|line| FieldView { name: String::new(), value: cut(line) });
        return fields.extend(lines);
    }
    let Ok(list) = FieldList::decode(refresh.payload, None) else { return };
    for field in list.entries().map_while(Result::ok).take(FIELDS) {
        let known = dictionary.field(field.id);
        let value = known.map(|known| Value::decode(known.data_type, field.data));
        let value = match value {
            Some(Ok(Value::Enum(Enum(number)))) => match dictionary.enumeration(field.id, number) {
                Some(text) => cut(Text(text)),
                None => number.to_string(),
            },
            Some(Ok(value)) => cut(value),
            _ => cut(field.data.escape_ascii()),
        };
        let name = known.map_or_else(|| field.id.to_string(), |known| known.name.to_owned());
        fields.push(FieldView { name, value: value.trim_matches('"').to_owned() });
    }
}
