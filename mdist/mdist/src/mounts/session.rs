//! The login of a mount. Spec: rssl.md §5.1

use rssl::rdm::login;
use rssl::rwf::{Domain, Request, RequestFlags, State, StreamState, code};
use rssl::wire::to_vec;

use super::fanout::closed;
use super::item_trouble::RecoveryOptions;
use super::mount::{Login, Role, Stream};
use super::reason::Reason;
use super::slots::Ticket;
use super::worker::Worker;

/// Role of a login that publishes.
const PROVIDER: u64 = 1;
/// Batches can be requested, reissued and closed.
const ALL_BATCHES: u64 = 7;

impl Worker {
    /// A login, or a reissue of one.
    pub(super) fn login_request(&mut self, id: Ticket, request: &Request<'_>) -> Result<(), Reason> {
        let told =
            login::Request::decode(request).map_err(|error| Reason::Protocol(format!("login: {error}")))?;
        if let Some(login) = self.mounts.get(id).and_then(|mount| mount.login.as_ref()) {
            let ticket = login.stream;
            if self.find(id, request.stream) == Some(ticket) {
                self.login_reissue(id, ticket, request, &told);
            } else {
                let text = b"this connection is logged in already, on another stream";
                self.status(id, Domain::LOGIN, request.stream, false, closed(code::USAGE_ERROR, text));
            }
            return Ok(());
        }
        if request.stream < 0 {
            return Err(Reason::Protocol(format!(
                "login on stream {}: consumers open positive streams",
                request.stream
            )));
        }
        let Some(mount) = self.mounts.get(id) else { return Ok(()) };
        if told.attributes.role == PROVIDER {
            let text = "this port serves consumers; a publisher has to connect to the port for publishers";
            return Err(self.refuse_login(id, request.stream, closed(code::USAGE_ERROR, text.as_bytes())));
        }
        let user = told.user.to_vec();
        let position = text(told.attributes.position);
        let peer = mount.peer.clone();
        if let Err(denial) = self.permissions.login(&user, position.as_bytes(), &peer) {
            let stream = if denial.retry { StreamState::ClosedRecover } else { StreamState::Closed };
            let state = State { stream, ..closed(denial.code, denial.text.as_bytes()) };
            return Err(self.refuse_login(id, request.stream, state));
        }
        if !self.shared.admit_user(&user, self.config.mounts_per_user) {
            let most = self.config.mounts_per_user.unwrap_or_default();
            let text = format!("this user has {most} connections already, the most allowed");
            let state = State {
                stream: StreamState::ClosedRecover,
                ..closed(code::EXCEEDED_MAX_MOUNTS_PER_USER, text.as_bytes())
            };
            return Err(self.refuse_login(id, request.stream, state));
        }
        let stream = self.add(Stream::own(id, request, Role::Login));
        if let (Some(stream), Some(mount)) = (stream, self.mounts.get_mut(id)) {
            let name = text(told.attributes.application_name);
            let number = text(told.attributes.application_id);
            mount.login = Some(Login {
                stream,
                user,
                application: if number.is_empty() {
                    name
                } else {
                    format!("{name} ({number})").trim_start().to_owned()
                },
                position,
                wants: wants(&told),
                paused: request.flags.contains(RequestFlags::PAUSE),
            });
            self.login_refresh(id, request.stream, &told);
        }
        Ok(())
    }

    fn login_reissue(
        &mut self,
        id: Ticket,
        ticket: Ticket,
        request: &Request<'_>,
        told: &login::Request<'_>,
    ) {
        let paused = request.flags.contains(RequestFlags::PAUSE);
        if let Some(stream) = self.streams.get_mut(ticket) {
            stream.flags = request.flags;
        }
        let Some(login) = self.mounts.get_mut(id).and_then(|mount| mount.login.as_mut()) else { return };
        let was_paused = std::mem::replace(&mut login.paused, paused);
        if !request.flags.contains(RequestFlags::NO_REFRESH) {
            self.login_refresh(id, request.stream, told);
        }
        if was_paused != paused {
            self.pause_all(id, paused);
        }
    }

    /// Accepts: what the client told comes back, with what this server can do.
    fn login_refresh(&mut self, id: Ticket, stream: i32, told: &login::Request<'_>) {
        let wants = wants(told);
        let reply = login::Reply {
            user: told.user,
            name_type: told.name_type,
            attributes: login::Attributes {
                single_open: wants.single_open,
                allow_suspect: wants.allow_suspect,
                ..told.attributes.clone()
            },
            support_batch: ALL_BATCHES,
            support_post: true,
            support_pause: true,
            support_optimized_pause: true,
            support_view: true,
            support_symbol_list: true,
            state: State { text: b"Login accepted", ..State::OK },
            ..login::Reply::default()
        };
        if let Ok(message) = to_vec(|w| reply.encode(stream, w)) {
            self.send(id, &message);
        }
    }

    fn refuse_login(&mut self, id: Ticket, stream: i32, state: State<'_>) -> Reason {
        self.status(id, Domain::LOGIN, stream, false, state);
        Reason::LoginRefused(String::from_utf8_lossy(state.text).into_owned())
    }

    /// The client closed its login: every stream ends with it, silently.
    pub(super) fn logged_out(&mut self, id: Ticket) {
        for ticket in self.streams_of(id, |_| true) {
            self.end(ticket);
        }
        let Some(mount) = self.mounts.get_mut(id) else { return };
        mount.queue.clear();
        mount.since_login = mount.tally.last_read;
        if let Some(login) = mount.login.take() {
            self.shared.dismiss_user(&login.user);
        }
    }

    /// Tells a client that its login is over, before it is cut by order.
    pub(super) fn log_out(&mut self, id: Ticket, reason: &Reason) {
        let Some(login) = self.mounts.get(id).and_then(|mount| mount.login.as_ref()) else { return };
        let Some(stream) = self.streams.get(login.stream).map(|stream| stream.id) else { return };
        let text = reason.to_string();
        let again = matches!(reason, Reason::ShutDown);
        let state = State {
            stream: if again { StreamState::ClosedRecover } else { StreamState::Closed },
            ..closed(code::NONE, text.as_bytes())
        };
        self.status(id, Domain::LOGIN, stream, false, state);
    }
}

fn wants(told: &login::Request<'_>) -> RecoveryOptions {
    RecoveryOptions { single_open: told.attributes.single_open, allow_suspect: told.attributes.allow_suspect }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}
