//! Switches off segmentation and coalescing of an interface, by the kernel's generic netlink family "ethtool".

use anyhow::{Context, Result};
use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;

/// Names of the kernel's features that `ethtool -K DEV tso off gso off gro off tx-udp-segmentation off` switches off.
const FEATURES: [&str; 7] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];

/// Command and attributes of linux/ethtool_netlink.h, by the nest they are in.
const FEATURES_SET: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const HEADER_DEVICE_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;

type Attribute = Nlattr<u16, Buffer>;

/// Switches the offloads of `interface` off, in this process's network namespace.
pub(super) fn switch_off(interface: &str) -> Result<()> {
    request(interface)
        .with_context(|| format!("switch the offloads of {interface} off (needs CAP_NET_ADMIN)"))
}

fn request(interface: &str) -> Result<()> {
    let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty())?;
    let family = router.resolve_genl_family("ethtool")?;
    // A bit that is named without a value is cleared; the others stay.
    let mut bits = attribute(BITSET_BITS, true)?;
    for name in FEATURES {
        bits = bits.nest(&attribute(BITSET_BIT, true)?.nest(&text(BIT_NAME, name)?)?)?;
    }
    let attributes: GenlBuffer<u16, Buffer> = [
        attribute(FEATURES_HEADER, true)?.nest(&text(HEADER_DEVICE_NAME, interface)?)?,
        attribute(FEATURES_WANTED, true)?.nest(&bits)?,
    ]
    .into_iter()
    .collect();
    let request =
        GenlmsghdrBuilder::<u8, u16>::default().cmd(FEATURES_SET).version(1).attrs(attributes).build()?;
    let replies = router.send::<u16, Genlmsghdr<u8, u16>, u16, Genlmsghdr<u8, u16>>(
        family,
        NlmF::REQUEST | NlmF::ACK,
        NlPayload::Payload(request),
    )?;
    for reply in replies {
        reply?;
    }
    Ok(())
}

fn attribute(kind: u16, nested: bool) -> Result<Attribute> {
    let kind = AttrTypeBuilder::default().nla_type(kind).nla_nested(nested).build()?;
    Ok(NlattrBuilder::default().nla_type(kind).nla_payload(Buffer::new()).build()?)
}

fn text(kind: u16, value: &str) -> Result<Attribute> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build()?;
    Ok(NlattrBuilder::default().nla_type(kind).nla_payload(value).build()?)
}
