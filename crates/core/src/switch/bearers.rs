//! The bearers, each with discovery and the neighbour monitor on it.

use super::manage::{BearerProperty, PropertyError, check};
use crate::addr::NodeAddr;
use crate::config::{BearerConfig, BearerError};
use crate::discovery::Discoverer;
use crate::limits::MAX_BEARERS;
use crate::monitor::{DEFAULT_THRESHOLD, Monitor};
use crate::outbox::BearerId;

/// Highest threshold of the neighbour monitor, nodes. Spec: tipc.md §13.
const MAX_MONITOR_THRESHOLD: usize = 4095;

/// A bearer.
#[derive(Debug)]
pub(super) struct Bearer {
    pub(super) config: BearerConfig,
    pub(super) discoverer: Discoverer,
    pub(super) monitor: Monitor,
}

/// All bearers, by number.
#[derive(Debug)]
pub(crate) struct Bearers {
    all: [Option<Bearer>; MAX_BEARERS],
    threshold: usize,
}

impl Default for Bearers {
    fn default() -> Self {
        Self { all: Default::default(), threshold: DEFAULT_THRESHOLD }
    }
}

impl Bearers {
    pub(super) fn get(&self, id: BearerId) -> Option<&Bearer> {
        self.all.get(usize::from(id))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: BearerId) -> Option<&mut Bearer> {
        self.all.get_mut(usize::from(id))?.as_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.iter().all(Option::is_none)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BearerId, &Bearer)> {
        (0..).zip(&self.all).filter_map(|(id, bearer)| Some((id, bearer.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Bearer> {
        self.all.iter_mut().flatten()
    }

    /// The number of the next bearer, and its configuration with a priority that at most one other bearer has. Spec:
    /// tipc.md §4.1.
    ///
    /// # Errors
    /// The name is taken, or there are too many bearers.
    pub(super) fn admit(&self, mut config: BearerConfig) -> Result<(BearerId, BearerConfig), BearerError> {
        if self.iter().any(|(_, other)| other.config.name == config.name) {
            return Err(BearerError::Exists(config.name));
        }
        let free = self.all.iter().position(Option::is_none).ok_or(BearerError::TooMany)?;
        let with = |priority: u8| self.iter().filter(|(_, other)| other.config.priority == priority).count();
        while with(config.priority) >= 2 && config.priority > 0 {
            config.priority -= 1;
        }
        Ok((free as BearerId, config))
    }

    /// Adds a bearer with a number that [`Self::admit`] has given.
    pub(super) fn insert(
        &mut self,
        id: BearerId,
        config: BearerConfig,
        discoverer: Discoverer,
        own: NodeAddr,
    ) {
        let monitor = Monitor::new(own, self.threshold);
        if let Some(place) = self.all.get_mut(usize::from(id)) {
            *place = Some(Bearer { config, discoverer, monitor });
        }
    }

    pub(super) fn remove(&mut self, id: BearerId) {
        if let Some(place) = self.all.get_mut(usize::from(id)) {
            *place = None;
        }
    }

    /// Number of nodes beyond which monitors let nodes supervise some of their peers only.
    pub(crate) fn monitor_threshold(&self) -> usize {
        self.threshold
    }

    /// Sets that number for all bearers.
    ///
    /// # Errors
    /// [`PropertyError::Range`].
    pub(crate) fn set_monitor_threshold(&mut self, nodes: usize) -> Result<(), PropertyError> {
        check(nodes <= MAX_MONITOR_THRESHOLD, "monitor threshold", "0 to 4095 nodes")?;
        self.threshold = nodes;
        for bearer in self.iter_mut() {
            bearer.monitor.set_threshold(nodes);
        }
        Ok(())
    }

    /// Changes a property of a bearer; false if there is no such bearer.
    ///
    /// # Errors
    /// [`PropertyError::Range`].
    pub(super) fn set(&mut self, id: BearerId, property: BearerProperty) -> Result<bool, PropertyError> {
        let Some(bearer) = self.get_mut(id) else { return Ok(false) };
        property.change(&mut bearer.config)?;
        Ok(true)
    }
}
