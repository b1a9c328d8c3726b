//! Load tools for tests: messages with comparable fields, a publisher, and waits for conditions.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mdist_load::consumer::{Consumer, Snapshot};
use mdist_load::message_set::MessageSet;
use mdist_load::msgdata::built_in;
use mdist_load::provider::{Provider, ProviderOptions};

/// Time limit for conditions between threads of this process, far above what they take.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Time between two checks.
const PAUSE: Duration = Duration::from_millis(10);

/// Messages whose values count their updates, so that all fields can be compared.
pub(crate) fn sets() -> Vec<MessageSet> {
    let mut sets = built_in().unwrap();
    sets.iter_mut().for_each(|set| set.running = true);
    sets
}

/// Starts a publisher in this process.
pub(crate) fn publisher(rate: u64) -> Provider {
    Provider::start(ProviderOptions { rate, ..ProviderOptions::new(sets()) }).unwrap()
}

/// Repeats a check until it succeeds; after `limit` panics with its last error.
fn poll<T, E>(
    limit: Duration,
    what: &str,
    mut check: impl FnMut() -> Result<T, E>,
    describe: impl FnOnce(E) -> String,
) -> T {
    let start = Instant::now();
    loop {
        match check() {
            Ok(seen) => return seen,
            Err(why) if start.elapsed() >= limit => panic!("{what}: {}", describe(why)),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits until `done` succeeds; panics with its error after [`LONG`].
pub(crate) fn until(what: &str, done: impl FnMut() -> Result<(), String>) {
    poll(LONG, what, done, |why| why);
}

/// Waits until the counts of consumers satisfy a condition.
pub(crate) fn until_seen(clients: &Consumer, what: &str, done: impl Fn(&Snapshot) -> bool) -> Snapshot {
    until_seen_within(LONG, clients, what, done)
}

/// Like [`until_seen`], with another time limit.
pub(crate) fn until_seen_within(
    limit: Duration,
    clients: &Consumer,
    what: &str,
    done: impl Fn(&Snapshot) -> bool,
) -> Snapshot {
    let seen = || {
        let seen = clients.snapshot();
        if done(&seen) { Ok(seen) } else { Err(Box::new(seen)) }
    };
    poll(limit, what, seen, |seen| format!("{seen:?}; cut: {:?}", clients.disconnect_reasons()))
}

/// Waits for `count` more updates.
pub(crate) fn more_updates(clients: &Consumer, count: u64) {
    let before = clients.snapshot().counts.updates;
    until_seen(clients, "updates", |seen| seen.counts.updates >= before + count);
}

/// Stops the publisher's updates, and waits until all fields at all mounts equal the publisher's.
pub(crate) fn settled(provider: &Provider, clients: &Consumer) {
    settled_within(LONG, provider, clients);
}

/// Like [`settled`], with another time limit.
pub(crate) fn settled_within(limit: Duration, provider: &Provider, clients: &Consumer) {
    provider.set_rate(0);
    let equal = || {
        let published: HashMap<String, u32> = provider.items().into_iter().collect();
        let compared = clients.compare(Some(&published));
        if compared.is_equal() { Ok(()) } else { Err(compared) }
    };
    poll(limit, "equal", equal, |compared| {
        format!("{compared:?}; {:?}; cut: {:?}", clients.snapshot().counts, clients.disconnect_reasons())
    });
}
