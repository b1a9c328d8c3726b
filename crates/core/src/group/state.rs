//! The state table of a member, as this socket sees it. Spec: tipc.md §9.3.

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MemberState {
    /// Its JOIN has arrived, its binding has not.
    Joining,
    /// Its binding is known, its JOIN has not arrived. A socket that is not in the group stays in this state.
    Published,
    /// It may send to this socket within the idle window.
    Joined,
    /// It has sent, and waits for one of the places of active members.
    Pending,
    /// It may send within the active window.
    Active,
    /// It was asked to give back the rest of its active window.
    Reclaiming,
    /// It has given it back; messages that it sent before are unread.
    Remitted,
    /// It leaves: what it sent before is still delivered.
    Leaving,
    /// Its binding is known, and it has not joined in time: no member. Only with a policy that ignores such bindings.
    Stranger,
    /// It held this socket up for too long, which has left it out.
    Evicted,
}

impl MemberState {
    /// The name, for operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Published => "published",
            Self::Joined => "joined",
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Reclaiming => "reclaiming",
            Self::Remitted => "remitted",
            Self::Leaving => "leaving",
            Self::Stranger => "stranger",
            Self::Evicted => "evicted",
        }
    }
}

/// Events that change the state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Its binding was published.
    Publish,
    /// Its binding was withdrawn.
    Withdraw,
    /// Its node is lost.
    Lose,
    /// JOIN has arrived.
    Join,
    /// LEAVE has arrived.
    Leave,
    /// It gets a place of an active member.
    Promote,
    /// No place of an active member is free.
    Wait,
    /// Nothing can be reclaimed for it.
    Demote,
    /// Its place goes to another member.
    Reclaim,
    /// REMIT has arrived before all that it sent was read.
    RemitEarly,
    /// REMIT has arrived after all that it sent was read.
    RemitLate,
    /// All that it sent before its REMIT was read.
    Drain,
    /// It has not joined in time.
    Ignore,
    /// It has held a send up for longer than the policy allows.
    Evict,
}

/// What becomes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It enters a state.
    Enter(MemberState),
    /// It is removed.
    Remove,
    /// The event has no effect.
    Ignore,
}

impl MemberState {
    /// What `event` does to a member in this state.
    pub(super) const fn next(self, event: Event) -> Next {
        use Event as E;
        use MemberState as S;
        Next::Enter(match (self, event) {
            (S::Joining, E::Publish) | (S::Published | S::Stranger, E::Join) => S::Joined,
            (S::Joining, E::Leave | E::Lose)
            | (S::Published | S::Stranger, E::Withdraw | E::Lose)
            | (S::Evicted, E::Leave | E::Withdraw | E::Lose) => return Next::Remove,
            (S::Joined | S::Pending | S::Active | S::Reclaiming | S::Remitted, E::Withdraw | E::Leave) => {
                S::Leaving
            }
            (S::Joined | S::Pending | S::Active | S::Reclaiming | S::Remitted | S::Leaving, E::Lose) => {
                return Next::Remove;
            }
            (S::Joined | S::Pending, E::Promote) => S::Active,
            (S::Joined, E::Wait) => S::Pending,
            (S::Pending, E::Demote) | (S::Reclaiming, E::RemitLate) | (S::Remitted, E::Drain) => S::Joined,
            (S::Active, E::Reclaim) => S::Reclaiming,
            (S::Reclaiming, E::RemitEarly) => S::Remitted,
            (S::Published, E::Ignore | E::Evict) => S::Stranger,
            (S::Joined | S::Pending | S::Active | S::Reclaiming | S::Remitted, E::Evict) => S::Evicted,
            _ => return Next::Ignore,
        })
    }

    /// Whether messages are sent to the member.
    #[must_use]
    pub const fn is_receiver(self) -> bool {
        !matches!(self, Self::Joining | Self::Leaving | Self::Stranger | Self::Evicted)
    }

    /// Whether messages of the member are accepted.
    #[must_use]
    pub const fn is_sender(self) -> bool {
        !matches!(self, Self::Joining | Self::Published | Self::Stranger | Self::Evicted)
    }

    /// Whether messages are sent to the member, and its messages accepted.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        self.is_receiver() && self.is_sender()
    }

    /// Whether the socket is left out of what is sent to all.
    pub(super) const fn is_left_out(self) -> bool {
        matches!(self, Self::Stranger | Self::Evicted)
    }

    /// Whether the member has one of the places of active members.
    pub(super) const fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::Reclaiming | Self::Remitted)
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, MemberState, Next};

    #[test]
    fn state_table() {
        use Event as E;
        use MemberState as S;
        let states = [
            S::Joining,
            S::Published,
            S::Joined,
            S::Pending,
            S::Active,
            S::Reclaiming,
            S::Remitted,
            S::Leaving,
            S::Stranger,
            S::Evicted,
        ];
        let events = [
            E::Publish,
            E::Withdraw,
            E::Lose,
            E::Join,
            E::Leave,
            E::Promote,
            E::Wait,
            E::Demote,
            E::Reclaim,
            E::RemitEarly,
            E::RemitLate,
            E::Drain,
            E::Ignore,
            E::Evict,
        ];
        let mut table = String::from("\n");
        for event in events {
            table += &format!("{:<11}", format!("{event:?}"));
            for state in states {
                let cell = match state.next(event) {
                    Next::Enter(next) => format!("{next:?}"),
                    Next::Remove => "remove".into(),
                    Next::Ignore => "-".into(),
                };
                table += &format!("{cell:<11}");
            }
            table = table.trim_end().to_owned() + "\n";
        }
        // Joining, Published, Joined, Pending, Active, Reclaiming, Remitted, Leaving, Stranger, Evicted.
        assert_eq!(
            table,
            "
Publish    Joined     -          -          -          -          -          -          -          -          -
Withdraw   -          remove     Leaving    Leaving    Leaving    Leaving    Leaving    -          remove     remove
Lose       remove     remove     remove     remove     remove     remove     remove     remove     remove     remove
Join       -          Joined     -          -          -          -          -          -          Joined     -
Leave      remove     -          Leaving    Leaving    Leaving    Leaving    Leaving    -          -          remove
Promote    -          -          Active     Active     -          -          -          -          -          -
Wait       -          -          Pending    -          -          -          -          -          -          -
Demote     -          -          -          Joined     -          -          -          -          -          -
Reclaim    -          -          -          -          Reclaiming -          -          -          -          -
RemitEarly -          -          -          -          -          Remitted   -          -          -          -
RemitLate  -          -          -          -          -          Joined     -          -          -          -
Drain      -          -          -          -          -          -          Joined     -          -          -
Ignore     -          Stranger   -          -          -          -          -          -          -          -
Evict      -          Stranger   Evicted    Evicted    Evicted    Evicted    Evicted    -          -          -
"
        );
    }
}
