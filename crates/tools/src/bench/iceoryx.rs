//! The shared-memory crate iceoryx2 beside utipc: each end publishes on a service of its own and subscribes to the
//! other's. Used as it is meant to be: a message is written in place once and read in place.

use anyhow::{Context, Result, anyhow, bail};
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::service::ipc_threadsafe::Service;

use super::channel::{Channel, Opened, Spinner, Waiting};
use super::job::{Job, LIMIT, Meet};

/// One end; see [`Channel`].
struct Way {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
    spinner: Spinner,
    _node: Node<Service>,
}

/// The server's end is named by its process.
pub(super) fn serve(job: &Job) -> Result<Waiting> {
    let meet = Meet { name: std::process::id().to_string(), ..Meet::default() };
    let way = Way::open(job, &meet.name, ["answers", "requests"])?;
    let accept = move || {
        way.wait_for_other()?;
        Ok(opened(way))
    };
    Ok(Waiting { meet, accept: Box::new(accept) })
}

pub(super) fn drive(job: &Job) -> Result<Opened> {
    let name = &job.meet.first().context("there is no server")?.name;
    let way = Way::open(job, name, ["requests", "answers"])?;
    way.wait_for_other()?;
    Ok(opened(way))
}

fn opened(way: Way) -> Opened {
    Opened { channels: vec![Box::new(way)], packets: Box::new(|| None) }
}

/// Names the step that failed; the crate's errors name only themselves.
fn step<T, E: std::fmt::Debug>(result: Result<T, E>, what: &str) -> Result<T> {
    result.map_err(|why| anyhow!("iceoryx2: {what}: {why:?}"))
}

impl Way {
    fn open(job: &Job, name: &str, [out, back]: [&str; 2]) -> Result<Self> {
        // That there is no configuration file is no news.
        iceoryx2::prelude::set_log_level(iceoryx2::prelude::LogLevel::Error);
        let node = step(NodeBuilder::new().create::<Service>(), "make a node")?;
        let service = |direction: &str| {
            let name = format!("utipc-bench/{name}/{direction}");
            let name = step(name.as_str().try_into(), "name a service")?;
            let builder = node.service_builder(&name).publish_subscribe::<[u8]>();
            step(builder.history_size(0).open_or_create(), "open a service")
        };
        let (out, back) = (service(out)?, service(back)?);
        let publisher = out.publisher_builder().initial_max_slice_len(job.size as usize).create();
        let subscriber = back.subscriber_builder().create();
        Ok(Self {
            publisher: step(publisher, "make a publisher")?,
            subscriber: step(subscriber, "make a subscriber")?,
            spinner: Spinner::new(job, LIMIT),
            _node: node,
        })
    }

    /// Waits until the other end subscribes: what is published before is lost.
    fn wait_for_other(&self) -> Result<()> {
        let heard = self.spinner.ask(|| {
            let sample = step(self.publisher.loan_slice_uninit(0), "borrow memory")?;
            let heard = step(sample.write_from_slice(&[]).send(), "send")?;
            Ok((heard > 0).then_some(()))
        })?;
        heard.context("the other end has not subscribed")
    }
}

impl Channel for Way {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let sample = step(self.publisher.loan_slice_uninit(data.len()), "borrow memory")?;
        step(sample.write_from_slice(data).send(), "send")?;
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let received = self.spinner.ask(|| {
            let Some(sample) = step(self.subscriber.receive(), "receive")? else { return Ok(None) };
            match sample.payload() {
                // Of the time before both had found each other.
                [] => Ok(None),
                payload => {
                    std::hint::black_box(payload);
                    Ok(Some(payload.len()))
                }
            }
        })?;
        match received {
            Some(length) if length <= buffer.len() => Ok(Some(length)),
            Some(length) => bail!("a message of {length} bytes"),
            None => bail!("nothing has come for {LIMIT:?}"),
        }
    }

    fn is_stream(&self) -> bool {
        false
    }
}
