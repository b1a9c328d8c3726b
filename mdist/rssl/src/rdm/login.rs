//! The login domain. Spec: rssl.md §5.1
//!
//! Unknown elements are skipped and absent ones have the defaults of the domain, for stock programs of all versions.

use core::fmt;

use super::elements;
use crate::Result;
use crate::rwf::{
    Attrib, DataType, Domain, ElementListWriter, Generic, GenericFlags, Key, Map, MapAction, MapWriter,
    Refresh, RefreshFlags, Request as RequestMessage, RequestFlags, State, Status, name_type,
};
use crate::wire::{Writer, to_vec};

/// `Attributes::role` of a consumer.
pub const CONSUMER: u64 = 0;
/// `Attributes::role` of a provider that connects to a distributor.
pub const PROVIDER: u64 = 1;

/// Declares the attributes of a login and how each is read and written: by name, in the order of the wire.
macro_rules! attributes {
    (@take text $of:ident.$field:ident $data:ident $number:ident) => { $of.$field = Some($data) };
    (@take secret $of:ident.$field:ident $data:ident $number:ident) => { $of.$field = Some($data) };
    (@take secret_bytes $of:ident.$field:ident $data:ident $number:ident) => { $of.$field = Some($data) };
    (@take number $of:ident.$field:ident $data:ident $number:ident) => { $of.$field = $number };
    (@take role $of:ident.$field:ident $data:ident $number:ident) => { $of.$field = $number.unwrap_or(CONSUMER) };
    (@take $flag:ident $of:ident.$field:ident $data:ident $number:ident) => {
        $of.$field = $number.map_or($of.$field, |n| n != 0)
    };
    (@value text $value:expr, $default:expr, $list:ident $name:literal $secrets:ident) => {
        if let Some(text) = $value { $list.ascii($name, text)?; }
    };
    (@value secret $value:expr, $default:expr, $list:ident $name:literal $secrets:ident) => {
        if let Some(text) = $value.filter(|_| $secrets) { $list.ascii($name, text)?; }
    };
    (@value secret_bytes $value:expr, $default:expr, $list:ident $name:literal $secrets:ident) => {
        if let Some(bytes) = $value.filter(|_| $secrets) { $list.buffer($name, bytes)?; }
    };
    (@value number $value:expr, $default:expr, $list:ident $name:literal $secrets:ident) => {
        if let Some(number) = $value { $list.uint($name, number)?; }
    };
    // Stock clients always send these flags.
    (@value sent_flag $value:expr, $default:expr, $list:ident $name:literal $secrets:ident) => {
        $list.uint($name, $value.into())?;
    };
    (@value $kind:ident $value:expr, $default:expr, $list:ident $name:literal $secrets:ident) => {
        if $value != $default { $list.uint($name, $value.into())?; }
    };
    ($(
        $(#[$doc:meta])*
        $field:ident: $type:ty = $default:expr, $kind:ident $name:literal;
    )*) => {
        $crate::with_defaults! {
            /// Attributes of a client. Debug output, and the refresh of a server, leave passwords and tokens out.
            #[derive(Clone, PartialEq, Eq)]
            pub struct Attributes<'a> {
                $($(#[$doc])* pub $field: $type = $default,)*
            }
        }

        impl<'a> Attributes<'a> {
            /// Sets the attribute of one element; false if it is not an attribute.
            fn take(&mut self, name: &[u8], data: &'a [u8], number: Option<u64>) -> bool {
                let of = self;
                $(
                    if name == $name.as_bytes() {
                        attributes!(@take $kind of.$field data number);
                        return true;
                    }
                )*
                false
            }

            /// Writes the attributes that differ from the defaults; those that authenticate a client only with
            /// `secrets`.
            fn write(&self, list: &mut ElementListWriter<'_, '_>, secrets: bool) -> Result<()> {
                $(attributes!(@value $kind self.$field, $default, list $name secrets);)*
                Ok(())
            }
        }
    };
}

attributes! {
    /// Id of the application, a number as text.
    application_id: Option<&'a [u8]> = None, text "ApplicationId";
    /// Name of the application.
    application_name: Option<&'a [u8]> = None, text "ApplicationName";
    /// Position of the user: "address/net".
    position: Option<&'a [u8]> = None, text "Position";
    /// Distinguishes applications with the same name and position.
    instance_id: Option<&'a [u8]> = None, text "InstanceId";
    /// [`CONSUMER`] or [`PROVIDER`].
    role: u64 = CONSUMER, role "Role";
    /// Whether the server recovers items of this client, instead of the client.
    single_open: bool = true, sent_flag "SingleOpen";
    /// Whether the client accepts suspect data.
    allow_suspect: bool = true, sent_flag "AllowSuspectData";
    /// Whether the client requests the permission profile.
    permission_profile: bool = true, flag "ProvidePermissionProfile";
    /// Whether the client requests permission expressions.
    permission_expressions: bool = true, flag "ProvidePermissionExpressions";
    /// Whether a provider can download the dictionary from the distributor.
    dictionary_download: bool = false, flag "SupportProviderDictionaryDownload";
    /// Whether the client requests the list of standby servers.
    connection_config: bool = false, flag "DownloadConnectionConfig";
    /// 2: the client answers round-trip probes.
    round_trip_latency: Option<u64> = None, number "RoundTripLatency";
    /// Bits of the update types to send.
    update_types: Option<u64> = None, number "UpdateTypeFilter";
    /// Bits of the update types to leave out.
    unwanted_update_types: Option<u64> = None, number "NegativeUpdateTypeFilter";
    /// Password.
    password: Option<&'a [u8]> = None, secret "Password";
    /// Authentication token.
    authentication_token: Option<&'a [u8]> = None, secret "AuthenticationToken";
    /// Token that authorizes the application.
    application_token: Option<&'a [u8]> = None, secret "ApplicationAuthorizationToken";
    /// Extended authentication data.
    authentication_extended: Option<&'a [u8]> = None, secret_bytes "AuthenticationExtended";
}

impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: Option<&[u8]>| bytes.map(|bytes| bytes.escape_ascii().to_string());
        f.debug_struct("Attributes")
            .field("application_id", &text(self.application_id))
            .field("application_name", &text(self.application_name))
            .field("position", &text(self.position))
            .field("instance_id", &text(self.instance_id))
            .field("role", &self.role)
            .field("single_open", &self.single_open)
            .field("allow_suspect", &self.allow_suspect)
            .finish_non_exhaustive()
    }
}

impl<'a> Attributes<'a> {
    /// The attributes of the refresh with which `server` accepts these: the client's identity and choices, but no
    /// secrets.
    #[must_use]
    pub fn accepted(&self, server: &'a [u8]) -> Self {
        Attributes {
            application_id: self.application_id,
            application_name: Some(server),
            position: self.position,
            single_open: self.single_open,
            allow_suspect: self.allow_suspect,
            permission_profile: self.permission_profile,
            permission_expressions: self.permission_expressions,
            ..Attributes::default()
        }
    }
}

crate::with_defaults! {
    /// A login request.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Request<'a> {
        /// User; one zero byte if a token is in the attributes instead.
        pub user: &'a [u8] = b"",
        /// Type of the user's name, one of [`name_type`].
        pub name_type: u8 = name_type::USER_NAME,
        /// Attributes.
        pub attributes: Attributes<'a> = Attributes::default(),
    }
}

impl<'a> Request<'a> {
    /// Reads a request of the login domain.
    ///
    /// # Errors
    /// Attributes that are cut short.
    pub fn decode(request: &RequestMessage<'a>) -> Result<Self> {
        let mut attributes = Attributes::default();
        if let Some(bytes) = list(&request.key) {
            elements(bytes, |e| {
                attributes.take(e.name, e.data, e.uint());
                Ok(())
            })?;
        }
        let name_type = request.key.name_type.unwrap_or(name_type::USER_NAME);
        Ok(Request { user: request.key.name.unwrap_or_default(), name_type, attributes })
    }

    /// The user's name; empty if the client sent a token or cookie in its place.
    #[must_use]
    pub fn user_name(&self) -> &'a [u8] {
        let is_name = matches!(self.name_type, name_type::USER_NAME | name_type::EMAIL);
        if is_name { self.user } else { b"" }
    }

    /// The bytes that distinguish this user from others: the name, token or cookie. A client may claim any of these.
    #[must_use]
    pub fn identity(&self) -> &'a [u8] {
        let token = self.attributes.authentication_token.unwrap_or_default();
        if self.name_type == name_type::AUTHENTICATION_TOKEN { token } else { self.user }
    }

    /// Writes the request message.
    ///
    /// # Errors
    /// [`crate::Error::Full`], or a name above 255 bytes.
    pub fn encode(&self, stream: i32, w: &mut Writer<'_>) -> Result<()> {
        self.encode_with(stream, RequestFlags::STREAMING, w)
    }

    /// Writes the request message with these flags, such as a reissue that pauses.
    ///
    /// # Errors
    /// As [`Request::encode`].
    pub fn encode_with(&self, stream: i32, flags: RequestFlags, w: &mut Writer<'_>) -> Result<()> {
        let attributes = to_vec(|w| {
            let mut list = ElementListWriter::new(w)?;
            self.attributes.write(&mut list, true)?;
            list.finish()
        })?;
        let key = key(self.user, self.name_type, &attributes);
        RequestMessage::new(Domain::LOGIN, stream, flags, key).encode(w)
    }
}

crate::with_defaults! {
    /// The refresh of a server that accepts a login. It never contains passwords or tokens.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Reply<'a> {
        /// User of the request.
        pub user: &'a [u8] = b"",
        /// Type of the user's name, one of [`name_type`].
        pub name_type: u8 = name_type::USER_NAME,
        /// The client's attributes: see [`Attributes::accepted`].
        pub attributes: Attributes<'a> = Attributes::default(),
        /// Bits: 1 batch requests, 2 batch reissues, 4 batch closes.
        pub support_batch: u64 = 0,
        /// Whether the server accepts posts.
        pub support_post: bool = false,
        /// Whether clients can pause and resume items.
        pub support_pause: bool = false,
        /// Whether items that clients pause are paused upstream, too.
        pub support_optimized_pause: bool = false,
        /// Whether clients can request views.
        pub support_view: bool = false,
        /// Whether symbol lists can open their items.
        pub support_symbol_list: bool = false,
        /// Whether the server supports warm standby.
        pub support_standby: bool = false,
        /// State of the login.
        pub state: State<'a> = State::OK,
        /// Whether it answers a request; stock clients ignore other refreshes.
        pub solicited: bool = true,
    }
}

impl<'a> Reply<'a> {
    /// A reply to this request, with the user of the request and without attributes.
    #[must_use]
    pub fn to(request: &Request<'a>) -> Self {
        Reply { user: request.user_name(), name_type: request.name_type, ..Reply::default() }
    }

    /// Reads a refresh of the login domain.
    ///
    /// # Errors
    /// Attributes that are cut short.
    pub fn decode(refresh: &Refresh<'a>) -> Result<Self> {
        let key = refresh.key.unwrap_or_default();
        let mut reply = Reply {
            user: key.name.unwrap_or_default(),
            name_type: key.name_type.unwrap_or(name_type::USER_NAME),
            state: refresh.state,
            solicited: refresh.flags.contains(RefreshFlags::SOLICITED),
            ..Reply::default()
        };
        if let Some(bytes) = list(&key) {
            elements(bytes, |e| {
                let number = e.uint();
                if !reply.attributes.take(e.name, e.data, number) {
                    reply.take(e.name, number.unwrap_or(0));
                }
                Ok(())
            })?;
        }
        Ok(reply)
    }

    fn take(&mut self, name: &[u8], number: u64) {
        let flag = number != 0;
        match name {
            b"SupportBatchRequests" => self.support_batch = number,
            b"SupportOMMPost" => self.support_post = flag,
            b"SupportPauseResume" => self.support_pause = flag,
            b"SupportOptimizedPauseResume" => self.support_optimized_pause = flag,
            b"SupportViewRequests" => self.support_view = flag,
            b"SupportEnhancedSymbolList" => self.support_symbol_list = flag,
            b"SupportStandby" => self.support_standby = flag,
            _ => {}
        }
    }

    /// Writes the refresh that accepts a login.
    ///
    /// # Errors
    /// [`crate::Error::Full`], or a name above 255 bytes.
    pub fn encode(&self, stream: i32, w: &mut Writer<'_>) -> Result<()> {
        let attributes = to_vec(|w| {
            let mut list = ElementListWriter::new(w)?;
            self.attributes.write(&mut list, false)?;
            for (name, value) in [
                ("SupportBatchRequests", self.support_batch),
                ("SupportOMMPost", self.support_post.into()),
                ("SupportPauseResume", self.support_pause.into()),
                ("SupportOptimizedPauseResume", self.support_optimized_pause.into()),
                ("SupportViewRequests", self.support_view.into()),
                ("SupportEnhancedSymbolList", self.support_symbol_list.into()),
                ("SupportStandby", self.support_standby.into()),
            ] {
                if value != 0 {
                    list.uint(name, value)?;
                }
            }
            list.finish()
        })?;
        let mut flags = RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE;
        if self.solicited {
            flags.insert(RefreshFlags::SOLICITED);
        }
        let refresh = Refresh {
            domain: Domain::LOGIN,
            stream,
            flags,
            state: self.state,
            group: &[0, 0],
            key: Some(key(self.user, self.name_type, &attributes)),
            ..Refresh::default()
        };
        refresh.encode(w)
    }
}

/// Writes the status that refuses or ends a login. `Closed`: do not retry; `ClosedRecover`: retry later.
pub fn reject(stream: i32, state: State<'_>, w: &mut Writer<'_>) -> Result<()> {
    Status::new(Domain::LOGIN, stream, state).encode(w)
}

fn key<'a>(user: &'a [u8], name_type: u8, attributes: &'a [u8]) -> Key<'a> {
    let attrib = Attrib { container: DataType::ELEMENT_LIST, data: attributes };
    Key { name: Some(user), name_type: Some(name_type), attrib: Some(attrib), ..Key::default() }
}

fn list<'a>(key: &Key<'a>) -> Option<&'a [u8]> {
    key.attrib.filter(|attrib| attrib.container == DataType::ELEMENT_LIST).map(|attrib| attrib.data)
}

/// Name of the generic message in which a consumer reports whether this connection is active or on standby.
pub const CONNECTION_STATUS: &[u8] = b"ConsumerConnectionStatus";

/// Reads the payload of [`CONNECTION_STATUS`]: 0 active, 1 standby; `None` if absent.
///
/// # Errors
/// Content that is cut short.
pub fn connection_status(payload: &[u8]) -> Result<Option<u64>> {
    let mut mode = None;
    for entry in Map::decode(payload)?.entries() {
        let entry = entry?;
        if entry.key == b"WarmStandbyInfo" && entry.action != MapAction::Delete {
            elements(entry.data, |e| {
                if e.name == b"WarmStandbyMode" {
                    mode = e.uint();
                }
                Ok(())
            })?;
        }
    }
    Ok(mode)
}

/// Writes a generic message [`CONNECTION_STATUS`] on the login stream.
pub fn encode_connection_status(stream: i32, mode: u64, w: &mut Writer<'_>) -> Result<()> {
    let generic = Generic {
        domain: Domain::LOGIN,
        stream,
        flags: GenericFlags::COMPLETE,
        container: DataType::MAP,
        key: Some(Key { name: Some(CONNECTION_STATUS), ..Key::default() }),
        ..Generic::default()
    };
    generic.encode_header(w)?;
    let mut map = MapWriter::new(w, DataType::ASCII_STRING, DataType::ELEMENT_LIST)?;
    map.entry(MapAction::Add, b"WarmStandbyInfo", |w| {
        let mut list = ElementListWriter::new(w)?;
        list.uint("WarmStandbyMode", mode)?;
        list.finish()
    })?;
    map.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rwf::{DataState, Message, StreamState, code};

    #[test]
    fn requests_round_trip() {
        let request = Request {
            user: b"user",
            attributes: Attributes {
                application_id: Some(b"256"),
                position: Some(b"127.0.0.1/net"),
                authentication_extended: Some(b"\x01"),
                role: PROVIDER,
                single_open: false,
                permission_profile: false,
                dictionary_download: true,
                round_trip_latency: Some(2),
                ..Attributes::default()
            },
            ..Request::default()
        };
        let bytes = to_vec(|w| request.encode(1, w)).unwrap();
        let message = RequestMessage::decode(&bytes).unwrap();
        assert_eq!((message.domain, message.flags), (Domain::LOGIN, RequestFlags::STREAMING));
        assert_eq!(Request::decode(&message), Ok(request));
        let bare = RequestMessage { key: Key::default(), ..message };
        assert_eq!(Request::decode(&bare), Ok(Request::default()));
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let attributes = Attributes {
            position: Some(b"here"),
            password: Some(b"secret"),
            authentication_token: Some(b"secret"),
            ..Attributes::default()
        };
        let shown = format!("{attributes:?}");
        assert!(shown.contains("here") && !shown.contains("secret"));
    }

    #[test]
    fn replies_repeat_the_clients_identity_and_no_secrets() {
        let attributes = Attributes {
            application_id: Some(b"256"),
            application_name: Some(b"client"),
            position: Some(b"here"),
            password: Some(b"secret"),
            instance_id: Some(b"instance"),
            authentication_token: Some(b"secret"),
            authentication_extended: Some(b"secret"),
            application_token: Some(b"secret"),
            round_trip_latency: Some(2),
            allow_suspect: false,
            connection_config: true,
            ..Attributes::default()
        };
        let request =
            Request { user: b"secret", name_type: name_type::TOKEN, attributes: attributes.clone() };
        assert_eq!((request.user_name(), request.identity()), (&b""[..], &b"secret"[..]));
        let reply = Reply { attributes: attributes.accepted(b"server"), ..Reply::to(&request) };
        // The second is from a server that forgets to choose.
        for reply in [reply, Reply { attributes: attributes.clone(), ..Reply::to(&request) }] {
            let bytes = to_vec(|w| reply.encode(1, w)).unwrap();
            assert!(!bytes.windows(6).any(|part| part == b"secret"), "{}", bytes.escape_ascii());
        }
        let accepted = attributes.accepted(b"server");
        let kept = Attributes {
            application_id: Some(b"256"),
            application_name: Some(b"server"),
            position: Some(b"here"),
            allow_suspect: false,
            ..Attributes::default()
        };
        assert_eq!(accepted, kept);
    }

    #[test]
    fn replies_round_trip() {
        let reply = Reply {
            user: b"user",
            support_batch: 7,
            support_post: true,
            support_view: true,
            state: State::new(StreamState::Open, DataState::Ok, 0, b"Login accepted"),
            ..Reply::default()
        };
        let bytes = to_vec(|w| reply.encode(1, w)).unwrap();
        let message = Refresh::decode(&bytes).unwrap();
        assert!(message.flags.contains(RefreshFlags::SOLICITED | RefreshFlags::COMPLETE));
        assert_eq!(Reply::decode(&message), Ok(reply));
    }

    #[test]
    fn refusals_and_connection_status_round_trip() {
        let state = State::closed(code::NOT_ENTITLED, b"no");
        let bytes = to_vec(|w| reject(1, state, w)).unwrap();
        assert!(matches!(Message::decode(&bytes), Ok(Message::Status(s)) if s.state == Some(state)));
        let bytes = to_vec(|w| encode_connection_status(1, 1, w)).unwrap();
        let generic = Generic::decode(&bytes).unwrap();
        assert_eq!(generic.key.and_then(|k| k.name), Some(CONNECTION_STATUS));
        assert_eq!(connection_status(generic.payload), Ok(Some(1)));
        assert_eq!(connection_status(&[]), Ok(None));
    }
}
