//! Two kernels, each in a private network, that talk through two devices.

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use forebay_os::netns::{Interface, PrivateNetwork, PrivateNetworkError};
use forebay_os::poll;

use super::*;
use crate::device::PacketPool;
use crate::device::testing::packet;

const TEST: &str = "device::tun::kernel_tests::two_kernels_talk_at_full_size";
const ROLE: &str = "FOREBAY_TUN_TEST_ROLE";
const BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn two_kernels_talk_at_full_size() {
    match env::var(ROLE).as_deref() {
        Ok("server") => return serve(),
        Ok(_) => return call(),
        Err(_) => {}
    }
    let (Some((mut server, left)), Some((mut client, right))) = (
        network("server", "10.9.0", "fd09:0", 2),
        network("client", "10.9.1", "fd09:1", 1),
    ) else {
        return;
    };
    let mut devices = [
        TunDevice::new(left, 1_500, true),
        TunDevice::new(right, 1_500, true),
    ];
    let large = carry(&mut devices, &mut client);
    assert!(
        server
            .wait()
            .expect("the server can be waited for")
            .success()
    );
    assert!(large > 0, "the kernels left segmentation to the devices");
    for device in &devices {
        let stats = device.stats();
        assert_eq!(
            (stats.bad.total(), stats.tx_errors, stats.rx_dropped),
            (0, 0, 0),
            "{stats:?}"
        );
        assert!(stats.rx_packets > 0 && stats.tx_packets > 0);
    }
}

#[test]
fn an_interface_may_be_down_and_may_go() {
    const TEST: &str = "device::tun::kernel_tests::an_interface_may_be_down_and_may_go";
    if env::var_os(ROLE).is_none() {
        let mut command = Command::new(env::current_exe().expect("this is an executable"));
        command
            .args(["--exact", TEST, "--nocapture"])
            .env(ROLE, "inside");
        let child = PrivateNetwork::new().spawn(command);
        let Some(mut child) = unless_refused(child) else {
            return;
        };
        assert!(child.wait().expect("the child can be waited for").success());
        return;
    }
    let config = TunConfig {
        name: "tun0".to_owned(),
        queues: 1,
        offload: true,
    };
    let Some(mut device) =
        unless_refused(TunDevice::open(&config, 1_500).map_err(PrivateNetworkError::Tun))
    else {
        return;
    };
    let mut cache = PacketPool::new(64).cache();
    let mut packets = PacketQueue::new();
    packets.push(packet(&mut cache, &[0x45; 20]));
    device
        .transmit(Instant::ZERO, &mut packets, &mut cache)
        .expect("being down is no end");
    assert!(packets.is_empty());
    assert_eq!(
        (device.stats().tx_packets, device.stats().tx_dropped),
        (0, 1)
    );
    let taken = device.receive(Instant::ZERO, &mut cache, &mut packets, 64);
    assert_eq!(taken.expect("being down is no end"), 0);

    let deleted = Command::new("ip").args(["link", "delete", "tun0"]).status();
    if !deleted.is_ok_and(|status| status.success()) {
        eprintln!("not tested: no `ip` to delete a link with");
        return;
    }
    let error = device
        .receive(Instant::ZERO, &mut cache, &mut packets, 64)
        .expect_err("gone");
    assert_eq!((error.kind(), error.to_string().as_str()), GONE);
    packets.push(packet(&mut cache, &[0x45; 20]));
    let error = device
        .transmit(Instant::ZERO, &mut packets, &mut cache)
        .expect_err("gone");
    assert_eq!((error.kind(), error.to_string().as_str()), GONE);
}

const GONE: (ErrorKind, &str) = (ErrorKind::NotConnected, "TUN device tun0 was deleted");

/// Carries packets from each device to the other until `client` ends, which must be well. Returns
/// how many of them stood for several.
fn carry(devices: &mut [TunDevice; 2], client: &mut Child) -> usize {
    let mut cache = PacketPool::new(16_384).cache();
    let mut packets = PacketQueue::new();
    let mut large = 0;
    loop {
        let mut taken = 0;
        for from in 0..2 {
            taken += devices[from]
                .receive(Instant::ZERO, &mut cache, &mut packets, 64)
                .expect("the interface exists");
            large += packets.iter().filter(|packet| packet.gso.is_some()).count();
            devices[1 - from]
                .transmit(Instant::ZERO, &mut packets, &mut cache)
                .expect("the interface exists");
            assert!(packets.is_empty());
        }
        if taken == 0 {
            if let Some(status) = client.try_wait().expect("the client can be waited for") {
                assert!(status.success());
                return large;
            }
            let mut fds = Vec::new();
            devices.iter().for_each(|device| device.fds(&mut fds));
            poll::wait(&fds, Some(Duration::from_millis(10))).expect("descriptors can be polled");
        }
    }
}

/// A private network with this test in another role inside; `None` where the machine permits none
/// and none is demanded.
fn network(role: &str, v4: &str, v6: &str, queues: usize) -> Option<(Child, Tun)> {
    let address = |text: String| text.parse().expect("an address");
    let config = TunConfig {
        name: "tun0".to_owned(),
        queues,
        offload: true,
    };
    let interface = Interface::new(config)
        .address(address(format!("{v4}.2")), 24)
        .address(address(format!("{v6}::2")), 64)
        .default_via(address(format!("{v4}.1")))
        .default_via(address(format!("{v6}::1")));
    let mut command = Command::new(env::current_exe().expect("this is an executable"));
    command
        .args(["--exact", TEST, "--nocapture"])
        .env(ROLE, role);
    unless_refused(PrivateNetwork::new().spawn_with(command, &interface))
}

fn unless_refused<T>(result: Result<T, PrivateNetworkError>) -> Option<T> {
    match result {
        Ok(it) => Some(it),
        Err(error @ (PrivateNetworkError::Tun(_) | PrivateNetworkError::Step { .. })) => {
            let demanded = env::var_os("FOREBAY_REQUIRE_NET").is_some_and(|value| value == "1");
            assert!(!demanded, "{error}");
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => unreachable!("{error}"),
    }
}

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| (at % 251) as u8).collect()
}

fn serve() {
    for address in ["10.9.0.2:5000", "[fd09:0::2]:5000"] {
        let listener = TcpListener::bind(address).expect("the address is ours");
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let mut received = Vec::new();
        stream
            .read_to_end(&mut received)
            .expect("the client goes on");
        assert!(received == pattern(), "{} bytes", received.len());
        stream.write_all(b"right").expect("the client waits");
    }
}

fn call() {
    for address in ["10.9.0.2:5000", "[fd09:0::2]:5000"] {
        let mut stream = connect(address);
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.write_all(&pattern()).expect("the server takes it");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("it is connected");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the server answers");
        assert_eq!(answer, "right");
    }
}

/// The server may not be listening yet.
fn connect(address: &str) -> TcpStream {
    let start = std::time::Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
