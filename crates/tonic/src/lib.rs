//! gRPC by service name: tonic and hyper over connections of utipc.
//!
//! A server takes its connections from [`Incoming`]; a client gets a [`tonic::transport::Channel`] from [`channel`].
//! Neither knows an address of the network. Several servers may serve one service: new connections go to them in turn.
//! The death of a server breaks its connections at once, and the channel connects to another one with the next request.
//!
//! ```no_run
//! # async fn example<S>(greeter: S) -> Result<(), Box<dyn std::error::Error>>
//! # where
//! #     S: tower_service::Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>,
//! #         Error = std::convert::Infallible> + Clone + Send + 'static,
//! #     S::Future: Send,
//! # {
//! use utipc::{Node, ServiceAddress};
//! use utipc_tonic::{Incoming, channel};
//!
//! const GREETER: ServiceAddress = ServiceAddress::new(5100, 1);
//!
//! // A server.
//! let incoming = Incoming::bind(&Node::start()?, GREETER)?;
//! tonic::transport::Server::builder().serve_with_incoming(greeter, incoming).await?;
//!
//! // A client: `GreeterClient::new(channel)`, with the client that tonic generates.
//! let channel = channel(&Node::start()?, GREETER);
//! # Ok(())
//! # }
//! ```
//!
//! [`Connector`] is a connector for hyper too, and [`Stream`] a connection of either end with tokio's traits.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected as HyperConnected, Connection as HyperConnection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};
use utipc::tokio::{Connection, Listener};
use utipc::{Node, PortId, ServiceAddress, ServiceRange, SocketKind};

type Pending<T> = Pin<Box<dyn Future<Output = utipc::Result<T>> + Send>>;

/// A channel to one of the servers of a service. It connects with the first request, and again after its connection has
/// broken.
#[must_use]
pub fn channel(node: &Node, service: ServiceAddress) -> Channel {
    Endpoint::from_static("http://utipc").connect_with_connector_lazy(Connector::new(node, service))
}

/// Connects to a service. The URI of a request decides about the request only, not about the server.
#[derive(Clone, Debug)]
pub struct Connector {
    node: Node,
    service: ServiceAddress,
}

impl Connector {
    /// A connector to one of the servers of `service`.
    #[must_use]
    pub fn new(node: &Node, service: ServiceAddress) -> Self {
        Self { node: node.clone(), service }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// [`utipc::Error::Connect`] if no socket is bound to the service, or none accepts.
    pub async fn connect(&self) -> utipc::Result<Stream> {
        let connection = Connection::open(self.node.stream()?, self.service).await?;
        Stream::new(connection)
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = utipc::Error;
    type Future = Pending<TokioIo<Stream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<utipc::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await.map(TokioIo::new) })
    }
}

/// The connections of a server, as a stream that [`tonic::transport::Server`] takes.
pub struct Incoming {
    listener: Arc<Listener>,
    pending: Option<Pending<Connection>>,
}

impl Incoming {
    /// Binds a service, in the whole cluster, and listens.
    ///
    /// # Errors
    /// [`utipc::Error::Bind`].
    ///
    /// # Panics
    /// If called outside a tokio runtime with I/O enabled.
    pub fn bind(node: &Node, service: impl Into<ServiceRange>) -> utipc::Result<Self> {
        Ok(Self::new(Listener::new(node.listen(SocketKind::Stream, service)?)?))
    }

    /// Takes connections from a listener of kind [`SocketKind::Stream`].
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        Self { listener: Arc::new(listener), pending: None }
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn accept(&self) -> utipc::Result<Stream> {
        Stream::new(self.listener.accept().await?)
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl futures_core::Stream for Incoming {
    type Item = utipc::Result<Stream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let listener = Arc::clone(&self.listener);
        let pending = self.pending.get_or_insert_with(|| Box::pin(async move { listener.accept().await }));
        let accepted = ready!(pending.as_mut().poll(cx));
        self.pending = None;
        Poll::Ready(Some(accepted.and_then(Stream::new)))
    }
}

/// A connection with tokio's traits, for tonic and hyper.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    peer: Option<PortId>,
}

impl Stream {
    fn new(connection: Connection) -> utipc::Result<Self> {
        // HTTP/2 gathers its frames itself.
        connection.socket().get().set_nodelay(true)?;
        let peer = connection.peer();
        Ok(Self { connection, peer })
    }

    /// The address of the peer's socket.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.peer
    }
}

/// Information of a request about its connection: [`tonic::Request::extensions`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectInfo {
    /// The socket of the client.
    pub peer: Option<PortId>,
}

impl Connected for Stream {
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        ConnectInfo { peer: self.peer }
    }
}

impl HyperConnection for Stream {
    fn connected(&self) -> HyperConnected {
        HyperConnected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}
