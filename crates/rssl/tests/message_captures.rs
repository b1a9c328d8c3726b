//! The messages that stock programs sent one another, in the directory of captures that `UTIPC_RSSL_VECTORS` names: every part of
//! each can be read, and what we write of it reads the same.

use std::collections::BTreeMap;

use common::pcap;
use common::pulling::feed;
use rssl::dictionary::Dictionary;
use rssl::rdm::{directory, items, login};
use rssl::rwf::{Domain, FieldName, Message, Names, Printed, RequestFlags, peek};
use rssl::transport::{Channel, ClientOptions, ServerOptions};
use rssl::wire::to_vec;

mod common {
    pub(crate) mod pcap;
    pub(crate) mod pulling;
}

/// All messages of a connection, in both directions.
fn messages(connection: &pcap::Connection) -> Vec<Vec<u8>> {
    let mut server = Channel::server(ServerOptions::default());
    let mut all = feed(&mut server, &connection.from_client, 1 << 20).expect("the client's bytes").messages;
    let mut client = Channel::client(ClientOptions::default());
    all.extend(feed(&mut client, &connection.from_server, 1 << 20).expect("the server's bytes").messages);
    all
}

struct Small(Dictionary);

impl Names for Small {
    fn field(&self, id: i16) -> Option<FieldName<'_>> {
        let def = self.0.fields.get(id)?;
        Some(FieldName { name: &def.name, data_type: self.0.fields.data_type(id) })
    }

    fn enumeration(&self, id: i16, value: u16) -> Option<&[u8]> {
        self.0.enums.display(id, value)
    }
}

#[test]
fn messages_are_read_to_their_end_and_written_alike() {
    let names = Small(Dictionary::small());
    for (name, connections) in pcap::captures() {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        let clients: Vec<_> = connections.iter().map(|c| c.client).collect();
        for bytes in connections.iter().flat_map(messages) {
            let message = Message::decode(&bytes).expect("a message");
            let head = peek(&bytes).expect("a head");
            assert_eq!(message.head(), head);
            let written = to_vec(|w| message.encode(w)).expect("the message written");
            assert_eq!(Message::decode(&written).expect("the written message"), message, "{name}");
            let shown = Printed::new(&bytes, &names).to_string();
            assert!(!shown.contains("malformed"), "{name}: {shown}");
            administration(&message);
            *kinds.entry(format!("{:?} {:?}", head.domain, head.class)).or_default() += 1;
        }
        println!("{name}, {clients:?}: {kinds:?}");
    }
}

/// The typed views of logins, directories, views and batches.
fn administration(message: &Message<'_>) {
    match message {
        Message::Request(request) if request.domain == Domain::LOGIN => {
            let asked = login::Request::decode(request).expect("a login request");
            assert!(!asked.user.is_empty());
        }
        Message::Refresh(refresh) if refresh.domain == Domain::LOGIN => {
            login::Reply::decode(refresh).expect("a login reply");
        }
        Message::Refresh(refresh) if refresh.domain == Domain::DIRECTORY => {
            let services = directory::decode(refresh.payload).expect("a directory");
            let names: Vec<_> = services.iter().filter_map(|(_, s)| Some(&s.info.as_ref()?.name)).collect();
            assert_eq!(names, ["DIRECT_FEED"]);
            let written =
                to_vec(|w| directory::encode(w, u32::MAX, &services)).expect("the directory written");
            assert_eq!(directory::decode(&written).expect("the written directory"), services);
        }
        Message::Request(request) if request.flags.contains(RequestFlags::VIEW) => {
            items::view(request.payload).expect("a view");
        }
        _ => {}
    }
}
