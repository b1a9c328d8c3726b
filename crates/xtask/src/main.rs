//! Project chores: tests, tidy checks, interop lab.

fn main() {}
