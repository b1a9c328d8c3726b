//! Names of groups, and the TIPC service types that they use.

use crate::types::CpgName;

/// Maximum number of bytes of a group's name.
pub(crate) const MAX_NAME: usize = 128;

/// Service types of groups: the upper 8 bits; the lower ones are a hash of the name. Spec: docs/spec/cpg.md §1.
const GROUPS: u32 = 0xc9 << 24;
/// Service type of the directory. Spec: docs/spec/cpg.md §5.
pub(crate) const DIRECTORY: u32 = 0xca << 24;

/// A group's name: up to 128 bytes, not necessarily text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// The name with these bytes; `None` if they are too many.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= MAX_NAME).then(|| Self(bytes.to_vec()))
    }

    pub(crate) fn from_c(name: &CpgName) -> Option<Self> {
        let length = usize::try_from(name.length).ok()?;
        Some(Self(name.value.get(..length)?.to_vec()))
    }

    pub(crate) fn to_c(&self) -> CpgName {
        let mut name = CpgName { length: self.0.len() as u32, value: [0; MAX_NAME] };
        for (to, from) in name.value.iter_mut().zip(&self.0) {
            *to = *from;
        }
        name
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The service type of the group. Names with the same type share a TIPC group, and their members are kept apart
    /// by their rosters.
    pub(crate) fn service(&self) -> u32 {
        // FNV-1a with 32 bits, the upper 8 folded into the lower 24.
        let hash = self.0.iter().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
        GROUPS | ((hash ^ (hash >> 24)) & 0x00ff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_types_are_those_of_the_specification() {
        for (name, service) in [(&b""[..], 0xc91c_9d44), (b"cpg_bm", 0xc9bc_ea41), (b"GROUP\0", 0xc9b4_203e)]
        {
            let name = Name::new(name).unwrap();
            assert_eq!(name.service(), service, "{name:?} {:#x}", name.service());
        }
    }

    #[test]
    fn names_have_128_bytes_at_most() {
        assert!(Name::new(&[7; 129]).is_none());
        let name = Name::new(&[7; 128]).unwrap();
        assert_eq!(Name::from_c(&name.to_c()), Some(name));
        assert!(Name::from_c(&CpgName { length: 129, value: [0; MAX_NAME] }).is_none());
    }
}
