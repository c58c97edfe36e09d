//! Who is told that nobody listens, and which socket hears of it.

use std::net::{IpAddr, SocketAddr};

use forebay_stack::socket::SocketError;
use forebay_stack::udp::RecvError;
use forebay_stack::wire::icmp;
use forebay_tests::{Net, Rig, V4, V6, both, everywhere, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

/// What a router or the peer says about our datagram.
struct Report {
    from: IpAddr,
    kind: u8,
    code: u8,
    about: Vec<u8>,
}

impl Report {
    /// Port unreachable, from the peer, about a datagram of the socket's flow.
    fn port_unreachable(net: &Net) -> Self {
        Self {
            from: net.peer,
            kind: net.pick(icmp::v4::DEST_UNREACH, icmp::v6::DEST_UNREACH),
            code: net.pick(icmp::v4::UNREACH_PORT, icmp::v6::UNREACH_PORT),
            about: packets::udp(net.own, net.peer, OWN_PORT, PEER_PORT, b"what we sent"),
        }
    }

    fn packet(&self, net: &Net) -> Vec<u8> {
        packets::icmp(self.from, net.own, self.kind, self.code, 0, &self.about)
    }
}

/// RFC 1122 section 4.1.3.3. Any router may report, but the quote must name the flow.
#[test]
fn an_error_reaches_the_socket_whose_datagram_it_quotes_and_no_other() {
    everywhere(|mut rig, net| {
        let ours = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let others = [
            rig.bind(net.own(OWN_PORT)),
            rig.bind(net.any(OWN_PORT)),
            rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT + 1)),
            rig.bind_and_connect(net.own(OWN_PORT + 1), net.peer(PEER_PORT)),
            rig.bind_and_connect(net.own(OWN_PORT), SocketAddr::new(net.other, PEER_PORT)),
        ];
        let header = net.pick(20, 40);
        let report = |change: &dyn Fn(&mut Report)| {
            let mut report = Report::port_unreachable(&net);
            change(&mut report);
            report.packet(&net)
        };
        let quote = |own: IpAddr, peer: IpAddr, own_port: u16, peer_port: u16| {
            packets::udp(own, peer, own_port, peer_port, b"what we sent")
        };
        let mut bad_checksum = report(&|_| {});
        *bad_checksum.last_mut().expect("a quote") ^= 1;
        let (ok, ignored) = (Some(SocketError::ConnectionRefused), None);
        let cases: [(&str, Vec<u8>, Option<SocketError>); 12] = [
            ("from the peer", report(&|_| {}), ok),
            ("from a router", report(&|r| r.from = net.peer1), ok),
            (
                "8 bytes of the transport header",
                report(&|r| r.about.truncate(header + 8)),
                ok,
            ),
            (
                "4 bytes of the transport header",
                report(&|r| r.about.truncate(header + 4)),
                ignored,
            ),
            ("no quote", report(&|r| r.about.clear()), ignored),
            ("bad checksum", bad_checksum, ignored),
            (
                "another remote port",
                report(&|r| r.about = quote(net.own, net.peer, OWN_PORT, 9)),
                ignored,
            ),
            (
                "another local port",
                report(&|r| r.about = quote(net.own, net.peer, 9, PEER_PORT)),
                ignored,
            ),
            (
                "another remote address",
                report(&|r| r.about = quote(net.own, net.peer1, OWN_PORT, PEER_PORT)),
                ignored,
            ),
            (
                "another local address",
                report(&|r| r.about = quote(net.own1, net.peer, OWN_PORT, PEER_PORT)),
                ignored,
            ),
            (
                "another protocol",
                report(&|r| {
                    let (from, to) = ((net.own, OWN_PORT), (net.peer, PEER_PORT));
                    r.about = packets::tcp(from, to, 1, 0, 2, b"");
                }),
                ignored,
            ),
            (
                "unreachable for now, which may pass",
                report(&|r| r.code = net.pick(icmp::v4::UNREACH_HOST, icmp::v6::UNREACH_ADDRESS)),
                ignored,
            ),
        ];
        for (what, packet, expected) in cases {
            rig.inject("tun0", packet);
            assert_eq!(rig.recv(ours).err(), expected, "{what}");
            assert_eq!(rig.recv(ours), Ok(None), "{what}: told once");
            for other in others {
                assert_eq!(rig.recv(other), Ok(None), "{what}: none of theirs");
            }
            assert!(rig.is_silent(), "{what}");
        }
    });
}

#[test]
fn a_pending_error_is_told_once_by_whichever_call_comes_first() {
    everywhere(|mut rig, net| {
        let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let report = Report::port_unreachable(&net).packet(&net);
        rig.inject("tun0", &report);
        let refused = Some(SocketError::ConnectionRefused);
        assert_eq!(rig.stack.udp_take_error(socket), Ok(refused));
        assert_eq!(rig.stack.udp_take_error(socket), Ok(None));

        rig.inject("tun0", &report);
        let sent = rig.stack.udp_send(rig.now(), socket, b"again", None);
        assert_eq!(sent, Err(SocketError::ConnectionRefused.into()));
        assert_eq!(rig.send(socket, None, b"again").len(), 1);

        // Before what waits in the queue, which stays there.
        rig.deliver(net.peer(PEER_PORT), net.own(OWN_PORT), b"data");
        rig.inject("tun0", &report);
        let mut buf = [0; 16];
        let received = rig.stack.udp_recv(socket, &mut buf, false);
        assert_eq!(
            received,
            Err(RecvError::Pending(SocketError::ConnectionRefused))
        );
        assert_eq!(rig.drain(socket), [b"data"]);
    });
}

/// RFC 1122 section 3.2.2: one sender of one good datagram to one host is told that nobody listens.
#[test]
fn port_unreachable_answers_good_unicast_only() {
    both(|mut rig| {
        let answers = |rig: &mut Rig, packet: Vec<u8>| {
            rig.inject("tun0", packet);
            rig.advance(std::time::Duration::from_secs(2));
            let output = rig.output("tun0");
            let answers = output.iter().map(|packet| packets::parse(packet).icmp());
            answers.collect::<Vec<_>>()
        };
        let to = |dst: &str| {
            let dst: IpAddr = dst.parse().expect("an address");
            let src = if dst.is_ipv4() {
                Net::V4.peer
            } else {
                Net::V6.peer
            };
            packets::udp(src, dst, PEER_PORT, 9, b"anybody?")
        };
        assert_eq!(answers(&mut rig, to("10.0.0.1")), [(3, 3)]);
        assert_eq!(answers(&mut rig, to("10.1.0.1")), [(3, 3)]);
        assert_eq!(answers(&mut rig, to("fd00::1")), [(1, 4)]);
        assert_eq!(answers(&mut rig, to("fd01::1")), [(1, 4)]);
        for silent in ["10.0.0.255", "255.255.255.255", "224.0.0.1", "ff02::1"] {
            assert_eq!(answers(&mut rig, to(silent)), [], "{silent}");
        }
        for good in [to("10.0.0.1"), to("fd00::1")] {
            let mut bad_checksum = good.clone();
            *bad_checksum.last_mut().expect("a payload") ^= 1;
            assert_eq!(answers(&mut rig, bad_checksum), []);
        }
        let later = packets::with_fragment_field(to("10.0.0.1"), 10);
        assert_eq!(answers(&mut rig, later), []);

        // Nor a source that is no single host's.
        for src in [
            "10.0.0.255",
            "255.255.255.255",
            "224.0.0.1",
            "0.0.0.0",
            "127.0.0.1",
        ] {
            let src: IpAddr = src.parse().expect("an address");
            let packet = packets::udp(src, V4::OWN, PEER_PORT, 9, b"anybody?");
            let answers = answers(&mut rig, packet);
            assert!(answers.is_empty(), "from {src}: {answers:?}");
        }
        let from_none = packets::udp(
            "::".parse::<IpAddr>().expect("an address"),
            V6::OWN,
            1,
            9,
            b"",
        );
        assert_eq!(answers(&mut rig, from_none), []);
    });
}

/// A datagram that comes whole in fragments is as good as any other.
#[test]
fn port_unreachable_answers_a_reassembled_datagram() {
    everywhere(|mut rig, net| {
        let packet = packets::udp(net.peer, net.own, PEER_PORT, 9, &[1; 2_000]);
        rig.inject_all("tun0", packets::fragments(&packet, 7, 800));
        let answers = rig.output("tun0");
        assert_eq!(packets::parse(&answers[0]).icmp(), net.pick((3, 3), (1, 4)));
        assert_eq!(answers.len(), 1);
    });
}
