//! Bursts of multicasts to sockets that read all the time, and to some that do not.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use utipc::{Scope, ServiceAddress, ServiceRange};

use super::super::job::{EndResult, Job, LIMIT, ServerAddress};
use super::super::parent::Parent;
use super::{datagram_sender, node};

/// Service type of the receivers; the instance is the number of the server.
const BURST: u32 = 19_622;
/// Messages of a burst.
const MESSAGES: u32 = 200;
/// A reader that has not confirmed a burst after this time has lost its last message.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// The number of the burst and that of the message in it.
fn numbers(data: &[u8]) -> Option<(u32, u32)> {
    let word = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some((word(0)?, word(4)?))
}

/// Reads bursts, and confirms each with the number of its messages; the last servers do not read.
pub(in super::super) fn burst_reader(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let socket = node.rdm().context("open a socket")?;
    socket.bind(ServiceAddress::new(BURST, job.index), Scope::Cluster).context("bind")?;
    parent.ready(ServerAddress::default())?;
    if job.index >= job.connections {
        parent.wait_for_end();
        return Ok(EndResult::default());
    }
    socket.set_receive_timeout(Some(LIMIT));
    let (mut current, mut count) = (0, 0_u32);
    let mut buffer = vec![0; job.size as usize];
    loop {
        let received = socket.receive_into(&mut buffer).context("receive a burst")?;
        let Some((burst, number)) = numbers(&buffer) else { continue };
        if burst != current {
            (current, count) = (burst, 0);
        }
        count += 1;
        if number + 1 == MESSAGES {
            let answer = [burst.to_be_bytes(), count.to_be_bytes()].concat();
            socket.send_to(&answer, received.source).context("confirm a burst")?;
            if u64::from(burst) == job.messages {
                parent.wait_for_end();
                return Ok(EndResult::default());
            }
        }
    }
}

/// Sends bursts; `times` has the nanoseconds of each until all readers have confirmed it, and whether it arrived whole.
/// One more burst before them, to the readers alone, opens their lanes and is not counted.
pub(in super::super) fn burst_sender(job: &Job, parent: &Parent) -> Result<EndResult> {
    let (_node, socket) = datagram_sender(job, BURST)?;
    socket.set_receive_timeout(Some(ANSWER_LIMIT));
    parent.ready_to_go()?;
    let to_readers = ServiceRange::new(BURST, 0, job.connections.saturating_sub(1));
    let to_all = ServiceRange::new(BURST, 0, job.servers);
    let mut data = vec![0; job.size as usize];
    let mut times = Vec::new();
    for burst in 0..=job.messages as u32 {
        let to = if burst == 0 { to_readers } else { to_all };
        let began = Instant::now();
        for number in 0..MESSAGES {
            data[..4].copy_from_slice(&burst.to_be_bytes());
            data[4..8].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&data, to).context("send a burst")?;
        }
        let (mut confirmed, mut whole) = (0, true);
        while confirmed < job.connections {
            let Ok(answer) = socket.receive() else { break };
            if let Some((_, count)) = numbers(&answer.data).filter(|(of, _)| *of == burst) {
                whole &= count == MESSAGES;
                confirmed += 1;
            }
        }
        whole &= confirmed == job.connections;
        if burst > 0 {
            times.push((began.elapsed().as_nanos() as u64, u64::from(whole)));
        }
    }
    Ok(EndResult { times, ..EndResult::default() })
}
