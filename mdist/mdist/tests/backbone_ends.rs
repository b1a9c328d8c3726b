//! The endpoints of the backbone without a hub: connections, records, packets, credits.

mod backbone_common;

use std::time::Duration;

use backbone_common::{Host, embedded, plain, until};
use mdist::backbone::memory::Memory;
use mdist::backbone::tipc::{Options, TipcSink, TipcSource};
use mdist::backbone::{
    Address, Credit, FeedId, FeedReader, SinkEnd, SinkEvent, SinkId, SourceEnd, SourceEvent, SourceId,
};
use utipc::Node;

struct Ends {
    source: Option<Box<dyn SourceEnd>>,
    sinks: Vec<Box<dyn SinkEnd>>,
    source_events: Vec<SourceEvent>,
    sink_events: Vec<Vec<SinkEvent>>,
}

impl Ends {
    fn new(source: Box<dyn SourceEnd>, sinks: Vec<Box<dyn SinkEnd>>) -> Self {
        let sink_events = sinks.iter().map(|_| Vec::new()).collect();
        Self { source: Some(source), sinks, source_events: Vec::new(), sink_events }
    }

    fn source(&mut self) -> &mut dyn SourceEnd {
        self.source.as_mut().unwrap().as_mut()
    }

    /// Polls all ends until `found` finds something in the events.
    fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut Vec<SourceEvent>, &mut [Vec<SinkEvent>]) -> Option<T>,
    ) -> T {
        until(what, || {
            if let Some(source) = &mut self.source {
                source.poll(&mut self.source_events).unwrap();
                source.flush();
            }
            for (sink, events) in self.sinks.iter_mut().zip(&mut self.sink_events) {
                sink.poll(events).unwrap();
                sink.flush();
            }
            found(&mut self.source_events, &mut self.sink_events)
        })
    }

    /// Waits for the connections; returns the source's ids of the sinks, in the order of `sinks`.
    fn connect(&mut self) -> (SourceId, Vec<SinkId>) {
        let count = self.sinks.len();
        let id = self.source().id();
        self.until("connections", |_, sinks| {
            sinks.iter().all(|events| events.contains(&SinkEvent::SourceUp(id))).then_some(())
        });
        self.sink_events.iter_mut().for_each(Vec::clear);
        for at in 0..count {
            self.sinks[at].send(id, &[at as u8; 3]);
        }
        let names = self.until("records of the sinks", |source, _| {
            let mut names: Vec<_> = source
                .iter()
                .filter_map(|event| match event {
                    SourceEvent::Record(sink, record) => Some((record[0], *sink)),
                    _ => None,
                })
                .collect();
            names.sort();
            (names.len() == count).then(|| names.into_iter().map(|(_, sink)| sink).collect())
        });
        self.source_events.clear();
        (id, names)
    }
}

fn packet(reader: &mut Box<dyn FeedReader>, buffer: &mut [u8]) -> Vec<u8> {
    let (_, len) = reader.receive(backbone_common::LIMIT, buffer).unwrap().expect("a packet");
    buffer[..len].to_vec()
}

/// Checks everything that the traits document, with two sinks.
fn check_contract(mut ends: Ends) {
    let (id, sinks) = ends.connect();
    let feed = ends.source().open_feed().unwrap();
    let address = [ends.sinks[0].address(), ends.sinks[1].address()];
    for sink in &mut ends.sinks {
        sink.listen(feed).unwrap();
    }
    ends.until("listeners", |source, _| {
        address.iter().all(|address| source.contains(&SourceEvent::Listens(*address, feed))).then_some(())
    });
    let mut readers: Vec<_> = ends.sinks.iter_mut().map(|sink| sink.reader().unwrap()).collect();
    assert!(ends.sinks[0].reader().is_none());

    let from = check_packets(&mut ends, feed, &mut readers);
    check_credits(&mut ends, feed, &mut readers[1], from);
    check_records(&mut ends, id, &sinks);
    check_leaving(&mut ends, feed, &mut readers, sinks[0]);
    check_reconnect_and_loss(&mut ends, id, sinks[1]);
}

/// Packets arrive in order at all listeners. Returns the source's address.
fn check_packets(ends: &mut Ends, feed: FeedId, readers: &mut [Box<dyn FeedReader>]) -> Address {
    let mut buffer = vec![0; 66_000];
    let body =
        |number: u32| [number.to_be_bytes().to_vec(), vec![7; (number as usize * 997) % 59_000]].concat();
    for number in 0..200 {
        ends.source().multicast(feed, &body(number)).unwrap();
        if number % 5 == 4 {
            for reader in &mut *readers {
                for number in number - 4..=number {
                    assert!(packet(reader, &mut buffer) == body(number), "packet {number}");
                }
            }
        }
    }
    assert!(ends.source().multicast(feed, &vec![0; 66_001]).is_err());
    ends.source().multicast(FeedId(feed.0.wrapping_add(77)), b"no listener").unwrap();
    ends.source().multicast(feed, b"where from?").unwrap();
    let mut from = None;
    for reader in readers {
        let (source, _) = reader.receive(backbone_common::LIMIT, &mut buffer).unwrap().unwrap();
        from = Some(source);
    }
    from.unwrap()
}

fn check_credits(ends: &mut Ends, feed: FeedId, reader: &mut Box<dyn FeedReader>, source: Address) {
    reader.credit(source, feed, 1 << 33);
    let mut credits = Vec::new();
    until("a credit", || {
        ends.source().credits(Duration::from_millis(10), &mut credits).unwrap();
        (!credits.is_empty()).then_some(())
    });
    assert_eq!(credits, [Credit { reader: ends.sinks[1].address(), feed, position: 1 << 33 }]);
}

/// Records of any size arrive in order at their receiver only.
fn check_records(ends: &mut Ends, id: SourceId, sinks: &[SinkId]) {
    for size in [0, 1, 3, 60_000, 66_000, 300_000] {
        ends.source().send(sinks[1], &vec![size as u8; size]);
        ends.sinks[0].send(id, &vec![size as u8; size]);
    }
    let (mut down, mut up) = (Vec::new(), Vec::new());
    ends.until("records", |source, events| {
        assert!(events[0].is_empty(), "{:?}", events[0]);
        down.extend(events[1].drain(..).filter_map(|event| match event {
            SinkEvent::Record(from, record) => Some((from == id, record.len())),
            _ => None,
        }));
        up.extend(source.drain(..).filter_map(|event| match event {
            SourceEvent::Record(from, record) => Some((from == sinks[0], record.len())),
            _ => None,
        }));
        (down.len() == 6 && up.len() == 6).then_some(())
    });
    let sizes = [0, 1, 3, 60_000, 66_000, 300_000].map(|size| (true, size));
    assert_eq!((down.as_slice(), up.as_slice()), (&sizes[..], &sizes[..]));
}

/// The first sink stops listening, then disappears; the other one still gets packets.
fn check_leaving(ends: &mut Ends, feed: FeedId, readers: &mut Vec<Box<dyn FeedReader>>, leaving: SinkId) {
    let address = ends.sinks[0].address();
    ends.sinks[0].ignore(feed);
    ends.until("a reader that stops listening", |source, _| {
        source.contains(&SourceEvent::StoppedListening(address, feed)).then_some(())
    });
    ends.sinks.remove(0);
    ends.sink_events.remove(0);
    drop(readers.remove(0));
    ends.until("a leave", |source, _| {
        let left = |event: &SourceEvent| matches!(event, SourceEvent::Left(sink, _) if *sink == leaving);
        source.iter().any(left).then_some(())
    });
    ends.source().multicast(feed, b"go on").unwrap();
    assert_eq!(packet(&mut readers[0], &mut vec![0; 66_000]), b"go on");
}

/// A connection is ended and made again; then the source disappears.
fn check_reconnect_and_loss(ends: &mut Ends, id: SourceId, sink: SinkId) {
    ends.sink_events[0].clear();
    ends.source().disconnect(sink);
    ends.until("the end of the connection and another one", |_, sinks| {
        let down = sinks[0].iter().position(|event| matches!(event, SinkEvent::SourceDown(..)))?;
        sinks[0][down..].contains(&SinkEvent::SourceUp(id)).then_some(())
    });
    ends.sink_events[0].clear();
    ends.source = None;
    ends.until("the loss of the source", |_, sinks| {
        let lost = |event: &SinkEvent| matches!(event, SinkEvent::SourceDown(source, _) if *source == id);
        sinks[0].iter().any(lost).then_some(())
    });
}

/// Packets stay in order while readers come and go, with unicast to one reader and multicast to several.
fn readers_come_and_go(mut ends: Ends) {
    ends.connect();
    let feed = ends.source().open_feed().unwrap();
    let address = [ends.sinks[0].address(), ends.sinks[1].address()];
    let mut readers: Vec<_> = ends.sinks.iter_mut().map(|sink| sink.reader().unwrap()).collect();
    let mut buffer = vec![0; 66_000];
    let mut number = 0_u32;
    let mut before: &[usize] = &[];
    for listening in [&[0][..], &[0, 1], &[1], &[0, 1], &[0], &[], &[1], &[0, 1]] {
        for (at, address) in address.iter().enumerate() {
            let (was, is) = (before.contains(&at), listening.contains(&at));
            let event = match (was, is) {
                (false, true) => {
                    ends.sinks[at].listen(feed).unwrap();
                    SourceEvent::Listens(*address, feed)
                }
                (true, false) => {
                    ends.sinks[at].ignore(feed);
                    SourceEvent::StoppedListening(*address, feed)
                }
                _ => continue,
            };
            ends.until("a change of listeners", |source, _| source.contains(&event).then_some(()));
            ends.source_events.clear();
        }
        before = listening;
        let first = number;
        for size in (0..60).map(|at| (at * 1_997) % 60_000) {
            ends.source().multicast(feed, &[&number.to_be_bytes()[..], &vec![7; size]].concat()).unwrap();
            number += 1;
            // No more than a feed's window for unread bytes.
            if number.is_multiple_of(6) {
                for &at in listening {
                    for expected in number - 6..number {
                        assert_eq!(
                            packet(&mut readers[at], &mut buffer)[..4],
                            expected.to_be_bytes(),
                            "{listening:?} from {first}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn over_lanes() {
    let host = Host::start();
    let source = TipcSource::open(&host.attach(), Options::default()).unwrap();
    let sink = || Box::new(TipcSink::open(&host.attach(), Options::default()).unwrap()) as Box<dyn SinkEnd>;
    check_contract(Ends::new(Box::new(source), vec![sink(), sink()]));
}

fn three_nodes(nodes: [Node; 3], test: fn(Ends)) {
    let source = TipcSource::open(&nodes[0], Options::default()).unwrap();
    let sink = |node| Box::new(TipcSink::open(node, Options::default()).unwrap()) as Box<dyn SinkEnd>;
    test(Ends::new(Box::new(source), vec![sink(&nodes[1]), sink(&nodes[2])]));
}

#[test]
fn between_embedded_nodes() {
    three_nodes(embedded(plain), check_contract);
}

#[test]
fn readers_come_and_go_between_embedded_nodes() {
    three_nodes(embedded(plain), readers_come_and_go);
}

/// As between three hosts with a utipcd each.
#[test]
fn readers_come_and_go_between_daemons() {
    let hosts = Host::joined::<3>();
    three_nodes(hosts.each_ref().map(Host::attach), readers_come_and_go);
}

#[test]
fn on_one_embedded_node() {
    let node = utipc::Node::builder().engine(utipc::Engine::Embedded).isolated().start().unwrap();
    let source = TipcSource::open(&node, Options::default()).unwrap();
    let sink = || Box::new(TipcSink::open(&node, Options::default()).unwrap()) as Box<dyn SinkEnd>;
    check_contract(Ends::new(Box::new(source), vec![sink(), sink()]));
}

#[test]
fn readers_come_and_go_in_memory() {
    let memory = Memory::new();
    let source = memory.source().unwrap();
    let sink = || Box::new(memory.sink().unwrap()) as Box<dyn SinkEnd>;
    readers_come_and_go(Ends::new(Box::new(source), vec![sink(), sink()]));
}

#[test]
fn in_memory() {
    let memory = Memory::new();
    let source = memory.source().unwrap();
    let sink = || Box::new(memory.sink().unwrap()) as Box<dyn SinkEnd>;
    check_contract(Ends::new(Box::new(source), vec![sink(), sink()]));
}
