//! The library's UDP sockets between two stacks on a wire, each driven by a worker of its own: what
//! a program written for std's sockets relies on.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use forebay::device::wire::{WireConfig, wire};
use forebay::{Stack, UdpOptions, UdpSocket, Workers, fib};

/// Long enough for a datagram to cross the wire on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// Long enough to see that nothing comes.
const GRACE: Duration = Duration::from_millis(30);

/// One end of the wire.
struct Host {
    stack: Stack,
    v4: IpAddr,
    v6: IpAddr,
    _worker: Workers,
}

impl Host {
    fn new(device: forebay::device::wire::WireEnd, number: u8) -> Self {
        let stack = Stack::builder()
            .buffers(4_096)
            .reserve(1_024)
            .seed([1, u64::from(number)])
            .build()
            .expect("a stack");
        let ifindex = stack.add_device("wire0", device).expect("a device");
        let (v4, v6) = (
            IpAddr::from([10, 0, 0, number]),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]),
        );
        let inner = stack.inner();
        inner.add_address(ifindex, v4, 24).expect("an address");
        inner.add_address(ifindex, v6, 64).expect("an address");
        let worker = stack.spawn_workers().expect("a worker");
        Self {
            stack,
            v4,
            v6,
            _worker: worker,
        }
    }

    /// A socket that gives up after a while.
    fn bind(&self, addr: SocketAddr) -> UdpSocket {
        let socket = UdpSocket::bind(&self.stack, addr).expect("a free address");
        socket
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout that is not zero");
        socket
    }
}

fn hosts() -> (Host, Host) {
    let (left, right) = wire(WireConfig::default());
    (Host::new(left, 1), Host::new(right, 2))
}

/// Both families' addresses of the hosts.
fn families(left: &Host, right: &Host) -> [(IpAddr, IpAddr); 2] {
    [(left.v4, right.v4), (left.v6, right.v6)]
}

fn at(addr: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(addr, port)
}

#[track_caller]
fn text(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut buf = [0; 256];
    let (len, from) = socket.recv_from(&mut buf).expect("a datagram");
    (String::from_utf8_lossy(&buf[..len]).into_owned(), from)
}

fn hears_nothing(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(GRACE)).expect("a timeout");
    let result = socket.recv_from(&mut [0; 16]);
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn datagrams_go_there_and_answers_come_back() {
    let (left, right) = hosts();
    for (own, peer) in families(&left, &right) {
        let server = right.bind(at(peer, 7));
        let client = left.bind(at(own, 0));
        for size in [0, 1, 1_400, 3_000, 20_000] {
            let payload: Vec<u8> = (0..size).map(|n| n as u8).collect();
            assert_eq!(client.send_to(&payload, at(peer, 7)).expect("sent"), size);
            let mut buf = vec![0; 65_535];
            let (len, from) = server.recv_from(&mut buf).expect("a datagram");
            assert_eq!(
                (&buf[..len], from),
                (&payload[..], client.local_addr().expect("bound"))
            );
            server.send_to(&buf[..len], from).expect("sent");
            let (len, from) = client.recv_from(&mut buf).expect("an answer");
            assert_eq!((&buf[..len], from), (&payload[..], at(peer, 7)));
        }
    }
}

#[test]
fn the_largest_datagram_passes_and_a_larger_one_is_refused() {
    let (left, right) = hosts();
    for ((own, peer), most) in families(&left, &right).into_iter().zip([65_507, 65_527]) {
        let server = right.bind(at(peer, 7));
        let client = left.bind(at(own, 0));
        client.send_to(&vec![7; most], at(peer, 7)).expect("sent");
        let mut buf = vec![0; 70_000];
        assert_eq!(server.recv_from(&mut buf).expect("a datagram").0, most);
        let error = client
            .send_to(&vec![7; most + 1], at(peer, 7))
            .expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_short_buffer_loses_the_tail_and_peeking_loses_nothing() {
    let (left, right) = hosts();
    let server = right.bind(at(right.v4, 7));
    let client = left.bind(at(left.v4, 0));
    client
        .send_to(b"0123456789", at(right.v4, 7))
        .expect("sent");
    client.send_to(b"next", at(right.v4, 7)).expect("sent");
    let mut buf = [0; 4];
    for _ in 0..2 {
        let (len, from) = server.peek_from(&mut buf).expect("a datagram");
        assert_eq!(
            (&buf[..len], from),
            (&b"0123"[..], client.local_addr().expect("bound"))
        );
    }
    assert_eq!(server.recv_from(&mut buf).expect("a datagram").0, 4);
    assert_eq!(text(&server).0, "next");
}

#[test]
fn timeouts_are_kept_and_zero_is_none() {
    let (left, _right) = hosts();
    let socket = left.bind(at(left.v4, 0));
    for wait in [Duration::from_millis(20), Duration::from_millis(60)] {
        socket.set_read_timeout(Some(wait)).expect("a timeout");
        assert_eq!(socket.read_timeout().expect("a timeout"), Some(wait));
        let started = Instant::now();
        let error = socket.recv_from(&mut [0; 16]).expect_err("nothing comes");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(started.elapsed() >= wait);
    }
    let error = socket
        .set_read_timeout(Some(Duration::ZERO))
        .expect_err("zero");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    socket.set_read_timeout(None).expect("no timeout");
    assert_eq!(socket.read_timeout().expect("a timeout"), None);
}

#[test]
fn a_non_blocking_socket_returns_at_once() {
    let (left, right) = hosts();
    let server = right.bind(at(right.v6, 7));
    server.set_nonblocking(true).expect("an option");
    let mut buf = [0; 16];
    let would_block = |result: std::io::Result<usize>| {
        assert_eq!(result.expect_err("nothing").kind(), ErrorKind::WouldBlock);
    };
    would_block(server.recv(&mut buf));
    would_block(server.peek(&mut buf));
    let client = left.bind(at(left.v6, 0));
    client.send_to(b"come", at(right.v6, 7)).expect("sent");
    let started = Instant::now();
    let len = loop {
        match server.recv(&mut buf) {
            Ok(len) => break len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(started.elapsed() < PATIENCE);
        thread::yield_now();
    };
    assert_eq!(buf[..len], *b"come");
    server.set_nonblocking(false).expect("an option");
    assert!(hears_nothing(&server));
}

#[test]
fn a_blocked_reader_wakes_for_a_datagram() {
    let (left, right) = hosts();
    let server = right.bind(at(right.v4, 7));
    let client = left.bind(at(left.v4, 0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| text(&server).0);
        thread::sleep(GRACE);
        client.send_to(b"wake up", at(right.v4, 7)).expect("sent");
        assert_eq!(reader.join().expect("no panic"), "wake up");
    });
}

#[test]
fn a_handle_that_goes_while_another_blocks_does_not_end_the_socket() {
    let (left, right) = hosts();
    let server = right.bind(at(right.v4, 7));
    let client = left.bind(at(left.v4, 0));
    let clone = server.try_clone().expect("a clone");
    let reader = thread::spawn(move || text(&clone).0);
    thread::sleep(GRACE);
    drop(server);
    client
        .send_to(b"still here", at(right.v4, 7))
        .expect("sent");
    assert_eq!(reader.join().expect("no panic"), "still here");
    // With the last handle the port is free.
    right.bind(at(right.v4, 7));
}

#[test]
fn clones_share_the_socket_and_its_options() {
    let (left, right) = hosts();
    let server = right.bind(at(right.v4, 7));
    let clone = server.try_clone().expect("a clone");
    assert_eq!(clone.local_addr().expect("bound"), at(right.v4, 7));
    clone.set_nonblocking(true).expect("an option");
    let error = server.recv_from(&mut [0; 16]).expect_err("nothing");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    clone.set_nonblocking(false).expect("an option");
    let client = left.bind(at(left.v4, 0));
    for name in ["one", "two"] {
        client
            .send_to(name.as_bytes(), at(right.v4, 7))
            .expect("sent");
    }
    assert_eq!(
        (text(&server).0, text(&clone).0),
        ("one".into(), "two".into())
    );
    clone
        .connect(client.local_addr().expect("bound"))
        .expect("a way");
    let peer = client.local_addr().expect("bound");
    assert_eq!(server.peer_addr().expect("a peer"), peer);
}

#[test]
fn a_connected_socket_hears_its_peer_alone_until_it_is_connected_elsewhere() {
    let (left, right) = hosts();
    for (own, peer) in families(&left, &right) {
        // A port that the system chose is given up when the socket is disconnected, as in Linux.
        let own_addr = at(own, 4_000);
        let socket = left.bind(own_addr);
        let (first, second) = (right.bind(at(peer, 0)), right.bind(at(peer, 0)));
        let addr = |socket: &UdpSocket| socket.local_addr().expect("bound");
        let not_connected = |result: std::io::Result<usize>| {
            assert_eq!(result.expect_err("no peer").kind(), ErrorKind::NotConnected);
        };
        not_connected(socket.send(b""));
        not_connected(socket.peer_addr().map(|_| 0));

        for (connected, other) in [(&first, &second), (&second, &first)] {
            socket.connect(addr(connected)).expect("a way");
            assert_eq!(socket.peer_addr().expect("a peer"), addr(connected));
            assert_eq!(addr(&socket), own_addr);
            other.send_to(b"not you", own_addr).expect("sent");
            connected.send_to(b"you", own_addr).expect("sent");
            assert_eq!(text(&socket), ("you".into(), addr(connected)));
            assert_eq!(socket.send(b"back").expect("sent"), 4);
            assert_eq!(text(connected), ("back".into(), own_addr));
            // The other one has been told that nobody listens for it; it is not connected and hears
            // nothing of that.
            assert!(other.take_error().expect("open").is_none());
        }

        socket.disconnect().expect("open");
        not_connected(socket.send(b""));
        for anybody in [&first, &second] {
            anybody.send_to(b"anybody", own_addr).expect("sent");
            assert_eq!(text(&socket), ("anybody".into(), addr(anybody)));
        }
    }
}

#[test]
fn a_refusal_is_told_once_by_whichever_call_comes_first() {
    let (left, right) = hosts();
    for (own, peer) in families(&left, &right) {
        let socket = left.bind(at(own, 0));
        socket.connect(at(peer, 9)).expect("a way");
        socket.send(b"anybody?").expect("sent");
        let error = socket.recv(&mut [0; 16]).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(socket.take_error().expect("open").is_none());
        assert!(hears_nothing(&socket));

        socket.send(b"anybody?").expect("sent");
        let started = Instant::now();
        let error = loop {
            if let Some(error) = socket.take_error().expect("open") {
                break error;
            }
            assert!(started.elapsed() < PATIENCE);
            thread::yield_now();
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

        // Who is not connected is not told (RFC 1122 section 4.1.3.3 leaves it open, Linux does so).
        socket.disconnect().expect("open");
        socket.send_to(b"anybody?", at(peer, 9)).expect("sent");
        assert!(hears_nothing(&socket));
    }
}

/// What a transparent proxy does: it takes everything, knows where it was meant to go, and answers
/// from there.
#[test]
fn a_socket_for_everything_is_told_the_original_destination() {
    let (left, right) = hosts();
    let via = |addr: IpAddr| {
        let ifindex = left
            .stack
            .inner()
            .interface_named("wire0")
            .expect("it is there")
            .index;
        let inner = left.stack.inner();
        match addr {
            IpAddr::V4(_) => {
                let all = "0.0.0.0/0".parse().expect("a prefix");
                let route = fib::Route::new(fib::RouteKind::Unicast, all).dev(ifindex);
                inner
                    .fib4()
                    .add(fib::TableId::MAIN, route)
                    .expect("a new route");
            }
            IpAddr::V6(_) => {
                let all = "::/0".parse().expect("a prefix");
                let route = fib::Route::new(fib::RouteKind::Unicast, all).dev(ifindex);
                inner
                    .fib6()
                    .add(fib::TableId::MAIN, route)
                    .expect("a new route");
            }
        }
    };
    via(left.v4);
    via(left.v6);
    // In a table of its own behind a rule for what comes in, so that answers still find the way out.
    let inner = right.stack.inner();
    let ifindex = inner.interface_named("wire0").expect("it is there").index;
    let table = fib::TableId(100);
    let route = fib::Route::new(
        fib::RouteKind::Local,
        "0.0.0.0/0".parse().expect("a prefix"),
    );
    inner.fib4().add(table, route.dev(1)).expect("a new route");
    let route = fib::Route::new(fib::RouteKind::Local, "::/0".parse().expect("a prefix"));
    inner.fib6().add(table, route.dev(1)).expect("a new route");
    let action = fib::RuleAction::Lookup(table);
    let rule = fib::Rule {
        iif: Some(ifindex),
        ..fib::Rule::all(100, action)
    };
    inner.fib4().add_rule(rule).expect("a new rule");
    let rule = fib::Rule {
        iif: Some(ifindex),
        ..fib::Rule::all(100, action)
    };
    inner.fib6().add_rule(rule).expect("a new rule");

    let proxy = UdpSocket::bind_any(&right.stack).expect("the first of its kind");
    proxy.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let destinations = [(left.v4, "198.51.100.7:53"), (left.v6, "[2001:db8::7]:443")];
    for (own, destination) in destinations {
        let destination: SocketAddr = destination.parse().expect("an address");
        let client = left.bind(at(own, 0));
        client.connect(destination).expect("a way");
        client.send(b"to whom it may concern").expect("sent");
        let mut buf = [0; 64];
        let (len, from, to) = proxy.recv_from_to(&mut buf).expect("a datagram");
        assert_eq!(buf[..len], *b"to whom it may concern");
        let canonical = |addr: SocketAddr| at(addr.ip().to_canonical(), addr.port());
        assert_eq!(canonical(from), client.local_addr().expect("bound"));
        assert_eq!(canonical(to), destination);
        proxy.send_from_to(b"from there", to, from).expect("sent");
        assert_eq!(text(&client), ("from there".into(), destination));
    }
    // A socket of its own goes first.
    let own = right.bind(at(right.v4, 7));
    let client = left.bind(at(left.v4, 0));
    client.send_to(b"mine", at(right.v4, 7)).expect("sent");
    assert_eq!(text(&own).0, "mine");
    assert!(hears_nothing(&proxy));
}

#[test]
fn one_socket_serves_both_families_unless_told_not_to() {
    let (left, right) = hosts();
    let any = at(IpAddr::from([0_u16; 8]), 7);
    let server = right.bind(any);
    for (own, peer) in families(&left, &right) {
        let client = left.bind(at(own, 0));
        client.send_to(b"either", at(peer, 7)).expect("sent");
        let (said, from) = text(&server);
        assert_eq!(said, "either");
        assert!(from.is_ipv6(), "an IPv4 peer is shown mapped");
        assert_eq!(from.ip().to_canonical(), own);
        server.send_to(b"answer", from).expect("sent");
        assert_eq!(text(&client), ("answer".into(), at(peer, 7)));
    }
    // The port is taken in both families.
    for taken in [any, at(right.v4, 7), at(right.v6, 7)] {
        let error = UdpSocket::bind(&right.stack, taken).expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
    drop(server);
    let only_v6 = UdpOptions::new()
        .only_v6(true)
        .bind(&right.stack, any)
        .expect("a free port");
    right.bind(at(IpAddr::from([0, 0, 0, 0]), 7));
    only_v6.set_read_timeout(Some(GRACE)).expect("a timeout");
    let client = left.bind(at(left.v4, 0));
    client
        .send_to(b"not for IPv6", at(right.v4, 7))
        .expect("sent");
    assert!(hears_nothing(&only_v6));
}

#[test]
fn ephemeral_ports_are_free_and_of_the_range() {
    let (left, _right) = hosts();
    left.stack
        .inner()
        .set_sysctl("net.ipv4.ip_local_port_range", "40000 40007")
        .expect("a range");
    let sockets: Vec<_> = (0..8).map(|_| left.bind(at(left.v4, 0))).collect();
    let mut ports: Vec<u16> = sockets
        .iter()
        .map(|socket| socket.local_addr().expect("bound").port())
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, (40_000..40_008).collect::<Vec<_>>());
    let error = UdpSocket::bind(&left.stack, at(left.v4, 0)).expect_err("none is left");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(sockets);
    left.bind(at(left.v4, 0));
}

#[test]
fn refusals_have_the_kinds_of_std() {
    let (left, right) = hosts();
    let bind = |addr: &str| {
        let error = UdpSocket::bind(&left.stack, addr).expect_err("refused");
        error.kind()
    };
    assert_eq!(bind("192.0.2.1:7"), ErrorKind::AddrNotAvailable);
    assert_eq!(bind("[2001:db8::1]:7"), ErrorKind::AddrNotAvailable);
    let socket = left.bind(at(left.v4, 7));
    assert_eq!(bind("10.0.0.1:7"), ErrorKind::AddrInUse);
    let send = |to: &str| socket.send_to(b"", to).expect_err("refused").kind();
    assert_eq!(send("192.0.2.1:7"), ErrorKind::NetworkUnreachable);
    assert_eq!(send("10.0.0.2:0"), ErrorKind::InvalidInput);
    assert_eq!(send("10.0.0.255:7"), ErrorKind::PermissionDenied);
    let error = socket.connect("192.0.2.1:7").expect_err("no way");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    let error = UdpOptions::new()
        .device("none0")
        .bind(&left.stack, "0.0.0.0:0")
        .expect_err("no such device");
    assert_eq!(error.kind(), ErrorKind::NotFound);

    // With leave, a broadcast reaches who is bound to everything.
    let server = right.bind("0.0.0.0:7".parse().expect("an address"));
    socket.set_broadcast(true).expect("an option");
    socket.send_to(b"everybody", "10.0.0.255:7").expect("sent");
    assert_eq!(text(&server), ("everybody".into(), at(left.v4, 7)));
}

/// Sockets that come and go under traffic leave no port and no buffer behind.
#[test]
fn sockets_dropped_under_traffic_leave_nothing() {
    let (left, right) = hosts();
    let client = left.bind(at(left.v4, 0));
    for round in 0..50 {
        let server = right.bind(at(right.v4, 7));
        for _ in 0..4 {
            client
                .send_to(&[round; 2_000], at(right.v4, 7))
                .expect("sent");
        }
        if round % 2 == 0 {
            assert_eq!(server.recv(&mut [0; 4]).expect("a datagram"), 4);
        }
    }
    let server = right.bind(at(right.v4, 7));
    client.send_to(b"the last", at(right.v4, 7)).expect("sent");
    while text(&server).0 != "the last" {}
    assert_eq!(right.stack.inner().socket_memory(), 0);
    assert_eq!(right.stack.inner().udp_sockets().len(), 1);
}
