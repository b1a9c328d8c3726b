//! Message data of the load tools: from files of the vendor's tools, or built in.
//!
//! Spec: rssl.md §9.2

use std::path::Path;

use anyhow::{Context, Result, bail};
use roxmltree::{Document, Node};
use rssl::rwf::{DataType, Date, Domain, Enum, MapAction, Real, Time, int, uint};

use super::default_data::{Change, ORDER_UPDATES, ORDERS, REFRESH, UPDATES};
use super::message_set::{Body, Field, MessageSet, Order};

/// The built-in messages of both domains: updates of 74 bytes of field list for MarketPrice.
///
/// # Errors
/// Does not fail: the values are constants.
pub fn built_in() -> Result<Vec<MessageSet>> {
    let price = UPDATES.iter().map(|list| Ok(Body::Fields(fields(list)?))).collect::<Result<Vec<_>>>()?;
    let orders = ORDERS.iter().map(|&(key, list)| order(&("ADD_ENTRY", key, list))).collect::<Result<_>>()?;
    let changes = ORDER_UPDATES
        .iter()
        .map(|changes| Ok(Body::Orders(changes.iter().map(order).collect::<Result<_>>()?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(vec![
        MessageSet::new(
            Domain::MARKET_PRICE,
            Body::Fields(fields(REFRESH)?),
            price.clone(),
            price.clone(),
            price,
        )?,
        MessageSet::new(
            Domain::MARKET_BY_ORDER,
            Body::Orders(orders),
            changes.clone(),
            changes.clone(),
            changes,
        )?,
    ])
}

fn order(&(action, key, list): &Change) -> Result<Order> {
    Ok(Order { action: map_action(action)?, key: key.as_bytes().to_vec(), fields: fields(list)? })
}

fn fields(list: &str) -> Result<Vec<Field>> {
    lines(list).map(|line| line.and_then(|(id, kind, text)| field(id, kind, text))).collect()
}

/// Id, type and value of each field of a built-in list.
fn lines(list: &str) -> impl Iterator<Item = Result<(i16, &str, &str)>> {
    list.split_terminator('|').map(|line| {
        let (id, rest) = line.split_once(' ').context("a field without a type")?;
        let (kind, text) = rest.split_once(' ').context("a field without a value")?;
        Ok((id.parse()?, kind, text))
    })
}

/// Encodes a value from text in the shortest form; an empty text is blank.
fn field(id: i16, kind: &str, text: &str) -> Result<Field> {
    let name = kind.strip_prefix("RSSL_DT_").unwrap_or(kind);
    let wrong = || format!("field {id}: '{text}' is no {name}");
    let blank = text.is_empty();
    let (kind, value) = match name {
        "UINT" if !blank => (DataType::UINT, uint::to_bytes(text.parse().with_context(wrong)?).to_vec()),
        "INT" if !blank => (DataType::INT, int::to_bytes(text.parse().with_context(wrong)?).to_vec()),
        "ENUM" if !blank => (DataType::ENUM, Enum(text.parse().with_context(wrong)?).to_bytes().to_vec()),
        "REAL" if !blank => (DataType::REAL, Real::parse(text).with_context(wrong)?.to_bytes().to_vec()),
        "TIME" if !blank => (DataType::TIME, time(text).with_context(wrong)?.to_bytes().to_vec()),
        "DATE" if !blank => (DataType::DATE, date(text).with_context(wrong)?.to_bytes().to_vec()),
        "UINT" => (DataType::UINT, Vec::new()),
        "INT" => (DataType::INT, Vec::new()),
        "ENUM" => (DataType::ENUM, Vec::new()),
        "REAL" => (DataType::REAL, Vec::new()),
        "TIME" => (DataType::TIME, Vec::new()),
        "DATE" => (DataType::DATE, Vec::new()),
        "RMTES_STRING" => (DataType::RMTES_STRING, text.as_bytes().to_vec()),
        "ASCII_STRING" => (DataType::ASCII_STRING, text.as_bytes().to_vec()),
        "UTF8_STRING" => (DataType::UTF8_STRING, text.as_bytes().to_vec()),
        "BUFFER" => (DataType::BUFFER, text.as_bytes().to_vec()),
        other => bail!("field {id}: unknown type '{other}'"),
    };
    Ok(Field { id, kind, value })
}

/// `hour:minute[:second[:millisecond[:microsecond[:nanosecond]]]]`
fn time(text: &str) -> Option<Time> {
    let mut parts = text.split(':').map(|part| part.trim().parse::<u16>().ok());
    let mut next = |must: bool| match parts.next() {
        Some(part) => part,
        None if must => None,
        None => Some(0),
    };
    let byte = |value: Option<u16>| u8::try_from(value?).ok();
    let (hour, minute, second) = (byte(next(true))?, byte(next(true))?, byte(next(false))?);
    let (millisecond, microsecond, nanosecond) = (next(false)?, next(false)?, next(false)?);
    Some(Time { hour, minute, second, millisecond, microsecond, nanosecond })
}

/// `month/day/year`
fn date(text: &str) -> Option<Date> {
    let mut parts = text.split('/').map(|part| part.trim().parse::<u16>().ok());
    let mut next = || parts.next().flatten();
    let (month, day, year) = (u8::try_from(next()?).ok()?, u8::try_from(next()?).ok()?, next()?);
    Some(Date { year, month, day })
}

/// The action of a map entry by its name in files.
fn map_action(text: &str) -> Result<MapAction> {
    let name = text.strip_prefix("RSSL_MPEA_").unwrap_or(text);
    Ok(match name.strip_suffix("_ENTRY").unwrap_or(name) {
        "ADD" => MapAction::Add,
        "UPDATE" => MapAction::Update,
        "DELETE" => MapAction::Delete,
        _ => bail!("unknown action '{text}' of a map entry (use ADD_ENTRY, UPDATE_ENTRY or DELETE_ENTRY)"),
    })
}

/// Reads a message file.
///
/// # Errors
/// The file cannot be read or is not a message file; the error has the line.
pub fn read(path: &Path) -> Result<Vec<MessageSet>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("read the messages {}", path.display()))?;
    parse(&text).with_context(|| format!("in the messages {}", path.display()))
}

/// Parses a message file: see [`read`].
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str) -> Result<Vec<MessageSet>> {
    let document = Document::parse(text)?;
    let file = File { document: &document };
    let root = document.root_element();
    if !root.has_tag_name("msgFormat") {
        bail!("the root is <{}>, not <msgFormat>", root.tag_name().name());
    }
    elements(root)
        .map(|list| {
            let domain = match list.tag_name().name() {
                "marketPriceMsgList" => Domain::MARKET_PRICE,
                "marketByOrderMsgList" => Domain::MARKET_BY_ORDER,
                other => return Err(file.wrong(list, &format!("<{other}> is not a list of messages"))),
            };
            file.list(domain, list)
        })
        .collect()
}

fn elements<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

struct File<'d, 'i> {
    document: &'d Document<'i>,
}

impl File<'_, '_> {
    fn wrong(&self, node: Node<'_, '_>, why: &str) -> anyhow::Error {
        anyhow::anyhow!("line {}: {why}", self.document.text_pos_at(node.range().start).row)
    }

    fn list(&self, domain: Domain, list: Node<'_, '_>) -> Result<MessageSet> {
        let (mut refresh, mut updates, mut posts, mut generics) = (None, Vec::new(), Vec::new(), Vec::new());
        for message in elements(list) {
            match message.tag_name().name() {
                "refreshMsg" => refresh = Some(self.body(message)?),
                "updateMsg" => updates.push(self.body(message)?),
                "postMsg" => {
                    let inner =
                        elements(message).find(|node| node.has_tag_name("updateMsg")).unwrap_or(message);
                    posts.push(self.body(inner)?);
                }
                "genMsg" => generics.push(self.body(message)?),
                other => return Err(self.wrong(message, &format!("<{other}> is not a message"))),
            }
        }
        let refresh = refresh.ok_or_else(|| self.wrong(list, "the list has no <refreshMsg>"))?;
        MessageSet::new(domain, refresh, updates, posts, generics)
            .map_err(|why| self.wrong(list, &format!("{why:#}")))
    }

    fn body(&self, message: Node<'_, '_>) -> Result<Body> {
        let body = elements(message)
            .find(|node| node.has_tag_name("dataBody"))
            .ok_or_else(|| self.wrong(message, "a message has no <dataBody>"))?;
        let data = elements(body).next().ok_or_else(|| self.wrong(body, "a message has no data"))?;
        match data.tag_name().name() {
            "fieldList" => Ok(Body::Fields(self.fields(data)?)),
            "map" => {
                // Set definitions only control how the vendor's encoder packs the following fields.
                let entries = elements(data).filter(|node| !node.has_tag_name("fieldSetDefs"));
                Ok(Body::Orders(entries.map(|entry| self.order(entry)).collect::<Result<_>>()?))
            }
            other => Err(self.wrong(data, &format!("data of the kind <{other}> (use fieldList or map)"))),
        }
    }

    fn order(&self, entry: Node<'_, '_>) -> Result<Order> {
        let must =
            |name| entry.attribute(name).ok_or_else(|| self.wrong(entry, &format!("an entry has no {name}")));
        let action = map_action(must("action")?).map_err(|why| self.wrong(entry, &format!("{why:#}")))?;
        let list = elements(entry).find(|node| node.has_tag_name("fieldList")).unwrap_or(entry);
        Ok(Order { action, key: must("key")?.as_bytes().to_vec(), fields: self.fields(list)? })
    }

    fn fields(&self, list: Node<'_, '_>) -> Result<Vec<Field>> {
        elements(list)
            .map(|entry| {
                let id = entry.attribute("fieldId").and_then(|id| id.parse().ok());
                let id = id.ok_or_else(|| {
                    self.wrong(entry, "a field has no fieldId, or none from -32768 to 32767")
                })?;
                let kind = entry
                    .attribute("dataType")
                    .ok_or_else(|| self.wrong(entry, "a field has no dataType"))?;
                let text = entry.attribute("data").unwrap_or("");
                field(id, kind, text).map_err(|why| self.wrong(entry, &format!("{why:#}")))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_updates_have_the_size_of_the_report() {
        let sets = built_in().unwrap();
        let price = &sets[0];
        let Body::Fields(refresh) = &price.refresh else { panic!("a field list") };
        assert_eq!(refresh.len(), 70);
        for update in &price.updates {
            assert_eq!(update.body().encode().unwrap().len(), 74);
            assert_eq!(update.frame_len(), 88);
        }
        assert_eq!((price.updates.len(), price.sequence), (2, Some(3855)));
        assert_eq!(sets[1].sequence, Some(3855));
    }

    #[test]
    fn small_dictionary_has_every_field_with_its_type() {
        let known = rssl::dictionary::Dictionary::small();
        for line in lines(REFRESH).chain(UPDATES.iter().flat_map(|list| lines(list))) {
            let (id, kind, _) = line.unwrap();
            let field = field(id, kind, "").unwrap();
            assert_eq!(known.fields.data_type(id), field.kind, "field {id}");
        }
    }

    const FILE: &str = r#"<msgFormat><marketPriceMsgList updateMsgCount="1">
        <refreshMsg><dataBody><fieldList entryCount="2">
            <fieldEntry fieldId="22" dataType="RSSL_DT_REAL" data="39.90"/>
            <fieldEntry fieldId="1025" dataType="RSSL_DT_TIME" data="15:52:12:000:000:000"/>
        </fieldList></dataBody></refreshMsg>
        <updateMsg><dataBody><fieldList entryCount="1">
            <fieldEntry fieldId="22" dataType="RSSL_DT_REAL" data="39.91"/></fieldList></dataBody></updateMsg>
        <postMsg><updateMsg><dataBody><fieldList>
            <fieldEntry fieldId="79" dataType="RSSL_DT_DATE" data="11/15/2005"/></fieldList></dataBody></updateMsg></postMsg>
        </marketPriceMsgList><marketByOrderMsgList>
        <refreshMsg><dataBody><map><fieldSetDefs><fieldSetDef setId="0"/></fieldSetDefs>
            <mapEntry key="1" action="RSSL_MPEA_ADD_ENTRY"><fieldEntry fieldId="3427" dataType="RSSL_DT_REAL" data="1.5"/></mapEntry>
        </map></dataBody></refreshMsg>
        <updateMsg><dataBody><map><mapEntry key="1" action="RSSL_MPEA_DELETE_ENTRY"/></map></dataBody></updateMsg>
        </marketByOrderMsgList></msgFormat>"#;

    #[test]
    fn message_files_are_parsed() {
        let sets = parse(FILE).unwrap();
        assert_eq!(
            sets[0].refresh,
            Body::Fields(vec![
                Field { id: 22, kind: DataType::REAL, value: vec![12, 0x0f, 0x96] },
                Field { id: 1025, kind: DataType::TIME, value: vec![15, 52, 12] },
            ])
        );
        let Body::Fields(post) = &sets[0].posts[0] else { panic!("a field list") };
        assert_eq!(post[0].value, [15, 11, 0x07, 0xd5]);
        assert_eq!(sets[0].sequence, None);
        assert_eq!(sets[1].domain, Domain::MARKET_BY_ORDER);
        let Body::Orders(orders) = sets[1].updates[0].body() else { panic!("a map") };
        assert_eq!((orders[0].action, &*orders[0].key), (MapAction::Delete, &b"1"[..]));
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, want) in [
            ("39.90", "x", "line 3: field 22: 'x' is no REAL"),
            ("RSSL_DT_DATE", "RSSL_DT_MAP", "line 9"),
            ("marketByOrderMsgList", "list", "<list>"),
            ("RSSL_MPEA_ADD_ENTRY", "PUT", "'PUT'"),
        ] {
            let why = format!("{:#}", parse(&FILE.replace(from, to)).unwrap_err());
            assert!(why.contains(want), "{why}");
        }
    }
}
