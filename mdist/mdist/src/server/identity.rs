//! The names that a program gives in logins and handshakes.

use crate::config;
use crate::upstream::Login;

/// The login of `program` towards its upstreams.
pub(super) fn login(settings: &config::Login, program: &str) -> Login {
    let position = settings.position.clone().unwrap_or_else(|| {
        let name = rustix::system::uname();
        format!("127.0.0.1/{}", name.nodename().to_string_lossy())
    });
    Login {
        user: settings.user.clone(),
        application_id: settings.application_id.clone(),
        application: settings.application_name.clone().unwrap_or_else(|| program.into()),
        position,
    }
}

/// The component name of `program` in RSSL handshakes.
pub(super) fn component(program: &str) -> String {
    format!("mdist {program} {}", env!("CARGO_PKG_VERSION"))
}
