//! What the web page shows of a program: services, items, mounts, upstreams, and the values of items that a user of the
//! page has named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use super::published::lock;
use super::registry::Metrics;

/// Time after its last request for which a page counts as open.
const VIEWED: Duration = Duration::from_secs(5);
/// Maximum number of items of all watch lists together.
const WATCHED: usize = 32;
/// Maximum number of items in the list of items.
pub const LISTED: usize = 200;
/// Maximum number of mounts in the list of mounts.
const MOUNTS: usize = 500;
/// Maximum number of disconnects that the page shows.
const ENDS: usize = 50;

/// A service and an item of it.
pub type Watched = (String, String);

/// What the hub's thread publishes while a page is open.
#[derive(Debug, Default)]
pub struct Market {
    /// JSON of the services.
    pub services: Value,
    /// JSON of the first items.
    pub items: Value,
    /// JSON of the values of each watched item, or the reason why there are none.
    pub values: BTreeMap<Watched, Value>,
}

/// The page's state.
#[derive(Debug, Default)]
pub(super) struct Viewed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    wanted: BTreeMap<Watched, Instant>,
    /// By program: the demo has two in one process.
    markets: BTreeMap<String, Market>,
}

impl Viewed {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

/// The watch list of a request: a line for each item, service and item separated by a tab.
fn watch_list(text: &str) -> BTreeSet<Watched> {
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(service, item)| (service.to_owned(), item.to_owned())).take(WATCHED).collect()
}

impl Metrics {
    /// The items to publish the values of; `None` while no page is open.
    #[must_use]
    pub fn wanted(&self) -> Option<Vec<Watched>> {
        let mut state = self.inner.viewed.state();
        state.last.filter(|at| at.elapsed() < VIEWED)?;
        state.wanted.retain(|_, at| at.elapsed() < VIEWED);
        Some(state.wanted.keys().cloned().collect())
    }

    /// Replaces what the page shows of the hub of a program.
    pub fn set_market(&self, program: &str, market: Market) {
        self.inner.viewed.state().markets.insert(program.to_owned(), market);
    }

    /// The state as JSON, for a page with this watch list. Spec: docs/operating/web-page.md.
    pub(super) fn state_json(&self, watch: &str) -> Value {
        let list = watch_list(watch);
        let mut state = self.inner.viewed.state();
        let now = Instant::now();
        state.last = Some(now);
        for item in &list {
            if state.wanted.len() < WATCHED || state.wanted.contains_key(item) {
                state.wanted.insert(item.clone(), now);
            }
        }
        // Of two programs in one process, p2ps, which comes first.
        let none = Market::default();
        let market = state.markets.values().next().unwrap_or(&none);
        let values = |item: &Watched| market.values.get(item).cloned().unwrap_or(Value::Null);
        let watched: Vec<Value> = list
            .iter()
            .map(|item| json!({ "service": item.0, "item": item.1, "values": values(item) }))
            .collect();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "time_ms": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            "program": self.inner.program,
            "services": market.services,
            "items": market.items,
            "watch": watched,
            "totals": self.totals(),
            "upstreams": self.inner.upstreams.list(),
            "mounts": self.mounts(MOUNTS),
            "disconnects": self.disconnects(ENDS),
        })
    }

    /// The sum of each metric over all components.
    fn totals(&self) -> BTreeMap<&'static str, u64> {
        let mut totals = BTreeMap::new();
        for component in lock(&self.inner.components).iter() {
            for (definition, cell) in component.definitions.iter().zip(component.cells.iter()) {
                let total: &mut u64 = totals.entry(definition.name).or_default();
                *total = total.saturating_add(cell.get());
            }
        }
        totals
    }
}

/// JSON of a list for [`Market`].
pub fn list(all: &[impl Serialize]) -> Value {
    serde_json::to_value(all).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_wanted_while_a_page_asks_for_them() {
        let metrics = Metrics::new("p2ps");
        assert_eq!(metrics.wanted(), None, "no page is open");
        let state = metrics.state_json("A\tX\nA\tY\nno tab\n");
        assert_eq!(state["watch"][0], json!({ "service": "A", "item": "X", "values": null }));
        let item = |item: &str| ("A".to_owned(), item.to_owned());
        assert_eq!(metrics.wanted(), Some(vec![item("X"), item("Y")]));
        metrics
            .set_market("p2ps", Market { values: [(item("X"), json!("none"))].into(), ..Market::default() });
        assert_eq!(metrics.state_json("A\tX")["watch"][0]["values"], "none");
    }

    #[test]
    fn watch_lists_are_bounded() {
        let metrics = Metrics::new("p2ps");
        for page in 0..10 {
            let list: String = (0..20).map(|item| format!("A\t{page} {item}\n")).collect();
            metrics.state_json(&list);
        }
        assert_eq!(metrics.wanted().map(|all| all.len()), Some(WATCHED));
    }
}
