//! Unpredictable bytes from the kernel, which seed the deterministic generators of other crates.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::{OsError, Result};

/// Fills `bytes` from the kernel's generator; blocks only early in a boot.
pub fn fill(bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match getrandom(&mut bytes[done..], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(OsError::new("read random bytes from", "the kernel", errno)
                    .with_remedy("utipc needs getrandom(2), Linux 3.17 or later"));
            }
        }
    }
    Ok(())
}

/// A seed for one generator.
pub fn seed() -> Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A random 128-bit value, such as a node identity.
pub fn identity() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_differ() {
        assert_ne!(identity().unwrap(), identity().unwrap());
        assert_ne!(seed().unwrap(), seed().unwrap());
        let mut long = vec![0; 100_000];
        fill(&mut long).unwrap();
        assert!(long.chunks(64).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }
}
