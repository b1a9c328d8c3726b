//! `utipc proxy`: programs that use TCP or Unix sockets reach services, and the other way round.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Engine, LIMIT, Place, Running, noise};

on_each_engine!(
    bytes_pass_through_two_proxies_in_both_directions,
    half_close_passes_between_two_proxies,
    reply_passes_after_the_client_has_ended,
    server_that_ends_at_once_is_heard,
    reply_passes_while_the_client_still_sends,
    clients_are_refused_while_the_service_is_absent,
    clients_wait_for_the_service,
    service_is_unbound_while_its_server_is_down,
    slow_reader_stops_the_writer,
    connections_are_limited,
    signal_ends_the_proxy_in_order,
);

/// A running proxy and its log.
struct Proxy {
    program: Running,
    lines: Receiver<String>,
    /// Address on which the proxy listens.
    listens: String,
}

impl Proxy {
    fn start(place: &Place, arguments: &str) -> Self {
        let arguments = format!("proxy {arguments}");
        let mut command = place.command_of(env!("CARGO_BIN_EXE_utipc"), &arguments);
        let mut program =
            command.env("UTIPC_LOG", "utipc::proxy=debug,warn").stdout(Stdio::null()).spawn().unwrap();
        let log = BufReader::new(program.stderr.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut proxy = Self { program: Running(program), lines, listens: String::new() };
        let line = proxy.wait_for(" leads to ");
        let address = line.split(" leads to ").next().unwrap().rsplit(' ').next().unwrap();
        proxy.listens = address.to_owned();
        proxy
    }

    /// Waits for a line of the log.
    fn wait_for(&self, text: &str) -> String {
        let (start, mut seen) = (Instant::now(), String::new());
        while let Ok(line) = self.lines.recv_timeout(LIMIT.saturating_sub(start.elapsed())) {
            if line.contains(text) {
                return line;
            }
            seen += &(line + "\n");
        }
        panic!("the log lacks {text:?}: {seen}");
    }

    fn connect(&self) -> TcpStream {
        connect(self.tcp())
    }

    /// Host and port of a proxy that listens on TCP.
    fn tcp(&self) -> &str {
        self.listens.strip_prefix("tcp:").unwrap()
    }

    fn stop(mut self) {
        self.program.signal(Signal::SIGTERM);
        assert!(self.program.end().success());
    }
}

fn connect(to: &str) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    limit(&stream);
    stream
}

fn limit(stream: &TcpStream) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
}

/// A loopback address that no other test uses: none reuses a port that was closed on it.
fn own_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.{}:0", 64 | high & 63, NEXT.fetch_add(1, Ordering::Relaxed))
}

fn server() -> (TcpListener, String) {
    let listener = TcpListener::bind(own_address()).unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    (listener, address)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    limit(&stream);
    stream
}

/// A TCP server as a service, and a proxy through which TCP clients reach it.
fn chain(place: &Place, options: &str) -> (TcpListener, Proxy, Proxy) {
    let (listener, address) = server();
    let there = Proxy::start(place, &format!("--listen service:5000:1 --connect {address} {options}"));
    let here =
        Proxy::start(place, &format!("--listen tcp:{} --connect service:5000:1 {options}", own_address()));
    there.wait_for(" is open");
    here.wait_for(" is open");
    // The probe of the server.
    drop(accept(&listener));
    (listener, there, here)
}

fn bytes_pass_through_two_proxies_in_both_directions(engine: Engine) {
    let place = Place::new(engine);
    for options in ["", "--half-close --threads 2"] {
        let (listener, there, here) = chain(&place, options);
        let (data, address) = (noise(3 << 20), here.tcp());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut stream = accept(&listener);
                    let mut back = stream.try_clone().unwrap();
                    assert_eq!(
                        std::io::copy(&mut Read::by_ref(&mut stream).take(3 << 20), &mut back).unwrap(),
                        3 << 20
                    );
                });
                scope.spawn(|| {
                    let mut client = connect(address);
                    let mut sender = client.try_clone().unwrap();
                    let data = &data;
                    scope.spawn(move || sender.write_all(data).unwrap());
                    let mut copy = Vec::new();
                    // The server's end is the end of the connection.
                    client.read_to_end(&mut copy).unwrap();
                    assert!(copy == *data, "what arrived is not what was sent");
                });
            }
        });
        here.stop();
        there.stop();
    }
}

fn half_close_passes_between_two_proxies(engine: Engine) {
    let place = Place::new(engine);
    let (listener, there, here) = chain(&place, "--half-close");
    let mut client = here.connect();
    let mut stream = accept(&listener);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    stream.write_all(text.to_uppercase().as_bytes()).unwrap();
    drop(stream);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "ALL OF IT");
    // The other way round: the server ends first.
    let mut client = here.connect();
    let mut stream = accept(&listener);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.write_all(b"later").unwrap();
    drop(client);
    text.clear();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "later");
    // A proxy without the option at one end.
    let other = Proxy::start(&place, &format!("--listen tcp:{} --connect service:5000:1", own_address()));
    other.wait_for(" is open");
    let mut client = other.connect();
    client.write_all(b"not a proxy").unwrap();
    there.wait_for("does not use --half-close");
    // The connection ends, in whatever way.
    let _ = client.read_to_end(&mut Vec::new());
}

fn reply_passes_after_the_client_has_ended(engine: Engine) {
    let place = Place::new(engine);
    let (listener, _there, here) = chain(&place, "");
    let mut client = here.connect();
    let mut stream = accept(&listener);
    client.write_all(b"request").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut request = [0; 7];
    stream.read_exact(&mut request).unwrap();
    stream.write_all(b"reply").unwrap();
    drop(stream);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "reply");
    // A service that does not end is left after --linger.
    let impatient =
        Proxy::start(&place, &format!("--listen tcp:{} --connect service:5000:1 --linger 0", own_address()));
    impatient.wait_for(" is open");
    let mut client = impatient.connect();
    let _stream = accept(&listener);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// The connection may have ended before the proxy learns that it was set up.
fn server_that_ends_at_once_is_heard(engine: Engine) {
    const CLIENTS: usize = 100;
    let place = Place::new(engine);
    let (listener, _there, here) = chain(&place, "");
    // Not in a thread scope: after a failure it may wait for a client for ever.
    thread::spawn(move || (0..CLIENTS).for_each(|_| accept(&listener).write_all(b"at once").unwrap()));
    for number in 0..CLIENTS {
        let mut text = String::new();
        let read = here.connect().read_to_string(&mut text);
        assert!(read.is_ok() && text == "at once", "client {number}: {read:?}, {text:?}");
    }
}

fn reply_passes_while_the_client_still_sends(engine: Engine) {
    let place = Place::new(engine);
    let (listener, _there, here) = chain(&place, "");
    let data = noise(1 << 20);
    for _ in 0..5 {
        let mut client = here.connect();
        let mut stream = accept(&listener);
        let mut sender = client.try_clone().unwrap();
        thread::scope(|scope| {
            // The server takes no more than the beginning of what the client sends.
            scope.spawn(|| {
                stream.read_exact(&mut [0; 1000]).unwrap();
                stream.write_all(&data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
            scope.spawn(move || while sender.write_all(&[1; 1000]).is_ok() {});
            let mut reply = Vec::new();
            let read = client.read_to_end(&mut reply);
            client.shutdown(Shutdown::Both).ok();
            assert!(read.is_ok() && reply == data, "{read:?} after {} bytes", reply.len());
        });
    }
}

fn clients_are_refused_while_the_service_is_absent(engine: Engine) {
    let place = Place::new(engine);
    let here = Proxy::start(&place, &format!("--listen tcp:{} --connect service:5000:1", own_address()));
    here.wait_for(" is closed");
    let refused = TcpStream::connect(here.tcp()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let path = place.file("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let arguments = format!("--listen service:5000:1 --connect unix:{}", path.display());
    let there = Proxy::start(&place, &arguments);
    here.wait_for(" is open");
    drop(listener.accept().unwrap());
    let mut client = here.connect();
    let mut stream = listener.accept().unwrap().0;
    stream.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    // The death of the backend's proxy ends the connection and closes the listening socket.
    drop(there);
    assert!(!matches!(client.read(&mut [0]), Ok(1..)));
    here.wait_for(" is down");
    here.wait_for(" is closed");
    assert!(TcpStream::connect(here.tcp()).is_err());
}

fn clients_wait_for_the_service(engine: Engine) {
    let place = Place::new(engine);
    let path = place.file("front.sock");
    let arguments =
        format!("--listen unix:{} --connect service:5000:1 --when-down wait --wait 60", path.display());
    let here = Proxy::start(&place, &arguments);
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.write_all(b"early").unwrap();
    here.wait_for("has connected");
    let (listener, address) = server();
    let there =
        Proxy::start(&place, &format!("--listen service:5000:1 --connect {address} --when-down wait"));
    drop(accept(&listener));
    let mut stream = accept(&listener);
    let mut text = [0; 5];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"early");
    here.stop();
    assert!(!path.exists(), "the socket's file is removed");
    there.stop();
    // Without a server for too long, the client is reset.
    let late =
        Proxy::start(&place, "--listen tcp:127.0.0.1:0 --connect service:5000:2 --when-down wait --wait 0");
    assert!(!matches!(late.connect().read(&mut [0]), Ok(1..)));
    late.wait_for("cannot connect to service:5000:2");
}

fn service_is_unbound_while_its_server_is_down(engine: Engine) {
    let place = Place::new(engine);
    let (listener, address) = server();
    let there = Proxy::start(&place, &format!("--listen service:5000:1 --connect {address}"));
    there.wait_for(" is open");
    drop(accept(&listener));
    let at = listener.local_addr().unwrap();
    drop(listener);
    // This client finds out.
    let _ = place.start("-w -1 -t 5000 1").end();
    there.wait_for(" is down");
    there.wait_for(" is closed");
    let refused = place.start("-t 5000 1").end();
    assert!(!refused.success());
    let _listener = TcpListener::bind(at).unwrap();
    there.wait_for(" is up");
    there.wait_for(" is open");
    place.wait_for("-t 5000 1", 1);
}

fn slow_reader_stops_the_writer(engine: Engine) {
    const MOST: usize = 256 << 20;
    let place = Place::new(engine);
    let (listener, _there, here) = chain(&place, "");
    let mut client = here.connect();
    let mut stream = accept(&listener);
    client.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let (block, mut sent) = (noise(1 << 20), 0);
    while let Ok(len) = client.write(&block[sent % block.len()..]) {
        sent += len;
        assert!(sent < MOST, "the proxies hold everything");
    }
    client.shutdown(Shutdown::Write).unwrap();
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    while received < sent {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "{received} of {sent} bytes");
        for byte in &buffer[..len] {
            assert_eq!(*byte, block[received % block.len()]);
            received += 1;
        }
    }
}

fn connections_are_limited(engine: Engine) {
    let place = Place::new(engine);
    let (listener, _there, here) = chain(&place, "--max-connections 1");
    let first = here.connect();
    let stream = accept(&listener);
    let mut second = here.connect();
    second.write_all(b"second").unwrap();
    here.wait_for("further clients wait");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the second client has to wait");
    listener.set_nonblocking(false).unwrap();
    drop((first, stream));
    let mut text = [0; 6];
    accept(&listener).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"second");
}

fn signal_ends_the_proxy_in_order(engine: Engine) {
    let place = Place::new(engine);
    let (listener, _there, mut here) = chain(&place, "--grace 60");
    let mut client = here.connect();
    let mut stream = accept(&listener);
    here.program.signal(Signal::SIGTERM);
    here.wait_for("open connections: 1");
    // An open connection goes on.
    stream.write_all(b"last").unwrap();
    drop(stream);
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last");
    drop(client);
    assert!(here.program.end().success());
}

#[test]
fn proxy_errors_are_one_line() {
    let place = Place::new(Engine::Embedded);
    let (listener, taken) = server();
    for (arguments, code, why) in [
        ("--listen tcp:127.0.0.1:0 --connect tcp:127.0.0.1:1".to_owned(), 2, "exactly one of them"),
        ("--listen tcp:127.0.0.1:0 --connect service:5000:1-2".to_owned(), 2, "one instance"),
        (format!("--listen {taken} --connect service:5000:1"), 1, "another program listens there"),
        ("--listen unix:/nonexistent/x --connect service:5000:1".to_owned(), 1, "create the folder"),
    ] {
        let mut command = place.command_of(env!("CARGO_BIN_EXE_utipc"), &format!("proxy {arguments}"));
        let mut program = Running(command.env("UTIPC_LOG", "off").spawn().unwrap());
        let status = program.end();
        let error = program.said();
        assert_eq!(status.code(), Some(code), "{error}");
        assert!(error.starts_with("utipc: cannot ") && error.contains(why), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    drop(listener);
    let usage = place.command_of(env!("CARGO_BIN_EXE_utipc"), "proxy --listen 8080 --connect service:1:1");
    let mut program = Running({ usage }.spawn().unwrap());
    assert_eq!(program.end().code(), Some(2));
    assert!(program.said().contains("tcp:HOST:PORT"));
}
