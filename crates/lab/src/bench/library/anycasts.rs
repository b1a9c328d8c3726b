//! Messages to a service that several sockets have bound.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use utipc::{Scope, ServiceAddress, ServiceRange};

use super::super::job::{EndResult, Job, LIMIT, ServerAddress};
use super::super::parent::Parent;
use super::super::traffic::END;
use super::{datagram_sender, node};

/// Service type of the receivers.
const SHARED: u32 = 19_623;
/// The instance that all receivers have bound.
const ALL: u32 = 1000;
/// Messages between two readings of the clock.
const SLICE: u32 = 256;
/// Part of the time that is not measured.
const WARM_UP: u32 = 5;

/// Receives, and answers the end of each part with the number of its messages.
pub(in super::super) fn anycast_receiver(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let socket = node.rdm().context("open a socket")?;
    for instance in [ALL, job.index] {
        socket.bind(ServiceAddress::new(SHARED, instance), Scope::Cluster).context("bind")?;
    }
    parent.ready(ServerAddress::default())?;
    socket.set_receive_timeout(Some(LIMIT));
    let mut buffer = vec![0; job.size as usize];
    for _ in 0..2 {
        let mut count = 0_u64;
        loop {
            let received = socket.receive_into(&mut buffer).context("receive")?;
            if buffer.first() == Some(&END) {
                socket.send_to(&count.to_be_bytes(), received.source).context("answer the end")?;
                break;
            }
            count += 1;
        }
    }
    parent.wait_for_end();
    Ok(EndResult::default())
}

/// Sends for this many milliseconds; the value is the number of messages that arrive per second.
pub(in super::super) fn anycast_sender(job: &Job, parent: &Parent) -> Result<EndResult> {
    let (_node, socket) = datagram_sender(job, SHARED)?;
    parent.ready_to_go()?;
    let length = Duration::from_millis(job.messages);
    let mut data = vec![0; job.size as usize];
    let mut value = 0.0;
    for length in [length / WARM_UP, length] {
        data[0] = 0;
        let began = Instant::now();
        while began.elapsed() < length {
            for _ in 0..SLICE {
                socket.send_to(&data, ServiceAddress::new(SHARED, ALL)).context("send")?;
            }
        }
        data[0] = END;
        socket.send_to(&data, ServiceRange::new(SHARED, 0, job.servers - 1)).context("send the end")?;
        let mut arrived = 0;
        for _ in 0..job.servers {
            let answer = socket.receive().context("wait for the last message to arrive")?.data;
            arrived += answer.as_slice().try_into().map_or(0, u64::from_be_bytes);
        }
        value = arrived as f64 / began.elapsed().as_secs_f64();
    }
    Ok(EndResult { value: Some(value), ..EndResult::default() })
}
