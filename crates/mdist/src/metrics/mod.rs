//! Counters and gauges of every component, in the open format.
