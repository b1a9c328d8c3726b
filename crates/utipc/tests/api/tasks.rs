//! Sockets in tokio's event loop.

use std::time::Duration;

use crate::common::{Engine, LIMIT, on_each_engine, pair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use utipc::tokio::{Connection, Listener, Socket, Topology};
use utipc::{Change, Error, Node, Scope, ServiceAddress, SocketKind};

on_each_engine!(
    tasks_talk_to_each_other_on_one_thread,
    stream_carries_bytes_while_both_ends_send,
    many_clients_wait_concurrently,
    refused_connection_is_an_error,
    cancelled_receive_loses_no_message,
    task_receives_topology_events,
    topology_is_an_endless_stream,
);

const SERVICE: ServiceAddress = ServiceAddress::new(5200, 1);

/// Runs a test's task on one thread, at most for [`LIMIT`].
fn run(task: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, task).await.expect("the task ends in time") });
}

/// A socket of `blue` that is bound, and that `red` knows.
fn server(red: &Node, blue: &Node) -> Socket {
    let server = blue.rdm().unwrap();
    server.bind(SERVICE, Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    Socket::new(server).unwrap()
}

fn tasks_talk_to_each_other_on_one_thread(engine: Engine) {
    let [red, blue] = pair(engine);
    run(async {
        let server = server(&red, &blue);
        // Clients on another node and on the same one.
        for node in [&red, &blue] {
            let client = Socket::new(node.rdm().unwrap()).unwrap();
            let serve = async {
                for _ in 0..300 {
                    let request = server.receive().await.unwrap();
                    server.send_to(&request.data, request.source).await.unwrap();
                }
            };
            let ask = async {
                for round in 0..300_u32 {
                    client.send_to(&round.to_ne_bytes(), SERVICE).await.unwrap();
                    assert_eq!(client.receive().await.unwrap().data, round.to_ne_bytes());
                }
            };
            tokio::join!(serve, ask);
        }
    });
}

fn stream_carries_bytes_while_both_ends_send(engine: Engine) {
    const TOTAL: usize = 4 << 20;
    let [red, blue] = pair(engine);
    run(async {
        let listener = Listener::new(blue.listen(SocketKind::Stream, SERVICE).unwrap()).unwrap();
        red.wait_for_service(SERVICE, LIMIT).unwrap();
        let (client, server) =
            tokio::join!(Connection::open(red.stream().unwrap(), SERVICE), listener.accept());
        let exchange = |connection: Connection, own: u8, other: u8| async move {
            let (mut read, mut write) = tokio::io::split(connection);
            let push = async {
                let part = vec![own; 50_000];
                let mut sent = 0;
                while sent < TOTAL {
                    let len = part.len().min(TOTAL - sent);
                    write.write_all(&part[..len]).await.unwrap();
                    sent += len;
                }
            };
            let pull = async {
                let mut part = vec![0; 70_000];
                let mut got = 0;
                while got < TOTAL {
                    let len = read.read(&mut part).await.unwrap();
                    assert!(len > 0 && part[..len].iter().all(|byte| *byte == other));
                    got += len;
                }
                assert_eq!(got, TOTAL);
            };
            tokio::join!(push, pull);
            (read, write)
        };
        // Both ends stay open until both have read everything.
        let _ends = tokio::join!(exchange(client.unwrap(), 1, 2), exchange(server.unwrap(), 2, 1));
    });
}

fn many_clients_wait_concurrently(engine: Engine) {
    let [red, blue] = pair(engine);
    run(async {
        let listener = Listener::new(blue.listen(SocketKind::SeqPacket, SERVICE).unwrap()).unwrap();
        red.wait_for_service(SERVICE, LIMIT).unwrap();
        let serve = async {
            let mut connections = Vec::new();
            for _ in 0..30 {
                connections.push(listener.accept().await.unwrap());
            }
            // Reply in reverse order: each client waits for its own reply.
            for connection in connections.iter().rev() {
                let request = connection.receive().await.unwrap();
                connection.send(&request.data).await.unwrap();
            }
            connections
        };
        let clients = (0..30_u32).map(|number| {
            let socket = red.seqpacket().unwrap();
            async move {
                let connection = Connection::open(socket, SERVICE).await.unwrap();
                connection.send(&number.to_ne_bytes()).await.unwrap();
                assert_eq!(connection.receive().await.unwrap().data, number.to_ne_bytes());
            }
        });
        let mut asking = tokio::task::JoinSet::new();
        let local = tokio::task::LocalSet::new();
        for client in clients {
            asking.spawn_local_on(client, &local);
        }
        let (_connections, ()) = tokio::join!(
            serve,
            local.run_until(async {
                while let Some(done) = asking.join_next().await {
                    done.unwrap();
                }
            })
        );
    });
}

fn refused_connection_is_an_error(engine: Engine) {
    let [red, _blue] = pair(engine);
    run(async {
        let bound = red.seqpacket().unwrap();
        bound.bind(SERVICE, Scope::Cluster).unwrap();
        // Bound, but not listening.
        let refused = Connection::open(red.seqpacket().unwrap(), SERVICE).await.unwrap_err();
        assert!(matches!(refused, Error::Connect(_)), "{refused}");
    });
}

fn cancelled_receive_loses_no_message(engine: Engine) {
    let [red, blue] = pair(engine);
    run(async {
        let server = server(&red, &blue);
        let client = red.rdm().unwrap();
        for round in 0..50_u8 {
            let cancelled = timeout(Duration::from_millis(1), server.receive()).await;
            assert!(cancelled.is_err(), "nothing was sent");
            client.send_to(&[round], SERVICE).unwrap();
            assert_eq!(server.receive().await.unwrap().data, [round]);
        }
    });
}

fn task_receives_topology_events(engine: Engine) {
    let [red, blue] = pair(engine);
    run(async {
        let mut topology = red.topology().unwrap();
        topology.services(SERVICE).unwrap();
        let mut topology = Topology::new(topology).unwrap();
        for _ in 0..5 {
            let server = blue.rdm().unwrap();
            let (event, ()) = tokio::join!(topology.next(), async {
                server.bind(SERVICE, Scope::Cluster).unwrap();
            });
            assert_eq!(event.unwrap().change, Change::ServiceUp);
            drop(server);
            assert_eq!(topology.next().await.unwrap().change, Change::ServiceDown);
        }
    });
}

fn topology_is_an_endless_stream(engine: Engine) {
    async fn next(stream: &mut Topology) -> Option<utipc::Result<utipc::Event>> {
        std::future::poll_fn(|cx| futures_core::Stream::poll_next(std::pin::Pin::new(stream), cx)).await
    }
    let [red, blue] = pair(engine);
    run(async {
        let mut topology = red.topology_of(blue.address()).unwrap();
        topology.services(SERVICE).unwrap();
        let mut topology = Topology::new(topology).unwrap();
        let server = blue.rdm().unwrap();
        let (event, ()) = tokio::join!(next(&mut topology), async {
            // The stream waits first.
            tokio::task::yield_now().await;
            server.bind(SERVICE, Scope::Cluster).unwrap();
        });
        assert_eq!(event.unwrap().unwrap().change, Change::ServiceUp);
        drop(server);
        assert_eq!(next(&mut topology).await.unwrap().unwrap().change, Change::ServiceDown);
        drop(blue);
        assert!(matches!(next(&mut topology).await, Some(Err(Error::TopologyClosed { .. }))));
        assert!(next(&mut topology).await.is_none());
    });
}
