//! One end of a measurement, in a separate process. Its argument is its job; its standard input starts and ends it,
//! and also tells it that its parent is gone.

use anyhow::{Context, Result};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use utipc_tools::namespaces::CABLE;

use super::job::{EndResult, Job, PeerMessage, Role, Test};
use super::parent::{Parent, Retained};
use super::traffic::{self, Gauge};
use super::{library, offload, transports};

/// The argument of the hidden command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The job, as JSON.
    job: String,
}

/// Does the job and reports the result.
pub(crate) fn run(options: &Options) -> Result<()> {
    let job: Job = serde_json::from_str(&options.job).context("read the job of a peer process")?;
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
        Test::Link => library::link(job, parent),
        Test::IdleMemory => library::idle_memory(),
        Test::Spin => library::spin(job, parent),
        Test::Death if job.role == Role::Serve => library::victim(job, parent),
        Test::Death => library::survivor(job, parent),
        Test::Start if job.role == Role::Serve => library::welcomer(job, parent),
        Test::Start => library::starter(job, parent),
        Test::Visible if job.role == Role::Serve => library::binder(job, parent, retained),
        Test::Visible => library::watcher(job, parent),
        Test::Crowd if job.role == Role::Serve => library::crowd_server(job, parent),
        Test::Crowd => library::crowd_clients(job, parent),
        Test::Burst if job.role == Role::Serve => library::burst_reader(job, parent),
        Test::Burst => library::burst_sender(job, parent),
        Test::Anycast if job.role == Role::Serve => library::anycast_receiver(job, parent),
        Test::Anycast => library::anycast_sender(job, parent),
        Test::Many if job.role == Role::Serve => library::bind_many(job, parent),
        Test::Many => library::look_up_all(job, parent),
        Test::OffloadsOff => offload::switch_off(CABLE.interface).map(|()| EndResult::default()),
    }
}

fn serve(job: &Job, parent: &Parent, retained: &mut Retained) -> Result<EndResult> {
    let waiting = transports::serve(job)?;
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
    let opened = transports::drive(job)?;
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
