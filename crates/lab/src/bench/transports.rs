//! The channels of all transports, and why a transport cannot be measured.

use anyhow::Result;
#[cfg(not(feature = "iceoryx2"))]
use anyhow::bail;
use rustix::net::{AddressFamily, SocketType, ipproto, socket};

use super::channel::{Opened, Waiting};
use super::job::Job;
use super::variant::{Engine, Scope, Transport};
use super::{library, sockets};

/// Opens the server's end.
pub(super) fn serve(job: &Job) -> Result<Waiting> {
    match job.variant.transport {
        own if own.is_tipc() => library::serve(job),
        #[cfg(feature = "iceoryx2")]
        Transport::Iceoryx2 => super::iceoryx::serve(job),
        #[cfg(not(feature = "iceoryx2"))]
        Transport::Iceoryx2 => bail!("this build has no iceoryx2 (build with --features iceoryx2)"),
        _ => sockets::serve(job),
    }
}

/// Opens the driver's end: `connections` channels to each server, or one multicast channel to all.
pub(super) fn drive(job: &Job) -> Result<Opened> {
    match job.variant.transport {
        own if own.is_tipc() => library::drive(job),
        #[cfg(feature = "iceoryx2")]
        Transport::Iceoryx2 => super::iceoryx::drive(job),
        #[cfg(not(feature = "iceoryx2"))]
        Transport::Iceoryx2 => bail!("this build has no iceoryx2 (build with --features iceoryx2)"),
        _ => sockets::drive(job),
    }
}

/// Reason why a transport cannot be measured here, if so, in one line.
pub(super) fn obstacle(transport: Transport, scope: Scope, engine: Engine) -> Option<String> {
    let why = match transport {
        Transport::UtipcEncrypted if scope == Scope::Intra || engine != Engine::Embedded => {
            "measured between embedded nodes of two hosts only (--scope inter --engine embedded)".to_owned()
        }
        Transport::Uds | Transport::UdsStream if scope == Scope::Inter => {
            "works only within a host".to_owned()
        }
        Transport::Sctp => socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP))
            .err()
            .map(|why| format!("this kernel has no SCTP ({why}; try `modprobe sctp`)"))?,
        Transport::KernelTipc => library::kernel_obstacle()?,
        #[cfg(not(feature = "iceoryx2"))]
        Transport::Iceoryx2 => "not part of this build (build with --features iceoryx2)".to_owned(),
        #[cfg(feature = "iceoryx2")]
        Transport::Iceoryx2 if scope == Scope::Inter => "works only within a host".to_owned(),
        _ => return None,
    };
    Some(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_sockets_cannot_be_measured_between_namespaces() {
        let obstacle = |transport, scope| obstacle(transport, scope, Engine::Embedded);
        assert!(obstacle(Transport::Uds, Scope::Inter).is_some());
        assert!(obstacle(Transport::Uds, Scope::Intra).is_none());
        assert!(obstacle(Transport::Tcp, Scope::Inter).is_none());
    }
}
