//! Rows for programs with event loops: each compared with the same loop on TCP, without busy polling, and with idle
//! connections in its set.

use anyhow::Result;
use utipc_bench_kit::stats::median;
use utipc_bench_kit::{Verdict, in_turn};

use super::super::loops::{Case, Ends, Family, Program};
use super::super::place::Place;
use super::super::variant::{Engine, Mode, Scope};
use super::Bench;

pub(super) const MEASURE_SHIM: &str = "RTT 64 B by epoll, then receive, under the shim; TCP by the same loop";
pub(super) const MEASURE_C: &str = "the same with the C library (utipc_epoll_wait)";
pub(super) const MEASURE_TOKIO: &str = "the same with tokio, one thread";
pub(super) const MEASURE_ASYNCIO: &str = "the same with asyncio";
pub(super) const TARGET: &str =
    "≥ 5 × TCP; ≥ 1.1 × with looking off; ≤ 1.3 × its own time with 1,000 idle connections in the set";

/// Idle connections in the set.
const IDLE: u32 = 1000;

/// Median round trip, microseconds, by TCP, by utipc, by utipc without looking, and among idle connections.
pub(super) fn row(bench: &Bench, ends: Ends) -> Result<Verdict> {
    let place = Place::new(Scope::Intra, Engine::Daemon)?;
    let program = match Program::new(ends, &place)? {
        Ok(program) => program,
        Err(why) => return Ok(Verdict::uncounted(format!("not measured: {why}"))),
    };
    let case = |family, mode, idle| {
        let case = Case { family, mode, idle, seconds: bench.seconds, messages: bench.messages.unwrap_or(0) };
        (case, Vec::new())
    };
    let mut cases = [
        case(Family::Tcp, Mode::Adaptive, 0),
        case(Family::Tipc, Mode::Adaptive, 0),
        case(Family::Tipc, Mode::Parked, 0),
        case(Family::Tipc, Mode::Adaptive, IDLE),
    ];
    in_turn(bench.rounds, &mut cases, |_, (case, times)| {
        times.push(program.measure(&place, case)?);
        Ok(())
    })?;
    let [tcp, looking, parked, crowded] = cases.map(|(_, times)| median(times));
    let got = format!(
        "{:.1} ×: {looking:.2} µs, TCP {tcp:.1}; looking off {:.2} × ({parked:.1}); with {IDLE} idle {:.2} × its time",
        tcp / looking,
        tcp / parked,
        crowded / looking
    );
    let met = tcp >= 5.0 * looking && tcp >= 1.1 * parked && crowded <= 1.3 * looking;
    Ok(Verdict::new(got, met))
}
