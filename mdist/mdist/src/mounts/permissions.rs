//! Permissions of users to log in and to open items.

use rssl::rwf::{State, code};

use super::delivery::Delivery;

/// Reason why a permission is denied; the consumer gets it as a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Code of the state. Spec: rssl.md §2.10
    pub code: u8,
    /// Text of the state.
    pub text: String,
    /// Whether the consumer may try again later.
    pub retry: bool,
}

impl Denial {
    /// A final denial: the user is not entitled.
    pub fn not_entitled(text: impl Into<String>) -> Self {
        Self { code: code::NOT_ENTITLED, text: text.into(), retry: false }
    }

    /// The state that refuses the stream.
    pub(super) fn state(&self) -> State<'_> {
        let text = self.text.as_bytes();
        if self.retry { State::closed_recover(self.code, text) } else { State::closed(self.code, text) }
    }
}

/// Decides on each login and each request for an item; updates are not checked.
pub trait Permissions: Send {
    /// Permits a user to log in from a position and address.
    ///
    /// # Errors
    /// The login is refused with this denial, and the mount disconnected.
    fn login(&mut self, user: &[u8], position: &[u8], peer: &str) -> Result<(), Denial>;

    /// Permits a user to open an item of a service.
    ///
    /// # Errors
    /// The stream is refused with this denial.
    fn item(&mut self, user: &[u8], service: &str, domain: u8, name: &[u8]) -> Result<(), Denial>;

    /// The policy by which the mounts of a user that logs in get their messages.
    fn delivery(&self, _user: &[u8]) -> Delivery {
        Delivery::Ordered
    }
}

/// Permits everything to every user.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Permissions for AllowAll {
    fn login(&mut self, _user: &[u8], _position: &[u8], _peer: &str) -> Result<(), Denial> {
        Ok(())
    }

    fn item(&mut self, _user: &[u8], _service: &str, _domain: u8, _name: &[u8]) -> Result<(), Denial> {
        Ok(())
    }
}
