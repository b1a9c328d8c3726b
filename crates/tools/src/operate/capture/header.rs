//! The fields of a TIPC message by which captures are filtered and shown. Spec: tipc.md §3.

/// User numbers of messages that carry others.
const BUNDLER: u8 = 6;
const FRAGMENTER: u8 = 12;
/// Size of their header, bytes.
const INTERNAL: usize = 40;
/// Maximum number of messages of a bundle that are looked at.
const MOST: usize = 64;

/// The header of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) user: u8,
    pub(super) kind: u8,
    pub(super) size: usize,
    /// Ports of sender and receiver; only data messages have them.
    pub(super) ports: Option<[u32; 2]>,
    /// Service type, for messages to a service.
    pub(super) service: Option<u32>,
}

impl Header {
    /// `None` if these bytes are not a TIPC message.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let word = |n: usize| bytes.get(n * 4..n * 4 + 4)?.try_into().ok().map(u32::from_be_bytes);
        let (first, second) = (word(0)?, word(1)?);
        if first >> 29 != 2 {
            return None;
        }
        let (user, kind) = ((first >> 25 & 0xf) as u8, (second >> 29) as u8);
        let header = (first >> 21 & 0xf) as usize * 4;
        let is_data = user < 4;
        Some(Self {
            user,
            kind,
            size: (first & 0x1_ffff) as usize,
            ports: if is_data { Some([word(4)?, word(5)?]) } else { None },
            service: if is_data && header >= 40 && matches!(kind, 1 | 2) { word(8) } else { None },
        })
    }

    /// Its name for people.
    pub(super) fn name(&self) -> &'static str {
        match (self.user, self.kind) {
            (0..=3, 0) => "data",
            (0..=3, 1) => "multicast",
            (0..=3, 2) => "to service",
            (0..=3, 3) => "to socket",
            (0..=3, _) => "group",
            (5, _) => "broadcast state",
            (6, _) => "bundle",
            (7, 0) => "STATE",
            (7, 1) => "RESET",
            (7, 2) => "ACTIVATE",
            (8, _) => "connection",
            (10, _) => "tunnel",
            (11, _) => "names",
            (12, 0) => "first fragment",
            (12, _) => "fragment",
            (13, _) => "discovery",
            _ => "other",
        }
    }
}

/// Calls `each` for the message and, of a bundle or a first fragment, for the messages in it.
pub(super) fn for_each(frame: &[u8], each: &mut dyn FnMut(Header)) {
    let Some(outer) = Header::read(frame) else { return };
    each(outer);
    let mut rest = frame.get(INTERNAL..).unwrap_or_default();
    match outer.user {
        FRAGMENTER if outer.kind == 0 => {
            if let Some(inner) = Header::read(rest) {
                each(inner);
            }
        }
        BUNDLER => {
            for _ in 0..MOST {
                let Some(inner) = Header::read(rest) else { return };
                each(inner);
                rest = rest.get(inner.size.next_multiple_of(4).max(4)..).unwrap_or_default();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A message to a service with a header of 40 bytes.
    pub(crate) fn to_service(from: u32, service: u32, data: &[u8]) -> Vec<u8> {
        let size = 40 + data.len();
        let mut words = [0u32; 10];
        words[0] = 2 << 29 | 10 << 21 | size as u32;
        words[1] = 2 << 29;
        words[4] = from;
        words[8] = service;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn messages_in_bundles_are_found() {
        let mut bundle = vec![0; INTERNAL];
        bundle[..4].copy_from_slice(&(2u32 << 29 | 6 << 25 | 10 << 21 | 200).to_be_bytes());
        bundle.extend_from_slice(&to_service(7, 1000, b"odd"));
        bundle.push(0);
        bundle.extend_from_slice(&to_service(8, 2000, b""));
        let mut found = Vec::new();
        for_each(&bundle, &mut |header| found.push((header.user, header.service, header.ports)));
        assert_eq!(found, [(6, None, None), (0, Some(1000), Some([7, 0])), (0, Some(2000), Some([8, 0]))]);
        for cut in 0..bundle.len() {
            for_each(&bundle[..cut], &mut |_| {});
        }
        assert_eq!(Header::read(b"GET / HTTP/1.1"), None);
    }
}
