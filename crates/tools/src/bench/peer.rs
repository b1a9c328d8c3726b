//! One end of a measurement, in a process of its own: told what to do by its argument, started and ended by its
//! standard input, which is also how it notices that its parent is gone.

use std::any::Any;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::job::{Job, Meet, Part, Role, Said, Test};
use super::traffic::{self, Gauge};
use super::{channel as ways, library, node, offload, single};

/// The argument of the hidden command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The job, as JSON.
    job: String,
}

/// What must outlive the result.
pub(super) type Kept = Vec<Box<dyn Any>>;

/// The line that lets a driver begin.
pub(super) const GO: &str = "go";

/// What the parent has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Go,
    End,
}

/// The connection to the parent process.
pub(super) struct Parent {
    told: Receiver<Told>,
    idle: Arc<AtomicBool>,
}

impl Parent {
    /// Listens to standard input. When it ends while there is work, the parent has died and nobody wants the result.
    fn listen() -> Self {
        let (tell, told) = channel();
        let idle = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&idle);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
                if line == GO {
                    let _ = tell.send(Told::Go);
                }
            }
            if !seen.load(Ordering::SeqCst) || tell.send(Told::End).is_err() {
                std::process::exit(1);
            }
        });
        Self { told, idle }
    }

    /// Says a line to the parent.
    fn say(said: &Said) -> Result<()> {
        let line = serde_json::to_string(said).context("write down a result")?;
        let mut out = std::io::stdout();
        writeln!(out, "{line}").and_then(|()| out.flush()).context("tell the parent")
    }

    /// Says that this end is ready.
    pub(super) fn ready(&self, meet: Meet) -> Result<()> {
        Self::say(&Said::Ready(meet))
    }

    /// Says that this end is ready and waits until the other ends are too.
    pub(super) fn ready_to_go(&self) -> Result<()> {
        self.ready(Meet::default())?;
        match self.told.recv() {
            Ok(Told::Go) => Ok(()),
            _ => bail!("the parent has gone"),
        }
    }

    /// Waits until nobody needs this process any more.
    pub(super) fn wait_for_end(&self) {
        self.idle.store(true, Ordering::SeqCst);
        while self.told.recv().is_ok_and(|told| told != Told::End) {}
    }
}

/// Does the job and tells the result.
pub(crate) fn run(options: &Options) -> Result<()> {
    let job: Job = options.job.parse().context("read the job of a peer process")?;
    let parent = Parent::listen();
    traffic::sharpen_timers();
    if let Some(core) = job.core {
        let mut cores = CpuSet::new();
        cores.set(core);
        // Where this is refused, the ends run where the system likes.
        let _ = sched_setaffinity(None, &cores);
    }
    // What has been opened stays open until the other end has what it needs.
    let mut kept = Kept::new();
    let result = work(&job, &parent, &mut kept);
    Parent::say(&match result {
        Ok(part) => Said::Done(Box::new(part)),
        Err(error) => Said::Failed(format!("{error:#}")),
    })?;
    parent.wait_for_end();
    drop(kept);
    Ok(())
}

fn work(job: &Job, parent: &Parent, kept: &mut Kept) -> Result<Part> {
    match job.test {
        Test::Echo | Test::Flow if job.role == Role::Serve => serve(job, parent, kept),
        Test::Echo | Test::Flow => drive(job, parent, kept),
        Test::LinkUp => node::link_up(job, parent),
        Test::IdleMemory => node::idle_memory(),
        Test::LinkMtu => node::link_mtu(job, parent),
        Test::Spin => single::spin(job, parent),
        Test::Death if job.role == Role::Serve => library::victim(job, parent),
        Test::Death => library::survivor(job, parent),
        Test::Visible if job.role == Role::Serve => library::binder(job, parent, kept),
        Test::Visible => library::watcher(job, parent),
        Test::Crowd if job.role == Role::Serve => library::hall(job, parent),
        Test::Crowd => library::crowd(job, parent),
        Test::Many if job.role == Role::Serve => library::bind_many(job, parent),
        Test::Many => library::look_up(job, parent),
        Test::OffloadsOff => {
            offload::switch_off(crate::namespaces::CABLE.interface).map(|()| Part::default())
        }
    }
}

fn serve(job: &Job, parent: &Parent, kept: &mut Kept) -> Result<Part> {
    let waiting = ways::serve(job)?;
    parent.ready(waiting.meet)?;
    let opened = (waiting.accept)()?;
    let gauge = Gauge::new(opened.packets);
    let (mut part, channels) = traffic::in_parallel(opened.channels, |mut channel| {
        let part = match job.test {
            Test::Echo => traffic::serve_echo(channel.as_mut(), job, &gauge),
            _ => traffic::serve_flow(channel.as_mut(), job, &gauge),
        };
        Ok((part?, channel))
    })?;
    gauge.fill(&mut part);
    kept.push(Box::new(channels));
    Ok(part)
}

fn drive(job: &Job, parent: &Parent, kept: &mut Kept) -> Result<Part> {
    let opened = ways::drive(job)?;
    let gauge = Gauge::new(opened.packets);
    let mut channels = opened.channels;
    parent.ready_to_go()?;
    let mut part = match job.test {
        Test::Flow if job.servers > 1 => traffic::drive_flow(&mut channels, job, &gauge)?,
        test => {
            let (part, left) = traffic::in_parallel(channels, |mut channel| {
                let part = match test {
                    Test::Echo => traffic::drive_echo(channel.as_mut(), job, &gauge),
                    _ => traffic::drive_flow(std::slice::from_mut(&mut channel), job, &gauge),
                };
                Ok((part?, channel))
            })?;
            channels = left;
            part
        }
    };
    gauge.fill(&mut part);
    kept.push(Box::new(channels));
    Ok(part)
}

/// The value of a part that must have one.
pub(super) fn value_of(part: &Part) -> Result<f64> {
    part.value.ok_or_else(|| anyhow!("a peer process has answered without a value"))
}
