//! The service `example.Greeter` with one method, as tonic's generator writes it, for messages that are plain text.
//! Programs with a `.proto` file use `tonic-prost-build` instead of this file.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

const METHOD: &str = "/example.Greeter/Greet";

type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Messages of plain text.
#[derive(Clone, Copy, Debug, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let text = String::from_utf8(bytes.to_vec());
        text.map(Some).map_err(|_| Status::invalid_argument("the message is not text (send UTF-8)"))
    }
}

/// The client.
#[derive(Clone, Debug)]
pub(crate) struct GreeterClient(tonic::client::Grpc<Channel>);

impl GreeterClient {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(tonic::client::Grpc::new(channel))
    }

    /// Returns the greeting of one of the servers.
    pub(crate) async fn greet(&mut self, name: &str) -> Result<String, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static(METHOD);
        Ok(self.0.unary(Request::new(name.to_owned()), path, Text).await?.into_inner())
    }
}

/// The server, with a name that its greetings contain.
#[derive(Clone, Debug)]
pub(crate) struct Greeter {
    pub(crate) name: String,
}

impl tonic::server::UnaryService<String> for Greeter {
    type Response = String;
    type Future = Pending<Response<String>, Status>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let greeting = format!("hello {}, I am {}", request.into_inner(), self.name);
        Box::pin(async move { Ok(Response::new(greeting)) })
    }
}

impl tower_service::Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pending<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let greeter = self.clone();
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("unknown method").into_http());
            }
            Ok(tonic::server::Grpc::new(Text).unary(greeter, request).await)
        })
    }
}
