//! Slow consumers, and clients that send invalid bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::chain::{Backbone, LONG, Program, clients, settled, until};
use crate::load_common::publisher;

#[test]
fn slow_consumer_is_disconnected_with_a_reason_and_delays_no_other() {
    let (backbone, provider) = (Backbone::new(), publisher(5_000));
    let upstream = provider.address().unwrap().to_string();
    let settings = std::env::temp_dir().join(format!("mdist-slow-{}.toml", std::process::id()));
    std::fs::write(&settings, "[p2ps]\nguaranteed-output-buffers = 50\nmax-output-buffers = 500\npool-size = 2000\nsend-buffer-kib = 64\n").unwrap();
    let server = Program::p2ps(
        "127.0.0.1:0".parse().unwrap(),
        &backbone,
        &["--provider", &upstream, "--config", settings.to_str().unwrap()],
    );
    let good = clients(server.addresses[0], 1_000, |options| options.reconnect = None);
    good.loaded(LONG).unwrap();
    let slow = clients(server.addresses[0], 1_000, |options| {
        options.reconnect = None;
        options.slow = Some(10_000);
        options.user = "slow-user".into();
    });
    until(&slow, "the slow consumer is disconnected", |seen| seen.counts.cuts > 0);
    let page = server.page("/disconnects");
    assert!(page.contains("\"reason\": \"overflow\"") && page.contains("slow-user"), "{page}");
    assert_eq!(good.snapshot().counts.cuts, 0, "{:?}", good.disconnect_reasons());
    settled(&provider, &good);
    let _ = std::fs::remove_file(settings);
}

#[test]
fn invalid_bytes_disconnect_only_their_sender() {
    let (backbone, provider) = (Backbone::new(), publisher(20_000));
    let upstream = provider.address().unwrap().to_string();
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &["--provider", &upstream]);
    let good = clients(server.addresses[0], 1_000, |options| options.reconnect = None);
    good.loaded(LONG).unwrap();

    // A valid handshake (Spec: rssl.md §13.2), then random bytes.
    let connect = [
        0x00, 0x28, 0x00, 0x00, 0x00, 0x00, 0x17, 0x08, 0x1f, 0x00, 0x3c, 0x00, 0x00, 0x0e, 0x01, 0x05, 0x68,
        0x6f, 0x73, 0x74, 0x31, 0x09, 0x31, 0x32, 0x37, 0x2e, 0x30, 0x2e, 0x30, 0x2e, 0x31, 0x08, 0x07, 0x72,
        0x72, 0x73, 0x2d, 0x30, 0x2e, 0x31, 0x00, 0x04, 0x08, 0x00,
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200 {
        let mut socket = TcpStream::connect(server.addresses[0]).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut bytes = if round % 4 == 0 { Vec::new() } else { connect.to_vec() };
        let mut noise: Vec<u8> = (0..64)
            .map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 56) as u8
            })
            .collect();
        if round % 2 == 0 {
            // A frame of valid length around an invalid message.
            noise[..5].copy_from_slice(&[0, 64, 2, 0, 59]);
        }
        bytes.extend(noise);
        // Fails if the server disconnects before everything is written.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let start = Instant::now();
        while !matches!(socket.read(&mut [0; 4096]), Ok(0) | Err(_)) {
            assert!(start.elapsed() < LONG);
        }
    }
    assert_eq!(good.snapshot().counts.cuts, 0, "{:?}", good.disconnect_reasons());
    settled(&provider, &good);
}
