//! The codec on the messages of `vectors/messages.txt`, which has their bytes and their text.

use common::tree::round_trip;
use rssl::dictionary::Dictionary;
use rssl::rwf::{Message, Printed, peek};

mod common {
    pub(crate) mod tree;
}

struct Vector<'a> {
    name: &'a str,
    bytes: Vec<u8>,
    shown: &'a str,
}

/// The vectors of the file: a name, lines of bytes, and a text from the first line on that is not bytes.
fn vectors(file: &str) -> Vec<Vector<'_>> {
    file.split("\n= ")
        .skip(1)
        .map(|part| {
            let (name, rest) = part.split_once('\n').unwrap();
            let is_hex =
                |line: &str| line.split(' ').all(|b| b.len() == 2 && u8::from_str_radix(b, 16).is_ok());
            let hex_len = rest.split_inclusive('\n').take_while(|l| is_hex(l.trim_end())).map(str::len).sum();
            let (hex, shown) = rest.split_at(hex_len);
            let bytes = hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
            Vector { name, bytes, shown: shown.trim_end() }
        })
        .collect()
}

const FILE: &str = include_str!("vectors/messages.txt");

#[test]
fn vectors_are_read_written_and_shown() {
    let names = Dictionary::small();
    let mut differences = String::new();
    for vector in vectors(FILE) {
        round_trip(&vector.bytes).unwrap_or_else(|e| panic!("{}: {e}", vector.name));
        let shown = Printed::new(&vector.bytes, &names).to_string();
        if shown.trim_end() != vector.shown {
            differences += &format!("= {}\n{shown}\n", vector.name);
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn every_prefix_is_an_error_or_a_shorter_message() {
    let names = Dictionary::small();
    let mut prefixes = 0;
    for vector in vectors(FILE) {
        let whole = Message::decode(&vector.bytes).unwrap();
        let header = vector.bytes.len() - whole.payload().len();
        for n in 0..vector.bytes.len() {
            let prefix = &vector.bytes[..n];
            match Message::decode(prefix) {
                Ok(message) => assert!(n >= header && message.payload() == &vector.bytes[header..n]),
                Err(_) => assert!(n < header, "{}: {n}", vector.name),
            }
            let inside = round_trip(prefix);
            // A cut inside a container is an error; an empty payload is legal, also in a nested message.
            let container = whole.container().name();
            let cut = n > header && !matches!(container, Some("XML" | "OPAQUE" | "MSG"));
            assert!(!cut || inside.is_err(), "{}: {n}", vector.name);
            let shown = Printed::new(prefix, &names).to_string();
            assert!(!cut || shown.contains("malformed"), "{}: {n}", vector.name);
            prefixes += 1;
        }
        assert_eq!(peek(&vector.bytes), Ok(whole.head()));
    }
    assert!(prefixes > 1500);
}
