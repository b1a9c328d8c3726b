//! Capture files that Wireshark decodes: pcap with nanosecond timestamps.
//!
//! Ethernet frames are written with their MAC header; UDP frames with the IP and UDP headers that carried them, as far
//! as a socket knows them. A run of frames is written frame by frame. An arriving frame appears as sent to the local
//! address, even if it was sent to a group.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use utipc_core::wire::MediaAddr;

const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
const SNAP_LEN: u32 = 262_144;
const LINK_ETHERNET: u32 = 1;
/// IPv4 or IPv6 packets without a link header.
const LINK_RAW_IP: u32 = 101;
const ETHERTYPE: [u8; 2] = [0x88, 0xCA];
const PROTOCOL_UDP: u8 = 17;

/// Writes frames of one medium to a capture file.
pub(crate) struct Recorder {
    out: Box<dyn Write + Send>,
    packet: Vec<u8>,
}

impl Recorder {
    /// Starts a capture of the medium that `local` belongs to.
    pub(crate) fn new(mut out: Box<dyn Write + Send>, local: MediaAddr) -> io::Result<Recorder> {
        let link = match local {
            MediaAddr::Ethernet(_) => LINK_ETHERNET,
            MediaAddr::Udp(_) => LINK_RAW_IP,
        };
        // Magic number, version 2.4, time zone and accuracy (unused), longest packet, link type.
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        out.write_all(&SNAP_LEN.to_le_bytes())?;
        out.write_all(&link.to_le_bytes())?;
        out.flush()?;
        Ok(Recorder { out, packet: Vec::new() })
    }

    /// Adds one frame that was sent or received at `time` since 1970.
    pub(crate) fn frame(
        &mut self,
        time: Duration,
        from: MediaAddr,
        to: MediaAddr,
        frame: &[u8],
    ) -> io::Result<()> {
        self.packet.clear();
        match (from, to) {
            (MediaAddr::Ethernet(from), MediaAddr::Ethernet(to)) => {
                self.packet.extend_from_slice(&to);
                self.packet.extend_from_slice(&from);
                self.packet.extend_from_slice(&ETHERTYPE);
                self.packet.extend_from_slice(frame);
            }
            (MediaAddr::Udp(from), MediaAddr::Udp(to)) => ip_packet(&mut self.packet, from, to, frame),
            _ => return Ok(()),
        }
        let len = u32::try_from(self.packet.len()).unwrap_or(u32::MAX);
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        for word in [seconds, time.subsec_nanos(), len, len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&self.packet)
    }

    /// Writes everything so far to the file.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends an IP packet with a UDP datagram that carries `frame`, as captures show frames of UDP bearers.
pub fn ip_packet(packet: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, frame: &[u8]) {
    let udp_len = u16::try_from(frame.len() + 8).unwrap_or(u16::MAX);
    let pseudo = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start = packet.len();
            let total = udp_len.saturating_add(20);
            // Version and header length, service, length, id, don't fragment, TTL, protocol, checksum.
            packet.extend_from_slice(&[0x45, 0]);
            packet.extend_from_slice(&total.to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0x40, 0, 64, PROTOCOL_UDP, 0, 0]);
            packet.extend_from_slice(&from.octets());
            packet.extend_from_slice(&to.octets());
            let sum = checksum(0, &packet[start..]);
            packet[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
            [&from.octets()[..], &to.octets()[..]].concat()
        }
        (from, to) => {
            let (from, to) = (v6(from), v6(to));
            packet.extend_from_slice(&[0x60, 0, 0, 0]);
            packet.extend_from_slice(&udp_len.to_be_bytes());
            packet.extend_from_slice(&[PROTOCOL_UDP, 64]);
            packet.extend_from_slice(&from);
            packet.extend_from_slice(&to);
            [from, to].concat()
        }
    };
    let start = packet.len();
    packet.extend_from_slice(&from.port().to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&udp_len.to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(frame);
    let carry = u32::from(!checksum(0, &pseudo)) + u32::from(PROTOCOL_UDP) + u32::from(udp_len);
    // A sum of zero is sent as all ones, because zero means no checksum.
    let sum = match checksum(carry, &packet[start..]) {
        0 => 0xFFFF,
        sum => sum,
    };
    packet[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
}

fn v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The Internet checksum of `bytes`, added to `carry`.
fn checksum(carry: u32, bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum = pairs.fold(u64::from(carry), |sum, pair| sum + u64::from(pair));
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_checksums_of_recorded_packets_are_valid() {
        let mut packet = Vec::new();
        let (from, to) = ("127.0.0.1:6118".parse().unwrap(), "127.0.0.2:6118".parse().unwrap());
        ip_packet(&mut packet, from, to, b"abc");
        let expected: [u8; 31] = [
            0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x3C, 0xCB, 127, 0, 0, 1, 127, 0, 0, 2, 0x17, 0xE6, 0x17,
            0xE6, 0, 11, 0x0D, 0xA6, b'a', b'b', b'c',
        ];
        assert_eq!(packet, expected);
        // A sum over a packet with its checksum in place is zero.
        assert_eq!(checksum(0, &packet[..20]), 0);
        packet.clear();
        ip_packet(&mut packet, "[fd00::1]:6118".parse().unwrap(), "[fd00::2]:6118".parse().unwrap(), b"abcd");
        assert_eq!(packet.len(), 40 + 8 + 4);
        let pseudo = u32::from(!checksum(0, &packet[8..40])) + 17 + 12;
        assert_eq!(checksum(pseudo, &packet[40..]), 0);
    }
}
