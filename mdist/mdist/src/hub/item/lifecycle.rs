//! The lifecycle of an item: three state machines that the same events drive.
//!
//! [`Phase`] is the item's stream upstream, [`Image`] the value that the hub has, [`Publication`] whether a
//! publisher owns it. They are independent: each event has one row of effects in each of the three tables.

/// The item's place in the table and its stream upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub) enum Phase {
    /// The place is unused.
    Free,
    /// Open at the hub; no stream upstream.
    NoStream,
    /// The stream has had no refresh yet; updates do not count.
    Opening,
    /// The stream has had a refresh, and no refresh is incomplete.
    Live,
    /// Between the first part of a refresh and its last; updates count.
    Receiving,
    /// Closed for good. The place is kept until every side has given back its holds.
    Ended,
}

impl Phase {
    /// All phases, in the order of the table.
    #[cfg(test)]
    pub(in crate::hub) const ALL: [Self; 6] =
        [Self::NoStream, Self::Opening, Self::Live, Self::Receiving, Self::Ended, Self::Free];

    /// Whether the item can be requested and shared.
    pub(in crate::hub) const fn is_open(self) -> bool {
        !matches!(self, Self::Free | Self::Ended)
    }

    /// Whether a refresh has come on the stream, so that updates count.
    pub(in crate::hub) const fn is_live(self) -> bool {
        matches!(self, Self::Live | Self::Receiving)
    }
}

/// The item's value as the hub knows it, and the recipients of the next refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub) enum Image {
    /// No complete image has come; the next refresh goes to the waiters.
    Missing,
    /// No complete image has come; the next refresh is a new start for all streams.
    MissingForAll,
    /// A complete image has come.
    Known,
    /// A complete image has come, but the stream or its service was lost since: the next refresh is a new start for
    /// all streams.
    Outdated,
}

impl Image {
    /// All states, in the order of the table.
    #[cfg(test)]
    pub(in crate::hub) const ALL: [Self; 4] =
        [Self::Missing, Self::MissingForAll, Self::Known, Self::Outdated];

    /// A complete image has come.
    pub(in crate::hub) const fn is_known(self) -> bool {
        matches!(self, Self::Known | Self::Outdated)
    }

    /// The next refresh goes to all streams and replaces what they have.
    pub(in crate::hub) const fn restarts(self) -> bool {
        matches!(self, Self::MissingForAll | Self::Outdated)
    }
}

/// Whether a publisher owns the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub) enum Publication {
    /// It does not come from a publisher.
    Requested,
    /// A consumer has requested it, and no publisher has published it yet, so there is no image of it.
    Awaited,
    /// It was awaited, and a publisher has opened it, but its first image is not complete.
    Publishing,
    /// A publisher owns it, so it stays in the table without holders.
    Published,
}

impl Publication {
    /// All states, in the order of the table.
    #[cfg(test)]
    pub(in crate::hub) const ALL: [Self; 4] =
        [Self::Requested, Self::Awaited, Self::Publishing, Self::Published];

    /// Whether it counts among the items of its service that wait to be published.
    pub(in crate::hub) const fn is_awaited(self) -> bool {
        matches!(self, Self::Awaited | Self::Publishing)
    }

    /// A publisher opened it.
    pub(in crate::hub) const fn is_published(self) -> bool {
        matches!(self, Self::Publishing | Self::Published)
    }
}

/// An event in the life of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub) enum Event {
    /// It was requested from a service that only publishers offer, and is not published.
    Awaited,
    /// It has a stream upstream: by a request of the hub, or opened by a publisher.
    StreamOpened,
    /// The stream was opened by a publisher.
    Published,
    /// A part of a refresh came, and it was not the last.
    Part,
    /// The last or only part of a refresh came.
    LastPart,
    /// The refresh is complete, and its stream goes on.
    ImageComplete,
    /// The rest of a refresh did not come in time.
    ImageOverdue,
    /// The upstream has declared the data void.
    ImageCleared,
    /// The stream or its service was lost: the next refresh is a new start.
    RestartDue,
    /// The publisher's service is up again, and the stream went on meanwhile.
    ServiceBack,
    /// The stream upstream is closed.
    StreamClosed,
    /// The item is closed for good.
    Ended,
    /// The place is freed.
    Freed,
}

impl Event {
    /// All events, in the order of the table.
    #[cfg(test)]
    pub(in crate::hub) const ALL: [Self; 13] = [
        Self::Awaited,
        Self::StreamOpened,
        Self::Published,
        Self::Part,
        Self::LastPart,
        Self::ImageComplete,
        Self::ImageOverdue,
        Self::ImageCleared,
        Self::RestartDue,
        Self::ServiceBack,
        Self::StreamClosed,
        Self::Ended,
        Self::Freed,
    ];
}

/// The effect of an event on one of the three states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub) enum Transition<S> {
    /// No change.
    Stay,
    /// A new state.
    To(S),
    /// The event cannot happen in this state; the state is kept.
    Illegal,
}

/// The table of the stream.
///
/// ```text
///  NO_STREAM --stream opened--> OPENING --last part--> LIVE <--part, last part--> RECEIVING
///   ^  |  ^                       |                     |                            |
///   |  |  +---- stream closed ----+---------------------+----------------------------+
///   |  +-- ended --> ENDED --freed--> FREE
///   +-- (a new item in a free place)
/// ```
pub(in crate::hub) const fn next_phase(phase: Phase, event: Event) -> Transition<Phase> {
    use Transition::{Illegal, Stay, To};
    match phase {
        Phase::Free => Illegal,
        Phase::NoStream => match event {
            Event::StreamOpened => To(Phase::Opening),
            Event::Ended => To(Phase::Ended),
            Event::Freed => To(Phase::Free),
            Event::Awaited | Event::RestartDue => Stay,
            _ => Illegal,
        },
        Phase::Opening => match event {
            Event::Part => To(Phase::Receiving),
            Event::LastPart => To(Phase::Live),
            Event::StreamClosed => To(Phase::NoStream),
            Event::Published | Event::ImageCleared | Event::RestartDue | Event::ServiceBack => Stay,
            _ => Illegal,
        },
        Phase::Live => match event {
            Event::Part => To(Phase::Receiving),
            Event::StreamClosed => To(Phase::NoStream),
            Event::LastPart
            | Event::ImageComplete
            | Event::ImageOverdue
            | Event::ImageCleared
            | Event::RestartDue
            | Event::ServiceBack => Stay,
            _ => Illegal,
        },
        Phase::Receiving => match event {
            Event::LastPart | Event::ImageOverdue => To(Phase::Live),
            Event::StreamClosed => To(Phase::NoStream),
            Event::Part | Event::ImageCleared | Event::RestartDue | Event::ServiceBack => Stay,
            _ => Illegal,
        },
        Phase::Ended => match event {
            Event::Freed => To(Phase::Free),
            Event::RestartDue | Event::Ended => Stay,
            _ => Illegal,
        },
    }
}

/// The table of the image: two facts that change independently, whether one is known and whether the next one is a
/// new start for all.
pub(in crate::hub) const fn next_image(image: Image, event: Event) -> Transition<Image> {
    use Transition::{Stay, To};
    match (event, image) {
        (Event::ImageComplete, _) => To(Image::Known),
        (Event::Published | Event::RestartDue, Image::Missing) => To(Image::MissingForAll),
        (Event::Published | Event::RestartDue, Image::Known) => To(Image::Outdated),
        (Event::ServiceBack, Image::MissingForAll) => To(Image::Missing),
        (Event::ServiceBack, Image::Outdated) => To(Image::Known),
        (Event::ImageCleared, Image::Known) => To(Image::Missing),
        (Event::ImageCleared, Image::Outdated) => To(Image::MissingForAll),
        _ => Stay,
    }
}

/// The table of the publication. An awaited item that ends counts as awaited until its place is free.
pub(in crate::hub) const fn next_publication(
    publication: Publication,
    event: Event,
) -> Transition<Publication> {
    use Transition::{Illegal, Stay, To};
    match (event, publication) {
        (Event::Awaited, Publication::Requested) => To(Publication::Awaited),
        (Event::Awaited, _) => Illegal,
        (Event::Published, Publication::Requested) => To(Publication::Published),
        (Event::Published, Publication::Awaited) => To(Publication::Publishing),
        (Event::ImageComplete, Publication::Awaited) => To(Publication::Requested),
        (Event::ImageComplete, Publication::Publishing) => To(Publication::Published),
        (Event::Ended, Publication::Publishing) => To(Publication::Awaited),
        (Event::Ended, Publication::Published) => To(Publication::Requested),
        (Event::Freed, _) => To(Publication::Requested),
        _ => Stay,
    }
}
