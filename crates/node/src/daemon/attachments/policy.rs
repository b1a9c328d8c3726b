//! Permissions of users at a daemon. The user of a process is the one that the kernel reports (`SO_PEERCRED`).

use std::ops::RangeInclusive;

use utipc_core::addr::ServiceRange;
use utipc_os::fdpass::Peer;

/// A set of users of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// All users.
    All,
    /// These users, and users whose primary group is one of these. Root and the daemon's own user always belong to this
    /// set.
    Only {
        /// User numbers.
        users: Vec<u32>,
        /// Group numbers.
        groups: Vec<u32>,
    },
}

impl Users {
    /// Root and the daemon's own user.
    #[must_use]
    pub const fn root_and_own() -> Self {
        Self::Only { users: Vec::new(), groups: Vec::new() }
    }

    fn includes(&self, peer: &Peer, own: u32) -> bool {
        match self {
            Self::All => true,
            Self::Only { users, groups } => {
                peer.uid == 0 || peer.uid == own || users.contains(&peer.uid) || groups.contains(&peer.gid)
            }
        }
    }
}

/// Permissions of users. By default every user that reaches the socket may communicate, and only root and the daemon's
/// user may change the node and bind [`Policy::RESERVED`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Users that may attach: open sockets, send, receive.
    pub attach: Users,
    /// Users that may bind service types: the first rule with the type decides. All users may bind a type that no rule
    /// has, except [`Policy::RESERVED`].
    pub bind: Vec<(RangeInclusive<u32>, Users)>,
    /// Users that may change the node: links and bearers.
    pub manage: Users,
}

impl Default for Policy {
    fn default() -> Self {
        Self { attach: Users::All, bind: Vec::new(), manage: Users::root_and_own() }
    }
}

impl Policy {
    /// Service types that only root and the daemon's user may bind unless a rule has the type: the type of mdist's
    /// source distributors, whose data every point-to-point server of the cluster accepts.
    pub const RESERVED: RangeInclusive<u32> = 18_500..=18_500;

    /// `own`: the user that the daemon runs as. It may change after the start: a daemon that root starts drops its
    /// privileges when its bearers are open.
    pub(crate) fn may_attach(&self, peer: &Peer, own: u32) -> bool {
        self.attach.includes(peer, own)
    }

    pub(crate) fn may_bind(&self, peer: &Peer, own: u32, range: ServiceRange) -> bool {
        self.binders(range.service).includes(peer, own)
    }

    /// The users that may bind a service type.
    #[must_use]
    pub fn binders(&self, service: u32) -> &Users {
        const ROOT_AND_OWN: &Users = &Users::root_and_own();
        let rule = self.bind.iter().find(|(types, _)| types.contains(&service)).map(|(_, users)| users);
        let usual = if Self::RESERVED.contains(&service) { ROOT_AND_OWN } else { &Users::All };
        rule.unwrap_or(usual)
    }

    pub(crate) fn may_manage(&self, peer: &Peer, own: u32) -> bool {
        self.manage.includes(peer, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_service_type_belongs_to_root_and_the_daemons_user_unless_a_rule_has_it() {
        let of = |uid| Peer { pid: 1, uid, gid: 100 };
        let source = ServiceRange::new(*Policy::RESERVED.start(), 0, u32::MAX);
        let usual = Policy::default();
        let may = |policy: &Policy, uid| policy.may_bind(&of(uid), 5, source);
        assert_eq!([0, 5, 1000].map(|uid| may(&usual, uid)), [true, true, false]);
        // This also applies to a rule for a wider range, from an earlier file.
        let feed = Users::Only { users: vec![1000], groups: Vec::new() };
        let ruled = Policy { bind: vec![(18_000..=18_999, feed)], ..Policy::default() };
        assert_eq!([0, 5, 1000, 1001].map(|uid| may(&ruled, uid)), [true, true, true, false]);
        let open = Policy { bind: vec![(18_500..=18_500, Users::All)], ..Policy::default() };
        assert!(may(&open, 1001));
    }

    #[test]
    fn the_first_rule_with_the_type_decides() {
        let me = Peer { pid: 1, uid: 1000, gid: 100 };
        let range = |service| ServiceRange::new(service, 0, 0);
        let only = |user| Users::Only { users: vec![user], groups: Vec::new() };
        let policy =
            Policy { bind: vec![(100..=199, only(7)), (150..=299, only(1000))], ..Policy::default() };
        assert!(policy.may_bind(&me, 0, range(99)));
        assert!(!policy.may_bind(&me, 0, range(150)));
        assert!(policy.may_bind(&me, 0, range(200)));
        assert!(!policy.may_manage(&me, 0) && policy.may_manage(&me, 1000));
        let by_group = Policy { attach: Users::Only { users: Vec::new(), groups: vec![100] }, ..policy };
        assert!(by_group.may_attach(&me, 0));
        assert!(!by_group.may_attach(&Peer { gid: 101, ..me }, 0));
        assert!(by_group.may_attach(&Peer { uid: 0, ..me }, 5));
    }
}
