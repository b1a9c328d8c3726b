use super::*;
use crate::rwf::{
    Attrib, Class, Domain, ElementListWriter, FieldListWriter, FilterAction, FilterListWriter, Key,
    MapAction, MapWriter, Message, Post, PostFlags, PostUser, Real, Refresh, RefreshFlags, SeriesWriter,
    State, Update, VectorAction, VectorWriter, update_kind,
};
use crate::wire::{Writer, to_vec};

struct Few;

impl Names for Few {
    fn field(&self, id: i16) -> Option<FieldName<'_>> {
        let (name, data_type) = match id {
            22 => ("BID", DataType::REAL),
            3 => ("DSPLY_NAME", DataType::RMTES_STRING),
            4 => ("RDN_EXCHID", DataType::ENUM),
            5 => ("LEGS", DataType::VECTOR),
            _ => return None,
        };
        Some(FieldName { name, data_type })
    }

    fn enumeration(&self, id: i16, value: u16) -> Option<&[u8]> {
        (id == 4 && value == 2).then_some(b"NYS")
    }
}

fn printed(message: &Message<'_>) -> String {
    let bytes = message.to_vec().unwrap();
    Printed::new(&bytes, &Few).to_string()
}

#[test]
fn update_is_printed_with_names() {
    let payload = to_vec(|w| {
        let mut list = FieldListWriter::new(w)?;
        list.real(22, Real::with_decimals(3991, 2))?;
        list.text(3, b"Caf\xE9")?;
        list.uint(4, 2)?;
        list.uint(4, 3)?;
        list.blank(22)?;
        list.uint(99, 300)?;
        list.text(99, "abc")?;
        list.blank(99)?;
        list.field(22, &[0x1F, 1])?;
        list.nested(5, |w| {
            let mut v = VectorWriter::new(w, DataType::JSON, false)?;
            v.entry(VectorAction::Set, 7, Some(b"p"), |w| w.bytes(b"{}"))?;
            v.finish()
        })?;
        list.finish()
    })
    .unwrap();
    let update = Update {
        kind: update_kind::QUOTE,
        seq: Some(8),
        ..Update::new(Domain::MARKET_PRICE, 5, DataType::FIELD_LIST, &payload)
    };
    assert_eq!(
        printed(&Message::Update(update)),
        "Update MarketPrice stream 5 Quote -
  sequence number 8
  payload FIELD_LIST
    22 BID 39.91
    3 DSPLY_NAME \"Caf\u{e9}\"
    4 RDN_EXCHID 2 \"NYS\"
    4 RDN_EXCHID 3
    22 BID (blank)
    99 0x012c
    99 \"abc\"
    99 (blank)
    22 BID (malformed: hint of REAL at byte 0 has a value that is not allowed) 0x1f01
    5 LEGS VECTOR
      of JSON
      Set 7
        permission \"p\"
        {}
"
    );
}

#[test]
fn directory_and_nested_post_are_printed() {
    let map = to_vec(|w| {
        let mut map = MapWriter::new(w, DataType::UINT, DataType::FILTER_LIST)?;
        map.hint(1)?;
        map.uint_entry(MapAction::Add, 1, |w| {
            let mut filters = FilterListWriter::new(w, DataType::ELEMENT_LIST)?;
            filters.entry(FilterAction::Set, 1, |w| {
                let mut list = ElementListWriter::new(w)?;
                list.ascii("Name", "DIRECT_FEED")?;
                list.array_uint("Capabilities", &[5, 6])?;
                list.finish()
            })?;
            filters.finish()
        })?;
        map.finish()
    })
    .unwrap();
    let refresh = Refresh {
        flags: RefreshFlags::SOLICITED | RefreshFlags::COMPLETE,
        state: State::OK,
        group: &[0, 1],
        key: Some(Key { filter: Some(7), ..Key::default() }),
        ..Refresh::new(Domain::DIRECTORY, 2, DataType::MAP, &map)
    };
    let inner = refresh.to_vec().unwrap();
    let attributes = to_vec(|w| {
        let mut list = ElementListWriter::new(w)?;
        list.uint("SingleOpen", 1)?;
        list.finish()
    })
    .unwrap();
    let attrib = Some(Attrib { container: DataType::ELEMENT_LIST, data: &attributes });
    let post = Post {
        domain: Domain::LOGIN,
        stream: 1,
        flags: PostFlags::ACK,
        container: DataType::MSG,
        post_user: PostUser { addr: 0x7F00_0001, id: 9 },
        post_id: Some(1),
        key: Some(Key { attrib, name_type: Some(1), ..Key::item(1, b"IBM.N") }),
        payload: &inner,
        ..Post::default()
    };
    assert_eq!(
        printed(&Message::Post(post)),
        "Post Login stream 1 ACK
  post user 127.0.0.1 id 9
  post id 1
  key service 1 name \"IBM.N\" type 1
    attributes ELEMENT_LIST
      SingleOpen UINT 1
  payload MSG
    Refresh Directory stream 2 SOLICITED|COMPLETE
      state Open/Ok/None \"\"
      group 0x0001
      key filter 0x7
      payload MAP
        of FILTER_LIST
        about 1 in all parts
        Add 1
          Set 1 ELEMENT_LIST
            Name ASCII_STRING \"DIRECT_FEED\"
            Capabilities ARRAY [5, 6]
"
    );
}

#[test]
fn depth_and_volume_are_bounded() {
    fn series(w: &mut Writer<'_>, levels: usize) -> crate::Result<()> {
        let inside = if levels == 0 { DataType::NO_DATA } else { DataType::SERIES };
        let mut s = SeriesWriter::new(w, inside)?;
        for _ in 0..if levels == 0 { 60_000 } else { 1 } {
            s.entry(|w| series(w, levels - 1))?;
        }
        s.finish()
    }
    let message = |levels| {
        let payload = to_vec(|w| series(w, levels)).unwrap();
        printed(&Message::Refresh(Refresh {
            container: DataType::SERIES,
            payload: &payload,
            ..Refresh::default()
        }))
    };
    assert!(message(15).ends_with("60000 entries\n") && message(15).lines().count() < 50);
    assert!(message(16).ends_with("(malformed: containers are nested deeper than 16 levels)\n"));
}

#[test]
fn every_prefix_of_a_message_is_printed() {
    let payload = to_vec(|w| MapWriter::new(w, DataType::UINT, DataType::FIELD_LIST)?.finish()).unwrap();
    let update = Update { container: DataType::MAP, payload: &payload, ..Update::default() };
    let bytes = update.to_vec().unwrap();
    for n in 0..=bytes.len() {
        let text = Printed::new(&bytes[..n], &NoNames).to_string();
        assert!(text.starts_with(if n < 11 { "(malformed" } else { "Update" }), "{text}");
    }
    assert_eq!(crate::rwf::peek(&bytes).unwrap().class, Class::Update);
}
