//! The codec on messages of stock programs, from captures in the directory `UTIPC_RSSL_VECTORS`. Every message is read,
//! written and read again.

use std::collections::BTreeMap;

use common::pcap;
use common::pulling::feed;
use common::tree::round_trip;
use rssl::rwf::{NoNames, Printed, peek, peek_payload, set_stream};
use rssl::transport::{Channel, ClientOptions, ServerOptions};

mod common {
    pub(crate) mod pcap;
    pub(crate) mod pulling;
    pub(crate) mod tree;
}

/// Messages of one kind.
#[derive(Default)]
struct Count {
    all: usize,
    /// The header was written byte for byte as received.
    header: usize,
    /// The payload too. Others are equal, but the sender used sets or other forms of lengths.
    payload: usize,
}

#[test]
fn captured_messages_round_trip() {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (name, connections) in pcap::captures() {
        for connection in &connections {
            let mut server = Channel::server(ServerOptions::default());
            let from_client =
                feed(&mut server, &connection.from_client, 1 << 16).expect("the client's bytes");
            let mut client = Channel::client(ClientOptions::default());
            let from_server =
                feed(&mut client, &connection.from_server, 1 << 16).expect("the server's bytes");
            for mut message in from_client.messages.into_iter().chain(from_server.messages) {
                let round = round_trip(&message).unwrap_or_else(|e| {
                    panic!("{name}, {}: {e}\n{}", connection.client, Printed::new(&message, &NoNames))
                });
                assert!(round.header || round.saved > 0, "{name}: only longer forms of lengths may differ");
                let head = peek(&message).unwrap();
                let (container, _) = peek_payload(&message).unwrap();
                let kind = format!("{:?} {} {container}", head.class, head.domain);
                let count = counts.entry(kind).or_default();
                count.all += 1;
                count.header += usize::from(round.header);
                count.payload += usize::from(round.header && round.payload);
                let text = Printed::new(&message, &NoNames).to_string();
                assert!(!text.contains("malformed"), "{name}: {text}");
                set_stream(&mut message, -3).unwrap();
                assert_eq!(peek(&message).unwrap().stream, -3);
            }
        }
    }
    for (kind, count) in &counts {
        println!(
            "{kind}: {} messages, {} with the same header, {} the same bytes",
            count.all, count.header, count.payload
        );
    }
    println!("{} messages in all", counts.values().map(|c| c.all).sum::<usize>());
}
