//! Entries about quotas. A utipc extension.

use super::{MAX_TEXT, required};
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::quota;

/// Maximum number of resources that are read from one entry.
const MAX_RESOURCES: u16 = 64;

/// Use of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceUse {
    /// Name of the resource.
    pub name: String,
    /// Used now.
    pub used: u64,
    /// The limit; for a user without one, the largest number.
    pub limit: u64,
    /// Requests refused.
    pub refused: u64,
}

/// Quota usage of one user, or of all users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The user; none for all together.
    pub user: Option<u32>,
    /// The resources that it uses, or was refused.
    pub resources: Vec<ResourceUse>,
}

impl Quota {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        out.optional_u32(quota::USER, self.user);
        for (kind, resource) in (quota::FIRST..).zip(&self.resources) {
            out.nest(kind, |out| {
                out.text(quota::NAME, &resource.name);
                out.u64(quota::USED, resource.used);
                out.u64(quota::LIMIT, resource.limit);
                out.u64(quota::REFUSED, resource.refused);
            });
        }
        // The reader sees where the list ends.
        out.u32(quota::COUNT, u32::try_from(self.resources.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let count = u16::try_from(required(nest, quota::COUNT)?).map_err(|_| Errno::INVALID)?;
        if count > MAX_RESOURCES {
            return Err(Errno::INVALID);
        }
        let resource = |kind| {
            let nest = nest.nest(kind).ok_or(Errno::INVALID)?;
            let number = |kind| nest.u64(kind).map(Option::unwrap_or_default);
            Ok(ResourceUse {
                name: nest.text(quota::NAME, MAX_TEXT)?.ok_or(Errno::INVALID)?,
                used: number(quota::USED)?,
                limit: number(quota::LIMIT)?,
                refused: number(quota::REFUSED)?,
            })
        };
        let resources = (quota::FIRST..quota::FIRST + count).map(resource).collect::<Result<_, Errno>>()?;
        Ok(Self { user: nest.u32(quota::USER)?, resources })
    }
}
