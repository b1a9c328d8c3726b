//! The administrative domains on the byte vectors of the wire reference, and on messages of stock programs (captures in
//! the directory `UTIPC_RSSL_VECTORS`). Spec: rssl.md §13.2

use std::collections::BTreeMap;

use common::pcap;
use common::pulling::feed;
use rssl::dictionary::Dictionary;
use rssl::rdm::directory::{self, Action, Info, ServiceState};
use rssl::rdm::{items, login, posting};
use rssl::rwf::{Domain, Message, Printed, Qos, Refresh, Request, RequestFlags, Update};
use rssl::transport::{Channel, ClientOptions, ServerOptions};
use rssl::wire::to_vec;

mod common {
    pub(crate) mod pcap;
    pub(crate) mod pulling;
}

/// The message of a plain frame.
fn message(frame: &str) -> Vec<u8> {
    let bytes: Vec<u8> = frame.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    assert_eq!(bytes[..3], rssl::transport::frame_header(bytes.len() - 3));
    bytes[3..].to_vec()
}

const LOGIN_REQUEST: &str =
    "00 7d 02 00 78 01 01 00 00 00 01 04 00 6f 26 04 75 73 65 72 01 05 66 08 00 05 0d 41 70 70 6c 69
    63 61 74 69 6f 6e 49 64 11 03 32 35 36 0f 41 70 70 6c 69 63 61 74 69 6f 6e 4e 61 6d 65 11 04 64
    65 6d 6f 08 50 6f 73 69 74 69 6f 6e 11 0d 31 32 37 2e 30 2e 30 2e 31 2f 6e 65 74 0a 53 69 6e 67
    6c 65 4f 70 65 6e 04 01 01 10 41 6c 6c 6f 77 53 75 73 70 65 63 74 44 61 74 61 04 01 01";
const LOGIN_REFRESH: &str =
    "00 a7 02 00 a2 02 01 00 00 00 01 81 68 00 09 00 0e 4c 6f 67 69 6e 20 61 63 63 65 70 74 65 64 02
    00 00 80 83 26 04 75 73 65 72 01 05 7a 08 00 06 0d 41 70 70 6c 69 63 61 74 69 6f 6e 49 64 11 03
    32 35 36 08 50 6f 73 69 74 69 6f 6e 11 0d 31 32 37 2e 30 2e 30 2e 31 2f 6e 65 74 0a 53 69 6e 67
    6c 65 4f 70 65 6e 04 01 01 10 41 6c 6c 6f 77 53 75 73 70 65 63 74 44 61 74 61 04 01 01 14 53 75
    70 70 6f 72 74 42 61 74 63 68 52 65 71 75 65 73 74 73 04 01 07 0e 53 75 70 70 6f 72 74 4f 4d 4d
    50 6f 73 74 04 01 01";
const DIRECTORY_REFRESH: &str =
    "00 b0 02 00 15 02 04 00 00 00 02 81 68 09 09 00 00 02 00 00 05 08 00 00 00 07 00 04 07 00 01 02
    01 01 8d 00 05 02 02 01 5c 08 00 04 04 4e 61 6d 65 11 0b 44 49 52 45 43 54 5f 46 45 45 44 0c 43
    61 70 61 62 69 6c 69 74 69 65 73 0f 06 04 01 00 02 05 06 10 44 69 63 74 69 6f 6e 61 72 69 65 73
    55 73 65 64 0f 13 11 00 00 02 06 52 57 46 46 6c 64 07 52 57 46 45 6e 75 6d 03 51 6f 53 0f 06 0c
    00 00 01 01 22 02 02 28 08 00 02 0c 53 65 72 76 69 63 65 53 74 61 74 65 04 01 01 11 41 63 63 65
    70 74 69 6e 67 52 65 71 75 65 73 74 73 04 01 01";
const BATCH_REQUEST: &str =
    "00 2e 02 00 0c 01 06 00 00 00 0a 88 04 05 02 01 01 08 00 01 09 3a 49 74 65 6d 4c 69 73 74 0f 0e
    11 00 00 02 03 54 52 49 05 49 42 4d 2e 4e";

#[test]
fn vectors_decode_to_expected_values() {
    let bytes = message(LOGIN_REQUEST);
    let request = Request::decode(&bytes).unwrap();
    let asked = login::Request::decode(&request).unwrap();
    let attributes = login::Attributes {
        application_id: Some(b"256"),
        application_name: Some(b"demo"),
        position: Some(b"127.0.0.1/net"),
        ..login::Attributes::default()
    };
    assert_eq!(asked, login::Request { user: b"user", attributes: attributes.clone(), ..asked.clone() });

    let bytes = message(LOGIN_REFRESH);
    let reply = login::Reply::decode(&Refresh::decode(&bytes).unwrap()).unwrap();
    assert_eq!((reply.user, reply.support_batch, reply.support_post), (&b"user"[..], 7, true));
    assert!(reply.solicited && !reply.support_view);
    assert_eq!(reply.attributes, login::Attributes { application_name: None, ..attributes });
    assert_eq!(reply.state.text, b"Login accepted");

    let bytes = message(DIRECTORY_REFRESH);
    let services = directory::decode(Refresh::decode(&bytes).unwrap().payload).unwrap();
    let (action, service) = &services[0];
    assert_eq!((services.len(), *action, service.id), (1, Action::Add, 1));
    let info = Info {
        name: "DIRECT_FEED".to_owned(),
        capabilities: vec![5, 6],
        dictionaries_used: vec!["RWFFld".to_owned(), "RWFEnum".to_owned()],
        qos: vec![Qos::REALTIME_TICK],
        ..Info::default()
    };
    assert_eq!(service.info, Some(info));
    assert_eq!(service.state, Some(ServiceState { up: true, accepting: true, status: None }));

    let bytes = message(BATCH_REQUEST);
    let request = Request::decode(&bytes).unwrap();
    assert!(request.flags.contains(RequestFlags::BATCH));
    assert_eq!(items::batch_names(request.payload).unwrap(), [&b"TRI"[..], b"IBM.N"]);
}

/// Decodes one captured message, and names its kind.
fn understood(bytes: &[u8], dictionary: &Dictionary) -> Option<&'static str> {
    let message = Message::decode(bytes).expect("not a message");
    let text = Printed::new(bytes, dictionary).to_string();
    assert!(!text.contains("malformed"), "{text}");
    match &message {
        Message::Request(request) if request.domain == Domain::LOGIN => {
            let asked = login::Request::decode(request).unwrap();
            let flags = request.flags;
            let ours = to_vec(|w| asked.encode_with(request.stream, flags, w)).unwrap();
            assert_eq!(login::Request::decode(&Request::decode(&ours).unwrap()), Ok(asked));
            Some("login request")
        }
        Message::Refresh(refresh) if refresh.domain == Domain::LOGIN => {
            let reply = login::Reply::decode(refresh).unwrap();
            let ours = to_vec(|w| reply.encode(refresh.stream, w)).unwrap();
            assert_eq!(login::Reply::decode(&Refresh::decode(&ours).unwrap()), Ok(reply));
            Some("login refresh")
        }
        Message::Refresh(Refresh { domain: Domain::DIRECTORY, payload, .. })
        | Message::Update(Update { domain: Domain::DIRECTORY, payload, .. }) => {
            let services = directory::decode(payload).unwrap();
            assert!(services.iter().any(|(_, service)| service.info.is_some()));
            let ours = to_vec(|w| directory::encode(w, directory::filter::ALL, &services)).unwrap();
            assert_eq!(directory::decode(&ours), Ok(services));
            Some("directory")
        }
        Message::Request(request) if request.flags.contains(RequestFlags::VIEW) => {
            assert!(
                matches!(items::view(request.payload).unwrap(), items::View::Fields(ids) if !ids.is_empty())
            );
            Some("view")
        }
        Message::Request(request) if request.flags.contains(RequestFlags::BATCH) => {
            let names = items::batch_names(request.payload).unwrap();
            let ours = to_vec(|w| items::encode_batch(w, &names)).unwrap();
            assert_eq!(items::batch_names(&ours).unwrap(), names);
            assert!(!names.is_empty());
            Some("batch")
        }
        Message::Post(post) => {
            posting::posted(post).unwrap();
            Some("post")
        }
        _ => None,
    }
}

#[test]
fn captured_messages_decode_and_round_trip() {
    let dictionary = Dictionary::small();
    for (name, connections) in pcap::captures() {
        for connection in connections {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            let mut server = Channel::server(ServerOptions::default());
            let mut client = Channel::client(ClientOptions::default());
            let said = feed(&mut server, &connection.from_client, 4096).unwrap();
            let answered = feed(&mut client, &connection.from_server, 4096).unwrap();
            assert!(
                said.pings + answered.pings < 1000 && said.refused.is_none() && answered.opened.is_some()
            );
            for message in said.messages.iter().chain(&answered.messages) {
                let kind = understood(message, &dictionary).unwrap_or("other");
                *counts.entry(kind).or_default() += 1;
            }
            println!("{name}, {}: {counts:?}", connection.client);
            assert!(counts["login request"] > 0 && counts["login refresh"] > 0 && counts["directory"] > 0);
        }
    }
}
