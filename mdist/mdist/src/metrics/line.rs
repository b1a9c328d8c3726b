//! The statistics line that a program prints periodically.

use super::latency::{MOUNTS, SOURCE};
use super::process;
use super::published::lock;
use super::registry::Metrics;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Makes the lines: current values, and rates since the last line.
#[derive(Clone, Debug)]
pub struct Line {
    metrics: Metrics,
    last: Values,
    at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Values {
    updates_in: u64,
    messages_out: u64,
    bytes_out: u64,
    multicast: u64,
    cpu_s: f64,
    /// Number and sum in nanoseconds of all latency samples.
    latency: (u64, u64),
}

impl Line {
    /// Starts counting now.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let mut line = Self { metrics: metrics.clone(), last: Values::default(), at: Instant::now() };
        line.last = line.values();
        line
    }

    /// Sum over all components of the metric `name`; `None` if no component has it.
    fn sum(&self, name: &str) -> Option<u64> {
        let components = lock(&self.metrics.inner.components);
        let mut values = components
            .iter()
            .flat_map(|c| c.definitions.iter().zip(c.cells.iter()))
            .filter(|(definition, _)| definition.name == name)
            .map(|(_, cell)| cell.get())
            .peekable();
        values.peek()?;
        Some(values.sum())
    }

    fn values(&self) -> Values {
        Values {
            updates_in: self.sum("hub_updates_in").unwrap_or(0),
            messages_out: self.sum("mounts_messages_out").unwrap_or(0),
            bytes_out: self.sum("mounts_bytes_out").unwrap_or(0),
            multicast: self.sum("backbone_messages_out").unwrap_or(0),
            cpu_s: process::cpu_seconds(),
            latency: [&MOUNTS, &SOURCE].into_iter().fold((0, 0), |(count, sum), kind| {
                let more = self.metrics.inner.latencies.sum(kind);
                (count + more.0, sum + more.1)
            }),
        }
    }

    /// The next line. Rates are averages since the last line.
    pub fn text(&mut self) -> String {
        let (now, values) = (Instant::now(), self.values());
        let seconds = now.duration_since(self.at).as_secs_f64().max(1e-6);
        let last = std::mem::replace(&mut self.last, values);
        self.at = now;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let mut line = format!(
            "items {} updates/s in {:.0}",
            self.sum("hub_items").unwrap_or(0),
            rate(values.updates_in, last.updates_in)
        );
        if let Some(mounts) = self.sum("mounts_open") {
            line += &format!(
                " out {:.0} MB/s {:.1} mounts {mounts} buffers {}",
                rate(values.messages_out, last.messages_out),
                rate(values.bytes_out, last.bytes_out) / 1e6,
                self.sum("mounts_output_buffers").unwrap_or(0)
            );
        }
        if let Some(cuts) = self.sum("backbone_sink_cuts") {
            line += &format!(" multicast {:.0} sinks cut {cuts}", rate(values.multicast, last.multicast));
        }
        if let Some(gaps) = self.sum("backbone_gaps") {
            line += &format!(" gaps {gaps}");
        }
        let measured = values.latency.0.saturating_sub(last.latency.0);
        if measured > 0 {
            let mean = values.latency.1.saturating_sub(last.latency.1) as f64 / measured as f64;
            line += &format!(" latency {:.0} us", mean / 1e3);
        }
        line + &format!(" cpu {:.0} %", (values.cpu_s - last.cpu_s) * 100.0 / seconds)
    }
}

/// Prints a line every interval, until dropped.
#[derive(Debug)]
pub struct Lines {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    /// Starts the thread that passes a line to `print` every `interval`.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(
        metrics: &Metrics,
        interval: Duration,
        mut print: impl FnMut(String) + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut line = Line::new(metrics);
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("statistics".into()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                print(line.text());
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LatencyHistogram;
    use crate::metrics::components::{Hub, Mounts, Source as BackboneSource};

    #[test]
    fn line_shows_components_that_exist() {
        let metrics = Metrics::new("src_dist");
        let hub = metrics.component::<Hub>("h");
        let mut line = Line::new(&metrics);
        hub.publish(&Hub { items: 100, updates: 5_000, ..Hub::default() });
        let text = line.text();
        assert!(text.starts_with("items 100 updates/s in ") && text.contains(" cpu "), "{text}");
        assert!(!text.contains("mounts") && !text.contains("sinks"), "{text}");
        let mounts = metrics.component::<Mounts>("0");
        mounts.publish(&Mounts { mounts: 3, ..Mounts::default() });
        metrics.component::<BackboneSource>("0").publish(&BackboneSource { cuts: 4, ..Default::default() });
        let text = line.text();
        let (mut latency, end) = (LatencyHistogram::default(), "multicast 0 sinks cut 4 cpu");
        assert!(text.contains("updates/s in 0 out 0 MB/s 0.0 mounts 3") && text.contains(end), "{text}");
        for (took, shown) in [(10, "latency 10 us cpu"), (90, "latency 90 us cpu")] {
            latency.record(Duration::from_micros(took));
            metrics.set_latency(&MOUNTS, "0", latency, []);
            assert!(line.text().contains(shown), "{shown}");
        }
        assert!(!line.text().contains("latency"));
    }

    #[test]
    fn lines_are_printed_until_dropped() {
        let (tx, rx) = mpsc::channel();
        let lines = Lines::start(&Metrics::new("x"), Duration::from_millis(1), move |line| {
            let _ = tx.send(line);
        });
        assert!(rx.recv().unwrap().starts_with("items 0"));
        drop(lines.unwrap());
        while rx.recv().is_ok() {}
    }
}
