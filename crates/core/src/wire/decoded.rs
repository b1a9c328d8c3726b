//! Any message as a value, for tools, tests and the printer. Spec: tipc.md §2, §3.

use super::{
    BcastControl, Bundle, ConnControl, Data, DiscoveryMessage, Envelope, Fragment, GroupControl,
    KeyDistribution, LinkProtocolType, Message, NameUpdate, Restart, State, Tunnel, User, View,
};
use crate::error::WireError;

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The fields common to all users.
    pub envelope: Envelope,
    /// The fields of its user.
    pub body: Body<'a>,
    /// Bits that no field holds.
    pub residue: Residue,
}

/// A message by user and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Payload.
    Data(Data<'a>),
    /// BCAST_PROTOCOL.
    Bcast(BcastControl),
    /// MSG_BUNDLER.
    Bundle(Bundle<'a>),
    /// LINK_PROTOCOL STATE.
    State(State),
    /// LINK_PROTOCOL RESET or ACTIVATE.
    Restart(Restart),
    /// CONN_MANAGER.
    Conn(ConnControl),
    /// GROUP_PROTOCOL.
    Group(GroupControl),
    /// TUNNEL.
    Tunnel(Tunnel<'a>),
    /// NAME_DISTRIBUTOR.
    Names(NameUpdate),
    /// MSG_FRAGMENTER.
    Fragment(Fragment<'a>),
    /// LINK_CONFIG.
    Discovery(DiscoveryMessage),
    /// MSG_CRYPTO.
    KeyDistribution(KeyDistribution<'a>),
    /// An unknown user or type.
    Unknown(View<'a>),
}

/// Bits of a message that no field of its value types holds. This version of the protocol sends them as zero; they are
/// kept so that encoding reproduces the message exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Pairs {offset, bits}, in order of offset.
    pub bits: Vec<(usize, u8)>,
    /// Number of bytes after the last field.
    pub trailing: usize,
}

impl Residue {
    /// True if the fields hold every bit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty() && self.trailing == 0
    }

    fn between(built: &[u8], original: &[u8]) -> Self {
        let built_or_0 = built.iter().copied().chain(core::iter::repeat(0));
        let differ = |(at, (a, b)): (usize, (&u8, u8))| (*a != b).then_some((at, *a ^ b));
        Self {
            bits: original.iter().zip(built_or_0).enumerate().filter_map(differ).collect(),
            trailing: original.len().saturating_sub(built.len()),
        }
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        bytes.resize(bytes.len() + self.trailing, 0);
        for (at, bits) in &self.bits {
            if let Some(byte) = bytes.get_mut(*at) {
                *byte ^= bits;
            }
        }
    }
}

impl<'a> Decoded<'a> {
    /// Decodes a message. An unknown user or type becomes [`Body::Unknown`].
    ///
    /// # Errors
    /// [`WireError`] if the message violates a rule of its user. Spec: tipc.md §14.2.
    pub fn parse(v: View<'a>) -> Result<Self, WireError> {
        let body = match parse_body(v) {
            Err(WireError::Type { .. }) => Body::Unknown(v),
            body => body?,
        };
        let mut decoded = Self { envelope: Envelope::of(v), body, residue: Residue::default() };
        decoded.residue = Residue::between(decoded.build().bytes(), v.bytes());
        Ok(decoded)
    }

    /// Encodes the message; the result equals the bytes it was decoded from.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.build().into_bytes();
        self.residue.apply(&mut bytes);
        bytes
    }

    fn build(&self) -> Message {
        let e = &self.envelope;
        match &self.body {
            Body::Data(b) => b.to_message(e),
            Body::Bcast(b) => b.to_message(e),
            Body::Bundle(b) => b.to_message(e),
            Body::State(b) => b.to_message(e),
            Body::Restart(b) => b.to_message(e),
            Body::Conn(b) => b.to_message(e),
            Body::Group(b) => b.to_message(e),
            Body::Tunnel(b) => b.to_message(e),
            Body::Names(b) => b.to_message(e),
            Body::Fragment(b) => b.to_message(e),
            Body::Discovery(b) => b.build(),
            Body::KeyDistribution(b) => b.to_message(e),
            Body::Unknown(v) => v.to_message(),
        }
    }
}

fn parse_body(v: View<'_>) -> Result<Body<'_>, WireError> {
    Ok(match v.user() {
        user if user.is_data() => Body::Data(Data::parse(v)?),
        User::BcastProtocol => Body::Bcast(BcastControl::parse(v)?),
        User::Bundler => Body::Bundle(Bundle::parse(v)?),
        User::LinkProtocol if v.link_type() == LinkProtocolType::State => {
            Body::State(State::parse(v, State::has_gaps(v.payload()))?)
        }
        User::LinkProtocol => Body::Restart(Restart::parse(v)?),
        User::ConnManager => Body::Conn(ConnControl::parse(v)?),
        User::GroupProtocol => Body::Group(GroupControl::parse(v)?),
        User::Tunnel => Body::Tunnel(Tunnel::parse(v)?),
        User::NameDistributor => Body::Names(NameUpdate::parse(v)?),
        User::Fragmenter => Body::Fragment(Fragment::parse(v)?),
        User::LinkConfig => Body::Discovery(DiscoveryMessage::parse(v)?),
        User::Crypto => Body::KeyDistribution(KeyDistribution::parse(v)?),
        _ => Body::Unknown(v),
    })
}
