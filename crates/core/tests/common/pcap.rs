//! Reads the captures in `tests/vectors`: classic pcap of Ethernet frames that hold TIPC, or TIPC over UDP over IPv4 or
//! IPv6, with IP fragments reassembled. ARP, ICMP and IGMP are skipped; anything else unknown is an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One TIPC packet of a capture.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Number of the frame that completes the packet, from 1, as in Wireshark.
    pub(crate) number: usize,
    /// True for UDP, false for Ethernet.
    pub(crate) udp: bool,
    /// The packet; from Ethernet including padding.
    pub(crate) bytes: Vec<u8>,
}

/// Names of all captures in the repository, without `.pcap`.
pub(crate) fn names() -> Vec<String> {
    let listed = std::fs::read_dir(dir()).expect("list tests/vectors");
    let mut names: Vec<String> = listed
        .filter_map(|entry| entry.expect("list tests/vectors").file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".pcap").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// The packets of a capture in the repository.
pub(crate) fn read(name: &str) -> Result<Vec<Frame>, String> {
    let path = dir().join(format!("{name}.pcap"));
    parse(&std::fs::read(&path).map_err(|e| format!("read {}: {e}", path.display()))?)
}

fn dir() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|dir| dir.join("Cargo.lock").is_file()).unwrap_or(package);
    root.join("crates/core/tests/vectors")
}

/// The packets of a capture.
pub(crate) fn parse(file: &[u8]) -> Result<Vec<Frame>, String> {
    let (header, mut rest) = file.split_at_checked(24).ok_or("no pcap header")?;
    if header[..4] != [0xd4, 0xc3, 0xb2, 0xa1] || header[20] != 1 {
        return Err("not a little-endian Ethernet pcap".into());
    }
    let (mut frames, mut parts) = (Vec::new(), Fragments::default());
    for number in 1.. {
        if rest.is_empty() {
            break;
        }
        let (record, next) = rest.split_at_checked(16).ok_or("cut off in a record")?;
        let captured = u32::from_le_bytes([record[8], record[9], record[10], record[11]]) as usize;
        let (frame, next) = next.split_at_checked(captured).ok_or("cut off in a frame")?;
        rest = next;
        let packet = ethernet(frame, &mut parts).map_err(|e| format!("frame {number}: {e}"))?;
        if let Some((udp, bytes)) = packet {
            frames.push(Frame { number, udp, bytes });
        }
    }
    if !parts.0.is_empty() {
        return Err(format!("{} IP packets are incomplete", parts.0.len()));
    }
    Ok(frames)
}

fn ethernet(frame: &[u8], parts: &mut Fragments) -> Result<Option<(bool, Vec<u8>)>, String> {
    let payload = frame.get(14..).ok_or("shorter than an Ethernet header")?;
    match frame[12..14] {
        [0x88, 0xca] => Ok(Some((false, payload.to_vec()))),
        [0x08, 0x00] => Ok(ipv4(payload, parts)?.map(|d| (true, d))),
        [0x86, 0xdd] => Ok(ipv6(payload, parts)?.map(|d| (true, d))),
        [0x08, 0x06] => Ok(None), // ARP
        [a, b] => Err(format!("ethertype {a:02x}{b:02x}")),
        _ => Err("no ethertype".into()),
    }
}

fn ipv4(p: &[u8], parts: &mut Fragments) -> Result<Option<Vec<u8>>, String> {
    let header = usize::from(p[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([p[2], p[3]]));
    let body = p.get(header..total).ok_or("IPv4 packet cut off")?;
    match p[9] {
        17 => {}
        1 | 2 => return Ok(None), // ICMP, IGMP
        protocol => return Err(format!("IPv4 protocol {protocol}")),
    }
    let flags = u16::from_be_bytes([p[6], p[7]]);
    let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
    let key = [&p[12..20], &p[4..6]].concat();
    parts.add(key, offset, more, body).map(|whole| udp(&whole)).transpose()
}

fn ipv6(p: &[u8], parts: &mut Fragments) -> Result<Option<Vec<u8>>, String> {
    let length = usize::from(u16::from_be_bytes([p[4], p[5]]));
    let body = p.get(40..40 + length).ok_or("IPv6 packet cut off")?;
    match p[6] {
        17 => udp(body).map(Some),
        44 if body[0] == 17 => {
            let offset = u16::from_be_bytes([body[2], body[3]]);
            let key = [&p[8..40], &body[4..8]].concat();
            let whole = parts.add(key, usize::from(offset & !7), offset & 1 != 0, &body[8..]);
            whole.map(|whole| udp(&whole)).transpose()
        }
        next => Err(format!("IPv6 next header {next}")),
    }
}

fn udp(datagram: &[u8]) -> Result<Vec<u8>, String> {
    let length = usize::from(u16::from_be_bytes([datagram[4], datagram[5]]));
    datagram.get(8..length).map(<[u8]>::to_vec).ok_or_else(|| "UDP datagram cut off".into())
}

/// IP packets of which some fragments have arrived.
#[derive(Default)]
struct Fragments(BTreeMap<Vec<u8>, Pieces>);

/// Fragments of one datagram by offset, and its length once the last one has arrived.
type Pieces = (Vec<(usize, Vec<u8>)>, Option<usize>);

impl Fragments {
    fn add(&mut self, key: Vec<u8>, offset: usize, more: bool, body: &[u8]) -> Option<Vec<u8>> {
        if offset == 0 && !more {
            return Some(body.to_vec());
        }
        let (parts, length) = self.0.entry(key.clone()).or_default();
        parts.push((offset, body.to_vec()));
        if !more {
            *length = Some(offset + body.len());
        }
        let have: usize = parts.iter().map(|(_, part)| part.len()).sum();
        if Some(have) != *length {
            return None;
        }
        let (mut parts, _) = self.0.remove(&key)?;
        parts.sort();
        Some(parts.into_iter().flat_map(|(_, part)| part).collect())
    }
}
