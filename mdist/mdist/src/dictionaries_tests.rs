//! Parts of dictionaries that are sent, replaced and received.

use rssl::dictionary::{EnumTable, EnumValue, FieldDef};
use rssl::rwf::Message;
use rssl::transport::{Channel, ServerOptions};

use super::*;

fn request(name: &'static str, verbosity: u32) -> Request<'static> {
    Request::streaming(
        Domain::DICTIONARY,
        3,
        Key { service: Some(9_999), name: Some(name.as_bytes()), filter: Some(verbosity), ..Key::default() },
    )
}

/// A server's channel that is open, with frames of at most `max_fragment` bytes of payload.
fn channel(max_fragment: u16) -> Channel {
    let mut server = Channel::server(ServerOptions { max_fragment, ..ServerOptions::default() });
    let mut client = Channel::client(rssl::transport::ClientOptions::default());
    for _ in 0..2 {
        let mut out = Vec::new();
        client.take_output(&mut out);
        server.pull(&out).unwrap();
        out.clear();
        server.take_output(&mut out);
        client.pull(&out).unwrap();
    }
    assert_eq!(server.opened().unwrap().max_message, max_fragment);
    server
}

#[test]
fn every_part_fits_one_frame_of_any_size() {
    let dictionary = Dictionary::small();
    for max_message in [1_024_u16, 6_144, 65_000] {
        let given_out = Dictionaries::of(&dictionary, max_message.into()).unwrap();
        let mut channel = channel(max_message);
        for (name, verbosity) in [(FIELD_DICTIONARY, 15), (FIELD_DICTIONARY, 7), (ENUM_DICTIONARY, 15)] {
            for message in given_out.answer(&request(name, verbosity)).unwrap() {
                let mut out = Vec::new();
                channel.write(&message, &mut out).unwrap();
                let len = usize::from(u16::from_be_bytes([out[0], out[1]]));
                assert_eq!((len, out[2]), (out.len(), 2), "{name}: one plain frame of {max_message} bytes");
            }
        }
    }
}

#[test]
fn row_that_is_longer_than_a_frame_has_a_message_of_its_own() {
    let mut dictionary = Dictionary::small();
    let value = |value| EnumValue { value, display: vec![b'd'; 8], meaning: "m".repeat(20) };
    dictionary.enums.insert(EnumTable { fields: vec![30_000], values: (0..1_500).map(value).collect() });
    let given_out = Dictionaries::of(&dictionary, 6_144).unwrap();
    let mut messages = given_out.answer(&request(ENUM_DICTIONARY, 15)).unwrap();
    messages.retain(|message| message.len() > 6_144);
    let [Message::Refresh(long)] =
        &messages.iter().map(|m| Message::decode(m).unwrap()).collect::<Vec<_>>()[..]
    else {
        panic!("{} long messages", messages.len())
    };
    let mut enums = Enums::default();
    enums.take_part(long.payload).unwrap();
    assert_eq!((enums.tables().len(), enums.tables()[0].values.len()), (1, 1_500));
}

#[test]
fn streams_of_a_replaced_dictionary_get_one_notice() {
    let mut dictionary = Dictionary::small();
    let given_out = Dictionaries::of(&dictionary, 6_144).unwrap();
    let names = [FIELD_DICTIONARY, ENUM_DICTIONARY];
    let [mut fields, mut enums] = names.map(|name| given_out.current(name.as_bytes()).unwrap());
    given_out.replace(&dictionary).unwrap();
    assert_eq!((given_out.notice(3, &mut fields), given_out.notice(4, &mut enums)), (None, None), "the same");
    dictionary.fields.edition.version = "9.9".into();
    let before = given_out.revision();
    given_out.replace(&dictionary).unwrap();
    assert_ne!(given_out.revision(), before);
    let notice = given_out.notice(3, &mut fields).unwrap();
    let Message::Status(status) = Message::decode(&notice).unwrap() else { panic!("a status") };
    let state = status.state.unwrap();
    assert_eq!((status.domain, status.stream), (Domain::DICTIONARY, 3));
    assert_eq!((state.stream, state.data), (StreamState::Open, DataState::Suspect));
    assert_eq!((given_out.notice(3, &mut fields), given_out.notice(4, &mut enums)), (None, None));
    assert_eq!(given_out.current(b"Other"), None);
}

#[test]
fn parts_after_a_refused_one_are_no_dictionary() {
    let mut fields = Fields::default();
    for id in 1..=100 {
        fields.insert(FieldDef { id, name: format!("F{id}"), ..FieldDef::default() });
    }
    let parts = fields.parts(VERBOSITY_VERBOSE, 600).unwrap();
    assert!(parts.len() > 3);
    let (first, middle, last) = (&parts[0], &parts[1], &parts[parts.len() - 1]);
    let mut incoming = Incoming::new(&Half::Fields(Fields::default()));
    assert!(incoming.take(first, false, false).unwrap().is_none(), "the first one needs no mark");
    assert!(incoming.take(&[0xFF, 1], false, false).is_err());
    assert!(incoming.take(middle, false, false).unwrap().is_none());
    assert!(incoming.take(last, false, true).unwrap().is_none(), "incomplete");
    for (at, part) in parts.iter().enumerate() {
        let whole = incoming.take(part, false, at + 1 == parts.len()).unwrap();
        let count = whole.map(|half| match half {
            Half::Fields(fields) => fields.len(),
            Half::Enums(_) => 0,
        });
        assert_eq!(count, (at + 1 == parts.len()).then_some(100));
    }
    // A first part starts again in the middle.
    assert!(incoming.take(first, false, false).unwrap().is_none());
    assert!(incoming.take(first, true, false).unwrap().is_none());
    let Some(Half::Fields(some)) = incoming.take(last, false, true).unwrap() else { panic!("complete") };
    assert!(some.len() < 100);
}
