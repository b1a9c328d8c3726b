//! Reads classic pcap files of TCP over Ethernet (loopback captures): the bytes of each side of each connection.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// One reassembled connection.
pub(crate) struct Connection {
    /// Address that opened it (sent SYN without ACK).
    pub(crate) client: SocketAddrV4,
    /// Bytes of the client.
    pub(crate) from_client: Vec<u8>,
    /// Bytes of the server.
    pub(crate) from_server: Vec<u8>,
}

/// One direction: bytes in order, and segments that arrived early.
#[derive(Default)]
struct Direction {
    next: Option<u32>,
    bytes: Vec<u8>,
    early: Vec<(u32, Vec<u8>)>,
}

impl Direction {
    fn segment(&mut self, sequence: u32, payload: &[u8]) {
        if payload.is_empty() {
            return;
        }
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next).cast_signed();
        if ahead > 0 {
            self.early.push((sequence, payload.to_vec()));
            return;
        }
        // Leave out bytes that were received before.
        let known = ahead.unsigned_abs() as usize;
        let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) else { return };
        self.bytes.extend_from_slice(new);
        self.next = Some(next.wrapping_add(new.len() as u32));
        while let Some(at) = self.early.iter().position(|(s, _)| Some(*s) == self.next) {
            let (sequence, payload) = self.early.swap_remove(at);
            self.segment(sequence, &payload);
        }
    }
}

/// All connections in a capture, in the order in which they were opened.
pub(crate) fn connections(file: &[u8]) -> Vec<Connection> {
    assert_eq!(&file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "a classic pcap file, little endian");
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(word(20), 1, "Ethernet");
    let mut opened = Vec::new();
    let mut flows: HashMap<(SocketAddrV4, SocketAddrV4), Direction> = HashMap::new();
    let mut at = 24;
    while at < file.len() {
        let len = word(at + 8) as usize;
        assert_eq!(len, word(at + 12) as usize, "whole frames");
        let frame = &file[at + 16..at + 16 + len];
        at += 16 + len;
        if frame[12..14] != [8, 0] || frame[23] != 6 {
            continue;
        }
        let ip = &frame[14..];
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[usize::from(ip[0] & 15) * 4..total];
        let address = |host: usize, port: usize| {
            let host = Ipv4Addr::new(ip[host], ip[host + 1], ip[host + 2], ip[host + 3]);
            SocketAddrV4::new(host, u16::from_be_bytes([tcp[port], tcp[port + 1]]))
        };
        let (from, to) = (address(12, 0), address(16, 2));
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
        let syn = tcp[13] & 2 != 0;
        let flow = flows.entry((from, to)).or_default();
        if syn {
            flow.next = Some(sequence.wrapping_add(1));
            if tcp[13] & 0x10 == 0 && !opened.contains(&(from, to)) {
                opened.push((from, to));
            }
        } else {
            flow.segment(sequence, &tcp[usize::from(tcp[12] >> 4) * 4..]);
        }
    }
    let mut take = |from, to| {
        let flow = flows.remove(&(from, to)).unwrap_or_default();
        assert!(flow.early.is_empty(), "segments are missing from {from} to {to}");
        flow.bytes
    };
    let connection = |(client, server)| Connection {
        client,
        from_client: take(client, server),
        from_server: take(server, client),
    };
    opened.into_iter().map(connection).collect()
}

/// The captures in the directory `UTIPC_RSSL_VECTORS`, by file name; without that variable none, and a line is printed.
pub(crate) fn captures() -> Vec<(String, Vec<Connection>)> {
    let Some(directory) = std::env::var_os("UTIPC_RSSL_VECTORS") else {
        println!("skipped: UTIPC_RSSL_VECTORS names no directory of captures");
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("read the directory of captures") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "pcap") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, connections(&std::fs::read(&path).unwrap())));
        }
    }
    assert!(!found.is_empty(), "UTIPC_RSSL_VECTORS has no captures");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}
