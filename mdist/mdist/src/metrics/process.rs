//! Processor time and memory of this process.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Queries the system at each collection.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let cpu = ConstCounter::new(cpu_seconds());
        let metric = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Processor time of all threads, user and system, in seconds",
            None,
            cpu.metric_type(),
        )?;
        cpu.encode(metric)?;
        let memory = ConstGauge::new(resident_bytes());
        let metric = encoder.encode_descriptor(
            "process_resident_bytes",
            "Resident memory in bytes",
            None,
            memory.metric_type(),
        )?;
        memory.encode(metric)
    }
}

/// Processor time of all threads so far, in seconds.
pub(super) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
