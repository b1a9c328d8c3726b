//! Where permissioning will decide: who may log in, who may have which item.

use rssl::rwf::code;

/// Why somebody may not, as the status to the client says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Code of the state. Spec: rssl.md §2.10
    pub code: u8,
    /// For people.
    pub text: String,
    /// Whether the client may try again later.
    pub retry: bool,
}

impl Denial {
    /// Not entitled, for good.
    pub fn not_entitled(text: impl Into<String>) -> Self {
        Self { code: code::NOT_ENTITLED, text: text.into(), retry: false }
    }
}

/// Decides at login, and at each request for an item. Both are asked on the way in, never for an update.
pub trait Permissions: Send {
    /// May this user log in from there?
    ///
    /// # Errors
    /// The denial that the client is told; the mount is closed after it.
    fn login(&mut self, user: &[u8], position: &[u8], peer: &str) -> Result<(), Denial>;

    /// May the user have this item of the service?
    ///
    /// # Errors
    /// The denial that the client is told; only this stream ends.
    fn item(&mut self, user: &[u8], service: &str, domain: u8, name: &[u8]) -> Result<(), Denial>;
}

/// Everybody may have everything.
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
