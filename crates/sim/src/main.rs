//! Deterministic TIPC cluster simulator.

fn main() {}
