//! Handles of the program, and the iterations.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use utipc::Node;
use utipc_os::{fork, lock};

use crate::inbox::{End, Inbox};
use crate::membership::Membership;
use crate::name::Name;
use crate::types::{CpgDescription, CpgModelV1, CsError, Reason};

/// How long a finalized handle waits until the others know that it has left.
const FAREWELL: Duration = Duration::from_secs(1);
/// The same at the end of a program.
const SHORT_FAREWELL: Duration = Duration::from_millis(200);

/// A connection in the words of Corosync: callbacks, a queue of events, and at most one joined group.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) node: Node,
    pub(crate) callbacks: CpgModelV1,
    pub(crate) context: AtomicPtr<c_void>,
    pub(crate) inbox: Arc<Inbox>,
    /// The group that the handle has joined, or left without its thread having ended.
    pub(crate) group: Mutex<Option<Arc<Membership>>>,
    /// The process that made the handle.
    generation: u32,
}

/// An iteration: the handle that it belongs to, and what is left.
pub(crate) type Iteration = (u64, VecDeque<CpgDescription>);

#[derive(Debug)]
pub(crate) struct Table {
    /// The node of the process with this fork generation.
    pub(crate) node: Option<(u32, Node)>,
    instances: BTreeMap<u64, Arc<Instance>>,
    iterations: BTreeMap<u64, Iteration>,
}

static TABLE: Mutex<Table> =
    Mutex::new(Table { node: None, instances: BTreeMap::new(), iterations: BTreeMap::new() });
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The lock, as held during a fork.
pub(crate) type Held = MutexGuard<'static, Table>;

pub(crate) fn hold() -> Held {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Instance {
    pub(crate) fn new(node: Node, callbacks: CpgModelV1, context: *mut c_void) -> Result<Self, CsError> {
        let inbox = Arc::new(Inbox::new().map_err(|_| CsError::Library)?);
        let context = AtomicPtr::new(context);
        Ok(Self { node, callbacks, context, inbox, group: Mutex::new(None), generation: fork::generation() })
    }

    /// The group that the handle has joined or is leaving.
    pub(crate) fn group(&self) -> Option<Arc<Membership>> {
        lock(&self.group).clone()
    }
}

/// Enters a handle.
pub(crate) fn add(instance: Instance) -> u64 {
    let handle = NEXT.fetch_add(1, Relaxed);
    hold().instances.insert(handle, Arc::new(instance));
    handle
}

/// The handle with this number. Those of a parent process do not work in a child.
pub(crate) fn get(handle: u64) -> Result<Arc<Instance>, CsError> {
    let instance = hold().instances.get(&handle).cloned().ok_or(CsError::BadHandle)?;
    if instance.generation == fork::generation() { Ok(instance) } else { Err(CsError::BadHandle) }
}

/// The membership of this process in a group.
pub(crate) fn membership(name: &Name) -> Option<Arc<Membership>> {
    let instances: Vec<_> = hold().instances.values().cloned().collect();
    let own = |instance: &Arc<Instance>| instance.generation == fork::generation();
    instances.iter().filter(|i| own(i)).find_map(|i| i.group().filter(|group| *group.name() == *name))
}

/// Removes a handle with its iterations, and leaves its group.
pub(crate) fn finalize(handle: u64) -> Result<(), CsError> {
    get(handle)?;
    let mut table = hold();
    let instance = table.instances.remove(&handle).ok_or(CsError::BadHandle)?;
    table.iterations.retain(|_, (of, _)| *of != handle);
    drop(table);
    instance.inbox.end(End::Finalized);
    let group = lock(&instance.group).take();
    if let Some(group) = group {
        group.leave(Reason::ProcDown);
        group.wait_ended(FAREWELL);
    }
    Ok(())
}

/// Leaves all groups, at the end of the program.
pub(crate) fn abandon_all() {
    let instances = std::mem::take(&mut hold().instances);
    let own = instances.into_values().filter(|instance| instance.generation == fork::generation());
    let groups: Vec<_> = own.filter_map(|instance| instance.group()).collect();
    for group in &groups {
        group.leave(Reason::ProcDown);
    }
    for group in &groups {
        group.wait_ended(SHORT_FAREWELL);
    }
}

/// Begins an iteration of a handle.
pub(crate) fn add_iteration(handle: u64, items: VecDeque<CpgDescription>) -> u64 {
    let number = NEXT.fetch_add(1, Relaxed);
    hold().iterations.insert(number, (handle, items));
    number
}

/// The next item of an iteration.
pub(crate) fn next_item(iteration: u64) -> Result<CpgDescription, CsError> {
    let mut table = hold();
    let (_, items) = table.iterations.get_mut(&iteration).ok_or(CsError::BadHandle)?;
    items.pop_front().ok_or(CsError::NoSections)
}

pub(crate) fn end_iteration(iteration: u64) -> Result<(), CsError> {
    hold().iterations.remove(&iteration).map(drop).ok_or(CsError::BadHandle)
}
