//! Handles events and records of sinks.

use std::collections::HashMap;
use std::time::Instant;

use super::pacing::{Pace, SinkRequest};
use super::{Greeting, REMIND_AFTER, Reason, Sink, SourceSide};
use crate::backbone::wire::{Record, VERSION};
use crate::backbone::{Address, Result, SinkId, SourceEvent};
use crate::hub::HubRequest;

/// The outcome of a record of a sink.
enum Handled {
    Done,
    /// The sink broke the protocol: its connection is to be ended.
    Refused(Reason),
}

impl SourceSide {
    /// Handles events of the endpoint, without waiting; [`SourceSide::take_hub_requests`] has the resulting requests to
    /// the hub.
    ///
    /// # Errors
    /// A packet is longer than the backbone carries.
    pub fn poll(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.memory.events);
        self.end.poll(&mut events)?;
        let now = Instant::now();
        for event in events.drain(..) {
            match event {
                SourceEvent::Joined(id) => {
                    let sink = Sink {
                        name: String::new(),
                        reader: None,
                        epoch: 0,
                        wanted: Vec::new(),
                        joined: Vec::new(),
                        in_flight: 0,
                        credited_at: now,
                        progressed: now,
                        streams: HashMap::new(),
                        pace: Pace::default(),
                    };
                    self.sinks.insert(id, sink);
                }
                SourceEvent::Left(id, why) => self.remove_sink(id, Reason::Connection(why)),
                SourceEvent::Record(id, record) => {
                    if let Handled::Refused(why) = self.handle_record(id, &record)? {
                        self.end.disconnect(id);
                        self.remove_sink(id, why);
                    }
                }
                SourceEvent::Listens(reader, feed) => {
                    self.listening.insert((reader, feed));
                    self.admit_listeners()?;
                }
                SourceEvent::StoppedListening(reader, feed) => {
                    self.listening.remove(&(reader, feed));
                    let Some(feed) = self.feeds.index(feed) else { continue };
                    let id =
                        self.sinks.iter().find(|(_, sink)| sink.reader == Some(reader)).map(|(id, _)| *id);
                    id.into_iter().for_each(|id| self.leave(id, Some(feed)));
                }
            }
        }
        self.memory.events = events;
        self.remind_silent_sinks(now);
        self.end.flush();
        self.resume_held();
        Ok(())
    }

    /// Takes the requests to the hub, in order.
    pub fn take_hub_requests(&mut self) -> Vec<HubRequest> {
        std::mem::take(&mut self.hub_requests)
    }

    /// Sends the newest entry numbers to sinks that have not credited what was sent: they may have missed the last
    /// packet.
    fn remind_silent_sinks(&mut self, now: Instant) {
        if now - self.checked < REMIND_AFTER / 2 {
            return;
        }
        self.checked = now;
        for (id, sink) in &mut self.sinks {
            if sink.in_flight == 0 || now - sink.credited_at < REMIND_AFTER {
                continue;
            }
            sink.credited_at = now;
            for joined in &sink.joined {
                let Some(feed) = self.feeds.out(joined.feed) else { continue };
                let number = feed.number() - u64::from(feed.waiting());
                self.end.send(*id, &Record::Newest { feed: feed.id, number }.encode());
            }
        }
    }

    /// Whether this address is that of another sink, whose credits and joins a second one could then forge.
    fn is_reader_of_another(&self, id: SinkId, reader: Address) -> bool {
        self.sinks.iter().any(|(other, sink)| *other != id && sink.reader == Some(reader))
    }

    /// Handles a record of a sink.
    fn handle_record(&mut self, id: SinkId, record: &[u8]) -> Result<Handled> {
        let decoded = Record::decode(record);
        if let Ok(Record::Hello { address, .. }) = decoded
            && self.is_reader_of_another(id, Address(address))
        {
            return Ok(Handled::Refused(Reason::Protocol("its address is that of another sink".into())));
        }
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(Handled::Done) };
        match decoded {
            Ok(Record::Hello { version, .. }) if version != VERSION => {
                let why = Reason::Version { theirs: version.into(), ours: VERSION.into() };
                return Ok(Handled::Refused(why));
            }
            Ok(Record::Hello { address, name, .. }) => {
                (sink.reader, sink.name) = (Some(Address(address)), name);
                let (sender, name) = (self.end.address().0, self.name.clone());
                let welcome = Record::Welcome { version: VERSION, sink: id.0, sender, name };
                self.end.send(id, &welcome.encode());
                let Greeting { dictionaries, directory } = &self.greeting;
                dictionaries.iter().chain(directory).for_each(|record| self.end.send(id, record));
            }
            Ok(Record::Join { epoch, feed }) => {
                let feed = self.feeds.index(feed);
                if epoch > sink.epoch {
                    sink.epoch = epoch;
                    sink.pace = Pace::default();
                    self.leave(id, None);
                }
                if let (Some(feed), Some(sink)) = (feed, self.sinks.get_mut(&id)) {
                    if !sink.wanted.contains(&feed) && !sink.joined.iter().any(|joined| joined.feed == feed) {
                        sink.wanted.push(feed);
                    }
                    self.admit_listeners()?;
                }
            }
            Ok(Record::Ask { reissue, in_feed, message }) => {
                if let Err(why) = self.pace_request(id, SinkRequest { reissue, in_feed, message }) {
                    return Ok(Handled::Refused(Reason::Protocol(why)));
                }
            }
            Ok(_) => {
                let why = "it sent a record that only a source sends".into();
                return Ok(Handled::Refused(Reason::Protocol(why)));
            }
            Err(why) => return Ok(Handled::Refused(Reason::Protocol(why.to_string()))),
        }
        Ok(Handled::Done)
    }
}
