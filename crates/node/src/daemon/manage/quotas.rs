//! The list of quotas: all users together, then each user.

use utipc_core::quota::{Amounts, Ledger, Resource, Usage, UserId};
use utipc_manage::{Entry, Quota, ResourceUse};

use super::Part;

/// Maximum number of users of one part: their entries are longer than a packet.
const PART_USERS: usize = 1024;

pub(super) fn list(ledger: &Ledger, from: u64) -> Part {
    let quotas = ledger.quotas();
    let all = (from == 0).then(|| (1, entry(None, &ledger.total(), &quotas.node)));
    // Position 1 is the first user.
    let Ok(first) = u32::try_from(from.saturating_sub(1)) else { return Part::new() };
    let users = ledger.users_from(UserId(first)).take(PART_USERS).map(|(user, usage)| {
        let unlimited = Amounts::all(u64::MAX);
        let limits = if quotas.privileged.contains(&user) { &unlimited } else { &quotas.user };
        (u64::from(user.0) + 2, entry(Some(user.0), &usage, limits))
    });
    all.into_iter().chain(users).collect()
}

/// Every resource for all users together; for one user those that it uses or was refused.
fn entry(user: Option<u32>, usage: &Usage, limits: &Amounts) -> Entry {
    let resources = Resource::ALL.into_iter().map(|resource| ResourceUse {
        name: resource.name().to_owned(),
        used: usage.used.get(resource),
        limit: limits.get(resource),
        refused: usage.refused.get(resource),
    });
    let resources = resources.filter(|r| user.is_none() || r.used + r.refused > 0).collect();
    Entry::Quota(Quota { user, resources })
}
