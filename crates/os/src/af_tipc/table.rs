//! What the kernel's node knows, by generic netlink (family TIPCv2): links, bindings.

use std::io;

use neli::attr::AttrHandle;
use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;

/// Commands of the family.
const LINK_GET: u8 = 8;
const LINK_SET: u8 = 9;
const NAME_TABLE_GET: u8 = 16;

/// Attributes, by the nest they are in.
mod attribute {
    pub(super) const LINK: u16 = 4;
    pub(super) const NAME_TABLE: u16 = 8;
    pub(super) const NAME_TABLE_PUBLICATION: u16 = 1;
    pub(super) mod publication {
        pub(in super::super) const TYPE: u16 = 1;
        pub(in super::super) const LOWER: u16 = 2;
        pub(in super::super) const UPPER: u16 = 3;
        pub(in super::super) const SCOPE: u16 = 4;
        pub(in super::super) const NODE: u16 = 5;
        pub(in super::super) const PORT: u16 = 6;
        pub(in super::super) const KEY: u16 = 7;
    }
    pub(super) mod link {
        pub(in super::super) const NAME: u16 = 1;
        pub(in super::super) const PEER: u16 = 2;
        pub(in super::super) const MTU: u16 = 3;
        pub(in super::super) const BROADCAST: u16 = 4;
        pub(in super::super) const UP: u16 = 5;
        pub(in super::super) const ACTIVE: u16 = 6;
        pub(in super::super) const PROPERTIES: u16 = 7;
        pub(in super::super) const STATISTICS: u16 = 8;
    }
}

/// Properties of a link, with their attribute numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelProperty {
    /// 0 to 31.
    Priority = 1,
    /// Milliseconds.
    Tolerance = 2,
    /// Packets.
    Window = 3,
}

/// A link of the kernel's node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLink {
    /// Its name.
    pub name: String,
    /// Address of the peer.
    pub peer: u32,
    /// It can carry traffic.
    pub up: bool,
    /// It carries traffic.
    pub active: bool,
    /// Packet size, bytes.
    pub mtu: u32,
    /// Priority, tolerance (milliseconds) and window (packets).
    pub properties: [u32; 3],
    /// Counters 1 to 32 of the kernel's enumeration, in its order; 0 if it tells none.
    pub counters: [u64; 32],
}

/// An entry of the kernel's binding table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelBinding {
    /// Service type, lower and upper instance.
    pub range: [u32; 3],
    /// 2 cluster, 3 node.
    pub scope: u32,
    /// Node of the socket.
    pub node: u32,
    /// Its port.
    pub port: u32,
    /// Key.
    pub key: u32,
}

type Attributes<'a> = AttrHandle<'a, GenlBuffer<u16, Buffer>, Nlattr<u16, Buffer>>;

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// A connection to the kernel's family, with its number.
fn family() -> io::Result<(NlRouter, u16)> {
    let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(other)?;
    let id = router.resolve_genl_family("TIPCv2").map_err(other)?;
    Ok((router, id))
}

/// Asks for a list and gives each entry's attributes to `entry`.
fn dump(command: u8, mut entry: impl FnMut(&Attributes<'_>)) -> io::Result<()> {
    let (router, id) = family()?;
    let question = GenlmsghdrBuilder::<u8, u16>::default()
        .cmd(command)
        .version(1)
        .attrs(GenlBuffer::new())
        .build()
        .map_err(other)?;
    let answers = router
        .send::<_, _, u16, Genlmsghdr<u8, u16>>(id, NlmF::DUMP, NlPayload::Payload(question))
        .map_err(other)?;
    for answer in answers {
        let answer = answer.map_err(other)?;
        if let Some(payload) = answer.get_payload() {
            entry(&payload.attrs().get_attr_handle());
        }
    }
    Ok(())
}

fn number(attributes: &Attributes<'_>, which: u16) -> u32 {
    attributes.get_attr_payload_as(which).unwrap_or_default()
}

fn flag(attributes: &Attributes<'_>, which: u16) -> bool {
    attributes.get_attribute(which).is_some()
}

/// The links, without the broadcast link.
pub fn links() -> io::Result<Vec<KernelLink>> {
    use attribute::link;
    let mut links = Vec::new();
    dump(LINK_GET, |all| {
        let Ok(nest) = all.get_nested_attributes::<u16>(attribute::LINK) else { return };
        if flag(&nest, link::BROADCAST) {
            return;
        }
        let mut found = KernelLink {
            name: nest.get_attr_payload_as_with_len::<String>(link::NAME).unwrap_or_default(),
            peer: number(&nest, link::PEER),
            up: flag(&nest, link::UP),
            active: flag(&nest, link::ACTIVE),
            mtu: number(&nest, link::MTU),
            ..KernelLink::default()
        };
        if let Ok(properties) = nest.get_nested_attributes::<u16>(link::PROPERTIES) {
            found.properties = [1, 2, 3].map(|which| number(&properties, which));
        }
        if let Ok(counters) = nest.get_nested_attributes::<u16>(link::STATISTICS) {
            for (which, counter) in (1..).zip(&mut found.counters) {
                *counter = number(&counters, which).into();
            }
        }
        links.push(found);
    })?;
    Ok(links)
}

/// The binding table.
pub fn bindings() -> io::Result<Vec<KernelBinding>> {
    use attribute::publication;
    let mut bindings = Vec::new();
    dump(NAME_TABLE_GET, |all| {
        let Ok(table) = all.get_nested_attributes::<u16>(attribute::NAME_TABLE) else { return };
        let Ok(entry) = table.get_nested_attributes::<u16>(attribute::NAME_TABLE_PUBLICATION) else { return };
        bindings.push(KernelBinding {
            range: [publication::TYPE, publication::LOWER, publication::UPPER]
                .map(|which| number(&entry, which)),
            scope: number(&entry, publication::SCOPE),
            node: number(&entry, publication::NODE),
            port: number(&entry, publication::PORT),
            key: number(&entry, publication::KEY),
        });
    })?;
    Ok(bindings)
}

/// Changes a property of the link with this name; needs the privilege CAP_NET_ADMIN.
pub fn set_link(name: &str, property: KernelProperty, value: u32) -> io::Result<()> {
    use attribute::link;
    let (router, id) = family()?;
    let kind = |which: u16| AttrTypeBuilder::default().nla_type(which).build().map_err(other);
    let value = NlattrBuilder::default().nla_type(kind(property as u16)?).nla_payload(value).build();
    let mut properties =
        NlattrBuilder::default().nla_type(kind(link::PROPERTIES)?).nla_payload(()).build().map_err(other)?;
    properties = properties.nest(&value.map_err(other)?).map_err(other)?;
    let named = NlattrBuilder::default().nla_type(kind(link::NAME)?).nla_payload(name).build();
    let mut nest =
        NlattrBuilder::default().nla_type(kind(attribute::LINK)?).nla_payload(()).build().map_err(other)?;
    nest = nest.nest(&named.map_err(other)?).map_err(other)?.nest(&properties).map_err(other)?;
    let order = GenlmsghdrBuilder::<u8, u16>::default()
        .cmd(LINK_SET)
        .version(1)
        .attrs(std::iter::once(nest).collect::<GenlBuffer<u16, Buffer>>())
        .build()
        .map_err(other)?;
    let answers = router
        .send::<_, _, u16, Genlmsghdr<u8, u16>>(id, NlmF::ACK, NlPayload::Payload(order))
        .map_err(other)?;
    for answer in answers {
        answer.map_err(other)?;
    }
    Ok(())
}
