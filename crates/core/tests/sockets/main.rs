//! Sockets of whole nodes, end to end, over a network that loses, duplicates, delays and reorders frames.
//! Virtual time and a seed make each run repeatable.

mod connections;
mod datagrams;
mod lan;
