//! Kernel offloads of UDP: one file each, with what happens where the kernel lacks it.

pub mod gro;
pub mod gso;
