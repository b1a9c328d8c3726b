//! The model: what every member has seen, and whether it may.

use std::collections::{BTreeMap, BTreeSet};

use utipc_vsync::{Class, Components, Delivery, MemberId, Outcome, Token, ViewChange, ViewId};

/// A broken promise of virtual synchrony.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// An application received a message that no member sent, or with a wrong sender.
    Invented(String),
    /// A message twice.
    Duplicate(String),
    /// Messages of one sender out of order, or two members with different orders.
    Order(String),
    /// Members that moved on together with different messages, or a joiner with another state.
    SameSet(String),
    /// A view without its own member, with different members elsewhere, or older than the last view.
    View(String),
    /// Two primary components.
    TwoPrimaries(String),
    /// A safe message that a member of the view lacked.
    NotSafe(String),
    /// An outcome of an atomic message that is not true, or a safe or atomic message that some members lack for good.
    Outcome(String),
    /// A group that does not recover in a quiet time.
    Stuck(String),
    /// A member that left although the protocol was respected.
    GaveUp(String),
}

/// A message as its sender gave it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sender: MemberId,
    class: Class,
}

/// The observations of one member.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Messages in order, including those of a received state.
    pub(crate) messages: Vec<u64>,
    known: BTreeSet<u64>,
    last_of: BTreeMap<u64, u64>,
    view: ViewId,
    /// Messages delivered in the view.
    in_view: usize,
}

impl History {
    fn push(&mut self, id: u64) -> Result<(), Broken> {
        if !self.known.insert(id) {
            return Err(Broken::Duplicate(format!("message {id:x}")));
        }
        let last = self.last_of.insert(id >> 20, id).unwrap_or(0);
        if last > id {
            return Err(Broken::Order(format!("message {id:x} after {last:x} of the same sender")));
        }
        self.messages.push(id);
        Ok(())
    }

    /// The history that a joiner receives.
    pub(crate) fn of(messages: Vec<u64>) -> Result<Self, Broken> {
        let mut history = Self::default();
        for id in messages {
            history.push(id)?;
        }
        Ok(history)
    }
}

/// Everything that has happened.
#[derive(Debug, Default)]
pub(crate) struct Model {
    sent: BTreeMap<u64, Sent>,
    tokens: BTreeMap<(MemberId, u64), u64>,
    pub(crate) histories: BTreeMap<MemberId, History>,
    views: BTreeMap<ViewId, Vec<MemberId>>,
    /// The history at the start of a view, by where its members came from.
    starts: BTreeMap<(ViewId, Origin), (Vec<u64>, MemberId)>,
    together: BTreeMap<(ViewId, ViewId), Vec<MemberId>>,
    successors: BTreeMap<ViewId, ViewId>,
    founded: Option<ViewId>,
    /// The order of each view.
    orders: BTreeMap<ViewId, Vec<u64>>,
    /// The place up to which a member has all packets of a view.
    received: BTreeMap<(MemberId, ViewId), u64>,
    /// Messages that must reach all, and that must reach none.
    all: BTreeMap<u64, MemberId>,
    none: BTreeSet<u64>,
    pub(crate) delivered: BTreeSet<u64>,
    /// The newest view of all members.
    pub(crate) newest: ViewId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Anywhere,
    View(ViewId),
    Member(MemberId),
}

impl Model {
    pub(crate) fn sent(&mut self, id: u64, sender: MemberId, class: Class, token: Option<Token>) {
        self.sent.insert(id, Sent { sender, class });
        if let Some(Token(token)) = token {
            self.tokens.insert((sender, token), id);
        }
    }

    pub(crate) fn received(&mut self, member: MemberId, view: ViewId, place: u64) {
        if view != ViewId::default() {
            let most = self.received.entry((member, view)).or_default();
            *most = place.max(*most);
        }
    }

    pub(crate) fn view(&mut self, mode: Components, me: MemberId, change: &ViewChange) -> Result<(), Broken> {
        let view = &change.view;
        let members: Vec<MemberId> = view.members().collect();
        let history = self.histories.entry(me).or_default();
        if !members.contains(&me) || !change.together.contains(&me) {
            return Err(Broken::View(format!("view {} lacks its own member {me}", view.id)));
        }
        if view.id <= history.view {
            return Err(Broken::View(format!("view {} follows {}", view.id, history.view)));
        }
        if change.previous.is_some_and(|previous| previous != history.view) {
            return Err(Broken::View(format!("view {} does not continue {}", view.id, history.view)));
        }
        let messages = history.messages.clone();
        // Merged components have different histories; what they deliver together is equal.
        let in_last =
            messages.get(messages.len().saturating_sub(history.in_view)..).unwrap_or_default().to_vec();
        history.view = view.id;
        history.in_view = 0;
        self.newest = self.newest.max(view.id);
        let known = self.views.entry(view.id).or_insert_with(|| members.clone());
        if *known != members {
            return Err(Broken::View(format!("view {} has two memberships", view.id)));
        }
        if let Some(previous) = change.previous {
            let known = self.together.entry((previous, view.id)).or_insert_with(|| change.together.clone());
            if *known != change.together {
                return Err(Broken::View(format!("two lists of those who move to {}", view.id)));
            }
        }
        if mode == Components::Primary {
            self.primary(change)?;
            return self.start(view.id, Origin::Anywhere, messages, me);
        }
        let donor = members.iter().find(|id| !change.joining.contains(id)).copied();
        if change.joining.contains(&me) {
            return donor.map_or(Ok(()), |donor| self.start(view.id, Origin::Member(donor), messages, me));
        }
        if donor == Some(me) {
            self.start(view.id, Origin::Member(me), messages.clone(), me)?;
        }
        change.previous.map_or(Ok(()), |previous| self.start(view.id, Origin::View(previous), in_last, me))
    }

    fn primary(&mut self, change: &ViewChange) -> Result<(), Broken> {
        let view = change.view.id;
        if let Some(previous) = change.previous {
            let next = *self.successors.entry(previous).or_insert(view);
            if next != view {
                return Err(Broken::TwoPrimaries(format!("{next} and {view} follow {previous}")));
            }
        } else if change.joining.is_empty() {
            let first = *self.founded.get_or_insert(view);
            if first != view {
                return Err(Broken::TwoPrimaries(format!("{first} and {view} follow no view")));
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        view: ViewId,
        origin: Origin,
        messages: Vec<u64>,
        me: MemberId,
    ) -> Result<(), Broken> {
        let (known, first) = self.starts.entry((view, origin)).or_insert_with(|| (messages.clone(), me));
        if *known == messages {
            return Ok(());
        }
        let at = known.iter().zip(&messages).take_while(|(a, b)| a == b).count();
        Err(Broken::SameSet(format!(
            "view {view}: {first} has {} messages, {me} {}; equal up to {at}: {:x?} {:x?}",
            known.len(),
            messages.len(),
            known.get(at),
            messages.get(at)
        )))
    }

    pub(crate) fn deliver(
        &mut self,
        mode: Components,
        me: MemberId,
        id: u64,
        d: &Delivery,
    ) -> Result<(), Broken> {
        let Some(sent) = self.sent.get(&id).copied().filter(|sent| sent.sender == d.sender) else {
            return Err(Broken::Invented(format!("message {id:x} of {}", d.sender)));
        };
        let history = self.histories.entry(me).or_default();
        if d.view != history.view {
            return Err(Broken::View(format!("a message of {} in {}", d.view, history.view)));
        }
        history.push(id)?;
        let place = history.in_view;
        history.in_view += 1;
        self.delivered.insert(id);
        // Agreed messages of a member that the group leaves behind may differ at the end of its last view.
        if !d.transitional {
            let order = self.orders.entry(d.view).or_default();
            match order.get(place) {
                Some(known) if *known != id => {
                    return Err(Broken::Order(format!("{}: {known:x} and {id:x} at {place}", d.view)));
                }
                Some(_) => {}
                None if place == order.len() => order.push(id),
                None => {}
            }
        }
        if sent.class == Class::Agreed {
            return Ok(());
        }
        if !d.transitional {
            for member in self.views.get(&d.view).into_iter().flatten() {
                if self.received.get(&(*member, d.view)).copied().unwrap_or(0) < d.place {
                    return Err(Broken::NotSafe(format!(
                        "{member} lacks {id:x} at place {} of {}",
                        d.place, d.view
                    )));
                }
            }
        }
        if mode == Components::Primary {
            self.all.entry(id).or_insert(me);
        }
        Ok(())
    }

    pub(crate) fn outcome(&mut self, me: MemberId, token: Token, outcome: Outcome) -> Result<(), Broken> {
        let Some(id) = self.tokens.remove(&(me, token.0)) else {
            return Err(Broken::Outcome(format!("{me}: a second outcome of {token:?}")));
        };
        match outcome {
            Outcome::Delivered => {
                self.all.entry(id).or_insert(me);
            }
            Outcome::Aborted => {
                self.none.insert(id);
            }
            Outcome::Unknown => {}
        }
        self.aborted()
    }

    fn aborted(&self) -> Result<(), Broken> {
        match self.none.iter().find(|id| self.delivered.contains(id)) {
            Some(id) => Err(Broken::Outcome(format!("aborted message {id:x} is delivered"))),
            None => Ok(()),
        }
    }

    /// A member's state is void, or replaced by a received one.
    pub(crate) fn restart(&mut self, member: MemberId, history: History) {
        let old = self.histories.entry(member).or_default();
        *old = History { view: old.view, ..history };
    }

    /// In a quiet group with a primary component: its members have all that some member was promised.
    pub(crate) fn check_all(&self, members: &[MemberId]) -> Result<(), Broken> {
        self.aborted()?;
        for member in members {
            let Some(history) = self.histories.get(member) else { continue };
            if let Some((id, by)) = self.all.iter().find(|(id, _)| !history.known.contains(id)) {
                return Err(Broken::Outcome(format!("{member} lacks {id:x}, which {by} delivered as safe")));
            }
        }
        Ok(())
    }

    /// Whether a member has delivered a message.
    pub(crate) fn has(&self, member: MemberId, id: u64) -> bool {
        self.histories.get(&member).is_some_and(|history| history.known.contains(&id))
    }

    /// Whether an atomic message of a member has no outcome.
    pub(crate) fn open_token(&self, member: MemberId) -> Option<u64> {
        self.tokens.range((member, 0)..=(member, u64::MAX)).next().map(|(_, id)| *id)
    }
}
