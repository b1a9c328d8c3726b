//! Changes of the service that a publisher announces in its directory while it runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use rssl::rdm::directory::{self, Action, GroupStatus, Service, ServiceState};
use rssl::rwf::{DataState, DataType, Domain, State, StreamState, Update, code};
use rssl::wire::to_vec;

/// The group of all items of a publisher.
pub(super) const GROUP: [u8; 2] = [0, 0];

/// A change of the service, announced to every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// The service goes down, or comes up.
    Service {
        /// Whether it is up now.
        up: bool,
    },
    /// The data of all items become suspect, or good, by a status of their group.
    Group {
        /// Whether they are good now.
        good: bool,
    },
}

/// The events so far, and whether the service is up.
#[derive(Debug, Default)]
pub(super) struct ServiceEvents {
    list: Mutex<Vec<ServiceEvent>>,
    count: AtomicUsize,
    is_down: AtomicBool,
}

impl ServiceEvents {
    pub(super) fn add(&self, event: ServiceEvent) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let ServiceEvent::Service { up } = event {
            self.is_down.store(!up, Ordering::Relaxed);
        }
        list.push(event);
        self.count.store(list.len(), Ordering::Release);
    }

    /// Number of events so far.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The event with this number, from 0.
    pub(super) fn get(&self, number: usize) -> Option<ServiceEvent> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).get(number).copied()
    }

    /// The state of the service now.
    pub(super) fn state(&self) -> ServiceState {
        let up = !self.is_down.load(Ordering::Relaxed);
        ServiceState { up, accepting: up, status: None }
    }
}

impl ServiceEvent {
    /// The update of the directory for the event.
    pub(super) fn update(self, stream: i32, service: u16) -> Result<Vec<u8>> {
        let mut change = Service { id: service, ..Service::default() };
        match self {
            Self::Service { up } => {
                change.state = Some(ServiceState { up, accepting: up, status: None });
            }
            Self::Group { good } => {
                let (data, text) = if good {
                    (DataState::Ok, &b"the data are good again"[..])
                } else {
                    (DataState::Suspect, &b"the data may be old"[..])
                };
                let status = State::new(StreamState::Open, data, code::NONE, text).to_owned();
                change.groups =
                    vec![GroupStatus { group: GROUP.to_vec(), merged_to: None, status: Some(status) }];
            }
        }
        let payload =
            to_vec(|w| directory::encode(w, directory::filter::ALL, &[(Action::Update, change.clone())]))?;
        Ok(Update::new(Domain::DIRECTORY, stream, DataType::MAP, &payload).to_vec()?)
    }
}
