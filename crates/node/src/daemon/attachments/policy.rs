//! Who may use a daemon, and for what. The kernel says who is asking (SO_PEERCRED); nothing a process says counts.

use std::ops::RangeInclusive;

use utipc_core::addr::ServiceRange;
use utipc_os::fdpass::Peer;

/// Some users of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    Anyone,
    /// These users, and whoever has one of these as primary group. Root and the daemon's own user always belong.
    Only {
        /// User numbers.
        users: Vec<u32>,
        /// Group numbers.
        groups: Vec<u32>,
    },
}

impl Who {
    /// Root and the daemon's own user.
    #[must_use]
    pub const fn nobody_else() -> Self {
        Self::Only { users: Vec::new(), groups: Vec::new() }
    }

    fn includes(&self, peer: &Peer, own: u32) -> bool {
        match self {
            Self::Anyone => true,
            Self::Only { users, groups } => {
                peer.uid == 0 || peer.uid == own || users.contains(&peer.uid) || groups.contains(&peer.gid)
            }
        }
    }
}

/// Who may do what; the default lets everybody who reaches the socket communicate, and only root and the daemon's user
/// change the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Who may attach: open sockets, send, receive.
    pub attach: Who,
    /// Who may bind which service types: the first rule with the type decides; a type in no rule is for anyone.
    pub bind: Vec<(RangeInclusive<u32>, Who)>,
    /// Who may change the node: links and bearers.
    pub manage: Who,
}

impl Default for Policy {
    fn default() -> Self {
        Self { attach: Who::Anyone, bind: Vec::new(), manage: Who::nobody_else() }
    }
}

impl Policy {
    pub(in crate::daemon) fn may_attach(&self, peer: &Peer, own: u32) -> bool {
        self.attach.includes(peer, own)
    }

    pub(in crate::daemon) fn may_bind(&self, peer: &Peer, own: u32, range: ServiceRange) -> bool {
        let rule = self.bind.iter().find(|(types, _)| types.contains(&range.service));
        rule.is_none_or(|(_, who)| who.includes(peer, own))
    }

    pub(in crate::daemon) fn may_manage(&self, peer: &Peer, own: u32) -> bool {
        self.manage.includes(peer, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_with_the_type_decides() {
        let me = Peer { pid: 1, uid: 1000, gid: 100 };
        let range = |service| ServiceRange::new(service, 0, 0);
        let only = |user| Who::Only { users: vec![user], groups: Vec::new() };
        let policy =
            Policy { bind: vec![(100..=199, only(7)), (150..=299, only(1000))], ..Policy::default() };
        assert!(policy.may_bind(&me, 0, range(99)));
        assert!(!policy.may_bind(&me, 0, range(150)));
        assert!(policy.may_bind(&me, 0, range(200)));
        assert!(!policy.may_manage(&me, 0) && policy.may_manage(&me, 1000));
        let by_group = Policy { attach: Who::Only { users: Vec::new(), groups: vec![100] }, ..policy };
        assert!(by_group.may_attach(&me, 0));
        assert!(!by_group.may_attach(&Peer { gid: 101, ..me }, 0));
        assert!(by_group.may_attach(&Peer { uid: 0, ..me }, 5));
    }
}
