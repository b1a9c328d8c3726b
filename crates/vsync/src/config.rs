//! Settings of a group. All members must agree on those that [`Config::word`] covers.

use core::time::Duration;

/// Maximum number of bytes of messages in one packet: with its header it fits a TIPC message (66,000 bytes).
pub const MAX_PACKET: usize = 60_000;
/// Maximum number of bytes of a message: it fills a packet.
pub const MAX_MESSAGE: usize = MAX_PACKET - 4;
/// Maximum number of packets of all members that are not stable yet.
pub const MAX_IN_FLIGHT: u64 = 1024;
/// Maximum number of bytes of one piece of state.
pub const MAX_CHUNK: usize = MAX_PACKET;
/// Maximum number of pieces of state that a joiner has not taken yet.
pub const CHUNK_WINDOW: u64 = 16;

/// When messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// Delivered in one total order.
    #[default]
    Agreed,
    /// Delivered in one total order, when every member of the view has the message.
    Safe,
}

/// Which components of a partitioned group go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Components {
    /// The component with the majority of the last view; the others wait.
    #[default]
    Primary,
    /// Each.
    All,
}

/// Whether this member may start the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Founding {
    /// It waits for a member of the group.
    #[default]
    Never,
    /// It starts the group if it finds none. With [`Components::Primary`] exactly one member may do this, once.
    Alone,
}

/// Settings of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Default class of messages.
    pub ordering: Ordering,
    /// Which components go on.
    pub components: Components,
    /// Whether members that join receive the state of the application.
    pub state_transfer: bool,
    /// Bytes of all members that are not stable yet, at most; each member has an equal share.
    pub window: u32,
    /// Whether this member may start the group.
    pub founding: Founding,
    /// Its vote.
    pub weight: u16,
    /// Time that a founder looks for a group, and that a coordinator waits for more joiners.
    pub settle: Duration,
    /// Time after which a member that does not answer is left out of the next view.
    pub patience: Duration,
    /// Time after which receipt of agreed messages is acknowledged.
    pub ack_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ordering: Ordering::Agreed,
            components: Components::Primary,
            state_transfer: true,
            window: 4 << 20,
            founding: Founding::Never,
            weight: 1,
            settle: Duration::from_millis(20),
            patience: Duration::from_millis(500),
            ack_delay: Duration::from_millis(5),
        }
    }
}

impl Config {
    /// The settings that all members must share, as a word of the HELLO message.
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.window) << 3
            | u64::from(self.ordering == Ordering::Safe) << 2
            | u64::from(self.components == Components::All) << 1
            | u64::from(self.state_transfer)
    }
}
