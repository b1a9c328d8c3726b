//! Test helper: reads the captures under `tests/vectors`, which Linux kernels sent to each other.

use crate::wire::Message;

/// The TIPC messages of an Ethernet capture, in order. A frame that is not TIPC fails the test.
pub(crate) fn messages(name: &str) -> Vec<Message> {
    let path = format!("{}/tests/vectors/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("read {path}: {e}"));
    let mut rest = &file[24..];
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let captured = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (frame, next) = rest[16..].split_at(captured);
        assert_eq!(frame[12..14], [0x88, 0xca], "{name}: not TIPC over Ethernet");
        messages.push(Message::from_vec(frame[14..].to_vec()).unwrap());
        rest = next;
    }
    assert!(!messages.is_empty(), "{name} is empty");
    messages
}
