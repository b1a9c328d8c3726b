//! Captures of frames: copies for administrators who watch the node.
//!
//! Each capture has a packet socket to its reader and a bounded queue before it. A reader that is too slow loses
//! records, which the next record counts; nothing waits for it.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use utipc_core::outbox::{BearerId, FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_manage::capture::{CaptureRequest, MAX_FRAME, Origin, Place, Record};
use utipc_os::clock;
use utipc_os::fdpass::{Channel, Put};

use crate::bearers::Bearer;

/// Maximum number of captures at a time. Our choice: each costs a copy of every frame.
const MAX_CAPTURES: usize = 4;

/// Maximum number of bytes that wait for the reader of one capture, in addition to the buffer of its socket.
const QUEUE_BYTES: usize = 4 << 20;

/// Counts of all captures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CaptureCounters {
    /// Captures now.
    pub captures: usize,
    /// Records handed to readers.
    pub records: u64,
    /// Frames and messages that were not copied because a reader was too slow.
    pub dropped: u64,
    /// Bytes of records in lanes that were overwritten before they could be copied.
    pub missed_bytes: u64,
}

/// One capture.
#[derive(Debug)]
struct Capture {
    /// The attachment that began it.
    owner: u32,
    channel: Channel,
    request: CaptureRequest,
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    /// Number of frames not copied since the last record.
    dropped: u64,
    is_gone: bool,
}

/// All captures of a node.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    all: Vec<Capture>,
    counters: CaptureCounters,
}

impl Captures {
    /// Begins a capture for an attachment; returns the end of its reader, or nothing if there are too many.
    pub(crate) fn begin(&mut self, owner: u32, request: CaptureRequest) -> utipc_os::Result<Option<OwnedFd>> {
        if self.all.len() >= MAX_CAPTURES {
            return Ok(None);
        }
        let (channel, reader) = Channel::sized_pair()?;
        self.all.push(Capture {
            owner,
            channel,
            request,
            queue: VecDeque::new(),
            queued: 0,
            dropped: 0,
            is_gone: false,
        });
        Ok(Some(reader.into_fd()))
    }

    /// Ends the captures of an attachment that is gone.
    pub(crate) fn end_of(&mut self, owner: u32) {
        self.all.retain(|capture| capture.owner != owner);
    }

    /// Ends the captures of attachments that may no longer have any.
    pub(crate) fn end_unless(&mut self, may: impl Fn(u32) -> bool) {
        self.all.retain(|capture| may(capture.owner));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a capture wants messages in lanes.
    pub(crate) fn wants_lanes(&self) -> bool {
        self.all.iter().any(|capture| capture.request.lanes)
    }

    pub(crate) fn counters(&self) -> CaptureCounters {
        CaptureCounters { captures: self.all.len(), ..self.counters }
    }

    /// Copies a frame that has arrived.
    pub(crate) fn received(&mut self, bearer: &str, from: MediaAddr, to: MediaAddr, frame: &[u8]) {
        self.frame(bearer, false, [from, to], frame);
    }

    /// Copies the frames of a batch that a bearer is about to send.
    pub(crate) fn sent(&mut self, id: BearerId, bearer: &dyn Bearer, batch: &FrameBatch) {
        let (name, local) = (bearer.name(), bearer.local_address());
        let mut all_peers = None;
        for frame in batch.frames().iter().filter(|frame| frame.bearer == id) {
            let bytes = &*batch.frame(frame);
            match frame.to {
                Target::Unicast(to) => self.frame(name, true, [local, to], bytes),
                Target::Broadcast => {
                    for to in all_peers.get_or_insert_with(|| bearer.broadcast_targets()).iter() {
                        self.frame(name, true, [local, *to], bytes);
                    }
                }
            }
        }
    }

    /// Copies a message of a lane, from port to port.
    pub(crate) fn lane(&mut self, ports: [u32; 2], message: &[u8]) {
        for capture in self.all.iter_mut().filter(|capture| capture.request.lanes) {
            self.counters.dropped += capture.put(Origin::Lane(ports), message, 0);
        }
    }

    /// Reports bytes of a lane that could not be copied.
    pub(crate) fn lane_missed(&mut self, ports: [u32; 2], bytes: u64) {
        self.counters.missed_bytes += bytes;
        for capture in self.all.iter_mut().filter(|capture| capture.request.lanes) {
            self.counters.dropped += capture.put(Origin::Lane(ports), &[], bytes);
        }
    }

    fn frame(&mut self, name: &str, sent: bool, path: [MediaAddr; 2], frame: &[u8]) {
        for capture in &mut self.all {
            let CaptureRequest { bearer, no_bearers, .. } = &capture.request;
            if *no_bearers || bearer.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let origin = Origin::Bearer { name: name.to_owned(), sent, path: path.map(place) };
            self.counters.dropped += capture.put(origin, frame, 0);
        }
    }

    /// Hands what waits to the readers, as far as they take it. Call it at the end of each turn.
    pub(crate) fn flush(&mut self) {
        for capture in &mut self.all {
            self.counters.records += capture.flush();
        }
        self.all.retain(|capture| !capture.is_gone);
    }

    /// Whether something waits for a reader.
    pub(crate) fn has_queued(&self) -> bool {
        self.all.iter().any(|capture| !capture.queue.is_empty())
    }
}

impl Capture {
    /// Queues a record; returns the number of frames dropped.
    fn put(&mut self, origin: Origin, frame: &[u8], missed: u64) -> u64 {
        let snap = self.request.snap.map_or(MAX_FRAME, |snap| snap as usize).min(MAX_FRAME);
        if self.queued >= QUEUE_BYTES {
            self.dropped += 1;
            return 1;
        }
        let record = Record {
            time: nanos(clock::wall()),
            origin,
            frame: frame.get(..snap).unwrap_or(frame).to_vec(),
            len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            dropped: std::mem::take(&mut self.dropped),
            missed,
        };
        let bytes = record.to_bytes();
        self.queued += bytes.len();
        self.queue.push_back(bytes);
        0
    }

    /// Sends what the socket takes; returns the number of records.
    fn flush(&mut self) -> u64 {
        let mut sent = 0;
        while let Some(packet) = self.queue.front() {
            match self.channel.send(&[IoSlice::new(packet)], &[], false) {
                Ok(Put::Sent) => {
                    self.queued -= packet.len();
                    self.queue.pop_front();
                    sent += 1;
                }
                Ok(Put::Full | Put::Busy) => break,
                Ok(Put::Gone) | Err(_) => {
                    self.is_gone = true;
                    break;
                }
            }
        }
        sent
    }
}

fn place(address: MediaAddr) -> Place {
    match address {
        MediaAddr::Ethernet(mac) => Place::Ethernet(mac),
        MediaAddr::Udp(at) => Place::Udp(SocketAddr::new(at.ip(), at.port())),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &Channel) -> Option<Record> {
        let mut buffer = vec![0; utipc_manage::capture::MAX_RECORD];
        match reader.receive(&mut buffer, &mut Vec::new(), 0, false).unwrap() {
            utipc_os::fdpass::Got::Packet(len) => Some(Record::from_bytes(&buffer[..len]).unwrap()),
            _ => None,
        }
    }

    fn udp(port: u16) -> MediaAddr {
        MediaAddr::Udp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    #[test]
    fn slow_reader_loses_records_and_learns_how_many() {
        let mut captures = Captures::default();
        let reader = captures.begin(1, CaptureRequest::default()).unwrap().unwrap();
        let reader = Channel::from_fd(reader);
        let frame = vec![9; 60_000];
        for _ in 0..200 {
            captures.received("udp:U", udp(1), udp(2), &frame);
            captures.flush();
        }
        let lost = captures.counters().dropped;
        assert!(lost > 0 && lost < 200, "{lost}");
        let mut read_frames = 0;
        while let Some(record) = read(&reader) {
            assert_eq!((record.len, record.dropped), (60_000, 0));
            read_frames += 1;
            captures.flush();
        }
        assert_eq!(read_frames + lost, 200);
        captures.received("udp:U", udp(1), udp(2), b"later");
        captures.flush();
        assert_eq!(read(&reader).unwrap().dropped, lost);
        drop(reader);
        captures.received("udp:U", udp(1), udp(2), b"without a reader");
        captures.flush();
        assert!(captures.is_empty());
    }

    #[test]
    fn captures_are_limited_and_choose_what_they_copy() {
        let mut captures = Captures::default();
        let one =
            CaptureRequest { bearer: Some("udp:B".to_owned()), snap: Some(3), ..CaptureRequest::default() };
        let reader = Channel::from_fd(captures.begin(1, one).unwrap().unwrap());
        let lanes = CaptureRequest { no_bearers: true, lanes: true, ..CaptureRequest::default() };
        let lane_reader = Channel::from_fd(captures.begin(2, lanes.clone()).unwrap().unwrap());
        captures.received("udp:A", udp(1), udp(2), b"first");
        captures.received("udp:B", udp(1), udp(2), b"second");
        captures.lane([5, 6], b"third");
        captures.lane_missed([5, 6], 640);
        captures.flush();
        let record = read(&reader).unwrap();
        assert_eq!((&*record.frame, record.len), (&b"sec"[..], 6));
        assert!(read(&reader).is_none());
        let record = read(&lane_reader).unwrap();
        assert_eq!((record.origin, &*record.frame), (Origin::Lane([5, 6]), &b"third"[..]));
        assert_eq!(read(&lane_reader).unwrap().missed, 640);
        for _ in 2..MAX_CAPTURES {
            assert!(captures.begin(3, lanes.clone()).unwrap().is_some());
        }
        assert!(captures.begin(3, lanes.clone()).unwrap().is_none());
        captures.end_unless(|owner| owner != 3);
        assert!(captures.begin(3, lanes).unwrap().is_some());
    }
}
