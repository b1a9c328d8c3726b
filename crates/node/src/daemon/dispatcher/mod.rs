//! The dispatcher: owns the daemon's components and runs the event loop. It hands each event and each request to the
//! component that it concerns, and gives each user its share of the time.
//!
//! | Question | File |
//! |---|---|
//! | What happens in which order? | `event_loop.rs` |
//! | Which jobs do users have, and who does them? | `jobs.rs` |
//! | How does a process attach, and where do its requests go? | `processes.rs` |
//! | What can the daemon's owner order? | `owner.rs` |

mod event_loop;
mod jobs;
mod owner;
mod processes;

use std::sync::Arc;

use utipc_attach::Greeting;
use utipc_core::shares::Shares;
use utipc_os::disposal::Disposal;
use utipc_os::fdpass::Doorway;
use utipc_os::reactor::Event as Ready;

use super::attachments::{Admission, Policy};
use super::config::{DaemonConfig, DaemonError};
use super::manage::Management;
use super::memory::{self, Trim};
use super::orders::Orders;
use super::reactors::Reactors;
use super::requests::Requests;
use super::sockets::Sockets;
use super::tasks::Tasks;
use super::turns::TurnMeter;
use crate::driver::NodeDriver;

use jobs::Job;

/// Everything that the daemon's thread owns; see the module.
pub(super) struct Dispatcher {
    sockets: Sockets,
    tasks: Tasks,
    requests: Requests,
    management: Management,
    admission: Admission,
    policy: Policy,
    /// The jobs of users.
    shares: Shares<Job>,
    /// Buffer for the events of one user.
    events: Vec<Ready>,
    trim: Trim,
    turns: TurnMeter,
    orders: Arc<Orders>,
    /// When the daemon started, milliseconds since 1970.
    started: u64,
    /// Buffer for one incoming packet.
    packet: Vec<u8>,
    stop: bool,
}

impl Dispatcher {
    pub(super) fn new(mut config: DaemonConfig) -> Result<(Dispatcher, Arc<Orders>), DaemonError> {
        let label: Arc<str> = config.node.label.as_str().into();
        let management = Management::new(&config);
        let doorway = match config.passed.take() {
            Some(doorway) => doorway,
            None => Doorway::open(&config.socket, config.socket_mode())?,
        };
        let mut driver = NodeDriver::new(config.node, label)?;
        memory::install(&mut driver.stack);
        let reactors = Reactors::new()?;
        driver.watch(&reactors.main, true)?;
        let admission = Admission::new(&reactors.main, doorway, config.versions.unwrap_or(Greeting::OWN))?;
        let orders = Arc::new(Orders::new(reactors.main.waker()));
        let disposal = Disposal::default();
        let dispatcher = Dispatcher {
            sockets: Sockets::new(driver, reactors, config.limits, &disposal),
            tasks: Tasks::new(disposal),
            requests: Requests::default(),
            management,
            admission,
            policy: config.policy,
            shares: Shares::default(),
            events: Vec::new(),
            trim: Trim::default(),
            turns: TurnMeter::default(),
            orders: Arc::clone(&orders),
            started: crate::observe::wall_ms(),
            packet: vec![0; utipc_attach::MAX_PACKET],
            stop: false,
        };
        Ok((dispatcher, orders))
    }
}
