//! Publishes the plain counters of a thread as metrics that other threads read.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Labels of one metric: names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Locks a mutex of the metrics.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A lock that a panic has poisoned is used nevertheless: the values are valid after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Grows from 0.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One metric of a component.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Name without prefix and suffix.
    pub name: &'static str,
    /// Description, with the unit.
    pub help: &'static str,
    /// Its type.
    pub counting: Counting,
}

/// A struct of plain counters that one thread owns.
pub trait Component {
    /// Label that distinguishes components of this kind.
    const LABEL: &'static str;
    /// Its metrics, in the order of [`Component::each`].
    const DEFINITIONS: &'static [Definition];
    /// Calls `f` with every value.
    fn each(&self, f: impl FnMut(u64));
}

/// Declares a [`Component`]: `counter field "name" "help"` and `gauge field "name" "help"`.
macro_rules! component {
    ($(#[$doc:meta])* $name:ident by $label:literal { $($counting:ident $field:ident $metric:literal $help:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $help] pub $field: u64,)*
        }

        impl $crate::metrics::Component for $name {
            const LABEL: &'static str = $label;
            const DEFINITIONS: &'static [$crate::metrics::Definition] = &[
                $($crate::metrics::Definition {
                    name: $metric,
                    help: $help,
                    counting: $crate::metrics::Counting::$counting,
                },)*
            ];

            fn each(&self, mut f: impl FnMut(u64)) {
                $(f(self.$field);)*
            }
        }
    };
}
pub(super) use component;

/// The published counters of one component.
#[derive(Debug)]
pub struct Published<C> {
    cells: Arc<[Cell]>,
    component: PhantomData<fn(C)>,
}

impl<C: Component> Published<C> {
    pub(super) fn new(cells: Arc<[Cell]>) -> Self {
        Self { cells, component: PhantomData }
    }

    pub(super) fn source(&self) -> Source {
        Source { definitions: C::DEFINITIONS, cells: self.cells.clone() }
    }

    /// Publishes these values.
    pub fn publish(&self, values: &C) {
        let mut cells = self.cells.iter();
        values.each(|value| {
            if let Some(cell) = cells.next() {
                cell.set(value);
            }
        });
    }
}

/// The published values of one component.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) definitions: &'static [Definition],
    pub(super) cells: Arc<[Cell]>,
}

/// One published value.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Counter(Counter),
    Gauge(Gauge<u64, AtomicU64>),
}

impl Cell {
    fn set(&self, value: u64) {
        match self {
            // Only the thread that owns the counter stores it.
            Self::Counter(counter) => counter.inner().store(value, Ordering::Relaxed),
            Self::Gauge(gauge) => drop(gauge.set(value)),
        }
    }

    pub(super) fn get(&self) -> u64 {
        match self {
            Self::Counter(counter) => counter.get(),
            Self::Gauge(gauge) => gauge.get(),
        }
    }
}

#[derive(Debug)]
pub(super) enum AnyFamily {
    Counter(Family<Labels, Counter>),
    Gauge(Family<Labels, Gauge<u64, AtomicU64>>),
}

impl AnyFamily {
    pub(super) fn register(registry: &mut Registry, definition: &Definition) -> Self {
        match definition.counting {
            Counting::Counter => {
                let family = Family::default();
                registry.register(definition.name, definition.help, family.clone());
                Self::Counter(family)
            }
            Counting::Gauge => {
                let family = Family::default();
                registry.register(definition.name, definition.help, family.clone());
                Self::Gauge(family)
            }
        }
    }

    pub(super) fn cell(&self, labels: &Labels) -> Cell {
        match self {
            Self::Counter(family) => Cell::Counter(family.get_or_create(labels).clone()),
            Self::Gauge(family) => Cell::Gauge(family.get_or_create(labels).clone()),
        }
    }
}
