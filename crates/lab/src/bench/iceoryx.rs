//! The shared-memory crate iceoryx2, used as it recommends: each end publishes on its own service and subscribes to the
//! other's; a message is written once and read in place.

use anyhow::{Context, Result, anyhow, bail};
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::service::ipc_threadsafe::Service;

use super::channel::{Channel, Opened, Spinner, Waiting};
use super::job::{Job, LIMIT, ServerAddress};

/// One end of a channel.
struct IceoryxChannel {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
    spinner: Spinner,
    _node: Node<Service>,
}

/// Opens the server's end, named by its process id.
pub(super) fn serve(job: &Job) -> Result<Waiting> {
    let address = ServerAddress { name: std::process::id().to_string(), ..ServerAddress::default() };
    let channel = IceoryxChannel::open(job, &address.name, ["answers", "requests"])?;
    let accept = move || {
        channel.wait_for_subscriber()?;
        Ok(opened(channel))
    };
    Ok(Waiting { address, accept: Box::new(accept) })
}

pub(super) fn drive(job: &Job) -> Result<Opened> {
    let name = &job.addresses.first().context("no server address is known")?.name;
    let channel = IceoryxChannel::open(job, name, ["requests", "answers"])?;
    channel.wait_for_subscriber()?;
    Ok(opened(channel))
}

fn opened(channel: IceoryxChannel) -> Opened {
    Opened { channels: vec![Box::new(channel)], packets: Box::new(|| None) }
}

/// Adds the failed step to an error of the crate, which does not name it.
fn step<T, E: std::fmt::Debug>(result: Result<T, E>, what: &str) -> Result<T> {
    result.map_err(|why| anyhow!("iceoryx2: {what}: {why:?}"))
}

impl IceoryxChannel {
    fn open(job: &Job, name: &str, [out, back]: [&str; 2]) -> Result<Self> {
        // The crate warns if the configuration file is missing.
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

    /// Waits until the other end subscribes: messages published before are lost.
    fn wait_for_subscriber(&self) -> Result<()> {
        let subscribers = self.spinner.wait_for(|| {
            let sample = step(self.publisher.loan_slice_uninit(0), "borrow memory")?;
            let receivers = step(sample.write_from_slice(&[]).send(), "send")?;
            Ok((receivers > 0).then_some(()))
        })?;
        subscribers.context("the other end has not subscribed")
    }
}

impl Channel for IceoryxChannel {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let sample = step(self.publisher.loan_slice_uninit(data.len()), "borrow memory")?;
        step(sample.write_from_slice(data).send(), "send")?;
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let received = self.spinner.wait_for(|| {
            let Some(sample) = step(self.subscriber.receive(), "receive")? else { return Ok(None) };
            match sample.payload() {
                // Sent while waiting for a subscriber.
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
            None => bail!("no message for {LIMIT:?}"),
        }
    }

    fn is_stream(&self) -> bool {
        false
    }
}
