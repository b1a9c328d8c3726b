//! A small consumer for demonstrations: opens a few items and reports their quotes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rssl::rwf::{Domain, FieldList, Key, Message, Real, Request};
use rssl::transport::ClientOptions;

use super::identity::component;
use crate::net::now;
use crate::upstream::{Consumer, Event, Login, Session as _, SessionError};

/// Field ids of the vendor's dictionary.
const BID: i16 = 22;
const ASK: i16 = 25;
/// Stream of the first item.
const FIRST: i32 = 5;
/// Longest wait for the quotes; a chain on one host needs milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// An image or update of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Quote {
    /// Index of the item among those requested.
    pub item: usize,
    /// Whether it is an image, not an update.
    pub image: bool,
    /// The bid price, if the message has one.
    pub bid: Option<Real>,
    /// The ask price, if the message has one.
    pub ask: Option<Real>,
}

/// Opens `names` of the first service at `server` and calls `on` with every quote until it returns true.
///
/// # Errors
/// The server is unreachable or offers no service, or `on` has not returned true within 20 s.
pub fn watch(server: SocketAddr, names: &[&str], mut on: impl FnMut(&Quote) -> bool) -> Result<()> {
    let mut socket =
        TcpStream::connect_timeout(&server, LIMIT).with_context(|| format!("connect to {server}"))?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let login = Login {
        user: "watcher".into(),
        application_id: "256".into(),
        application: "quotes".into(),
        position: "127.0.0.1/net".into(),
    };
    let transport = ClientOptions { component: component("quotes"), ..ClientOptions::default() };
    let mut session = Consumer::new(transport, login, now());
    let mut buffer = vec![0; 64 * 1024];
    let (start, mut asked, mut enough) = (now(), false, false);
    while !enough {
        ensure!(now().saturating_sub(start) < LIMIT, "{server} gave no quotes within {} s", LIMIT.as_secs());
        socket.write_all(session.output())?;
        session.output().clear();
        let count = match socket.read(&mut buffer) {
            Ok(0) => bail!("{server} closed the connection"),
            Ok(count) => count,
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(why) => return Err(why.into()),
        };
        let mut service = None;
        session.input(buffer.get(..count).unwrap_or_default(), now(), |event| {
            match event {
                Event::Up => {}
                Event::Services { changes, .. } => {
                    let up = changes.iter().find(|(_, s)| s.state.as_ref().is_some_and(|state| state.up));
                    service = up.map(|(_, service)| service.id);
                }
                Event::Message(message) => {
                    if let Some(quote) =
                        quote(message).map_err(|why| SessionError::Protocol(why.to_string()))?
                    {
                        enough = enough || on(&quote);
                    }
                }
            }
            Ok(())
        })?;
        if let (Some(service), false) = (service, asked) {
            for (stream, name) in (FIRST..).zip(names) {
                session.send(&request(stream, service, name)?)?;
            }
            asked = true;
        }
    }
    Ok(())
}

fn request(stream: i32, service: u16, name: &str) -> rssl::Result<Vec<u8>> {
    Request::streaming(
        Domain::MARKET_PRICE,
        stream,
        Key { service: Some(service), name: Some(name.as_bytes()), name_type: Some(1), ..Key::default() },
    )
    .to_vec()
}

fn quote(message: &[u8]) -> rssl::Result<Option<Quote>> {
    let message = Message::decode(message)?;
    let (image, payload) = match &message {
        Message::Refresh(refresh) => (true, refresh.payload),
        Message::Update(update) => (false, update.payload),
        _ => return Ok(None),
    };
    let Ok(item) = usize::try_from(message.head().stream - FIRST) else { return Ok(None) };
    let mut quote = Quote { item, image, bid: None, ask: None };
    for field in FieldList::decode(payload, None)?.entries() {
        let field = field?;
        match field.id {
            BID => quote.bid = Real::decode(field.data)?,
            ASK => quote.ask = Real::decode(field.data)?,
            _ => {}
        }
    }
    Ok(Some(quote))
}
