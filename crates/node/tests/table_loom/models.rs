//! The models: a table, a change of it, and what its reader may find during the change.

use std::cell::Cell as StdCell;
use std::sync::Arc;
use std::thread_local;

use utipc_core::Load;
use utipc_core::addr::{Binding, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::names::replica::{Access, Areas, Index, Place, View, ViewError};
use utipc_core::names::{Lookup, ScopeRule};

use crate::memory::{
    BRANCHES, Broken, Change, GROUP, LEAVES, Modelled, Own, RECORD, RECORDS, ROOT, Store, TURNS, Table,
    VERSION,
};

/// Changes after which memory is reused.
pub(crate) const GRACE: u64 = 4;
const OWN: NodeAddr = NodeAddr(0x0100_1001);
const SERVICE: u32 = 100;

/// Version that sends readers elsewhere; see `Areas::supersede`.
const SUPERSEDED: u64 = u64::MAX;

/// How the reader finds a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// The next binding in turn.
    Lookup,
    /// The least loaded binding. No socket is idle, so the reader walks the ring; the socket that was bound last,
    /// perhaps in reused memory, has the least load.
    Choose,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Lookup, Self::Choose];

    fn find<const FENCES: bool>(
        self,
        view: &View<'_, Modelled<FENCES>>,
        to: ServiceAddr,
    ) -> Result<Option<Lookup>, ViewError> {
        match self {
            Self::Lookup => view.lookup(to, NodeAddr::NONE),
            Self::Choose => {
                let load = |found: Lookup| Load::Open(u32::MAX - found.port);
                Ok(view.choose(to, NodeAddr::NONE, load)?.map(|choice| choice.found))
            }
        }
    }
}

/// A lookup of the reader, and its allowed results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Ports bound to this instance all the time.
    instance: u32,
    stays: &'static [u32],
    /// Ports that may be found during the change, and those that are found after it.
    may: &'static [u32],
    after: &'static [u32],
    /// Changes may overtake the lookup so often that it fails.
    unsettled: bool,
}

impl Read {
    /// Looks up; panics at a result that is not allowed.
    pub(crate) fn ask<const FENCES: bool>(&self, way: Way, view: &View<'_, Modelled<FENCES>>, over: bool) {
        let found = match way.find(view, ServiceAddr::new(SERVICE, self.instance)) {
            Ok(found) => found.map(|found| (found.port, found.node)),
            Err(ViewError::Contended) if self.unsettled && !over => return,
            Err(error) => panic!("{error}"),
        };
        let expected = |port: &u32| {
            self.stays.contains(port)
                || if over { self.after.contains(port) } else { self.may.contains(port) }
        };
        match found {
            Some((port, node)) => {
                assert!(expected(&port) && node == OWN, "port {port} of {node} was found");
            }
            None => assert!(self.stays.is_empty() && (!over || self.after.is_empty()), "no port was found"),
        }
    }
}

/// A table, its change, its reader.
pub(crate) struct Model {
    change: fn(&mut Writer),
    prepare: fn(&mut Writer),
    sizes: [usize; 4],
    pub(crate) read: Read,
}

impl Model {
    /// The change as its writer makes it, or with one rule broken.
    pub(crate) fn change(&self, broken: Broken) -> Change {
        let grace = if broken == Broken::EarlyReuse { 1 } else { GRACE };
        let mut writer = Writer::new(self.sizes, grace);
        (self.prepare)(&mut writer);
        let mut before = writer.own.snapshot();
        writer.own.take_stores();
        (self.change)(&mut writer);
        let mut stores = break_rule(writer.own.take_stores(), broken);
        // Steps of the version at the start happen before the lookup.
        while let Some(first) = stores.first().filter(|store| store.is(LEAVES, VERSION)) {
            before[LEAVES][VERSION] = first.value;
            stores.remove(0);
        }
        // Stores that change nothing are left out.
        let mut now = before.clone();
        stores.retain(|store| std::mem::replace(&mut now[store.area][store.at], store.value) != store.value);
        Change { before, stores }
    }
}

/// The stores, changed so that they break one rule.
fn break_rule(mut stores: Vec<Store>, broken: Broken) -> Vec<Store> {
    let planned = stores.clone();
    match broken {
        Broken::RootFirst => stores.sort_by_key(|store| !store.is(LEAVES, ROOT)),
        Broken::ParentFirst => stores.sort_by_key(|store| !store.raises()),
        Broken::TagEarly => stores.sort_by_key(|store| !store.frees_a_record()),
        // The reader never sees a free tag.
        Broken::RingCheck => stores.retain(|store| !store.frees_a_record()),
        Broken::NoVersionStep => {
            let steps = |store: &Store| store.is(LEAVES, VERSION);
            let mut last = None;
            stores.retain(|store| {
                let jump = steps(store) && last.is_some_and(|last| store.value > last + 1);
                if steps(store) {
                    last = Some(store.value);
                }
                !jump
            });
            // The next step must not make up for it.
            let mut version = 0;
            for store in stores.iter_mut().filter(|store| steps(store)) {
                version = if version == 0 { store.value } else { version + 1 };
                store.value = version;
            }
        }
        _ => return stores,
    }
    assert_ne!(stores, planned, "{broken:?} changes nothing in this model");
    stores
}

/// The writer and its state.
pub(crate) struct Writer {
    own: Own,
    index: Index,
    ranges: Vec<(Place, Vec<(u32, u32)>)>,
    made: u32,
}

impl Writer {
    fn new(sizes: [usize; 4], grace: u64) -> Self {
        let own = Own::new(sizes);
        let mut index = Index::with_grace(grace);
        index.set_own(own.areas(), OWN, false);
        Self { own, index, ranges: Vec::new(), made: 0 }
    }

    /// A range without bindings.
    fn range(&mut self, lower: u32, upper: u32) -> usize {
        let place = Place::new(ServiceRange::new(SERVICE, lower, upper), self.made, self.made.into());
        self.made += 1;
        self.ranges.push((place, Vec::new()));
        self.ranges.len() - 1
    }

    fn bind(&mut self, range: usize, lower: u32, upper: u32, port: u32) {
        let binding = Binding {
            range: ServiceRange::new(SERVICE, lower, upper),
            scope: Scope::Cluster,
            port: PortId { port, node: OWN },
            key: port,
        };
        let (place, records) = &mut self.ranges[range];
        let record = self.index.add(self.own.areas(), place, &binding, OWN).expect("there is room");
        records.push((port, record));
    }

    fn bind_new(&mut self, lower: u32, upper: u32, port: u32) -> usize {
        let range = self.range(lower, upper);
        self.bind(range, lower, upper, port);
        range
    }

    fn unbind(&mut self, range: usize, port: u32) {
        let (place, records) = &mut self.ranges[range];
        let at = records.iter().position(|(bound, _)| *bound == port).expect("bound");
        let (_, record) = records.remove(at);
        self.index.remove(self.own.areas(), place, record);
    }
}

/// Cells for these numbers of leaves, branches, records and cursors.
const fn room(leaves: usize, branches: usize, records: usize, cursors: usize) -> [usize; 4] {
    [(leaves + 1) * 10 * GROUP, branches * (2 * GROUP + 7 * GROUP * GROUP), (records + 1) * RECORD, cursors]
}

const PLENTY: [usize; 4] = room(40, 60, 40, 40);

/// A binding between others splits a block.
pub(crate) fn insert() -> Model {
    Model {
        prepare: |writer| {
            for n in [1, 3, 5] {
                writer.bind_new(n * 10, n * 10, n);
            }
        },
        change: |writer| _ = writer.bind_new(20, 20, 2),
        sizes: PLENTY,
        read: Read { instance: 30, stays: &[3], may: &[], after: &[], unsettled: false },
    }
}

/// A new last range reaches further than all others in a tree with branches.
pub(crate) fn raise() -> Model {
    Model {
        prepare: |writer| {
            for n in 1..=5 {
                writer.bind_new(n * 10, n * 10, n);
            }
        },
        change: |writer| _ = writer.bind_new(60, 90, 6),
        sizes: PLENTY,
        read: Read { instance: 80, stays: &[], may: &[6], after: &[6], unsettled: false },
    }
}

/// The first binding of three, to which the leaf links, is withdrawn; there are no cursors.
pub(crate) fn withdraw() -> Model {
    Model {
        prepare: ring_of_three,
        change: |writer| writer.unbind(0, 1),
        sizes: [PLENTY[LEAVES], PLENTY[BRANCHES], PLENTY[RECORDS], 0],
        read: Read { instance: 10, stays: &[2, 3], may: &[1], after: &[], unsettled: false },
    }
}

/// Memory is short: the record of the binding to which a leaf links becomes that of another range. (With cursors, a
/// reader would notice that they have changed.)
pub(crate) fn reuse() -> Model {
    Model {
        prepare: ring_of_three,
        change: |writer| {
            writer.unbind(0, 1);
            writer.bind_new(20, 20, 4);
        },
        sizes: [PLENTY[LEAVES], PLENTY[BRANCHES], 4 * RECORD, 0],
        read: Read { instance: 10, stays: &[2, 3], may: &[1], after: &[], unsettled: true },
    }
}

fn ring_of_three(writer: &mut Writer) {
    let range = writer.range(10, 10);
    for port in 1..=3 {
        writer.bind(range, 10, 10, port);
    }
}

/// A reader that is redirected to the new place finds everything there.
pub(crate) fn explore_growth(way: Way, broken: Broken, preemptions: usize) {
    let mut writer = Writer::new(PLENTY, GRACE);
    for n in 1..=4 {
        writer.bind_new(n * 10, n * 10, n);
    }
    let old = writer.own.snapshot();
    let larger = Own::new(PLENTY.map(|cells| cells + cells / 2));
    let empty = larger.snapshot();
    writer.index.carry(writer.own.areas(), larger.areas());
    let carried = larger.take_stores();
    let read = Read { instance: 30, stays: &[3], may: &[], after: &[], unsettled: false };
    let superseded = Store { area: LEAVES, at: VERSION, value: SUPERSEDED };
    let places = [
        Change { before: old, stores: vec![superseded] },
        // Stores that change nothing only cost interleavings.
        Change { before: empty, stores: carried.into_iter().filter(|store| store.value != 0).collect() },
    ];
    let places = Arc::new(places);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        let tables = loom::sync::Arc::new([0, 1].map(|n| Table::new(&places[n], broken)));
        let (moved, stores) = (tables.clone(), Arc::clone(&places));
        let writer = loom::thread::spawn(move || {
            let order = if broken == Broken::SupersededEarly { [0, 1] } else { [1, 0] };
            for place in order {
                moved[place].replay(&stores[place].stores);
            }
        });
        let to = ServiceAddr::new(SERVICE, read.instance);
        match way.find(&View::with_grace(tables[0].areas::<true>(), GRACE), to) {
            // The version that redirects readers orders everything before it; the descriptor comes in a message.
            Err(ViewError::Superseded) => {
                Modelled::<true>::fence();
                read.ask(way, &View::with_grace(tables[1].areas::<true>(), GRACE), false);
            }
            found => assert_eq!(found.unwrap().unwrap().port, 3),
        }
        writer.join().unwrap();
    });
}

thread_local! {
    /// Loads until the writer makes its change.
    static LEFT: StdCell<u64> = const { StdCell::new(0) };
}

/// Cells that change all at once, before a given load.
struct Turned {
    before: u64,
    after: u64,
}

impl Turned {
    fn load(&self) -> u64 {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        if left == 0 { self.after } else { self.before }
    }
}

enum Sequential {}

impl Access for Sequential {
    const GROUP: usize = GROUP;
    type Cell = Turned;
    type Cursor = Turned;

    fn load(cell: &Turned) -> u64 {
        cell.load()
    }

    fn cursor(cursor: &Turned) -> u64 {
        cursor.load()
    }

    fn exchange(_: &Turned, _: u64, _: u64) -> bool {
        true
    }
}

/// Walks a ring whose start is withdrawn, at another load in each run; returns how often the reader missed a bound
/// port.
pub(crate) fn walk_a_ring(broken: Broken) -> usize {
    let mut writer = Writer::new(PLENTY, GRACE);
    let range = writer.range(10, 10);
    for port in 1..=5 {
        writer.bind(range, 10, 10, port);
    }
    let before = writer.own.snapshot();
    writer.own.take_stores();
    writer.unbind(range, 5);
    let stores = break_rule(writer.own.take_stores(), broken);
    let mut after = before.clone();
    for store in stores {
        after[store.area][store.at] = store.value;
    }
    let cells = [LEAVES, BRANCHES, RECORDS, TURNS].map(|area| -> Vec<Turned> {
        let both = before[area].iter().zip(&after[area]);
        both.map(|(before, after)| Turned { before: *before, after: *after }).collect()
    });
    let [leaves, branches, records, cursors] = &cells;
    let view = View::<Sequential>::with_grace(Areas { leaves, branches, records, cursors }, GRACE);
    let mut stuck = 0;
    for at in 0..200 {
        LEFT.set(at);
        let mut ports = Vec::new();
        let read = view.local_ports(ServiceRange::new(SERVICE, 10, 10), ScopeRule::Any, &mut ports);
        stuck += usize::from(read.is_err() || !(1..=4).all(|port| ports.contains(&port)));
    }
    stuck
}
