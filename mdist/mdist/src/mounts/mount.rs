//! One client connection, as a worker keeps it.

use std::collections::{HashMap, VecDeque};

use rssl::rwf::{Request, RequestFlags};
use rssl::transport::{Channel, InputBuffer};

use super::item_trouble::RecoveryOptions;
use super::reason::Reason;
use super::slots::Ticket;
use super::view::View;
use crate::hub::{ItemId, ItemSpec, Now};
use crate::metrics::LatencyHistogram;

/// A mount of one worker. `index` is dense and used again: a place in the driver's own table of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub(crate) Ticket);

impl MountId {
    /// Its place, dense from 0.
    pub fn index(self) -> usize {
        self.0.index() as usize
    }
}

/// Figures of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountStats {
    /// Address of the client.
    pub peer: String,
    /// User name, empty before the login.
    pub user: String,
    /// Application name and id of the login.
    pub application: String,
    /// Position of the login.
    pub position: String,
    /// What the client's library says of itself in the handshake.
    pub component: String,
    /// When it connected.
    pub since: Now,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes written to the socket.
    pub bytes_out: u64,
    /// RWF messages received.
    pub messages_in: u64,
    /// RWF messages put out.
    pub messages_out: u64,
    /// Streams open, administrative ones included.
    pub streams: usize,
    /// Requests that wait until the client has read more.
    pub requests_waiting: usize,
    /// Output buffers in use.
    pub buffers: usize,
    /// The most that ever were.
    pub buffers_high_water: usize,
    /// The most it may have.
    pub buffers_max: usize,
    /// Bytes not yet written.
    pub bytes_waiting: usize,
    /// When bytes last went to the socket.
    pub last_write: Now,
    /// When bytes last came.
    pub last_read: Now,
    /// How long its messages stayed here, if that is measured for each mount.
    pub latency: Option<LatencyHistogram>,
}

/// What a login told.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) stream: Ticket,
    pub(crate) user: Vec<u8>,
    pub(crate) application: String,
    pub(crate) position: String,
    pub(crate) wants: RecoveryOptions,
    pub(crate) paused: bool,
}

/// A request that has not gone to the hub yet.
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

pub(crate) struct Mount {
    pub(crate) peer: String,
    pub(crate) since: Now,
    /// When it connected, or logged out: a login has to come in time from then on.
    pub(crate) since_login: Now,
    pub(crate) channel: Channel,
    /// Counts among the server's mounts; otherwise there were too many, and the handshake says so.
    pub(crate) admitted: bool,
    pub(crate) input: InputBuffer,
    pub(crate) login: Option<Login>,
    /// The client's stream ids.
    pub(crate) ids: HashMap<i32, Ticket>,
    /// Requests held back, oldest first; some may have been closed meanwhile.
    pub(crate) queue: VecDeque<(Ticket, Wanted)>,
    /// Requests at the hub whose image is still to come.
    pub(crate) outstanding: usize,
    /// The stream id of the next stream that the server opens.
    pub(crate) next_own: i32,
    pub(crate) cut: Option<Reason>,
    pub(crate) tally: Tally,
}

impl Mount {
    pub(crate) fn new(peer: String, channel: Channel, admitted: bool, now: Now) -> Self {
        Self {
            peer,
            since: now,
            since_login: now,
            channel,
            admitted,
            input: InputBuffer::default(),
            login: None,
            ids: HashMap::new(),
            queue: VecDeque::new(),
            outstanding: 0,
            next_own: -1,
            cut: None,
            tally: Tally { last_read: now, last_write: now, ..Tally::default() },
        }
    }

    pub(crate) fn wants(&self) -> RecoveryOptions {
        self.login.as_ref().map(|login| login.wants).unwrap_or_default()
    }
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Login,
    Directory { filter: u32, service: Option<u16> },
    Dictionary,
    Item,
}

/// What few streams have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) view: Option<View>,
    /// Content of the key, service id included, for updates that carry it.
    pub(crate) key: Option<Box<[u8]>>,
    /// A symbol list whose items the server opens too: streaming or as snapshots.
    pub(crate) data_streams: Option<bool>,
}

/// One stream of a client.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) mount: Ticket,
    pub(crate) id: i32,
    pub(crate) domain: u8,
    /// Of an item; 0 otherwise.
    pub(crate) service: u16,
    pub(crate) role: Role,
    /// Of the last request.
    pub(crate) flags: RequestFlags,
    pub(crate) item: Option<ItemId>,
    /// No part of an image was given out yet, or a new one must come first.
    pub(crate) waiting: bool,
    /// Counts among the mount's outstanding requests.
    pub(crate) counted: bool,
    /// The hub owes it an image.
    pub(crate) at_hub: bool,
    /// The next image answers a request of the client.
    pub(crate) asked: bool,
    /// Identity of the request, to know a reissue from another request.
    pub(crate) identity: u64,
    pub(crate) extra: Option<Box<Extra>>,
}

impl Stream {
    /// One that the server answers itself: of the login, the directory or a dictionary.
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
            counted: false,
            at_hub: false,
            asked: true,
            identity: 0,
            extra: None,
        }
    }

    pub(crate) fn streaming(&self) -> bool {
        self.flags.contains(RequestFlags::STREAMING)
    }

    /// The server opened it, and the client has heard nothing of it yet: it is not told of trouble either.
    pub(crate) fn unheard_of(&self) -> bool {
        self.id < 0 && self.waiting
    }

    /// A symbol list whose items the server opens too.
    pub(crate) fn lists(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.data_streams.is_some())
    }

    pub(crate) fn view(&self) -> Option<&View> {
        self.extra.as_ref()?.view.as_ref()
    }
}
