//! The two kinds of traffic, echo and flow, at both ends and over any channel.

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, Timespec, clock_gettime};
use utipc_bench_kit::stats::empty_histogram;

use super::channel::{Channel, Packets, credit, receive_exact};
use super::job::{EndResult, Job};

/// First byte of the last message of a receiver.
pub(super) const END: u8 = b'k';
/// First byte of the confirmations of a receiver.
const CREDIT: u8 = b'c';
/// Size of the receive buffer of a stream, bytes.
const BULK: usize = 256 << 10;

/// The monotonic clock, which all processes share, nanoseconds.
pub(super) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this process so far, user and system, seconds.
pub(super) fn cpu_s() -> f64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime)) as f64 / 1e9
}

fn nanoseconds(time: Timespec) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    whole * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// CPU time and packets of this process from the first begin to the last end among its threads.
pub(super) struct Gauge {
    packets: Packets,
    first: OnceLock<Reading>,
    last: Mutex<Option<Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    cpu_s: f64,
    packets: Option<u64>,
}

impl Gauge {
    pub(super) fn new(packets: Packets) -> Self {
        Self { packets, first: OnceLock::new(), last: Mutex::new(None) }
    }

    fn read(&self) -> Reading {
        Reading { cpu_s: cpu_s(), packets: (self.packets)() }
    }

    pub(super) fn begin(&self) -> u64 {
        self.first.get_or_init(|| self.read());
        now_ns()
    }

    pub(super) fn end(&self) -> u64 {
        let ended = now_ns();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.read());
        ended
    }

    /// Writes CPU time and packets to the combined result of all threads.
    pub(super) fn fill(&self, result: &mut EndResult) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(first), Some(last)) = (self.first.get(), last) {
            result.cpu_s = last.cpu_s - first.cpu_s;
            result.packets = last.packets.zip(first.packets).map(|(last, first)| last.saturating_sub(first));
        }
    }
}

/// The scheduled send times of messages.
struct Schedule {
    start: u64,
    gap_ns: f64,
}

impl Schedule {
    /// `start`: the time of the first message, at which the measurement begins.
    fn new(start: u64, rate: f64) -> Self {
        Self { start, gap_ns: 1e9 / rate }
    }

    /// Sleeps until the scheduled time of message `number` and returns it; a late call does not shift later ones.
    fn wait(&self, number: u64) -> u64 {
        let due = self.start + (number as f64 * self.gap_ns) as u64;
        while now_ns() < due {
            let seconds = i64::try_from(due / 1_000_000_000).unwrap_or(i64::MAX);
            let nanoseconds = i64::try_from(due % 1_000_000_000).unwrap_or(0);
            let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            // An interrupted sleep is repeated, because the loop checks the clock.
            let _ = rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &time);
        }
        due
    }
}

/// Sends requests, each after the reply to the previous one. With a rate, a request is not sent before its scheduled
/// time, and its round trip counts from that: a late reply also delays the next requests.
pub(super) fn drive_echo(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<EndResult> {
    let mut buffer = vec![7; job.size as usize];
    let mut times = empty_histogram();
    let mut lost = 0;
    let mut echo = |buffer: &mut [u8]| -> Result<()> {
        loop {
            channel.send(buffer).context("send a request")?;
            if receive_exact(channel, buffer).context("receive an answer")?.is_some() {
                return Ok(());
            }
            lost += 1;
        }
    };
    for _ in 0..job.warmup {
        echo(&mut buffer)?;
    }
    let began = gauge.begin();
    let schedule = job.rate.map(|rate| Schedule::new(began, rate));
    let mut since = began;
    for number in 0..job.messages {
        if let Some(schedule) = &schedule {
            since = schedule.wait(number);
        }
        echo(&mut buffer)?;
        let now = now_ns();
        times.saturating_record(now - since);
        since = now;
    }
    let ended = gauge.end();
    let times = times.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect();
    Ok(EndResult { messages: job.messages, lost, began, ended, times, ..EndResult::default() })
}

/// Sends every request back.
pub(super) fn serve_echo(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<EndResult> {
    let mut buffer = vec![0; job.size as usize];
    let mut began = now_ns();
    let mut number = 0;
    while number < job.warmup + job.messages {
        if number == job.warmup {
            began = gauge.begin();
        }
        if receive_exact(channel, &mut buffer).context("receive a request")?.is_some() {
            channel.send(&buffer).context("send an answer")?;
            number += 1;
        } else if number + 1 >= job.warmup + job.messages {
            break;
        }
    }
    let ended = gauge.end();
    Ok(EndResult { messages: job.messages, began, ended, ..EndResult::default() })
}

/// A channel with the number of its unconfirmed messages, for transports without flow control.
struct Outgoing<'a> {
    channel: &'a mut dyn Channel,
    window: Option<u64>,
    unconfirmed: u64,
    ended: bool,
}

impl Outgoing<'_> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.ended {
            // The receiver has given up waiting for lost messages.
            return Ok(());
        }
        if let Some(window) = self.window {
            while self.unconfirmed >= window {
                self.confirmation(credit(window))?;
            }
            self.unconfirmed += 1;
        }
        self.channel.send(message).context("send")
    }

    /// Receives a confirmation of `messages` messages.
    fn confirmation(&mut self, messages: u64) -> Result<()> {
        let mut word = [0];
        match self.channel.receive(&mut word).context("receive a confirmation")? {
            None => self.unconfirmed = 0,
            Some(0) => bail!("the other end has closed the connection"),
            Some(_) if word[0] == END => self.ended = true,
            Some(_) => self.unconfirmed = self.unconfirmed.saturating_sub(messages),
        }
        if self.ended {
            self.unconfirmed = 0;
        }
        Ok(())
    }

    /// Waits for the last message of the receiver; if it is lost, the receiver still has its own count.
    fn finish(&mut self) -> Result<()> {
        let mut patience = 50;
        while !self.ended && patience > 0 {
            let before = self.unconfirmed;
            self.confirmation(0)?;
            // Nothing arrived, on a channel that may lose messages.
            patience -= u32::from(self.unconfirmed == 0 && before == 0);
        }
        Ok(())
    }
}

/// Sends all messages into each of `channels`, in turn.
pub(super) fn drive_flow(channels: &mut [Box<dyn Channel>], job: &Job, gauge: &Gauge) -> Result<EndResult> {
    let size = job.size as usize;
    let message = vec![7; size];
    let mut outgoing: Vec<Outgoing<'_>> = channels
        .iter_mut()
        .map(|channel| {
            let window = channel.window(size);
            Outgoing { channel: channel.as_mut(), window, unconfirmed: 0, ended: false }
        })
        .collect();
    let mut began = now_ns();
    let mut schedule = None;
    for number in 0..job.warmup + job.messages {
        if number == job.warmup {
            began = gauge.begin();
            schedule = job.rate.map(|rate| Schedule::new(began, rate));
        }
        if let Some(schedule) = &schedule {
            schedule.wait(number - job.warmup);
        }
        for channel in &mut outgoing {
            channel.send(&message)?;
        }
    }
    for channel in &mut outgoing {
        channel.finish()?;
    }
    let ended = gauge.end();
    Ok(EndResult { messages: job.messages, began, ended, ..EndResult::default() })
}

/// Receives all messages and counts those after the warm-up, at least one.
pub(super) fn serve_flow(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<EndResult> {
    let result = if channel.is_stream() {
        sink_bytes(channel, job, gauge)?
    } else {
        sink_messages(channel, job, gauge)?
    };
    channel.send(&[END]).context("confirm the end")?;
    Ok(result)
}

fn sink_messages(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<EndResult> {
    let size = job.size as usize;
    let every = channel.window(size).map(credit);
    let lossy = channel.patience().is_some();
    let mut buffer = vec![0; size];
    let (mut began, mut last, mut got, mut counted) = (now_ns(), now_ns(), 0, 0);
    while got < job.warmup + job.messages {
        if receive_exact(channel, &mut buffer).context("receive")?.is_none() {
            // The rest is lost: the measurement ends with the last message that arrived.
            break;
        }
        got += 1;
        if got == job.warmup {
            began = gauge.begin();
            counted = 0;
        } else {
            counted += 1;
        }
        if lossy {
            last = now_ns();
        }
        if every.is_some_and(|every| got % every == 0) {
            channel.send(&[CREDIT]).context("confirm")?;
        }
    }
    let all = got == job.warmup + job.messages;
    let now = gauge.end();
    let ended = if all { now } else { last };
    let lost = (job.warmup + job.messages).saturating_sub(got);
    Ok(EndResult { messages: counted, lost, began, ended, ..EndResult::default() })
}

fn sink_bytes(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<EndResult> {
    let size = u64::from(job.size);
    let (warm, total) = (size * job.warmup, size * (job.warmup + job.messages));
    let mut buffer = vec![0; BULK.max(job.size as usize)];
    let (mut began, mut got) = (now_ns(), 0);
    while got < total {
        // Do not receive past the end of the warm-up: the measurement begins there.
        let goal = if got < warm { warm } else { total };
        let most = buffer.len().min(usize::try_from(goal - got).unwrap_or(usize::MAX));
        match channel.receive(&mut buffer[..most]).context("receive")? {
            Some(0) => bail!("the other end has closed the connection"),
            Some(n) => got += n as u64,
            None => bail!("the stream has stopped before its end"),
        }
        if got == warm {
            began = gauge.begin();
        }
    }
    let ended = gauge.end();
    Ok(EndResult { messages: job.messages, began, ended, ..EndResult::default() })
}

/// Runs `work` with each channel in a separate thread; a single one on this thread.
pub(super) fn in_parallel(
    mut channels: Vec<Box<dyn Channel>>,
    work: impl Fn(Box<dyn Channel>) -> Result<(EndResult, Box<dyn Channel>)> + Sync,
) -> Result<(EndResult, Vec<Box<dyn Channel>>)> {
    if channels.len() == 1 {
        let only = channels.pop().context("there is no channel")?;
        let (result, only) = work(only)?;
        return Ok((result, vec![only]));
    }
    let results: Vec<Result<(EndResult, Box<dyn Channel>)>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            channels.into_iter().map(|channel| scope.spawn(move || work(channel))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| bail!("a thread of the measurement has panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let (each, channels): (Vec<_>, Vec<_>) =
        results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().unzip();
    Ok((EndResult::merge(each), channels))
}

/// Makes sleeps end on time: the default timer slack is 50 µs.
pub(super) fn sharpen_timers() {
    // If this is refused, sleeps end late for all variants alike.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
