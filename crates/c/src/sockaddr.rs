//! `struct sockaddr_tipc` of `linux/tipc.h`: family, kind of address, scope, three words.

use utipc::{Destination, NodeAddr, PortId, ServiceAddress, ServiceRange};

use crate::call::Fault;

const AF_TIPC: u16 = 30;
const LEN: usize = 16;
/// Kinds of address; the range also addresses multicasts.
const RANGE: u8 = 1;
const SERVICE: u8 = 2;
const SOCKET: u8 = 3;

/// Decodes the address of a destination.
pub(crate) fn destination(name: &[u8]) -> Result<Destination, Fault> {
    let bad = |why: String| Fault::new(libc::EINVAL, format!("the address {why} (see struct sockaddr_tipc)"));
    let Some((&[family @ .., kind, _scope], words)) =
        name.get(..LEN).and_then(<[u8]>::split_first_chunk::<4>)
    else {
        return Err(bad(format!("has {} bytes, not {LEN}", name.len())));
    };
    let family = u16::from_ne_bytes(family);
    if family != AF_TIPC {
        return Err(bad(format!("is of family {family}, not AF_TIPC ({AF_TIPC})")));
    }
    let mut words = words.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
    let mut word = || words.next().unwrap_or_default();
    let (first, second, third) = (word(), word(), word());
    Ok(match kind {
        RANGE => ServiceRange::new(first, second, third).into(),
        SERVICE => Destination::Service { addr: ServiceAddress::new(first, second), domain: NodeAddr(third) },
        SOCKET => PortId { port: first, node: NodeAddr(second) }.into(),
        other => return Err(bad(format!("is of kind {other}, not 1 (range), 2 (service) or 3 (socket)"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: u8, words: [u32; 3]) -> Vec<u8> {
        let mut bytes = AF_TIPC.to_ne_bytes().to_vec();
        bytes.extend([kind, 2]);
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn every_address_kind_is_parsed_and_others_are_refused() {
        let service = Destination::Service { addr: ServiceAddress::new(64, 7), domain: NodeAddr(9) };
        assert_eq!(destination(&bytes(SERVICE, [64, 7, 9])).unwrap(), service);
        let range = Destination::Range(ServiceRange::new(64, 7, 9));
        assert_eq!(destination(&bytes(RANGE, [64, 7, 9])).unwrap(), range);
        let port = Destination::Port(PortId { port: 64, node: NodeAddr(7) });
        assert_eq!(destination(&bytes(SOCKET, [64, 7, 9])).unwrap(), port);
        assert!(destination(&bytes(4, [64, 7, 9])).is_err());
        assert!(destination(&bytes(SERVICE, [64, 7, 9])[..15]).is_err());
        let mut foreign = bytes(SERVICE, [64, 7, 9]);
        foreign[0] = 2;
        assert!(destination(&foreign).is_err());
    }
}
