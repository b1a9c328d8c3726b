//! gRPC by service name. Start two servers and a client, and kill one of the servers: the client continues.
//!
//! ```text
//! cargo run --example greeter server red
//! cargo run --example greeter server blue
//! cargo run --example greeter client 100
//! cargo run --release --example greeter compare # the round trip compared with gRPC over TCP
//! ```

mod service;

use std::error::Error;
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::{Endpoint, Server};
use utipc::{Node, ServiceAddress};
use utipc_tonic::{Incoming, channel};

use service::{Greeter, GreeterClient};

const GREETER: ServiceAddress = ServiceAddress::new(5100, 1);
/// Time for which a client looks for another server.
const LIMIT: Duration = Duration::from_secs(30);
/// Pause between two greetings, and between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", name] => serve(name).await,
        ["client", count] => greet(count.parse()?).await,
        ["compare"] => compare().await,
        _ => Err("usage: greeter server NAME | client COUNT | compare".into()),
    }
}

async fn serve(name: &str) -> Result<(), Box<dyn Error>> {
    let incoming = Incoming::bind(&Node::start()?, GREETER)?;
    println!("{name} serves {GREETER}");
    Ok(Server::builder().serve_with_incoming(Greeter { name: name.to_owned() }, incoming).await?)
}

async fn greet(count: u32) -> Result<(), Box<dyn Error>> {
    let node = Node::start()?;
    node.wait_for_service(GREETER, LIMIT)?;
    let mut client = GreeterClient::new(channel(&node, GREETER));
    for number in 1..=count {
        println!("{number}: {}", greeting(&mut client).await?);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Asks until a server answers: a request that was on its way to a server that died is lost, and is sent again.
async fn greeting(client: &mut GreeterClient) -> Result<String, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        match client.greet("world").await {
            Ok(text) => return Ok(text),
            Err(status) if start.elapsed() > LIMIT => return Err(status.into()),
            Err(status)
                if matches!(
                    status.code(),
                    Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
                ) =>
            {
                println!("no answer ({}), trying again", status.code());
                tokio::time::sleep(PAUSE).await;
            }
            Err(status) => return Err(status.into()),
        }
    }
}

/// Measures gRPC over utipc and over TCP in turn: the servers are threads of this process with separate runtimes.
async fn compare() -> Result<(), Box<dyn Error>> {
    const ROUNDS: u32 = 2000;
    const RUNS: usize = 5;
    let node = Node::start()?;
    let address = {
        let (node, (tell, told)) = (node.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || servers(&node, &tell));
        told.recv()?
    };
    let tcp = Endpoint::new(format!("http://{address}"))?.tcp_nodelay(true).connect_lazy();
    let mut clients =
        [("utipc", GreeterClient::new(channel(&node, GREETER))), ("TCP", GreeterClient::new(tcp))];
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..RUNS {
        for ((_, client), times) in clients.iter_mut().zip(&mut times) {
            client.greet("warm-up").await?;
            let start = Instant::now();
            for _ in 0..ROUNDS {
                client.greet("world").await?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
        }
    }
    let median = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    });
    for ((name, _), time) in clients.iter().zip(median) {
        println!("gRPC over {name}: {time:.1} µs a call (median of {RUNS} runs of {ROUNDS})");
    }
    println!("utipc / TCP: {:.2}", median[0] / median[1]);
    Ok(())
}

/// Serves both transports on one thread, and reports the TCP address.
fn servers(node: &Node, tell: &std::sync::mpsc::Sender<std::net::SocketAddr>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let greeter = Greeter { name: "server".to_owned() };
        let incoming = Incoming::bind(node, GREETER).expect("the service is free");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        tell.send(listener.local_addr().expect("it is bound")).expect("the client waits");
        let tcp = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let nodelay = tokio_stream::StreamExt::map(tcp, |stream| {
            stream.inspect(|stream| drop(stream.set_nodelay(true)))
        });
        let by_name = Server::builder().serve_with_incoming(greeter.clone(), incoming);
        let by_address = Server::builder().serve_with_incoming(greeter, nodelay);
        let _ = tokio::join!(by_name, by_address);
    });
}
