//! Options: what they are, what they are set to, and who has them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::{Algorithm, TcpListener, TcpSocket, TcpState, TcpStream};

use crate::{Host, connected, everywhere};

fn socket(host: &Host) -> TcpSocket {
    let socket = match host.addr.is_ipv4() {
        true => TcpSocket::new_v4(&host.stack),
        false => TcpSocket::new_v6(&host.stack),
    };
    socket.expect("a socket")
}

/// Sets and reads back what all three kinds of sockets have.
macro_rules! set_and_read {
    ($socket:expr) => {{
        let socket = $socket;
        for on in [true, false, true] {
            socket.set_nodelay(on).expect("open");
            socket.set_keepalive(on).expect("open");
            socket.set_oob_inline(on).expect("open");
            let told = [
                socket.nodelay().expect("open"),
                socket.keepalive().expect("open"),
                socket.oob_inline().expect("open"),
            ];
            assert_eq!(told, [on; 3]);
        }
        socket
            .set_keepalive_idle(Duration::from_secs(77))
            .expect("in range");
        socket
            .set_keepalive_interval(Duration::from_secs(7))
            .expect("in range");
        socket.set_keepalive_count(3).expect("in range");
        socket
            .set_user_timeout(Duration::from_millis(1_234))
            .expect("in range");
        socket
            .set_linger(Some(Duration::from_secs(2)))
            .expect("open");
        socket.set_ttl(44).expect("in range");
        assert_eq!(
            socket.set_ttl(0).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            socket.set_ttl(256).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        socket.set_tos(0x28).expect("open");
        socket.set_congestion(Algorithm::Reno).expect("known");
        socket.set_max_pacing_rate(Some(50_000_000)).expect("open");
        assert_eq!(socket.set_recv_buffer_size(50_000).expect("open"), 100_000);
        assert_eq!(socket.set_send_buffer_size(40_000).expect("open"), 80_000);
    }};
}

/// All of it, as it was set.
macro_rules! check {
    ($socket:expr) => {{
        let socket = $socket;
        assert!(socket.nodelay().expect("open"));
        assert!(socket.keepalive().expect("open"));
        assert!(socket.oob_inline().expect("open"));
        let durations = [
            socket.keepalive_idle().expect("open"),
            socket.keepalive_interval().expect("open"),
            socket.user_timeout().expect("open"),
            socket.linger().expect("open").expect("set"),
        ];
        assert_eq!(
            durations.map(|time| time.as_millis()),
            [77_000, 7_000, 1_234, 2_000]
        );
        assert_eq!(socket.keepalive_count().expect("open"), 3);
        assert_eq!(socket.ttl().expect("open"), 44);
        assert_eq!(socket.tos().expect("open"), 0x28);
        assert_eq!(socket.congestion().expect("open"), Algorithm::Reno);
        assert_eq!(socket.max_pacing_rate().expect("open"), Some(50_000_000));
        assert_eq!(socket.recv_buffer_size().expect("open"), 100_000);
        assert_eq!(socket.send_buffer_size().expect("open"), 80_000);
    }};
}

#[test]
fn a_connection_has_its_listeners() {
    everywhere(|left, right| {
        let fresh = socket(right);
        set_and_read!(&fresh);
        fresh.bind(right.at(9)).expect("free");
        let listener = fresh.listen(16).expect("alone");
        check!(&listener);
        let client = left.connect(right.at(9));
        let (server, _) = listener.accept().expect("a connection");
        check!(&server);
        // Those of the other end are its own.
        assert!(!client.nodelay().expect("open"));
        assert_eq!(client.ttl().expect("open"), 64);
    });
}

#[test]
fn each_kind_of_socket_can_be_set() {
    everywhere(|left, right| {
        let (client, server) = connected(left, right);
        set_and_read!(&client);
        check!(&client);
        check!(&client.try_clone().expect("a clone"));
        assert!(!server.nodelay().expect("open"));
        let listener = right.listen(0);
        set_and_read!(&listener);
        check!(&listener);

        for on in [true, false] {
            client.set_cork(on).expect("open");
            assert_eq!(client.cork().expect("open"), on);
        }
        client.set_quickack(true).expect("open");
        assert!(client.quickack().expect("open"));
        client.set_linger(None).expect("open");
        assert_eq!(client.linger().expect("open"), None);
        client.set_max_pacing_rate(None).expect("open");
        assert_eq!(client.max_pacing_rate().expect("open"), None);
        let time = Duration::from_micros(50);
        client.set_busy_poll(time).expect("in range");
        assert_eq!(client.busy_poll(), time);
        let info = client.info().expect("connected");
        assert_eq!(info.state, TcpState::Established);
        assert_eq!(info.congestion, Algorithm::Reno);
    });
}

#[test]
fn what_must_be_set_before() {
    everywhere(|left, right| {
        let is_v4 = right.addr.is_ipv4();
        let fresh = socket(right);
        fresh.set_reuse_address(true).expect("open");
        fresh.set_transparent(true).expect("open");
        fresh.set_freebind(true).expect("open");
        fresh.set_max_segment(700).expect("in range");
        match is_v4 {
            true => assert!(fresh.set_only_v6(true).is_err()),
            false => fresh.set_only_v6(true).expect("not bound"),
        }
        fresh.bind(right.at(9)).expect("free");
        assert_eq!(
            fresh.bind(right.at(10)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(fresh.local_addr().expect("bound"), right.at(9));
        let listener = fresh.listen(4).expect("alone");
        let told = [
            listener.reuse_address().expect("open"),
            listener.transparent().expect("open"),
            listener.freebind().expect("open"),
            listener.only_v6().expect("open"),
        ];
        assert_eq!(told, [true, true, true, !is_v4]);
        let client = left.connect(right.at(9));
        listener.accept().expect("a connection");
        let info = client.info().expect("connected");
        assert!(info.snd_mss <= 700, "{info:?}");
    });
}

#[test]
fn a_connection_from_an_address_that_was_chosen() {
    everywhere(|left, right| {
        let listener = right.listen(9);
        let fresh = socket(left);
        fresh.bind(left.at(4_321)).expect("free");
        let client = fresh.connect(right.at(9)).expect("somebody who listens");
        assert_eq!(client.local_addr().expect("bound"), left.at(4_321));
        let (_server, from) = listener.accept().expect("a connection");
        assert_eq!(from, left.at(4_321));
        // Another to the same peer has no place.
        let fresh = socket(left);
        fresh.set_reuse_address(true).expect("open");
        let bound = fresh.bind(left.at(4_321));
        assert!(bound.is_err() || fresh.connect(right.at(9)).is_err());
    });
}

#[test]
fn a_group_shares_a_port() {
    everywhere(|left, right| {
        let member = || {
            let fresh = socket(right);
            fresh.set_reuse_port(true).expect("open");
            fresh.bind(right.at(9)).expect("shared");
            let listener = fresh.listen(64).expect("shared");
            listener.set_nonblocking(true).expect("open");
            listener
        };
        let group = [member(), member(), member()];
        assert!(TcpListener::bind(&right.stack, right.at(9)).is_err());
        let clients: Vec<TcpStream> = (0..60).map(|_| left.connect(right.at(9))).collect();
        let mut waiting: Vec<SocketAddr> = clients
            .iter()
            .map(|client| client.local_addr().expect("bound"))
            .collect();
        let began = std::time::Instant::now();
        let mut counts = [0; 3];
        while !waiting.is_empty() {
            assert!(began.elapsed() < crate::PATIENCE, "{waiting:?}");
            for (listener, count) in group.iter().zip(&mut counts) {
                while let Ok((_, from)) = listener.accept() {
                    waiting.retain(|addr| *addr != from);
                    *count += 1;
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
    });
}

#[test]
fn a_device_is_the_only_way() {
    everywhere(|left, right| {
        let (client, _server) = connected(left, right);
        assert_eq!(client.device().expect("open"), None);
        for (port, device) in [(9, "wire0"), (10, "lo")] {
            let fresh = socket(right);
            let none = fresh.bind_device(Some("wire7")).unwrap_err();
            assert_eq!(none.kind(), ErrorKind::NotFound);
            fresh.bind_device(Some(device)).expect("there");
            fresh.bind(right.at(port)).expect("free");
            let late = fresh.bind_device(None).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::InvalidInput);
            let listener = fresh.listen(4).expect("alone");
            let told = listener.device().expect("there");
            assert_eq!(told.as_deref(), Some(device));
            match TcpStream::connect(&left.stack, right.at(port)) {
                Ok(_) => {
                    assert_eq!(device, "wire0");
                    let (server, _) = listener.accept().expect("a connection");
                    assert_eq!(server.device().expect("there").as_deref(), Some(device));
                }
                Err(refused) => {
                    assert_eq!(device, "lo");
                    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
                }
            }
        }
    });
}
