//! Switches off what lets an interface pass super-frames, by the kernel's generic netlink family "ethtool": no program
//! of that name is needed.

use anyhow::{Context, Result, bail, ensure};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Segmentation and coalescing, by the kernel's names: what `ethtool -K DEV tso off gso off gro off
/// tx-udp-segmentation off` stands for.
const FEATURES: [&str; 7] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];

// linux/netlink.h, linux/genetlink.h
const REQUEST_ACK: u16 = 1 | 4;
const ERROR: u16 = 2;
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const NESTED: u16 = 1 << 15;
const HEADER: usize = 16 + 4;
// linux/ethtool_netlink.h
const FEATURES_SET: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const HEADER_DEV_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// Switches the offloads of `interface` off, in this process's network namespace.
pub(super) fn switch_off(interface: &str) -> Result<()> {
    let family = family_id("ethtool").context("find the kernel's ethtool interface")?;
    // A bit that is named without a value is one to clear; the others stay.
    let bits: Vec<u8> =
        FEATURES.iter().flat_map(|name| attribute(BITSET_BIT | NESTED, &text(BIT_NAME, name))).collect();
    let wanted = attribute(BITSET_BITS | NESTED, &bits);
    let body = [
        attribute(FEATURES_HEADER | NESTED, &text(HEADER_DEV_NAME, interface)),
        attribute(FEATURES_WANTED | NESTED, &wanted),
    ];
    ask(family, FEATURES_SET, &body.concat())
        .with_context(|| format!("switch the offloads of {interface} off (needs CAP_NET_ADMIN)"))?;
    Ok(())
}

/// The number of a generic netlink family.
fn family_id(name: &str) -> Result<u16> {
    let answer = ask(CONTROL, GET_FAMILY, &text(FAMILY_NAME, name))?;
    let mut rest = answer.get(HEADER..).unwrap_or_default();
    while let [a, b, c, d, ..] = *rest {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        if let (FAMILY_ID, Some(&[low, high])) = (kind, rest.get(4..6)) {
            return Ok(u16::from_ne_bytes([low, high]));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    bail!("the answer has no number")
}

/// Sends a request and returns the first message of the answer that is no acknowledgement, if there is one.
fn ask(family: u16, command: u8, body: &[u8]) -> Result<Vec<u8>> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let fd =
        socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::GENERIC)).context("open netlink")?;
    let length = u32::try_from(HEADER + body.len()).context("measure a request")?;
    let mut request = length.to_ne_bytes().to_vec();
    request.extend(family.to_ne_bytes());
    request.extend(REQUEST_ACK.to_ne_bytes());
    // Sequence number and port: there is one request only, and the kernel knows who asks.
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend(body);
    sendto(&fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).context("ask by netlink")?;
    let mut answer = Vec::new();
    loop {
        let mut buffer = vec![0; 1 << 16];
        let (length, _) = recv(&fd, &mut buffer, RecvFlags::empty()).context("hear from netlink")?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((message, kind, next)) = first_message(rest) {
            if kind == ERROR {
                let code =
                    message.get(16..20).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                ensure!(code == 0, "refused: {}", std::io::Error::from_raw_os_error(-code));
                return Ok(answer);
            }
            if answer.is_empty() {
                answer = message.to_vec();
            }
            rest = next;
        }
    }
}

/// A message, its type, and what follows it.
fn first_message(bytes: &[u8]) -> Option<(&[u8], u16, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?.max(16);
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let message = bytes.get(..length)?;
    Some((message, kind, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_messages_split() {
        assert_eq!(text(2, "ab"), [7, 0, 2, 0, b'a', b'b', 0, 0]);
        let mut two = vec![18, 0, 0, 0, 2, 0];
        two.resize(20, 0);
        two.extend([16, 0, 0, 0, 9, 0]);
        two.resize(36, 0);
        let (message, kind, rest) = first_message(&two).unwrap();
        assert_eq!((message.len(), kind, rest.len()), (18, 2, 16));
        assert_eq!(first_message(rest).unwrap().1, 9);
        assert!(first_message(&two[..3]).is_none());
    }
}
