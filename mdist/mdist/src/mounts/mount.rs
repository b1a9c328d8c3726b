//! The state of one mount and of its streams.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rssl::rwf::{Request, RequestFlags};
use rssl::transport::{Channel, InputBuffer};

use super::item_trouble::RecoveryOptions;
use super::reason::Reason;
use super::request_queue::ImageShare;
use super::slots::Ticket;
use super::view::View;
use crate::dictionaries::Given;
use crate::hub::{ItemId, ItemSpec, Now};
use crate::metrics::LatencyHistogram;
use crate::net::LoginEntry;

/// Identifies a mount of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub(crate) Ticket);

impl MountId {
    /// Its index, which the driver uses for its table of sockets. Indexes count from 0 and are reused.
    pub fn index(self) -> usize {
        self.0.index() as usize
    }
}

/// Statistics of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountStats {
    /// Address of the consumer.
    pub peer: String,
    /// User name, empty before the login; a consumer that has logged out keeps it.
    pub user: String,
    /// Application name and id of the login.
    pub application: String,
    /// Position of the login.
    pub position: String,
    /// Name and version of the consumer's library, from the handshake.
    pub component: String,
    /// Time at which it connected.
    pub since: Now,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes written to the socket.
    pub bytes_out: u64,
    /// RWF messages received.
    pub messages_in: u64,
    /// RWF messages put into the output.
    pub messages_out: u64,
    /// Open streams, including administrative ones.
    pub streams: usize,
    /// Requests that wait until the consumer has read more.
    pub requests_waiting: usize,
    /// Output buffers in use.
    pub buffers: usize,
    /// Maximum amount of output buffers that were ever in use.
    pub buffers_high_water: usize,
    /// Maximum amount of output buffers that it may have.
    pub buffers_max: usize,
    /// Bytes that wait for the socket.
    pub bytes_waiting: usize,
    /// Time at which bytes were last written to the socket.
    pub last_write: Now,
    /// Time at which bytes were last received.
    pub last_read: Now,
    /// Latency of its messages in the server, if that is measured for each mount.
    pub latency: Option<LatencyHistogram>,
}

/// The login of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) stream: Ticket,
    /// The user's name; empty if the consumer sent a token.
    pub(crate) user: Vec<u8>,
    /// Its entry among the logins of the server.
    pub(crate) entry: LoginEntry,
    pub(crate) application: String,
    pub(crate) position: String,
    pub(crate) recovery: RecoveryOptions,
    pub(crate) paused: bool,
}

/// The content of a queued request.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Open(ItemSpec),
    Image(ItemId),
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) messages_in: u64,
    pub(crate) last_write: Now,
    pub(crate) last_read: Now,
}

/// One mount.
pub(crate) struct Mount {
    pub(crate) peer: String,
    pub(crate) since: Now,
    /// Time when it connected or logged out, from which the login time-out counts.
    pub(crate) since_login: Now,
    pub(crate) channel: Channel,
    /// Its consumer's address; unspecified if `peer` is not an address.
    pub(crate) from: IpAddr,
    /// Whether its handshake is refused because there are too many mounts.
    pub(crate) refused: bool,
    /// Its entry among the connections that have not logged in.
    pub(crate) pending: Option<u64>,
    pub(crate) input: InputBuffer,
    /// Its login. While it has one, it counts among the server's mounts.
    pub(crate) login: Option<Login>,
    /// Its last login, after its consumer has closed that.
    pub(crate) past_login: Option<Login>,
    /// Bytes of keys and views of its open items.
    pub(crate) open_bytes: usize,
    /// Streams by the consumer's stream id.
    pub(crate) ids: HashMap<i32, Ticket>,
    /// Queued requests, oldest first; the streams of some may have been closed meanwhile.
    pub(crate) queue: VecDeque<(Ticket, Wanted)>,
    /// What its images may take while updates fill its output.
    pub(crate) image_share: ImageShare,
    /// Number of requests at the hub whose image has not come.
    pub(crate) outstanding: usize,
    /// Its streams of the directory.
    pub(crate) directories: Vec<Ticket>,
    /// Number of its tasks, for which its input waits.
    pub(crate) tasks: u32,
    /// Whether its streams are being ended; nothing is sent meanwhile.
    pub(crate) ending: bool,
    /// Whether its socket is closed; it keeps its index until its streams have ended.
    pub(crate) closed: bool,
    /// Id of the next stream that the server opens; negative.
    pub(crate) next_own: i32,
    /// Reason why it is being disconnected; `None`: it is not.
    pub(crate) disconnecting: Option<Reason>,
    pub(crate) tally: Tally,
}

impl Mount {
    pub(crate) fn new(peer: String, channel: Channel, refused: bool, now: Now) -> Self {
        let from = peer.parse::<SocketAddr>().map_or(Ipv4Addr::UNSPECIFIED.into(), |at| at.ip());
        Self {
            peer,
            from,
            since: now,
            since_login: now,
            channel,
            refused,
            pending: None,
            open_bytes: 0,
            input: InputBuffer::default(),
            login: None,
            past_login: None,
            ids: HashMap::new(),
            queue: VecDeque::new(),
            image_share: ImageShare::default(),
            outstanding: 0,
            directories: Vec::new(),
            tasks: 0,
            ending: false,
            closed: false,
            next_own: -1,
            disconnecting: None,
            tally: Tally { last_read: now, last_write: now, ..Tally::default() },
        }
    }

    /// The consumer's choice at login about items in trouble.
    pub(crate) fn recovery(&self) -> RecoveryOptions {
        self.login.as_ref().map(|login| login.recovery).unwrap_or_default()
    }
}

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Login,
    Directory { filter: u32, service: Option<u16> },
    Dictionary(Given),
    Item,
}

/// State that few streams have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) view: Option<View>,
    /// The encoded key with the service id, for consumers that want it in updates.
    pub(crate) key: Option<Box<[u8]>>,
    /// The stream is a symbol list whose items the server opens too: as streams (`true`) or snapshots.
    pub(crate) opens_listed: Option<bool>,
    /// Bytes of the view as the consumer sent it.
    pub(crate) view_bytes: usize,
}

impl Extra {
    /// Bytes that count against the budgets of keys and views.
    pub(crate) fn bytes(&self) -> usize {
        self.view_bytes + self.key.as_ref().map_or(0, |key| key.len())
    }
}

/// One stream of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) mount: Ticket,
    pub(crate) id: i32,
    pub(crate) domain: u8,
    /// The service of an item; 0 for other roles.
    pub(crate) service: u16,
    pub(crate) role: Role,
    /// Flags of the last request.
    pub(crate) flags: RequestFlags,
    pub(crate) item: Option<ItemId>,
    /// Whether it gets no updates, because no part of its image has been sent or a new image has to come first.
    pub(crate) waiting: bool,
    /// Number of the announcement after which its last refresh of its own came.
    pub(crate) refreshed: u64,
    /// Whether it counts among the mount's outstanding requests.
    pub(crate) counted: bool,
    /// Whether its request for an image is at the hub.
    pub(crate) requested: bool,
    /// Whether the next image answers a request of the consumer.
    pub(crate) solicited: bool,
    /// Hash of the request's key, which distinguishes a reissue from a request for another item.
    pub(crate) identity: u64,
    pub(crate) extra: Option<Box<Extra>>,
    /// Bytes of the item's key.
    pub(crate) key_bytes: usize,
}

impl Stream {
    /// Creates a stream that the server answers itself: of the login, the directory or a dictionary.
    pub(crate) fn own(mount: Ticket, request: &Request<'_>, role: Role) -> Self {
        Self {
            mount,
            id: request.stream,
            domain: request.domain.0,
            service: 0,
            role,
            flags: request.flags,
            item: None,
            waiting: false,
            refreshed: 0,
            counted: false,
            requested: false,
            solicited: true,
            identity: 0,
            extra: None,
            key_bytes: 0,
        }
    }

    /// Bytes that count against the budgets of keys and views.
    pub(crate) fn bytes(&self) -> usize {
        self.key_bytes + self.extra.as_ref().map_or(0, |extra| extra.bytes())
    }

    pub(crate) fn streaming(&self) -> bool {
        self.flags.contains(RequestFlags::STREAMING)
    }

    /// Whether the server opened it and the consumer has had no message on it yet. It then gets no status
    /// either.
    pub(crate) fn is_unannounced(&self) -> bool {
        self.id < 0 && self.waiting
    }

    /// Whether it is a symbol list whose items the server opens too.
    pub(crate) fn opens_listed(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.opens_listed.is_some())
    }

    pub(crate) fn view(&self) -> Option<&View> {
        self.extra.as_ref()?.view.as_ref()
    }
}
