//! The login of a mount. Spec: rssl.md §5.1

use rssl::rdm::login;
use rssl::rwf::{Domain, Request, RequestFlags, State, StreamState, code};
use rssl::wire::to_vec;

use super::config::{refusal_reason, refusal_text};
use super::item_trouble::RecoveryOptions;
use super::mount::{Login, Role, Stream};
use super::reason::Reason;
use super::slots::Ticket;
use super::worker::Worker;
use crate::net::LoginRefusal;

/// The role of publishers in a login.
const PROVIDER: u64 = 1;
/// Batch requests, reissues and closes are supported.
const ALL_BATCHES: u64 = 7;

impl Worker {
    /// Handles a login, or a reissue of one.
    pub(super) fn login_request(&mut self, id: Ticket, request: &Request<'_>) -> Result<(), Reason> {
        let login_request =
            login::Request::decode(request).map_err(|error| Reason::Protocol(format!("login: {error}")))?;
        if let Some(login) = self.mounts.get(id).and_then(|mount| mount.login.as_ref()) {
            let ticket = login.stream;
            if self.find_stream(id, request.stream) == Some(ticket) {
                self.login_reissue(id, ticket, request, &login_request);
            } else {
                let text = b"this connection is logged in already, on another stream";
                self.status(id, Domain::LOGIN, request.stream, false, State::closed(code::USAGE_ERROR, text));
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
        if login_request.attributes.role == PROVIDER {
            let text = "this port serves consumers; a publisher has to connect to the port for publishers";
            return Err(self.refuse_login(
                id,
                request.stream,
                State::closed(code::USAGE_ERROR, text.as_bytes()),
            ));
        }
        let user = login_request.user_name().to_vec();
        let position = text(login_request.attributes.position);
        let peer = mount.peer.clone();
        if let Err(denial) = self.permissions.login(&user, position.as_bytes(), &peer) {
            let state = denial.state();
            return Err(self.refuse_login(id, request.stream, state));
        }
        let limits = self.config.login_limits();
        let admitted = self.shared.logins.admit(&limits, login_request.identity(), mount.from);
        let entry = match admitted {
            Ok(entry) => entry,
            Err(refusal) => {
                let application = &self.config.application;
                let (text, reason) =
                    (refusal_text(refusal, application), refusal_reason(refusal, application));
                let code = match refusal {
                    LoginRefusal::User(_) | LoginRefusal::UserAndAddress(_) => {
                        code::EXCEEDED_MAX_MOUNTS_PER_USER
                    }
                    LoginRefusal::Total(_) | LoginRefusal::Address(_) => code::NONE,
                };
                self.refuse_login(id, request.stream, State::closed_recover(code, text.as_bytes()));
                return Err(reason);
            }
        };
        if let Some(pending) = self.mounts.get_mut(id).and_then(|mount| mount.pending.take()) {
            self.pending.remove(pending);
        }
        self.outputs.set_delivery(id, self.permissions.delivery(&user));
        let stream = self.add_stream(Stream::own(id, request, Role::Login));
        if let (Some(stream), Some(mount)) = (stream, self.mounts.get_mut(id)) {
            let name = text(login_request.attributes.application_name);
            let number = text(login_request.attributes.application_id);
            let application =
                if number.is_empty() { name } else { format!("{name} ({number})").trim_start().to_owned() };
            tracing::info!(
                peer = mount.peer, user = %String::from_utf8_lossy(&user), application, position,
                "a consumer logged in"
            );
            mount.login = Some(Login {
                stream,
                user,
                entry,
                application,
                position,
                recovery: recovery_options(&login_request),
                paused: request.flags.contains(RequestFlags::PAUSE),
            });
            self.login_refresh(id, request.stream, &login_request);
        }
        Ok(())
    }

    fn login_reissue(
        &mut self,
        id: Ticket,
        ticket: Ticket,
        request: &Request<'_>,
        login_request: &login::Request<'_>,
    ) {
        let paused = request.flags.contains(RequestFlags::PAUSE);
        if let Some(stream) = self.streams.get_mut(ticket) {
            stream.flags = request.flags;
        }
        let Some(login) = self.mounts.get_mut(id).and_then(|mount| mount.login.as_mut()) else { return };
        let was_paused = std::mem::replace(&mut login.paused, paused);
        if !request.flags.contains(RequestFlags::NO_REFRESH) {
            self.login_refresh(id, request.stream, login_request);
        }
        if was_paused != paused {
            self.pause_all(id, paused);
        }
    }

    /// Accepts a login: the reply has what this server supports, and who the client is.
    fn login_refresh(&mut self, id: Ticket, stream: i32, login_request: &login::Request<'_>) {
        let reply = login::Reply {
            attributes: login_request.attributes.accepted(self.config.application.as_bytes()),
            support_batch: ALL_BATCHES,
            support_post: self.config.posts,
            support_pause: true,
            support_optimized_pause: true,
            support_view: true,
            support_symbol_list: true,
            state: State { text: b"Login accepted", ..State::OK },
            ..login::Reply::to(login_request)
        };
        if let Ok(message) = to_vec(|w| reply.encode(stream, w)) {
            self.send(id, &message);
        }
    }

    fn refuse_login(&mut self, id: Ticket, stream: i32, state: State<'_>) -> Reason {
        self.status(id, Domain::LOGIN, stream, false, state);
        Reason::LoginRefused(String::from_utf8_lossy(state.text).into_owned())
    }

    /// Ends all streams of a mount without messages: its consumer closed the login.
    pub(super) fn logged_out(&mut self, id: Ticket) {
        self.end_all_streams(id);
        let Some(mount) = self.mounts.get_mut(id) else { return };
        mount.queue.clear();
        mount.since_login = mount.tally.last_read;
        if let Some(login) = mount.login.take() {
            self.shared.logins.dismiss(login.entry);
            mount.past_login = Some(login);
        }
        self.await_login(id);
    }

    /// Sends the status that ends the login, before the mount is disconnected by order.
    pub(super) fn log_out(&mut self, id: Ticket, reason: &Reason) {
        let Some(login) = self.mounts.get(id).and_then(|mount| mount.login.as_ref()) else { return };
        let Some(stream) = self.streams.get(login.stream).map(|stream| stream.id) else { return };
        let text = reason.to_string();
        let again = matches!(reason, Reason::ShutDown);
        let state = State {
            stream: if again { StreamState::ClosedRecover } else { StreamState::Closed },
            ..State::closed(code::NONE, text.as_bytes())
        };
        self.status(id, Domain::LOGIN, stream, false, state);
    }
}

fn recovery_options(login_request: &login::Request<'_>) -> RecoveryOptions {
    RecoveryOptions {
        single_open: login_request.attributes.single_open,
        allow_suspect: login_request.attributes.allow_suspect,
    }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}
