//! The RSSL server side: clients, their logins, requests and streams, and the fan-out to them.
