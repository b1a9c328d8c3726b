//! Kernel offloads of UDP: one file each, with its fallback.

pub mod gro;
pub mod gso;
