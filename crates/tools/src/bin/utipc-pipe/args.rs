//! Options: those of `tipc-pipe`, with the same names, and some more.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use utipc::{Destination, NodeAddr, PortId, ServiceAddress, ServiceRange, SocketKind};

/// Largest message, bytes.
const MOST: usize = 66_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SockType {
    #[value(name = "SOCK_STREAM")]
    Stream,
    #[value(name = "SOCK_SEQPACKET")]
    SeqPacket,
    #[value(name = "SOCK_RDM")]
    Rdm,
    #[value(name = "SOCK_DGRAM")]
    Dgram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AddrType {
    #[value(name = "TIPC_ADDR_NAME")]
    Name,
    #[value(name = "TIPC_ADDR_MCAST", alias = "TIPC_ADDR_NAMESEQ")]
    Range,
    #[value(name = "TIPC_ADDR_ID")]
    Id,
}

/// netcat for service addresses: sends standard input to a TIPC socket and prints what the socket receives
///
/// Without -l and -s it is a client of the service {TYPE, ADDRESS1}: it connects, sends its input and then closes the
/// connection.
#[derive(Debug, Parser)]
#[command(name = "utipc-pipe", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Serve any number of clients until stopped; the input goes to all of them
    #[arg(short = 'l', conflicts_with_all = ["single", "top"])]
    pub(crate) listen: bool,
    /// Serve one client; ends with its connection
    #[arg(short = 's', conflicts_with = "top")]
    pub(crate) single: bool,
    /// Print each socket that binds or unbinds an instance of {TYPE, ADDRESS1 to ADDRESS2}
    #[arg(long)]
    pub(crate) top: bool,
    /// Wait for the service, at most this many milliseconds; forever if negative, not at all if 0
    #[arg(
        short = 'w',
        long = "wait_peer",
        value_name = "MS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(crate) wait: i64,
    /// After the end of the input, stay until nothing has arrived for this many milliseconds
    #[arg(short = 'q', long = "quit", value_name = "MS", default_value_t = 0)]
    pub(crate) quit: u64,
    /// Do not read standard input
    #[arg(short = 'd')]
    pub(crate) deaf: bool,

    /// Kind of socket
    #[arg(long = "sock_type", value_name = "KIND", default_value = "SOCK_STREAM")]
    sock_type: SockType,
    /// --sock_type SOCK_RDM
    #[arg(long, group = "kind")]
    rdm: bool,
    /// --sock_type SOCK_DGRAM
    #[arg(long, group = "kind")]
    dgm: bool,
    /// --sock_type SOCK_STREAM
    #[arg(long, group = "kind")]
    stm: bool,
    /// --sock_type SOCK_SEQPACKET
    #[arg(long, group = "kind")]
    sqp: bool,

    /// Kind of address: an instance, a range of them (multicast), or a socket: node and port
    #[arg(long = "addr_type", value_name = "KIND", default_value = "TIPC_ADDR_NAME")]
    addr_type: AddrType,
    /// --addr_type TIPC_ADDR_NAME
    #[arg(long, group = "address")]
    nam: bool,
    /// --addr_type TIPC_ADDR_MCAST
    #[arg(long, group = "address")]
    mc: bool,
    /// --addr_type TIPC_ADDR_ID
    #[arg(long, group = "address")]
    id: bool,
    /// Service type
    #[arg(short = 't', long = "server_type", value_name = "TYPE", default_value = "1000", value_parser = number)]
    server_type: u32,

    /// Bytes that are read and sent at once; a message, except on a stream
    #[arg(long = "buf_size", value_name = "BYTES", default_value_t = MOST)]
    pub(crate) buf_size: usize,
    /// Pause after each message sent, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub(crate) delay: u64,
    /// Limit of messages per second
    #[arg(long, value_name = "MESSAGES", conflicts_with = "delay")]
    pub(crate) rate: Option<u32>,
    /// End after this many received messages (on a stream: pieces)
    #[arg(short = 'n', long, value_name = "MESSAGES")]
    pub(crate) count: Option<u64>,
    /// Send this many numbered lines instead of the input
    #[arg(long = "data_num", value_name = "COUNT", default_value_t = 0)]
    pub(crate) data_num: u64,
    /// Length of each numbered line, bytes
    #[arg(long = "data_size", value_name = "BYTES", default_value_t = 0, requires = "data_num")]
    pub(crate) data_size: usize,
    /// Check that no numbered line is missing in received data
    #[arg(long = "data_check")]
    pub(crate) data_check: bool,
    /// Make a server without connections send its input to the last sender
    #[arg(long)]
    pub(crate) replay: bool,

    /// Instance, or the first of a range; with --id a node (0x…) [default: 0]
    #[arg(value_parser = number, default_value = "0", allow_negative_numbers = true)]
    address1: u32,
    /// Last instance of a range [default: ADDRESS1]; with --id a port
    #[arg(value_parser = number, allow_negative_numbers = true)]
    address2: Option<u32>,
}

const EXAMPLES: &str = "Examples:
  utipc-pipe -s > copy              and  utipc-pipe -w -1 < file      one file, over a stream
  utipc-pipe --rdm --replay -l 123  and  utipc-pipe --rdm 123         datagrams to and fro
  utipc-pipe --rdm --mc 0 99                                          to all who are bound in 0 to 99
  utipc-pipe --top -- 0 -1                                            who serves type 1000

The manual is utipc-pipe(1).";

/// Decimal, hexadecimal after 0x, or negative: `-1` is the largest number.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text
            .parse::<i64>()
            .ok()
            .and_then(|n| u32::try_from(n).ok().or_else(|| Some(i32::try_from(n).ok()?.cast_unsigned()))),
    };
    parsed.ok_or_else(|| "not a number of 32 bits (decimal, or hexadecimal after 0x)".to_owned())
}

impl Args {
    /// Refuses combinations that are not possible.
    pub(crate) fn check(&self) -> Result<()> {
        let kind = self.kind();
        if self.buf_size == 0 || self.buf_size > MOST && kind != SocketKind::Stream {
            bail!("--buf_size {} is out of range (1 to {MOST} bytes; a stream takes more)", self.buf_size);
        }
        if self.data_size > self.buf_size {
            bail!("--data_size {} is more than --buf_size {}", self.data_size, self.buf_size);
        }
        if kind.is_connection_oriented()
            && self.address_type() == AddrType::Range
            && !self.is_server()
            && !self.top
        {
            bail!("a connection goes to one instance, not to a range (--nam, or --rdm for a multicast)");
        }
        if self.is_server() && self.address_type() == AddrType::Id {
            bail!("a server is bound to a service, not to a socket (leave --id out)");
        }
        if self.replay && (kind.is_connection_oriented() || !self.is_server()) {
            bail!("--replay is for servers without connections (--rdm or --dgm, and -l or -s)");
        }
        Ok(())
    }

    pub(crate) fn is_server(&self) -> bool {
        self.listen || self.single
    }

    pub(crate) fn kind(&self) -> SocketKind {
        match self.sock_type {
            _ if self.rdm => SocketKind::Rdm,
            _ if self.dgm => SocketKind::Dgram,
            _ if self.stm => SocketKind::Stream,
            _ if self.sqp => SocketKind::SeqPacket,
            SockType::Stream => SocketKind::Stream,
            SockType::SeqPacket => SocketKind::SeqPacket,
            SockType::Rdm => SocketKind::Rdm,
            SockType::Dgram => SocketKind::Dgram,
        }
    }

    fn address_type(&self) -> AddrType {
        match self.addr_type {
            _ if self.nam => AddrType::Name,
            _ if self.mc => AddrType::Range,
            _ if self.id => AddrType::Id,
            other => other,
        }
    }

    /// The service that a server binds and a client waits for; `None` with a socket address.
    pub(crate) fn services(&self) -> Option<ServiceRange> {
        let last = match self.address_type() {
            AddrType::Id => return None,
            AddrType::Name if !self.top => self.address1,
            _ => self.address2.unwrap_or(self.address1),
        };
        Some(ServiceRange::new(self.server_type, self.address1, last))
    }

    /// The destination of a client.
    pub(crate) fn destination(&self) -> Destination {
        match (self.address_type(), self.services()) {
            (AddrType::Range, Some(range)) => range.into(),
            (AddrType::Name, _) => ServiceAddress::new(self.server_type, self.address1).into(),
            _ => PortId { node: NodeAddr(self.address1), port: self.address2.unwrap_or_default() }.into(),
        }
    }

    /// The pause after each message.
    pub(crate) fn pause(&self) -> Duration {
        match self.rate {
            Some(rate) => Duration::from_secs(1) / rate.max(1),
            None => Duration::from_millis(self.delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::try_parse_from(std::iter::once("utipc-pipe").chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn options_of_tipc_pipe_are_accepted() {
        let all = args(
            "--sock_type SOCK_RDM --server_type=2000 --addr_type TIPC_ADDR_NAMESEQ --delay 5 --data_num 3 --data_size 100 --buf_size 1000 --wait_peer 50 1 9",
        );
        assert_eq!((all.kind(), all.wait, all.pause()), (SocketKind::Rdm, 50, Duration::from_millis(5)));
        assert_eq!(all.destination(), Destination::Range(ServiceRange::new(2000, 1, 9)));
        assert_eq!(args("--sqp -s 7").services(), Some(ServiceRange::new(1000, 7, 7)));
        assert_eq!(args("--top -- 0 -1").services(), Some(ServiceRange::new(1000, 0, u32::MAX)));
        let port = PortId { node: NodeAddr(0x1001001), port: 42 };
        assert_eq!(args("--id 0x1001001 42").destination(), Destination::Port(port));
        assert_eq!(
            args("").destination(),
            Destination::Service { addr: ServiceAddress::new(1000, 0), domain: NodeAddr::NONE }
        );
    }

    #[test]
    fn impossible_combinations_are_refused() {
        for line in [
            "--mc 1 2",
            "-s --id 1 2",
            "--replay",
            "--rdm --buf_size 70000",
            "--buf_size 0",
            "--data_num 1 --data_size 70000",
        ] {
            assert!(args(line).check().is_err(), "{line}");
        }
        for line in ["--buf_size 70000", "--rdm --mc 1 2", "-l --mc 1 2", "--rdm -l --replay"] {
            args(line).check().unwrap();
        }
        assert!(Args::try_parse_from(["utipc-pipe", "--rdm", "--sqp"]).is_err());
        assert!(Args::try_parse_from(["utipc-pipe", "5000000000"]).is_err());
    }
}
