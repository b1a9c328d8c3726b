//! One end of a measurement, in a process of its own. Its argument is its job; its standard input starts and ends it,
//! and also tells it that its parent is gone.

use std::any::Any;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::job::{EndResult, Job, PeerMessage, Role, ServerAddress, Test};
use super::traffic::{self, Gauge};
use super::{channel as channels, library, node, offload, single};

/// The argument of the hidden command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The job, as JSON.
    job: String,
}

/// Values that must outlive the result: what one end has opened stays open until the other end has finished.
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
    /// Reads standard input on a thread. If it ends before the result, the parent has died, and so does this process.
    fn listen() -> Self {
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
    fn send(message: &PeerMessage) -> Result<()> {
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

/// Does the job and reports the result.
pub(crate) fn run(options: &Options) -> Result<()> {
    let job: Job = options.job.parse().context("read the job of a peer process")?;
    let parent = Parent::listen();
    traffic::sharpen_timers();
    if let Some(core) = job.core {
        let mut cores = CpuSet::new();
        cores.set(core);
        // If this is refused, the scheduler chooses the core.
        let _ = sched_setaffinity(None, &cores);
    }
    let mut retained = Retained::new();
    let result = work(&job, &parent, &mut retained);
    Parent::send(&match result {
        Ok(result) => PeerMessage::Done(Box::new(result)),
        Err(error) => PeerMessage::Failed(format!("{error:#}")),
    })?;
    parent.wait_for_end();
    drop(retained);
    Ok(())
}

fn work(job: &Job, parent: &Parent, retained: &mut Retained) -> Result<EndResult> {
    match job.test {
        Test::Echo | Test::Flow if job.role == Role::Serve => serve(job, parent, retained),
        Test::Echo | Test::Flow => drive(job, parent, retained),
        Test::LinkUp => node::link_up(job, parent),
        Test::IdleMemory => node::idle_memory(),
        Test::LinkMtu => node::link_mtu(job, parent),
        Test::Spin => single::spin(job, parent),
        Test::Death if job.role == Role::Serve => library::victim(job, parent),
        Test::Death => library::survivor(job, parent),
        Test::Visible if job.role == Role::Serve => library::binder(job, parent, retained),
        Test::Visible => library::watcher(job, parent),
        Test::Crowd if job.role == Role::Serve => library::crowd_server(job, parent),
        Test::Crowd => library::crowd_clients(job, parent),
        Test::Many if job.role == Role::Serve => library::bind_many(job, parent),
        Test::Many => library::look_up(job, parent),
        Test::OffloadsOff => {
            offload::switch_off(crate::namespaces::CABLE.interface).map(|()| EndResult::default())
        }
    }
}

fn serve(job: &Job, parent: &Parent, retained: &mut Retained) -> Result<EndResult> {
    let waiting = channels::serve(job)?;
    parent.ready(waiting.address)?;
    let opened = (waiting.accept)()?;
    let gauge = Gauge::new(opened.packets);
    let (mut result, channels) = traffic::in_parallel(opened.channels, |mut channel| {
        let result = match job.test {
            Test::Echo => traffic::serve_echo(channel.as_mut(), job, &gauge),
            _ => traffic::serve_flow(channel.as_mut(), job, &gauge),
        };
        Ok((result?, channel))
    })?;
    gauge.fill(&mut result);
    retained.push(Box::new(channels));
    Ok(result)
}

fn drive(job: &Job, parent: &Parent, retained: &mut Retained) -> Result<EndResult> {
    let opened = channels::drive(job)?;
    let gauge = Gauge::new(opened.packets);
    let mut channels = opened.channels;
    parent.ready_to_go()?;
    let mut result = match job.test {
        Test::Flow if job.servers > 1 => traffic::drive_flow(&mut channels, job, &gauge)?,
        test => {
            let (result, left) = traffic::in_parallel(channels, |mut channel| {
                let result = match test {
                    Test::Echo => traffic::drive_echo(channel.as_mut(), job, &gauge),
                    _ => traffic::drive_flow(std::slice::from_mut(&mut channel), job, &gauge),
                };
                Ok((result?, channel))
            })?;
            channels = left;
            result
        }
    };
    gauge.fill(&mut result);
    retained.push(Box::new(channels));
    Ok(result)
}

/// The value of a result that must have one.
pub(super) fn value_of(result: &EndResult) -> Result<f64> {
    result.value.ok_or_else(|| anyhow!("the result of a peer process has no value"))
}
