//! The family TIPC of `tipc-config`: requests as it sends them, and the records of the replies.

use utipc_manage::{
    Bearer, Entry, Errno, Link, Media, Messages, Net, Node, Properties, Publication, Refusal, Request,
    Socket, legacy,
};

const FAMILY: u16 = 31;

/// A request with one record.
fn request(command: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&FAMILY.to_ne_bytes());
    out.extend_from_slice(&1u16.to_ne_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 9, 0, 0, 0]); // sequence number, port
    out.extend_from_slice(&[1, 0, 0, 0, 7, 0, 0, 0]); // command and version, destination
    out.extend_from_slice(&command.to_ne_bytes());
    out.extend_from_slice(&[0, 0]);
    if kind != 0 {
        out.extend_from_slice(&(4 + data.len() as u16).to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(data);
    }
    let len = out.len() as u32;
    out[..4].copy_from_slice(&len.to_ne_bytes());
    out
}

/// The records of a reply: type and data.
fn records(reply: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let message = Messages::new(reply).next().unwrap();
    assert_eq!((message.header.family, message.header.command, message.header.port), (FAMILY, 1, 9));
    let mut rest = &message.body[8..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        all.push((u16::from_be_bytes([rest[2], rest[3]]), rest[4..len].to_vec()));
        rest = &rest[len.div_ceil(4) * 4..];
    }
    all
}

/// A small node: what it answers to requests of TIPCv2.
fn node(request: &Request) -> Result<Vec<Entry>, Refusal> {
    let properties =
        Properties { priority: Some(10), tolerance: Some(1500), window: Some(50), ..Properties::default() };
    let name = |service, scope| Publication {
        service,
        lower: 1,
        upper: 9,
        scope,
        node: 0x0100_1002,
        port: 7,
        key: 8,
    };
    Ok(match request {
        Request::Media => vec![Entry::Media(Media { name: "udp".to_owned(), properties })],
        Request::Bearers => {
            vec![Entry::Bearer(Bearer { name: "udp:U".to_owned(), properties, udp: None })]
        }
        Request::Nodes => {
            vec![Entry::Node(Node { address: 0x0100_1002, up: true, identity: None, contact: None })]
        }
        Request::Net => vec![Entry::Net(Net { id: 4711, identity: [0; 16], address: None })],
        Request::Links { broadcast: false } => {
            let up = Link { name: "1:U-2:U".to_owned(), mtu: 1400, up: true, received: 5, ..Link::default() };
            vec![Entry::Link(Link { properties, ..up })]
        }
        Request::Names => vec![Entry::Name(name(1000, 2)), Entry::Name(name(2000, 3))],
        Request::Sockets => {
            let bound = Socket { port: 7, node: 1, connection: None, bound: true, kind: None, process: None };
            vec![Entry::Socket(bound)]
        }
        Request::Bindings { port: 7 } => vec![Entry::Binding(name(1000, 0))],
        Request::LinkSet { name, .. } if name == "1:U-2:U" => Vec::new(),
        Request::LinkSet { .. } => return Err(Refusal::new(Errno::INVALID, "no such link")),
        Request::BearerDisable { .. } => return Err(Errno::NOT_PERMITTED.into()),
        other => panic!("unexpected: {other:?}"),
    })
}

fn call(command: u16, kind: u16, data: &[u8]) -> Vec<(u16, Vec<u8>)> {
    records(&legacy::reply(&request(command, kind, data), &mut node).unwrap())
}

fn text(command: u16, kind: u16, data: &[u8]) -> String {
    let records = call(command, kind, data);
    assert_eq!((records.len(), records[0].0), (1, 5), "one text");
    String::from_utf8(records[0].1.clone()).unwrap().trim_end_matches('\0').to_owned()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn lists_are_records() {
    assert_eq!(call(0, 0, b""), []);
    assert_eq!(call(2, 0, b""), [(18, b"udp\0".to_vec())]);
    assert_eq!(call(3, 0, b""), [(19, b"udp:U\0".to_vec())]);
    assert_eq!(call(1, 17, &words(&[0])), [(21, words(&[0x0100_1002, 1]))]);
    assert_eq!(call(0x400b, 0, b""), [(2, words(&[4711]))]);
    let links = call(4, 17, &words(&[0]));
    assert_eq!((links.len(), links[0].0, links[0].1.len()), (1, 22, 76));
    assert_eq!(links[0].1[..16], [words(&[0, 1]), b"1:U-2:U\0".to_vec()].concat());
}

#[test]
fn names_are_selected_and_shown_by_columns() {
    let all = text(5, 25, &words(&[0x8000_0004, 0, 0, 0]));
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(
        lines,
        [
            "Type       Lower      Upper      Port Identity              Publication Scope",
            "1000       1          9          <1.1.2:7>                  8           cluster",
            "2000       1          9          <1.1.2:7>                  8           node",
        ]
    );
    assert_eq!(text(5, 25, &words(&[1, 2000, 0, u32::MAX])).lines().nth(1), Some("2000       "));
    assert_eq!(text(5, 25, &words(&[2, 2000, 10, 20])), "Type       Lower      Upper      \n");
}

#[test]
fn sockets_and_links_are_texts() {
    assert_eq!(text(6, 0, b""), "7: bound to {1000,1,9}\n");
    let link = text(11, 20, b"1:U-2:U\0");
    assert!(
        link.starts_with("\nLink <1:U-2:U>\n  STANDBY  MTU:1400  Priority:10  Tolerance:1500 ms"),
        "{link}"
    );
    assert!(
        link.contains("\n  RX packets:5 fragments:0/0 bundles:0/0\n") && link.contains("0-64:0%"),
        "{link}"
    );
    assert_eq!(text(11, 20, b"other\0"), "");
}

#[test]
fn changes_go_to_the_medium_the_bearer_or_the_link_of_that_name() {
    for (name, kind) in [("udp", "MediaSet"), ("udp:U", "BearerSet"), ("1:U-2:U", "LinkSet")] {
        let mut changed = String::new();
        let record = [words(&[700]), name.as_bytes().to_vec(), vec![0]].concat();
        let reply = legacy::reply(&request(0x4107, 24, &record), &mut |request| {
            if request.changes() {
                changed = format!("{request:?}");
                return Ok(Vec::new());
            }
            node(request)
        });
        assert_eq!(records(&reply.unwrap()), [], "{name}");
        assert!(changed.starts_with(kind) && changed.contains("tolerance: Some(700)"), "{changed}");
    }
}

#[test]
fn refusals_are_error_texts() {
    let error = |bytes: &[u8]| vec![(16, bytes.to_vec())];
    assert_eq!(call(4, 0, b""), error(b"\x80\0"), "the record is missing");
    assert_eq!(call(4, 18, &words(&[0])), error(b"\x80\0"), "a record of another type");
    assert_eq!(call(0x4102, 19, b"no NUL"), error(b"\x80\0"));
    assert_eq!(call(0x4102, 19, b"udp:U\0"), error(b"\x81\0"));
    assert_eq!(call(0x4005, 0, b""), error(b"\x84\0"), "an obsolete command");
    let record = [words(&[700]), b"none\0".to_vec()].concat();
    assert_eq!(call(0x4107, 24, &record), error(b"no such link\0"));
}

#[test]
fn truncated_requests_are_refused() {
    let whole = request(0x4107, 24, &[words(&[700]), b"1:U-2:U\0".to_vec()].concat());
    for len in 0..whole.len() {
        let mut cut = whole[..len].to_vec();
        assert!(legacy::reply(&cut, &mut node).is_none(), "{len}");
        if len >= 4 {
            cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        }
        if let Some(reply) = legacy::reply(&cut, &mut node) {
            assert_eq!(records(&reply)[0].0, 16, "{len}");
        }
    }
}
