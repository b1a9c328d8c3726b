//! Quotas of users. Every component charges the stack's ledger with each user's use; this module has the limits, the
//! texts of refusals, and the counters.

use std::collections::BTreeSet;

use utipc_attach::Failure;
use utipc_core::quota::{Amounts, Exceeded, Ledger, Quotas, Resource, UserId};
use utipc_core::topology::{MAX_CONNECTIONS, MAX_SUBSCRIPTIONS};

use super::config::Limits;
use super::counters::QuotaCounters;

/// Bytes charged for each socket that a fork hands over: its places in two tables.
pub(super) const INHERITED_SOCKET: u64 = 64;

/// Bytes of the daemon's tables for one unit of each resource, charged as memory. Measured with 10,000 and more of
/// each.
const COSTS: [(Resource, u64); 7] = [
    (Resource::Processes, 16 << 10),
    (Resource::Sockets, 2 << 10),
    (Resource::Bindings, 512),
    (Resource::Subscribers, 2 << 10),
    (Resource::Subscriptions, 512),
    (Resource::Lanes, 1 << 10),
    (Resource::Descriptors, 256),
];

/// Descriptors of an attachment: its connection, its process, and the event by which it wakes the daemon.
const FILES_PER_PROCESS: usize = 3;

/// Descriptors of the daemon itself, and of connections without a handshake.
const OWN_FILES: usize = 512;

/// The limits as quotas of the ledger. Root and the daemon's own user have no limits: both could stop the daemon
/// anyway.
pub(super) fn quotas(limits: &Limits, own_user: u32) -> Quotas {
    let (mut node, mut user) = (Amounts::default(), Amounts::default());
    let (descriptors, descriptors_per_user) = descriptors(limits, utipc_os::machine::open_files());
    for (resource, all, one) in [
        (Resource::Processes, limits.attachments, limits.attachments_per_user),
        (Resource::Sockets, limits.sockets, limits.sockets_per_user),
        (Resource::Bindings, limits.bindings, limits.bindings_per_user),
        (Resource::Subscribers, MAX_CONNECTIONS, MAX_CONNECTIONS / 2),
        (Resource::Subscriptions, MAX_SUBSCRIPTIONS, limits.subscriptions_per_user),
        (Resource::Lanes, limits.lanes, limits.lanes_per_user),
        (Resource::Descriptors, descriptors, descriptors_per_user),
    ] {
        node.set(resource, all as u64);
        user.set(resource, one as u64);
    }
    node.set(Resource::Memory, limits.memory);
    user.set(Resource::Memory, limits.memory_per_user);
    let mut costs = Amounts::default();
    COSTS.into_iter().for_each(|(resource, bytes)| costs.set(resource, bytes));
    Quotas { node, user, privileged: BTreeSet::from([UserId(0), UserId(own_user)]), costs }
}

/// The limits of descriptors, for all users and for one, within what the system leaves the daemon besides those of its
/// attachments.
fn descriptors(limits: &Limits, open_files: u64) -> (usize, usize) {
    let files = usize::try_from(open_files).unwrap_or(usize::MAX);
    let others =
        limits.attachments.saturating_mul(FILES_PER_PROCESS).saturating_add(OWN_FILES).min(files / 2);
    let all = limits.descriptors.min(files - others);
    (
        all,
        if all < limits.descriptors {
            limits.descriptors_per_user.min(all / 2)
        } else {
            limits.descriptors_per_user
        },
    )
}

/// The refusal of a request that would exceed a quota: names the quota and the remedy. For each user and resource the
/// first, second, fourth, eighth (and so on) refusal is logged.
pub(super) fn refuse(ledger: &Ledger, exceeded: Exceeded) -> Failure {
    let text = text(exceeded);
    if ledger.refused_to(exceeded.user, exceeded.resource).is_power_of_two() {
        tracing::warn!("user {} was refused: {text}", exceeded.user.0);
    }
    Failure::Limit(text)
}

fn text(Exceeded { resource, user, limit, is_of_user }: Exceeded) -> String {
    let (name, UserId(uid)) = (resource.name(), user);
    let what = match resource {
        Resource::Memory => "bytes of queued messages, lanes and sockets".to_owned(),
        Resource::Subscribers => "connections to the topology server".to_owned(),
        _ => name.to_owned(),
    };
    let less = match resource {
        Resource::Processes => "end some",
        Resource::Memory => "read the messages",
        Resource::Bindings => "withdraw some",
        Resource::Subscriptions => "cancel some",
        _ => "close some",
    };
    let key = match resource {
        // Constants of the topology server.
        Resource::Subscribers => String::new(),
        Resource::Subscriptions if !is_of_user => String::new(),
        Resource::Memory if is_of_user => ", or raise `limits.memory_per_user_mib`".to_owned(),
        Resource::Memory => ", or raise `limits.memory_mib`".to_owned(),
        _ if is_of_user => format!(", or raise `limits.{name}_per_user`"),
        _ => format!(", or raise `limits.{name}`"),
    };
    let whom = if is_of_user { format!("user {uid}") } else { format!("all users, for user {uid}") };
    format!("{limit} {what} of {whom} ({less}{key})")
}

/// The counters of all quotas.
pub(super) fn counters(ledger: &Ledger) -> Vec<QuotaCounters> {
    let (quotas, total) = (ledger.quotas(), ledger.total());
    let of = |resource: Resource| {
        let users = ledger
            .users()
            .map(|(user, usage)| (user.0, usage.used.get(resource), usage.refused.get(resource)));
        QuotaCounters {
            resource: resource.name(),
            limit: quotas.node.get(resource),
            limit_per_user: quotas.user.get(resource),
            used: total.used.get(resource),
            refused: total.refused.get(resource),
            users: users.filter(|(_, used, refused)| used + refused > 0).collect(),
        }
    };
    Resource::ALL.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_quota_and_remedy() {
        let exceeded = |resource, is_of_user| Exceeded { resource, user: UserId(1000), limit: 7, is_of_user };
        for (resource, is_of_user, expected) in [
            (Resource::Lanes, true, "7 lanes of user 1000 (close some, or raise `limits.lanes_per_user`)"),
            (
                Resource::Memory,
                false,
                "7 bytes of queued messages, lanes and sockets of all users, for user 1000 (read the messages, or \
                 raise `limits.memory_mib`)",
            ),
            (Resource::Subscriptions, false, "7 subscriptions of all users, for user 1000 (cancel some)"),
        ] {
            assert_eq!(text(exceeded(resource, is_of_user)), expected);
        }
    }

    #[test]
    fn descriptors_fit_what_the_system_allows() {
        let limits =
            Limits { attachments: 100, descriptors: 1000, descriptors_per_user: 700, ..Limits::default() };
        for (files, expected) in [(u64::MAX, (1000, 700)), (1700, (888, 444)), (600, (300, 150)), (0, (0, 0))]
        {
            assert_eq!(descriptors(&limits, files), expected, "{files} files");
        }
    }

    #[test]
    fn one_user_has_half_of_every_limit_by_default() {
        let quotas = quotas(&Limits::default(), 77);
        for resource in Resource::ALL {
            let (node, user) = (quotas.node.get(resource), quotas.user.get(resource));
            assert!(user > 0 && user <= node / 2, "{resource:?}: {user} of {node}");
        }
        assert!(quotas.privileged.contains(&UserId(77)) && quotas.privileged.contains(&UserId(0)));
    }
}
