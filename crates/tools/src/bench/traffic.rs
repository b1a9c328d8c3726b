//! The two kinds of traffic, echo and flow, at either end and over any channel.

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::channel::{Channel, Packets, credit, receive_exact};
use super::job::{Job, Part};

/// First byte of a receiver's last message.
pub(super) const END: u8 = b'k';
/// First byte of its confirmations.
const CREDIT: u8 = b'c';
/// Bytes that a receiver of a stream asks for at once.
const BULK: usize = 256 << 10;

/// Nanoseconds of the monotonic clock, which all processes share.
pub(super) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Processor time, user and system, of all threads of this process so far, seconds.
pub(super) fn cpu_s() -> f64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime)) as f64 / 1e9
}

fn nanoseconds(time: Timespec) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    whole * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Processor time and packets of this process between the first beginning and the last end among its threads.
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

    /// Adds what has been gauged to the merged part of all threads.
    pub(super) fn fill(&self, part: &mut Part) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(first), Some(last)) = (self.first.get(), last) {
            part.cpu_s = last.cpu_s - first.cpu_s;
            part.packets = last.packets.zip(first.packets).map(|(last, first)| last.saturating_sub(first));
        }
    }
}

/// When messages are to be sent.
struct Schedule {
    start: u64,
    gap_ns: f64,
}

impl Schedule {
    fn new(rate: f64) -> Self {
        Self { start: now_ns(), gap_ns: 1e9 / rate }
    }

    /// Sleeps until the turn of message `number` and returns when that was to be: late calls are not shifted.
    fn wait(&self, number: u64) -> u64 {
        let due = self.start + (number as f64 * self.gap_ns) as u64;
        while now_ns() < due {
            let whole = i64::try_from(due / 1_000_000_000).unwrap_or(i64::MAX);
            let part = i64::try_from(due % 1_000_000_000).unwrap_or(0);
            let time = Timespec { tv_sec: whole, tv_nsec: part };
            // Interrupted or not, the clock decides.
            let _ = rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &time);
        }
        due
    }
}

/// Sends requests, each after the answer to the one before; with a rate, not before its time, and then the time of
/// a round trip counts from when the request was due: a late answer makes the next ones late too.
pub(super) fn drive_echo(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<Part> {
    let mut buffer = vec![7; job.size as usize];
    let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).context("make a histogram")?;
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
    let schedule = job.rate.map(Schedule::new);
    let began = gauge.begin();
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
    Ok(Part { messages: job.messages, lost, began, ended, times, ..Part::default() })
}

/// Answers requests.
pub(super) fn serve_echo(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<Part> {
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
    Ok(Part { messages: job.messages, began, ended, ..Part::default() })
}

/// A channel and what is on its way in it, for channels that do not look after that themselves.
struct Outgoing<'a> {
    channel: &'a mut dyn Channel,
    window: Option<u64>,
    underway: u64,
    ended: bool,
}

impl Outgoing<'_> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.ended {
            // The receiver has given up on what was lost.
            return Ok(());
        }
        if let Some(window) = self.window {
            while self.underway >= window {
                self.confirmation(credit(window))?;
            }
            self.underway += 1;
        }
        self.channel.send(message).context("send")
    }

    fn confirmation(&mut self, worth: u64) -> Result<()> {
        let mut word = [0];
        match self.channel.receive(&mut word).context("receive a confirmation")? {
            None => self.underway = 0,
            Some(0) => bail!("the other end has closed the connection"),
            Some(_) if word[0] == END => self.ended = true,
            Some(_) => self.underway = self.underway.saturating_sub(worth),
        }
        if self.ended {
            self.underway = 0;
        }
        Ok(())
    }

    /// Waits for the receiver's last word; without it, the receiver's own count will tell.
    fn finish(&mut self) -> Result<()> {
        let mut patience = 50;
        while !self.ended && patience > 0 {
            let before = self.underway;
            self.confirmation(0)?;
            // Nothing came on a channel that may lose messages.
            patience -= u32::from(self.underway == 0 && before == 0);
        }
        Ok(())
    }
}

/// Sends all messages into each of `channels`, in turn.
pub(super) fn drive_flow(channels: &mut [Box<dyn Channel>], job: &Job, gauge: &Gauge) -> Result<Part> {
    let size = job.size as usize;
    let message = vec![7; size];
    let mut ways: Vec<Outgoing<'_>> = channels
        .iter_mut()
        .map(|channel| {
            let window = channel.window(size);
            Outgoing { channel: channel.as_mut(), window, underway: 0, ended: false }
        })
        .collect();
    let mut began = now_ns();
    let mut schedule = None;
    for number in 0..job.warmup + job.messages {
        if number == job.warmup {
            began = gauge.begin();
            schedule = job.rate.map(Schedule::new);
        }
        if let Some(schedule) = &schedule {
            schedule.wait(number - job.warmup);
        }
        for way in &mut ways {
            way.send(&message)?;
        }
    }
    for way in &mut ways {
        way.finish()?;
    }
    let ended = gauge.end();
    Ok(Part { messages: job.messages, began, ended, ..Part::default() })
}

/// Receives all messages and counts those after the warm-up, of which there is at least one.
pub(super) fn serve_flow(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<Part> {
    let part = if channel.is_stream() {
        sink_bytes(channel, job, gauge)?
    } else {
        sink_messages(channel, job, gauge)?
    };
    channel.send(&[END]).context("confirm the end")?;
    Ok(part)
}

fn sink_messages(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<Part> {
    let size = job.size as usize;
    let every = channel.window(size).map(credit);
    let lossy = channel.patience().is_some();
    let mut buffer = vec![0; size];
    let (mut began, mut last, mut got, mut counted) = (now_ns(), now_ns(), 0, 0);
    while got < job.warmup + job.messages {
        if receive_exact(channel, &mut buffer).context("receive")?.is_none() {
            // The rest is lost; what counts ends with the last one that came.
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
    Ok(Part { messages: counted, lost, began, ended, ..Part::default() })
}

fn sink_bytes(channel: &mut dyn Channel, job: &Job, gauge: &Gauge) -> Result<Part> {
    let size = u64::from(job.size);
    let (warm, total) = (size * job.warmup, size * (job.warmup + job.messages));
    let mut buffer = vec![0; BULK.max(job.size as usize)];
    let (mut began, mut got) = (now_ns(), 0);
    while got < total {
        // Not beyond the end of the warm-up in one go: there the clock starts.
        let goal = if got < warm { warm } else { total };
        let most = buffer.len().min(usize::try_from(goal - got).unwrap_or(usize::MAX));
        match channel.receive(&mut buffer[..most]).context("receive")? {
            Some(0) => bail!("the other end has closed the connection"),
            Some(n) => got += n as u64,
            None => bail!("a stream has stopped before its end"),
        }
        if got == warm {
            began = gauge.begin();
        }
    }
    let ended = gauge.end();
    Ok(Part { messages: job.messages, began, ended, ..Part::default() })
}

/// Runs `work` with each channel in a thread of its own; a single one on this thread.
pub(super) fn in_parallel(
    mut channels: Vec<Box<dyn Channel>>,
    work: impl Fn(Box<dyn Channel>) -> Result<(Part, Box<dyn Channel>)> + Sync,
) -> Result<(Part, Vec<Box<dyn Channel>>)> {
    if channels.len() == 1 {
        let only = channels.pop().context("there is no channel")?;
        let (part, only) = work(only)?;
        return Ok((part, vec![only]));
    }
    let results: Vec<Result<(Part, Box<dyn Channel>)>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            channels.into_iter().map(|channel| scope.spawn(move || work(channel))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| bail!("a thread of the measurement has panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let (parts, channels): (Vec<_>, Vec<_>) =
        results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().unzip();
    Ok((Part::merge(parts), channels))
}

/// Lets sleeps end when they should: the default slack is 50 µs.
pub(super) fn sharpen_timers() {
    // Refused, sleeps end later for all parties alike.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
