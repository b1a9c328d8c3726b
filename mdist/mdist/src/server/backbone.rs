//! The backbone that a program is on.

use std::sync::Arc;

use crate::backbone::Carrier;
use crate::backbone::tipc::Tipc;
use crate::config::{self, Config};

/// The backbone between source distributors and point-to-point servers.
#[derive(Clone, Debug)]
pub struct Backbone(Arc<dyn Carrier>);

impl Backbone {
    /// The backbone that this carries.
    pub fn on(carrier: impl Carrier + 'static) -> Self {
        Self(Arc::new(carrier))
    }

    /// The configured backbone (`backbone.carrier`). Each carrier has its entry here, and a table of options.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        match config.backbone.carrier {
            config::Carrier::Tipc => Self::on(Tipc::from_config(config)),
        }
    }

    pub(super) fn carrier(&self) -> &Arc<dyn Carrier> {
        &self.0
    }
}
