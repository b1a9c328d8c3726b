//! The error of a refused system call.

use std::fmt;
use std::io;

/// The result of every operation that the system can refuse.
pub type Result<T> = std::result::Result<T, OsError>;

/// A refused system call: what was attempted, on which object, why, and what to do about it.
///
/// Displays as `cannot <what> <object>: <errno text> (<remedy>)`.
#[derive(Debug)]
pub struct OsError {
    what: &'static str,
    object: String,
    cause: io::Error,
    remedy: Option<&'static str>,
}

impl OsError {
    /// An error of `what` (an infinitive, such as "open a packet socket on") done to `object`.
    pub fn new(what: &'static str, object: impl fmt::Display, cause: impl Into<io::Error>) -> OsError {
        let cause = cause.into();
        let starved = matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        let remedy = starved.then_some("raise the limit of open files: `ulimit -n`");
        OsError { what, object: object.to_string(), cause, remedy }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: &'static str) -> OsError {
        self.remedy = Some(remedy);
        self
    }

    /// Adds `remedy` if the cause is of `kind`.
    #[must_use]
    pub fn with_remedy_for(self, kind: io::ErrorKind, remedy: &'static str) -> OsError {
        if self.cause.kind() == kind { self.with_remedy(remedy) } else { self }
    }

    /// The system's own reason.
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }

    /// The kind of the system's reason.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.object, self.cause)?;
        if let Some(remedy) = self.remedy {
            write!(f, " ({remedy})")?;
        }
        Ok(())
    }
}

impl std::error::Error for OsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_object_cause_and_remedy() {
        let error =
            OsError::new("open a packet socket on", "eth0", io::Error::from_raw_os_error(libc::EPERM))
                .with_remedy_for(io::ErrorKind::PermissionDenied, "give it CAP_NET_RAW")
                .with_remedy_for(io::ErrorKind::NotFound, "never shown");
        assert_eq!(
            error.to_string(),
            "cannot open a packet socket on eth0: Operation not permitted (os error 1) (give it CAP_NET_RAW)"
        );
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
