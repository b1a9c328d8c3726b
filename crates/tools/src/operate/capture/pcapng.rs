//! Capture files in the format pcapng, which Wireshark reads. One interface for each bearer, and one for lanes.
//!
//! Frames of UDP bearers are IP packets, frames of other bearers and messages of lanes are Ethernet frames of type
//! 0x88CA. The addresses of a lane are the ports of its sockets, after 02:00. Source: draft-ietf-opsawg-pcapng.

use std::io::{self, Write};

use utipc::bearers::udp_packet;
use utipc_manage::capture::{Origin, Place, Record};

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const MAGIC: u32 = 0x1A2B_3C4D;
const LINK_ETHERNET: u16 = 1;
/// IP packets without a link header.
const LINK_IP: u16 = 101;
const ETHERTYPE: [u8; 2] = [0x88, 0xCA];
const SNAP_LEN: u32 = 262_144;
/// Options: name of an interface, resolution of its times (10^-9 s), direction of a packet, packets lost before it.
const IF_NAME: u16 = 2;
const IF_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const PACKET_DROPPED: u16 = 4;

/// Writes a capture file.
pub(super) struct Writer<W: Write> {
    out: W,
    interfaces: Vec<String>,
    packet: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins the file.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: Vec::new(), packet: Vec::new() };
        let mut body = Vec::new();
        body.extend_from_slice(&MAGIC.to_le_bytes());
        // Version 1.0, and a section of unknown length.
        body.extend_from_slice(&[1, 0, 0, 0]);
        body.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.block(SECTION, &body)?;
        Ok(writer)
    }

    /// Adds a record.
    pub(super) fn record(&mut self, record: &Record) -> io::Result<()> {
        let (name, link) = match &record.origin {
            Origin::Bearer { name, path: [Place::Udp(_), _], .. } => (name.as_str(), LINK_IP),
            Origin::Bearer { name, .. } => (name.as_str(), LINK_ETHERNET),
            Origin::Lane(_) => ("lanes", LINK_ETHERNET),
        };
        let interface = match self.interfaces.iter().position(|known| known == name) {
            Some(known) => known,
            None => self.interface(name, link)?,
        };
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        let headers = wrap(&mut packet, record);
        let mut body = Vec::with_capacity(packet.len() + 64);
        body.extend_from_slice(&u32::try_from(interface).unwrap_or(0).to_le_bytes());
        body.extend_from_slice(&((record.time >> 32) as u32).to_le_bytes());
        body.extend_from_slice(&(record.time as u32).to_le_bytes());
        let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        body.extend_from_slice(&len(packet.len()));
        body.extend_from_slice(&len(headers + record.len as usize));
        body.extend_from_slice(&packet);
        body.resize(body.len().next_multiple_of(4), 0);
        let direction: u32 = match &record.origin {
            Origin::Bearer { sent: false, .. } => 1,
            Origin::Bearer { sent: true, .. } => 2,
            Origin::Lane(_) => 0,
        };
        option(&mut body, PACKET_FLAGS, &direction.to_le_bytes());
        if record.dropped > 0 {
            option(&mut body, PACKET_DROPPED, &record.dropped.to_le_bytes());
        }
        option(&mut body, 0, &[]);
        self.packet = packet;
        self.block(PACKET, &body)
    }

    /// Writes everything so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn interface(&mut self, name: &str, link: u16) -> io::Result<usize> {
        let mut body = Vec::new();
        body.extend_from_slice(&link.to_le_bytes());
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&SNAP_LEN.to_le_bytes());
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_RESOLUTION, &[9]);
        option(&mut body, 0, &[]);
        self.block(INTERFACE, &body)?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() - 1)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = u32::try_from(body.len() + 12).unwrap_or(u32::MAX).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len)?;
        self.out.write_all(body)?;
        self.out.write_all(&len)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Appends the frame with the headers of its link; returns the length of the headers.
fn wrap(packet: &mut Vec<u8>, record: &Record) -> usize {
    let ethernet = |packet: &mut Vec<u8>, from: [u8; 6], to: [u8; 6]| {
        packet.extend_from_slice(&to);
        packet.extend_from_slice(&from);
        packet.extend_from_slice(&ETHERTYPE);
        packet.extend_from_slice(&record.frame);
    };
    match &record.origin {
        Origin::Bearer { path: [Place::Udp(from), Place::Udp(to)], .. } => {
            udp_packet(packet, *from, *to, &record.frame);
        }
        Origin::Bearer { path: [Place::Ethernet(from), Place::Ethernet(to)], .. } => {
            ethernet(packet, *from, *to)
        }
        Origin::Bearer { .. } => ethernet(packet, [0; 6], [0; 6]),
        Origin::Lane([from, to]) => {
            let mac = |port: &u32| {
                let [a, b, c, d] = port.to_be_bytes();
                [2, 0, a, b, c, d]
            };
            ethernet(packet, mac(from), mac(to));
        }
    }
    packet.len() - record.frame.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        let udp = |port| Place::Udp(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let bearer = Origin::Bearer { name: "udp:U".to_owned(), sent: true, path: [udp(1), udp(2)] };
        for (origin, dropped) in [(bearer.clone(), 0), (Origin::Lane([1, 2]), 3), (bearer, 0)] {
            let record = Record { time: 5, origin, frame: vec![7; 5], len: 9, dropped, missed: 0 };
            writer.record(&record).unwrap();
        }
        let (mut rest, mut kinds) = (&file[..], Vec::new());
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let len = word(4) as usize;
            assert!(len.is_multiple_of(4) && word(len - 4) as usize == len);
            kinds.push(word(0));
            rest = &rest[len..];
        }
        assert_eq!(kinds, [SECTION, INTERFACE, PACKET, INTERFACE, PACKET, PACKET]);
    }
}
