//! Load tools for tests: messages whose fields can all be compared, a publisher, and what is waited for.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mdist_load::consumer::{Consumer, Snapshot};
use mdist_load::message_set::MessageSet;
use mdist_load::msgdata::built_in;
use mdist_load::provider::{Provider, ProviderOptions};

/// Far beyond what anything between threads of this process takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Messages whose values say how many updates they have seen, so that every field can be compared.
pub(crate) fn sets() -> Vec<MessageSet> {
    let mut sets = built_in().unwrap();
    sets.iter_mut().for_each(|set| set.running = true);
    sets
}

/// A publisher in this process.
pub(crate) fn publisher(rate: u64) -> Provider {
    Provider::start(ProviderOptions { rate, ..ProviderOptions::new(sets()) }).unwrap()
}

/// Looks until there is something to be seen; at the limit fails with what was seen last.
fn look<T, E>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
    tell: impl FnOnce(E) -> String,
) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(why) if start.elapsed() >= limit => panic!("{what}: {}", tell(why)),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits for `done`, or fails with why it is not.
pub(crate) fn until(what: &str, done: impl FnMut() -> Result<(), String>) {
    look(LONG, what, done, |why| why);
}

/// Waits until clients have seen something.
pub(crate) fn until_seen(clients: &Consumer, what: &str, done: impl Fn(&Snapshot) -> bool) -> Snapshot {
    until_seen_within(LONG, clients, what, done)
}

/// The same, with a limit of its own.
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
    look(limit, what, seen, |seen| format!("{seen:?}; cut: {:?}", clients.disconnect_reasons()))
}

/// Waits for so many more updates.
pub(crate) fn more_updates(clients: &Consumer, count: u64) {
    let before = clients.snapshot().counts.updates;
    until_seen(clients, "updates", |seen| seen.counts.updates >= before + count);
}

/// The publisher rests, and every field at every mount becomes what the publisher made it.
pub(crate) fn settled(provider: &Provider, clients: &Consumer) {
    settled_within(LONG, provider, clients);
}

/// The same, with a limit of its own.
pub(crate) fn settled_within(limit: Duration, provider: &Provider, clients: &Consumer) {
    provider.set_rate(0);
    let equal = || {
        let published: HashMap<String, u32> = provider.items().into_iter().collect();
        let compared = clients.compare(Some(&published));
        if compared.is_equal() { Ok(()) } else { Err(compared) }
    };
    look(limit, "equal", equal, |compared| {
        format!("{compared:?}; {:?}; cut: {:?}", clients.snapshot().counts, clients.disconnect_reasons())
    });
}
