//! Datagrams between the kernel's sockets and Forebay's.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use forebay::UdpSocket;
use forebay::fib::{Prefix, Route, RouteKind, TableId};
use forebay_tests::kernel::{Family, Lab, LabConfig, PATIENCE, in_private_network, ip};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

const SIZES: [usize; 8] = [0, 1, 64, 1_400, 1_472, 3_000, 20_000, 65_507];

/// Every lab that matters here: what either side leaves to the other, and early demux.
fn labs() -> impl Iterator<Item = Lab> {
    let settings = [(true, true), (true, false), (false, true), (false, false)];
    settings.into_iter().map_while(|(offload, early_demux)| {
        Lab::start(LabConfig {
            offload,
            early_demux,
            ..LabConfig::default()
        })
    })
}

fn bind(lab: &Lab, address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(&lab.stack, address).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::from([0_u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0_u8; 16]),
    }
}

fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

/// What the two kinds of socket have in common.
trait Socket {
    fn connect_to(&self, peer: SocketAddr) -> io::Result<()>;
    fn send_all(&self, bytes: &[u8], to: Option<SocketAddr>) -> io::Result<usize>;
    fn receive(&self) -> io::Result<(Vec<u8>, SocketAddr)>;
    fn address(&self) -> SocketAddr;
}

macro_rules! impl_socket {
    ($($socket:ty),*) => {$(
        impl Socket for $socket {
            fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
                self.connect(peer)
            }

            fn send_all(&self, bytes: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
                match to {
                    Some(to) => self.send_to(bytes, to),
                    None => self.send(bytes),
                }
            }

            fn receive(&self) -> io::Result<(Vec<u8>, SocketAddr)> {
                let mut buf = vec![0; 70_000];
                let (len, from) = self.recv_from(&mut buf)?;
                buf.truncate(len);
                Ok((buf, from))
            }

            fn address(&self) -> SocketAddr {
                self.local_addr().expect("address")
            }
        }
    )*};
}

impl_socket!(std::net::UdpSocket, UdpSocket);

#[test]
fn datagrams_of_all_sizes_there_and_back() {
    in_private_network("datagrams_of_all_sizes_there_and_back", || {
        for lab in labs() {
            for Family { left, own, .. } in Family::both() {
                for connected in [[false, false], [true, false], [false, true], [true, true]] {
                    // Each side asks once.
                    let kernel = lab.left.udp(left, 0);
                    let ours = bind(&lab, SocketAddr::new(own, 0));
                    there_and_back(&kernel, &ours, connected);
                    let kernel = lab.left.udp(left, 0);
                    let ours = bind(&lab, SocketAddr::new(own, 0));
                    there_and_back(&ours, &kernel, connected);
                }
            }
        }
    });
}

fn there_and_back(client: &impl Socket, server: &impl Socket, connected: [bool; 2]) {
    let (client_address, server_address) = (client.address(), server.address());
    let [client_connected, server_connected] = connected;
    if client_connected {
        client.connect_to(server_address).expect("connect");
    }
    if server_connected {
        server.connect_to(client_address).expect("connect");
    }
    let to_server = Some(server_address).filter(|_| !client_connected);
    let to_client = Some(client_address).filter(|_| !server_connected);
    for size in SIZES {
        let what = format!("{client_address} to {server_address}, {size} bytes, {connected:?}");
        let payload = payload(size);
        assert_eq!(client.send_all(&payload, to_server).expect(&what), size);
        let (bytes, from) = server.receive().expect(&what);
        assert!(bytes == payload && from == client_address, "there: {what}");
        assert_eq!(server.send_all(&payload, to_client).expect(&what), size);
        let (bytes, from) = client.receive().expect(&what);
        assert!(bytes == payload && from == server_address, "back: {what}");
    }
}

#[test]
fn a_closed_port_is_told_to_whom_it_concerns() {
    in_private_network("a_closed_port_is_told_to_whom_it_concerns", || {
        for lab in labs() {
            for Family { left, own, .. } in Family::both() {
                let (closed, our_closed) = (SocketAddr::new(left, 9), SocketAddr::new(own, 9));
                // A client of its own for each question: an answer may come late, and must not be
                // taken for that to the next.
                let kernel = || lab.left.udp(left, 0);
                let ours = || bind(&lab, SocketAddr::new(own, 0));
                not_told(&kernel(), our_closed, &ours());
                not_told(&ours(), closed, &kernel());
                refused_once(&kernel(), our_closed, &ours());
                refused_once(&ours(), closed, &kernel());
            }
        }
    });
}

/// Who is not connected does not hear that a port is closed.
fn not_told(client: &impl Socket, closed: SocketAddr, other: &impl Socket) {
    client.send_all(b"unconnected", Some(closed)).expect("send");
    other
        .send_all(b"not refused", Some(client.address()))
        .expect("send");
    let (bytes, _) = client
        .receive()
        .expect("no error, but the datagram behind it");
    assert_eq!(bytes, b"not refused");
}

/// A connected socket hears that its peer's port is closed, once; and goes on.
fn refused_once(client: &impl Socket, closed: SocketAddr, other: &impl Socket) {
    let (client_address, other_address) = (client.address(), other.address());
    client.connect_to(closed).expect("connect");
    client.send_all(b"is anybody there", None).expect("send");
    let error = client.receive().expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    client.connect_to(other_address).expect("connect again");
    other
        .send_all(b"somebody else is", Some(client_address))
        .expect("send");
    let (bytes, _) = client.receive().expect("told once");
    assert_eq!(bytes, b"somebody else is");
}

#[test]
fn one_socket_serves_both_families_on_every_address() {
    in_private_network("one_socket_serves_both_families_on_every_address", || {
        for lab in labs() {
            let server = bind(&lab, "[::]:7".parse().expect("an address"));
            for Family { own, own1, .. } in Family::both() {
                // The answer comes from the address that was asked, or the kernel would not take
                // it; that of the other interface, too.
                for to in [own, own1] {
                    let client = lab.left.udp_to(SocketAddr::new(to, 7));
                    client.send(b"ask").expect("send");
                    let mut buf = [0; 8];
                    let (len, from, asked) = server.recv_from_to(&mut buf).expect("a question");
                    assert_eq!((len, asked.port()), (3, 7));
                    assert_eq!(asked.ip().to_canonical(), to);
                    server.send_from_to(b"answer", asked, from).expect("send");
                    assert_eq!(client.recv(&mut buf).expect("an answer"), 6);
                }
            }
        }
    });
}

/// What a transparent proxy does: it takes datagrams to any address and port, and answers from
/// there.
#[test]
fn any_destination_is_served_in_its_own_name() {
    in_private_network("any_destination_is_served_in_its_own_name", || {
        for lab in labs() {
            let (fib4, fib6) = (lab.stack.inner().fib4(), lab.stack.inner().fib6());
            let all4 = Route::new(RouteKind::Local, Prefix::DEFAULT).dev(1);
            fib4.add(TableId::MAIN, all4).expect("a new route");
            let all6 = Route::new(RouteKind::Local, Prefix::DEFAULT).dev(1);
            fib6.add(TableId::MAIN, all6).expect("a new route");
            let proxy = UdpSocket::bind_any(&lab.stack).expect("bind");
            proxy.set_read_timeout(Some(PATIENCE)).expect("timeout");
            for to in ["192.0.2.9", "2001:db8::9"] {
                let to = SocketAddr::new(ip(to), 53);
                let client = lab.left.udp_to(to);
                client.send(&payload(3_000)).expect("send");
                let mut buf = vec![0; 4_000];
                let (len, from, asked) = proxy.recv_from_to(&mut buf).expect("a question");
                assert_eq!(buf[..len], payload(3_000));
                assert_eq!((asked.ip().to_canonical(), asked.port()), (to.ip(), 53));
                proxy
                    .send_from_to(&payload(3_001), asked, from)
                    .expect("send");
                assert_eq!(client.recv(&mut buf).expect("an answer"), 3_001);
            }
        }
    });
}

/// Programs look before they receive, and a look must cost nothing: that it verifies a checksum
/// which arriving did not (Linux lost long datagrams over that in June 2017).
#[test]
fn looking_first_loses_nothing() {
    in_private_network("looking_first_loses_nothing", || {
        for lab in labs() {
            for Family { own, .. } in Family::both() {
                let ours = bind(&lab, SocketAddr::new(own, 0));
                let kernel = lab.left.udp_to(ours.address());
                for size in [60, 68, 69, 76, 77, 501, 1_400, 3_001] {
                    let (payload, mut buf) = (payload(size), vec![0; 4_000]);
                    kernel.send(&payload).expect("send");
                    for _ in 0..2 {
                        let (len, from) = ours.peek_from(&mut buf).expect("a look");
                        assert!(buf[..len] == payload && from.port() == kernel.address().port());
                    }
                    assert_eq!(ours.receive().expect("the datagram").0, payload);
                }
            }
        }
    });
}

/// What QUIC does: many datagrams in one call, which come to Forebay as one packet. They arrive one
/// by one, at a socket of Forebay's and at another kernel's.
#[test]
fn segmented_sends_arrive_as_datagrams() {
    in_private_network("segmented_sends_arrive_as_datagrams", || {
        const SIZE: u16 = 1_200;
        let payload = payload(40 * usize::from(SIZE) + 7);
        for lab in labs() {
            for Family {
                left, own, right, ..
            } in Family::both()
            {
                let ours = bind(&lab, SocketAddr::new(own, 0));
                let theirs = lab.right.udp(right, 0);
                let sender = lab.left.udp(left, 0);
                setsockopt(&sender, UdpGsoSegment, &i32::from(SIZE)).expect("UDP_SEGMENT");
                let receivers: [&dyn Socket; 2] = [&ours, &theirs];
                for receiver in receivers {
                    sender.connect(receiver.address()).expect("connect");
                    sender.send(&payload).expect("send");
                    for datagram in payload.chunks(SIZE.into()) {
                        assert!(receiver.receive().expect("a datagram").0 == datagram);
                    }
                }
            }
        }
    });
}

/// Many sockets and threads at once: every datagram goes to its own socket.
#[test]
fn each_socket_gets_its_own() {
    in_private_network("each_socket_gets_its_own", || {
        for lab in labs() {
            for Family { left, own, .. } in Family::both() {
                std::thread::scope(|scope| {
                    for _ in 0..8 {
                        let kernel = lab.left.udp(left, 0);
                        let ours = bind(&lab, SocketAddr::new(any(own), 0));
                        let our_address = SocketAddr::new(own, ours.address().port());
                        kernel.connect_to(our_address).expect("connect");
                        ours.connect_to(kernel.address()).expect("connect");
                        scope.spawn(move || {
                            for round in 0..200_u32 {
                                let payload =
                                    [&our_address.port().to_be_bytes()[..], &round.to_be_bytes()]
                                        .concat();
                                kernel.send(&payload).expect("send");
                                assert_eq!(ours.receive().expect("there").0, payload);
                                ours.send(&payload).expect("send");
                                assert_eq!(kernel.receive().expect("back").0, payload);
                            }
                        });
                    }
                });
            }
        }
    });
}
