//! Calls in signal handlers. A handler may interrupt a thread that holds a lock of the library; a call of the handler
//! that needs the lock would wait for ever.
//!
//! A thread is *inside* from before it takes the first lock of a call until after it has released the last one, but not
//! while it spins or sleeps. A call that finds its own thread inside was made by a signal handler, and must not take a
//! lock. Decision 25.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether this thread is inside; returns whether it was.
#[inline]
fn set(inside: bool) -> bool {
    // A signal handler runs on the same thread: only the compiler must keep the order.
    compiler_fence(SeqCst);
    let was = INSIDE.with(|cell| cell.replace(inside));
    compiler_fence(SeqCst);
    was
}

/// Whether this thread is inside: the caller is a signal handler, or part of the call that is inside.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

/// While it lives, this thread is inside.
#[derive(Debug)]
pub struct Section(PhantomData<*const ()>);

impl Section {
    /// Goes inside; `None` if this thread is inside already.
    #[inline]
    pub fn enter() -> Option<Self> {
        if set(true) { None } else { Some(Self(PhantomData)) }
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        set(false);
    }
}

/// While it lives, this thread is outside, because it spins or sleeps and holds no lock that a call waits for.
#[derive(Debug)]
pub struct Gap {
    was: bool,
    thread: PhantomData<*const ()>,
}

impl Gap {
    /// Goes outside.
    #[inline]
    pub fn open() -> Self {
        Self { was: set(false), thread: PhantomData }
    }

    /// Runs a part of the wait that takes locks.
    #[inline]
    pub fn inside<T>(&self, part: impl FnOnce() -> T) -> T {
        set(self.was);
        let result = part();
        set(false);
        result
    }
}

impl Drop for Gap {
    #[inline]
    fn drop(&mut self) {
        set(self.was);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_call_that_went_inside_leaves_it() {
        let section = Section::enter().unwrap();
        assert!(is_inside() && Section::enter().is_none() && is_inside());
        let gap = Gap::open();
        assert!(!is_inside() && gap.inside(is_inside) && !is_inside());
        drop(Section::enter().unwrap());
        drop(gap);
        assert!(is_inside());
        drop(section);
        assert!(!is_inside());
        drop(Gap::open());
        assert!(!is_inside());
    }
}
