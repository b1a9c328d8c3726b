//! What a daemon holds at rest, whether that is as expected, and the verdict on a campaign.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use utipc_bench_kit::counts;

use crate::daemon::{Held, Watched, attach};

/// Time limit of the daemon for releasing everything. Pairs without lanes stay for ten seconds.
const SETTLED: Duration = Duration::from_secs(60);

/// Time limit for giving memory back to the system.
const GIVEN_BACK: Duration = Duration::from_secs(10);

/// What the daemon may gain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Resident memory, KiB.
    pub(crate) kib: u64,
    /// Mappings, which its allocator needs.
    pub(crate) mappings: u64,
}

impl Tolerance {
    /// Mappings that the system's allocator needs.
    pub(crate) const MAPPINGS: u64 = 16;

    /// The growth of a daemon with the system's allocator.
    pub(crate) fn of(kib: u64) -> Self {
        Self { kib, mappings: Self::MAPPINGS }
    }
}

counts! {
    /// What a daemon holds.
    pub(crate) struct Holdings {
        attached,
        sockets,
        lanes,
        pairs,
        /// Bindings in the table, counted by a process that attaches for that purpose.
        bindings,
        descriptors,
        mappings,
        resident_kib,
        shared_kib,
        /// Lanes with malformed records, since the start.
        lanes_corrupt,
        requests,
    }
}

/// The daemon while no process is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Rest {
    #[serde(flatten)]
    pub(crate) held: Holdings,
    /// Ended attachments by reason, since the start.
    ended: BTreeMap<String, u64>,
}

impl Rest {
    /// Reads the state of the daemon.
    pub(crate) fn take(daemon: &mut Watched) -> Result<Self> {
        let bindings = attach(daemon.socket())?.bindings().len() as u64;
        let begun = Instant::now();
        loop {
            let rest = Self::look(daemon, bindings)?;
            // Do not count the process that has just counted the bindings.
            if rest.held.attached == 0 || begun.elapsed() > SETTLED {
                return Ok(rest);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn look(daemon: &mut Watched, bindings: u64) -> Result<Self> {
        let mut counters = daemon.counters()?;
        let count = |name: &str| counters.get(name).and_then(Value::as_u64).unwrap_or(u64::MAX);
        let Held { descriptors, mappings, resident_kib, shared_kib } = daemon.held()?;
        let held = Holdings {
            attached: count("attached"),
            sockets: count("sockets"),
            lanes: count("lanes"),
            pairs: count("pairs"),
            bindings,
            descriptors,
            mappings,
            resident_kib,
            shared_kib,
            lanes_corrupt: count("lanes_corrupt"),
            requests: count("requests"),
        };
        let ended = counters.remove("ended").unwrap_or_default();
        Ok(Self { held, ended: serde_json::from_value(ended).unwrap_or_default() })
    }

    /// Reads the state of the daemon once it has released everything and given memory back, or after a time limit.
    pub(crate) fn after(daemon: &mut Watched, fresh: &Rest, tolerance: Tolerance) -> Result<Self> {
        let begun = Instant::now();
        loop {
            let rest = Self::take(daemon)?;
            let limit = match rest.leaks(fresh).is_empty() {
                false => SETTLED,
                true if rest.gained(fresh, tolerance).is_empty() => Duration::ZERO,
                true => GIVEN_BACK,
            };
            if begun.elapsed() >= limit {
                return Ok(rest);
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// What the daemon holds, except memory, by name.
    fn resources(&self) -> [(&'static str, u64); 6] {
        let held = &self.held;
        [
            ("attached processes", held.attached),
            ("sockets", held.sockets),
            ("lanes", held.lanes),
            ("pairs", held.pairs),
            ("bindings", held.bindings),
            ("descriptors", held.descriptors),
        ]
    }

    /// The resources, except memory, that the daemon holds beyond those of a fresh one.
    pub(crate) fn leaks(&self, fresh: &Rest) -> Vec<String> {
        let both = self.resources().into_iter().zip(fresh.resources());
        let leaked = both.filter(|((_, now), (_, then))| now > then);
        leaked.map(|((what, now), (_, then))| format!("{} {what} are left", now - then)).collect()
    }

    /// Everything that is wrong after a run that began with a fresh daemon; memory is compared with that of `since`.
    pub(crate) fn faults(&self, fresh: &Rest, since: &Rest, tolerance: Tolerance) -> Vec<String> {
        let mut found = self.leaks(fresh);
        found.extend(self.gained(since, tolerance));
        if self.held.lanes_corrupt > 0 {
            found.push(format!("{} lanes had malformed records", self.held.lanes_corrupt));
        }
        found
    }

    /// The states of fresh daemons and of the same ones afterwards, as lines.
    pub(crate) fn lines(fresh: &[Self], rests: &[Self]) -> Vec<String> {
        let line = |(fresh, rest): (&Self, &Self)| format!("fresh daemon: {fresh}\nafterwards: {rest}");
        fresh.iter().zip(rests).map(line).collect()
    }

    /// Memory gained since another state.
    pub(crate) fn gained(&self, since: &Rest, tolerance: Tolerance) -> Vec<String> {
        let (now, then) = (&self.held, &since.held);
        let mut found = Vec::new();
        if now.resident_kib > then.resident_kib + tolerance.kib {
            let more = now.resident_kib - then.resident_kib;
            found.push(format!("{more} KiB more are resident than at the baseline"));
        }
        if now.mappings > then.mappings + tolerance.mappings {
            found.push(format!("{} more mappings than at the baseline", now.mappings - then.mappings));
        }
        found
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in self.resources() {
            write!(f, "{count} {what}, ")?;
        }
        let Holdings { mappings, resident_kib, shared_kib, .. } = self.held;
        write!(f, "{mappings} mappings, {resident_kib} KiB resident ({shared_kib} shared)")
    }
}

/// The states of daemons after an attack, and ends them. What they hold beyond fresh ones is wrong.
pub(crate) fn finish(
    mut daemons: Vec<Watched>,
    fresh: &[Rest],
    tolerance: Tolerance,
    wrong: &mut Vec<String>,
) -> Result<Vec<Rest>> {
    let mut rests = Vec::new();
    for (daemon, fresh) in daemons.iter_mut().zip(fresh) {
        let rest = Rest::after(daemon, fresh, tolerance)?;
        wrong.extend(rest.leaks(fresh));
        wrong.extend(rest.gained(fresh, tolerance));
        rests.push(rest);
    }
    daemons.into_iter().try_for_each(|daemon| daemon.end(wrong))?;
    Ok(rests)
}

/// Prints the verdict on a campaign, as one JSON object or as lines; returns whether nothing is wrong.
pub(crate) fn verdict(
    name: &str,
    as_json: bool,
    wrong: &[String],
    mut facts: Value,
    lines: &[String],
) -> bool {
    let ok = wrong.is_empty();
    if as_json {
        (facts["ok"], facts["wrong"]) = (json!(ok), json!(wrong));
        println!("{facts}");
        return ok;
    }
    lines.iter().for_each(|line| println!("{line}"));
    wrong.iter().for_each(|why| println!("WRONG: {why}"));
    println!("{name}: {}", if ok { "ok" } else { "FAILED" });
    ok
}
