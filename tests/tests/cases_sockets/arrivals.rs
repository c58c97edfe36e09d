//! What a datagram must be like, and what is said where it is not, or where nobody listens.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use forebay_tests::{Net, packets};

use super::host::{PEER_PORT, PORT, bad_packets_of, drain, rx};
use super::*;

/// The peer's datagram with a length and a checksum of one's own; `None` computes it.
fn crafted(net: &Net, port: u16, len: u16, sum: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let ports = [PEER_PORT.to_be_bytes(), port.to_be_bytes()].concat();
    let mut datagram = [&ports[..], &len.to_be_bytes(), &[0, 0], payload].concat();
    let covered = usize::from(len).clamp(8, datagram.len());
    let right = packets::transport_checksum(net.peer, net.own, 17, &datagram[..covered]);
    datagram[6..8].copy_from_slice(&sum.unwrap_or(right).to_be_bytes());
    packets::ip(net.peer, net.own, 17, &datagram)
}

/// Length field, checksum field, payload, and how much of it is delivered.
type Case<'a> = (u16, Option<u16>, &'a [u8], Option<usize>);

/// Where there is a socket, connected or not, and where there is none.
#[test]
fn lengths_and_checksums_are_judged_alike_wherever_they_come() {
    everywhere(|host| {
        let net = host.net;
        let connected = host.warm_flow();
        let bound = host.bind(net.own(PORT + 1));
        let long = [7; 300];
        let cases: [Case<'_>; 10] = [
            (16, None, b"8 octets", Some(8)),
            // Without a checksum: for IPv4 alone.
            (16, Some(0), b"8 octets", net.pick(Some(8), None)),
            (308, Some(0), &long, net.pick(Some(300), None)),
            // Shorter than the packet: the rest is nobody's.
            (10, None, b"8 octets", Some(2)),
            (10, Some(0), b"8 octets", net.pick(Some(2), None)),
            (100, None, &long, Some(92)),
            // Lengths that cannot be.
            (0, None, b"8 octets", None),
            (7, None, b"8 octets", None),
            (17, None, b"8 octets", None),
            (u16::MAX, None, b"8 octets", None),
        ];
        for (len, sum, payload, kept) in cases {
            let expected = kept.map(|kept| payload[..kept].to_vec());
            for (socket, port) in [(&connected, PORT), (&bound, PORT + 1)] {
                host.inject("tun0", crafted(&net, port, len, sum, payload));
                assert_eq!(rx(socket), expected, "{len} {sum:?}");
            }
            host.inject("tun0", crafted(&net, 9, len, sum, payload));
            let answers = host.output("tun0").len();
            assert_eq!(answers, usize::from(kept.is_some()), "{len} {sum:?}");
        }
    });
}

#[test]
fn a_sum_of_zero_is_sent_as_ones_and_taken_as_any() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.flow();
        let good = packets::udp_with_checksum_ffff(net.peer(PEER_PORT), net.own(PORT), b"tail");
        host.inject("tun0", &good);
        assert!(rx(&socket).is_some());
        let mut bad = good;
        *bad.last_mut().expect("a payload") ^= 1;
        host.inject("tun0", &bad);
        assert_eq!(rx(&socket), None);

        let sent = packets::udp_with_checksum_ffff(net.own(PORT), net.peer(PEER_PORT), b"tail");
        let payload = packets::parse(&sent).udp().2.to_vec();
        socket.send(&payload).expect("a way");
        let sent = packets::parse(&host.output("tun0")[0]).payload;
        assert_eq!(sent[6..8], [0xff, 0xff]);
    });
}

/// One sender of one good datagram to one host is told that nobody listens; no other.
#[test]
fn port_unreachable_answers_good_unicast_only() {
    everywhere(|host| {
        let net = host.net;
        let answer = |packets: Vec<Vec<u8>>| {
            host.inject_all("tun0", packets);
            let output = host.output("tun0");
            let answers = output.iter().map(|packet| packets::parse(packet).icmp());
            answers.collect::<Vec<_>>()
        };
        let (from, closed) = (net.peer(PEER_PORT), net.own(9));
        let unreachable = net.pick((3, 3), (1, 4));
        for size in [10, 69, 3_000] {
            let good = host::packets_of(from, closed, &vec![1; size]);
            assert_eq!(answer(good), [unreachable], "{size} bytes");
            let bad = bad_packets_of(from, closed, &vec![1; size]);
            assert_eq!(answer(bad), [], "{size} bytes");
        }
        for to in net.pick(
            &["10.0.0.255", "255.255.255.255", "224.0.0.1"][..],
            &["ff02::1"],
        ) {
            let to = SocketAddr::new(to.parse().expect("an address"), 9);
            assert_eq!(answer(host::packets_of(from, to, b"all")), [], "{to}");
        }
    });
}

/// What a router or the peer says of our datagram reaches the socket that sent it, once, by
/// whichever call comes first; and no other socket.
#[test]
fn a_refusal_is_told_once_to_who_was_refused() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.flow();
        let bystander = host.bind(net.own(PORT));
        let asked = host.bind(net.own(PORT + 1));
        asked.set_recv_err(true).expect("a switch");
        let (kind, code) = net.pick((3, 3), (1, 4));
        let report = |from: IpAddr, code: u8, ports: (u16, u16), quoted: usize| {
            let mut about = packets::udp(net.own, net.peer, ports.0, ports.1, b"question");
            about.truncate(net.pick(20, 40) + quoted);
            packets::icmp(from, net.own, kind, code, 0, &about)
        };
        let ports = (PORT, PEER_PORT);
        let good = report(net.peer, code, ports, 16);
        let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;

        for from in [net.peer, net.peer1] {
            host.inject("tun0", report(from, code, ports, 8));
            assert!(socket.is_readable().expect("open"), "so that it is told");
            assert!(socket.recv(&mut [0; 9]).is_err_and(refused), "{from}");
            assert_eq!(rx(&socket), None, "told once");
        }
        host.inject("tun0", &good);
        assert!(socket.send(b"again").is_err_and(refused));
        socket.send(b"again").expect("told once");
        host.inject("tun0", &good);
        let taken = socket.take_error().expect("open");
        assert!(taken.is_some_and(refused));
        assert!(socket.take_error().expect("open").is_none());
        // What waits to be read waits on.
        host.peer_sends(b"data");
        host.inject("tun0", &good);
        assert!(socket.peek(&mut [0; 9]).is_err_and(refused));
        assert_eq!(drain(&socket), [b"data"]);

        let soft = net.pick(1, 3);
        let mut corrupt = good.clone();
        *corrupt.last_mut().expect("a quote") ^= 1;
        let ignored = [
            corrupt,
            report(net.peer, code, ports, 4),
            report(net.peer, code, (PORT, 9), 16),
            report(net.peer, code, (9, PEER_PORT), 16),
            report(net.peer, soft, ports, 16),
        ];
        host.inject_all("tun0", ignored);
        assert_eq!(rx(&socket), None);
        assert_eq!(rx(&bystander), None, "it is not connected");

        host.inject("tun0", report(net.peer, code, (PORT + 1, 9), 16));
        assert!(asked.recv(&mut [0; 9]).is_err_and(refused), "it has asked");
        let told = asked.recv_error().expect("open").expect("a report");
        assert_eq!((told.to, told.offender), (net.peer(9), Some(net.peer)));
        assert!(told.payload.starts_with(b"question"));
        assert_eq!(rx(&asked), None);
    });
}

/// Local delivery does not ask for the TTL; any own address will do, by any interface, but for the
/// loopback's.
#[test]
fn any_own_address_hears_whatever_the_ttl() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.bind(net.any(PORT));
        for ttl in [0, 1, 255] {
            let packet = packets::udp(net.peer, net.own, PEER_PORT, PORT, &[ttl]);
            host.inject("tun0", packets::with_ttl(packet, ttl));
            assert_eq!(drain(&socket), [[ttl]]);
        }
        let own1 = SocketAddr::new(net.own1, PORT);
        host.deliver("tun0", net.peer(PEER_PORT), own1, b"the other's");
        assert_eq!(drain(&socket), [b"the other's"]);
        for to in net.pick(&["127.0.0.1", "0.0.0.0"][..], &["::1"]) {
            let to = SocketAddr::new(to.parse().expect("an address"), PORT);
            host.deliver("tun0", net.peer(PEER_PORT), to, b"inside");
            assert_eq!(rx(&socket), None, "{to}");
        }
        assert!(host.is_silent());
    });
}
