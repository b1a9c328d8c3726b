//! Helpers shared by several test programs.
#![allow(dead_code, reason = "no test program uses all of it")]

pub(crate) mod lan;
pub(crate) mod pcap;
