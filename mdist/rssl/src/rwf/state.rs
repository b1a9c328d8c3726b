//! State of a stream and of its data. Spec: rssl.md §2.10.

use core::fmt;

use crate::wire::{Reader, Writer};
use crate::{Named, Result};

/// State of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamState {
    /// Not specified.
    #[default]
    Unspecified = 0,
    /// Open: updates follow.
    Open = 1,
    /// Non-streaming: nothing follows the last part of the image.
    NonStreaming = 2,
    /// Closed; may be opened again.
    ClosedRecover = 3,
    /// Closed; do not open it again.
    Closed = 4,
    /// Closed; open the key that the message carries instead.
    Redirected = 5,
}

/// State of the data of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataState {
    /// Unchanged.
    #[default]
    NoChange = 0,
    /// Current.
    Ok = 1,
    /// Possibly stale.
    Suspect = 2,
}

macro_rules! codes {
    ($($name:ident = $id:literal $text:literal,)*) => {
        /// Codes of a [`State`].
        pub mod code {
            $(
                #[doc = concat!($text, ".")]
                pub const $name: u8 = $id;
            )*

            /// The name of a code, if it is known.
            #[must_use]
            pub const fn text(code: u8) -> Option<&'static str> {
                match code {
                    $($id => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    NONE = 0 "None",
    NOT_FOUND = 1 "Not found",
    TIMEOUT = 2 "Timeout",
    NOT_ENTITLED = 3 "Not entitled",
    INVALID_ARGUMENT = 4 "Invalid argument",
    USAGE_ERROR = 5 "Usage error",
    PREEMPTED = 6 "Preempted",
    JIT_CONFLATION_STARTED = 7 "Just-in-time conflation started",
    REALTIME_RESUMED = 8 "Tick by tick resumed",
    FAILOVER_STARTED = 9 "Failover started",
    FAILOVER_COMPLETED = 10 "Failover completed",
    GAP_DETECTED = 11 "Gap detected",
    NO_RESOURCES = 12 "No resources",
    TOO_MANY_ITEMS = 13 "Too many items",
    ALREADY_OPEN = 14 "Already open",
    SOURCE_UNKNOWN = 15 "Source unknown",
    NOT_OPEN = 16 "Not open",
    NON_UPDATING_ITEM = 19 "Non-updating item",
    UNSUPPORTED_VIEW_TYPE = 20 "Unsupported view type",
    INVALID_VIEW = 21 "Invalid view",
    FULL_VIEW_PROVIDED = 22 "Full view provided",
    UNABLE_TO_REQUEST_AS_BATCH = 23 "Unable to request as batch",
    NO_BATCH_VIEW_SUPPORT = 26 "No support of batch and view in this request",
    EXCEEDED_MAX_MOUNTS_PER_USER = 27 "Too many mounts of this user",
    ERROR = 28 "Error",
    DACS_DOWN = 29 "Permission system down",
    USER_UNKNOWN_TO_PERM_SYS = 30 "User unknown to the permission system",
    DACS_MAX_LOGINS_REACHED = 31 "Too many logins of this user",
    DACS_USER_ACCESS_DENIED = 32 "Access to the application denied",
    GAP_FILL = 34 "Gap fill",
    APP_AUTHORIZATION_FAILED = 35 "Application authorization failed",
}

/// State of a stream and of its data, with a reason.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct State<'a> {
    /// State of the stream.
    pub stream: StreamState,
    /// State of its data.
    pub data: DataState,
    /// Reason, one of [`code`].
    pub code: u8,
    /// Text.
    pub text: &'a [u8],
}

impl<'a> State<'a> {
    /// Open with current data.
    pub const OK: State<'static> =
        State { stream: StreamState::Open, data: DataState::Ok, code: code::NONE, text: b"" };

    /// The state with these parts.
    #[must_use]
    pub const fn new(stream: StreamState, data: DataState, code: u8, text: &'a [u8]) -> Self {
        Self { stream, data, code, text }
    }

    /// CLOSED/SUSPECT: the stream is over, and opening it again does not help.
    #[must_use]
    pub const fn closed(code: u8, text: &'a [u8]) -> Self {
        Self::new(StreamState::Closed, DataState::Suspect, code, text)
    }

    /// CLOSED_RECOVER/SUSPECT: the stream is over, and the consumer may open it again.
    #[must_use]
    pub const fn closed_recover(code: u8, text: &'a [u8]) -> Self {
        Self::new(StreamState::ClosedRecover, DataState::Suspect, code, text)
    }

    /// Reads a state from the front of `r`.
    ///
    /// # Errors
    /// Cut short, or a stream or data state that does not exist.
    #[inline]
    pub fn read(r: &mut Reader<'a>) -> Result<Self> {
        let bad = r.malformed("state");
        let byte = r.u8().named("state")?;
        let stream = match byte >> 3 {
            0 => StreamState::Unspecified,
            1 => StreamState::Open,
            2 => StreamState::NonStreaming,
            3 => StreamState::ClosedRecover,
            4 => StreamState::Closed,
            5 => StreamState::Redirected,
            _ => return Err(bad),
        };
        let data = match byte & 7 {
            0 => DataState::NoChange,
            1 => DataState::Ok,
            2 => DataState::Suspect,
            _ => return Err(bad),
        };
        Ok(Self { stream, data, code: r.u8().named("state code")?, text: r.buf15().named("state text")? })
    }

    /// Writes the state.
    ///
    /// # Errors
    /// [`crate::Error::Full`], [`crate::Error::TooLong`] for a text above 32767 bytes.
    #[inline]
    pub fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u8((self.stream as u8) << 3 | self.data as u8)?;
        w.u8(self.code)?;
        w.buf15(self.text).named("state text")
    }

    /// The STATE primitive: `None` is blank (no bytes).
    ///
    /// # Errors
    /// As [`State::read`].
    pub fn decode(bytes: &'a [u8]) -> Result<Option<Self>> {
        if bytes.is_empty() { Ok(None) } else { Self::read(&mut Reader::new(bytes)).map(Some) }
    }

    /// Whether nothing follows on the stream; also true for non-streaming.
    #[inline]
    #[must_use]
    pub const fn is_final(&self) -> bool {
        !matches!(self.stream, StreamState::Open | StreamState::Unspecified)
    }

    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> OwnedState {
        OwnedState { stream: self.stream, data: self.data, code: self.code, text: self.text.to_vec() }
    }
}

impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}", self.stream, self.data)?;
        match code::text(self.code) {
            Some(text) => write!(f, "/{text}")?,
            None => write!(f, "/code {}", self.code)?,
        }
        write!(f, " \"{}\"", self.text.escape_ascii())
    }
}

impl fmt::Debug for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An owned [`State`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnedState {
    /// State of the stream.
    pub stream: StreamState,
    /// State of its data.
    pub data: DataState,
    /// Reason, one of [`code`].
    pub code: u8,
    /// Text.
    pub text: Vec<u8>,
}

impl OwnedState {
    /// The borrowed form.
    #[must_use]
    pub fn borrow(&self) -> State<'_> {
        State { stream: self.stream, data: self.data, code: self.code, text: &self.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    #[test]
    fn states_round_trip_and_unknown_ones_are_refused() {
        let state = State::new(StreamState::Closed, DataState::Suspect, code::NOT_FOUND, b"No such item");
        let bytes = to_vec(|w| state.write(w)).unwrap();
        assert_eq!(bytes[..3], [0x22, 1, 12]);
        assert_eq!(State::decode(&bytes), Ok(Some(state)));
        assert_eq!(state.to_string(), "Closed/Suspect/Not found \"No such item\"");
        assert_eq!(state.to_owned().borrow(), state);
        assert_eq!(State::decode(&[]), Ok(None));
        assert!(State::decode(&[0x30, 0, 0]).is_err() && State::decode(&[0x0B, 0, 0]).is_err());
        for n in 1..bytes.len() {
            assert!(State::decode(&bytes[..n]).is_err());
        }
    }
}
