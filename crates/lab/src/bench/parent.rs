//! The connection of a peer process to its parent: orders on standard input, messages on standard output.

use std::any::Any;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, bail};

use super::job::{PeerMessage, ServerAddress};

/// Values that must outlive the result: everything that one end has opened stays open until the other end has finished.
pub(super) type Retained = Vec<Box<dyn Any>>;

/// The line that lets a driver begin.
pub(super) const GO: &str = "go";

/// An order of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Go,
    End,
}

/// The connection to the parent process.
pub(super) struct Parent {
    orders: Receiver<Order>,
    idle: Arc<AtomicBool>,
}

impl Parent {
    /// Reads standard input on a thread. If it ends before the result, the parent has died, and this process ends too.
    pub(super) fn listen() -> Self {
        let (sender, orders) = channel();
        let idle = Arc::new(AtomicBool::new(false));
        let has_result = Arc::clone(&idle);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
                if line == GO {
                    let _ = sender.send(Order::Go);
                }
            }
            if !has_result.load(Ordering::SeqCst) || sender.send(Order::End).is_err() {
                std::process::exit(1);
            }
        });
        Self { orders, idle }
    }

    /// Sends a message to the parent.
    pub(super) fn send(message: &PeerMessage) -> Result<()> {
        let line = serde_json::to_string(message).context("encode a message to the parent")?;
        let mut out = std::io::stdout();
        writeln!(out, "{line}").and_then(|()| out.flush()).context("send a message to the parent")
    }

    /// Reports that this end is ready.
    pub(super) fn ready(&self, address: ServerAddress) -> Result<()> {
        Self::send(&PeerMessage::Ready(address))
    }

    /// Reports that this end is ready and waits for the order to begin.
    pub(super) fn ready_to_go(&self) -> Result<()> {
        self.ready(ServerAddress::default())?;
        match self.orders.recv() {
            Ok(Order::Go) => Ok(()),
            _ => bail!("the parent is gone"),
        }
    }

    /// Waits for the order to end.
    pub(super) fn wait_for_end(&self) {
        self.idle.store(true, Ordering::SeqCst);
        while self.orders.recv().is_ok_and(|order| order != Order::End) {}
    }
}
