//! An interactive provider that sends what the SDK's C example sends: a dictionary in messages of up to 8 KiB without
//! part numbers, of which only the first has CLEAR_CACHE, only the last COMPLETE, and each a text that ends with a zero
//! byte.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rssl::dictionary::{Dictionary, FIELD_DICTIONARY, FieldDef, Fields, VERBOSITY_VERBOSE};
use rssl::rdm::directory::{self, Action, Info, Service, ServiceState};
use rssl::rdm::login;
use rssl::rwf::{DataType, Domain, Key, Message, Refresh, RefreshFlags, Request, State, code};
use rssl::transport::{Channel, Pulled, ServerOptions};
use rssl::wire::to_vec;

/// The fields of the SDK's dictionary, by number.
pub(crate) const FIELDS: usize = 16_145;
/// Size of the messages of a field dictionary.
const MESSAGE: usize = 8_192;
/// A field list: BID 39.90.
const IMAGE: [u8; 9] = [8, 0, 1, 0, 22, 3, 12, 0x0f, 0x96];

/// A dictionary with [`FIELDS`] fields, those of the built-in one among them.
pub(crate) fn dictionary(version: &str) -> Dictionary {
    let mut dictionary = Dictionary::small();
    let fields = &mut dictionary.fields;
    fields.edition.version = version.into();
    for id in (-9_000..20_000_i16).filter(|id| *id != 0) {
        if fields.len() == FIELDS {
            break;
        }
        if fields.get(id).is_none() {
            let (name, long_name) = (format!("FILLER_{id}"), format!("FILLER NUMBER {id}"));
            fields.insert(FieldDef { id, name, long_name, data_type: DataType::REAL, ..FieldDef::default() });
        }
    }
    assert_eq!(fields.len(), FIELDS);
    dictionary
}

/// The provider; it ends when dropped, with its connections.
pub(crate) struct StockProvider {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl StockProvider {
    /// Listens at `address`, with port 0 at a free one. With `farewell` it ends the login with this text when it has
    /// sent an image.
    pub(crate) fn start(address: SocketAddr, dictionary: Dictionary, farewell: Option<&'static str>) -> Self {
        let listener = mdist::net::listen(address).unwrap();
        listener.set_nonblocking(false).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (stopped, open) = (stop.clone(), connections.clone());
        let dictionary = Arc::new(dictionary);
        let thread = std::thread::spawn(move || accept(&listener, &stopped, &open, &dictionary, farewell));
        Self { address, stop, connections, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StockProvider {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn accept(
    listener: &TcpListener,
    stop: &AtomicBool,
    open: &Mutex<Vec<TcpStream>>,
    dictionary: &Arc<Dictionary>,
    farewell: Option<&'static str>,
) {
    while let Ok((stream, _)) = listener.accept() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        open.lock().unwrap().push(stream.try_clone().unwrap());
        let dictionary = dictionary.clone();
        // The thread ends with its connection.
        std::thread::spawn(move || serve(stream, &dictionary, farewell));
    }
}

fn serve(mut stream: TcpStream, dictionary: &Dictionary, farewell: Option<&str>) -> io::Result<()> {
    let mut channel = Channel::server(ServerOptions::default());
    let (mut input, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..count]);
        loop {
            let mut replies = Vec::new();
            let (used, pulled) = channel.pull(&input).map_err(io::Error::other)?;
            match pulled {
                Pulled::NeedMore => break,
                Pulled::Message(message) => {
                    if let Ok(Message::Request(request)) = Message::decode(message) {
                        replies = answer(&request, dictionary, farewell);
                    }
                }
                _ => {}
            }
            input.drain(..used);
            let mut out = Vec::new();
            channel.take_output(&mut out);
            for reply in replies {
                channel.write(&reply, &mut out).map_err(io::Error::other)?;
            }
            stream.write_all(&out)?;
        }
    }
}

fn answer(request: &Request<'_>, dictionary: &Dictionary, farewell: Option<&str>) -> Vec<Vec<u8>> {
    match request.domain {
        Domain::LOGIN => {
            let reply = login::Reply { user: b"user", state: State::OK, ..login::Reply::default() };
            vec![to_vec(|w| reply.encode(request.stream, w)).unwrap()]
        }
        Domain::DIRECTORY => vec![services(request)],
        Domain::DICTIONARY => dictionary_parts(request, dictionary),
        _ => {
            let flags = RefreshFlags::REPLY;
            let image = Refresh { flags, payload: &IMAGE, ..refresh(request, DataType::FIELD_LIST, b"") };
            let mut messages = vec![image.to_vec().unwrap()];
            if let Some(text) = farewell {
                let text = text.as_bytes();
                let state = State::closed(code::NOT_ENTITLED, text);
                messages.push(to_vec(|w| login::reject(1, state, w)).unwrap());
            }
            messages
        }
    }
}

fn refresh<'a>(request: &Request<'a>, container: DataType, text: &'a [u8]) -> Refresh<'a> {
    Refresh {
        domain: request.domain,
        stream: request.stream,
        container,
        state: State { text, ..State::OK },
        group: &[0, 0],
        key: Some(Key { attrib: None, identifier: None, ..request.key }),
        ..Refresh::default()
    }
}

/// One service without the domain of dictionaries among its capabilities.
fn services(request: &Request<'_>) -> Vec<u8> {
    let dictionaries = vec!["RWFFld".to_owned(), "RWFEnum".to_owned()];
    let service = Service {
        id: 1,
        info: Some(Info {
            name: "DIRECT_FEED".into(),
            capabilities: vec![6, 7, 8, 10],
            dictionaries_provided: dictionaries.clone(),
            dictionaries_used: dictionaries,
            ..Info::default()
        }),
        state: Some(ServiceState { up: true, ..ServiceState::default() }),
        ..Service::default()
    };
    let filter = request.key.filter.unwrap_or(directory::filter::ALL);
    let payload = to_vec(|w| directory::encode(w, filter, &[(Action::Add, service.clone())])).unwrap();
    let flags = RefreshFlags::REPLY;
    let refresh = Refresh { flags, payload: &payload, ..refresh(request, DataType::MAP, b"") };
    refresh.to_vec().unwrap()
}

fn dictionary_parts(request: &Request<'_>, dictionary: &Dictionary) -> Vec<Vec<u8>> {
    let parts = if request.key.name == Some(FIELD_DICTIONARY.as_bytes()) {
        dictionary.fields.parts(VERBOSITY_VERBOSE, MESSAGE - 100)
    } else {
        dictionary.enums.parts(VERBOSITY_VERBOSE, MESSAGE - 100)
    }
    .unwrap();
    let count = parts.len();
    let message = |(at, payload): (usize, &Vec<u8>)| {
        let mut flags = RefreshFlags::SOLICITED;
        if at == 0 {
            flags.insert(RefreshFlags::CLEAR_CACHE);
        }
        if at + 1 == count {
            flags.insert(RefreshFlags::COMPLETE);
        }
        let text = format!("Dictionary Refresh (part {at})\0");
        let part = Refresh { flags, payload, ..refresh(request, DataType::SERIES, text.as_bytes()) };
        part.to_vec().unwrap()
    };
    parts.iter().enumerate().map(message).collect()
}

/// All fields in the parts of a dictionary.
pub(crate) fn fields_of(parts: &[Vec<u8>]) -> Fields {
    let mut fields = Fields::default();
    for part in parts {
        let Message::Refresh(refresh) = Message::decode(part).unwrap() else { panic!("a refresh") };
        fields.take_part(refresh.payload).unwrap();
    }
    fields
}
