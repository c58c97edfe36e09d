//! UDP's own rules: checksums, lengths, truncation, queues, both families on one socket.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::wire::{ipv4, protocol};
use forebay_tests::{Net, Rig, V4, V6, both, everywhere, packets};

const OWN_PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

/// A packet with this UDP header and payload; `sum` is computed over `len` bytes unless given.
fn udp_with_len(net: &Net, port: u16, len: u16, sum: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let ports = [PEER_PORT.to_be_bytes(), port.to_be_bytes()].concat();
    let mut datagram = [&ports[..], &len.to_be_bytes(), &[0, 0], payload].concat();
    let covered = usize::from(len).clamp(8, datagram.len());
    let right = packets::transport_checksum(net.peer, net.own, protocol::UDP, &datagram[..covered]);
    datagram[6..8].copy_from_slice(&sum.unwrap_or(right).to_be_bytes());
    packets::ip(net.peer, net.own, protocol::UDP, &datagram)
}

fn in_errors(rig: &Rig, net: &Net) -> u64 {
    rig.count(net.pick(Counter::UdpInErrors, Counter::Udp6InErrors))
}

fn csum_errors(rig: &Rig, net: &Net) -> u64 {
    rig.count(net.pick(Counter::UdpInCsumErrors, Counter::Udp6InCsumErrors))
}

/// RFC 768 lets a sender compute no checksum and say so by 0; RFC 8200 section 8.1 does not.
#[test]
fn a_checksum_of_0_is_for_ipv4_only() {
    everywhere(|mut rig, net| {
        for to in [OWN_PORT, OWN_PORT + 1] {
            let socket = rig.bind_and_connect(net.own(to), net.peer(PEER_PORT));
            let unconnected = rig.bind(net.own(to + 10));
            for port in [to, to, to + 10] {
                rig.inject("tun0", udp_with_len(&net, port, 12, Some(0), b"none"));
            }
            let expected = net.pick(2, 0);
            assert_eq!(rig.drain(socket).len(), expected);
            assert_eq!(rig.drain(unconnected).len(), expected / 2);
            assert!(rig.is_silent());
        }
        assert_eq!(csum_errors(&rig, &net), net.pick(0, 6));
        assert_eq!(in_errors(&rig, &net), net.pick(0, 6));

        // To a closed port: an answer only where the datagram was good.
        rig.inject("tun0", udp_with_len(&net, 9, 12, Some(0), b"none"));
        assert_eq!(rig.output("tun0").len(), net.pick(1, 0));
    });
}

#[test]
fn a_checksum_computed_as_0_is_sent_and_verified_as_ffff() {
    everywhere(|mut rig, net| {
        let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let good = packets::udp_with_checksum_ffff(net.peer(PEER_PORT), net.own(OWN_PORT), b"tail");
        rig.inject("tun0", &good);
        assert_eq!(rig.drain(socket).len(), 1);
        let mut bad = good;
        *bad.last_mut().expect("a payload") ^= 1;
        rig.inject("tun0", &bad);
        assert!(!rig.has_received(socket));
        assert_eq!(csum_errors(&rig, &net), 1);

        let expected =
            packets::udp_with_checksum_ffff(net.own(OWN_PORT), net.peer(PEER_PORT), b"tail");
        let payload = packets::parse(&expected).udp().2.to_vec();
        let sent = rig.send(socket, None, &payload);
        assert_eq!(packets::parse(&sent[0]).payload[6..8], [0xff, 0xff]);
    });
}

/// The datagram ends where its length says; what the IP packet carries beyond is nobody's, and the
/// checksum does not cover it.
#[test]
fn a_length_shorter_than_the_packet_trims_it() {
    everywhere(|mut rig, net| {
        let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let mut sums = vec![None];
        if net.is_v4() {
            sums.push(Some(0));
        }
        for sum in sums {
            for (len, expected) in [(8, &b""[..]), (9, b"t"), (10, b"tr"), (16, b"trailing")] {
                let packet = udp_with_len(&net, OWN_PORT, len, sum, b"trailing");
                rig.inject("tun0", &packet);
                assert_eq!(rig.drain(socket), [expected]);
            }
        }
        let received = net.pick(Counter::UdpInDatagrams, Counter::Udp6InDatagrams);
        assert_eq!(rig.count(received), net.pick(8, 4));
        // A checksum over all of the packet is wrong.
        let whole = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, b"trailing");
        let at = whole.len() - 10;
        let sum = u16::from_be_bytes([whole[at], whole[at + 1]]);
        rig.inject(
            "tun0",
            udp_with_len(&net, OWN_PORT, 10, Some(sum), b"trailing"),
        );
        assert!(!rig.has_received(socket));
        assert_eq!(csum_errors(&rig, &net), 1);
    });
}

/// Linux takes a length of 0 over IPv6 for a jumbogram's (RFC 2675 section 4). There are none here.
#[test]
fn a_length_that_cannot_be_is_dropped_in_silence() {
    everywhere(|mut rig, net| {
        let open = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let mut errors = 0;
        for port in [OWN_PORT, OWN_PORT + 1] {
            for len in [0, 1, 7, 17, 65_535] {
                rig.inject("tun0", udp_with_len(&net, port, len, None, b"8 octets"));
                errors += 1;
                assert_eq!(in_errors(&rig, &net), errors, "length {len}");
                assert!(rig.is_silent(), "length {len}");
            }
        }
        assert!(!rig.has_received(open));
        assert_eq!(rig.drops(), [(DropReason::UdpLength, errors)]);
    });
}

#[test]
fn what_does_not_fit_the_buffer_is_lost_and_its_size_told() {
    everywhere(|mut rig, net| {
        let socket = rig.bind(net.own(OWN_PORT));
        // One in a single buffer, one in several.
        for size in [10_usize, 5_000] {
            let payload: Vec<u8> = (0..size).map(|n| n as u8).collect();
            let packet = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, &payload);
            rig.inject_all("tun0", packets::fragments(&packet, size as u32, 1_200));
            let receive = |len: usize, peek: bool| {
                let mut buf = vec![0; len];
                let received = rig.stack.udp_recv(socket, &mut buf, peek);
                received.expect("no error").map(|received| {
                    assert_eq!(buf[..received.len], payload[..received.len]);
                    (received.len, received.full_len)
                })
            };
            assert_eq!(receive(4, true), Some((4, size)));
            assert_eq!(receive(0, true), Some((0, size)));
            assert_eq!(receive(size + 1, true), Some((size, size)));
            assert_eq!(receive(4, false), Some((4, size)));
            assert_eq!(receive(4, false), None);
        }
    });
}

/// The budget counts buffers, not payload; but an empty queue takes one datagram of any size.
#[test]
fn a_small_receive_buffer_takes_few_datagrams_and_always_one() {
    everywhere(|mut rig, net| {
        let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let set = |bytes| rig.stack.udp_set_rcvbuf(socket, bytes);
        assert_eq!(set(10_000), Ok(20_000));
        assert_eq!(set(u32::MAX), Ok(2 * 212_992));
        assert_eq!(set(1), Ok(2_304));
        let errors = |rig: &Rig| {
            let rcvbuf = net.pick(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors);
            assert_eq!(rig.count(rcvbuf), in_errors(rig, &net));
            assert_eq!(csum_errors(rig, &net), 0);
            rig.count(rcvbuf)
        };
        // Again after draining: the charge is given back to the last byte.
        for round in 1..=3 {
            for size in [1, 1_000] {
                let before = errors(&rig);
                for _ in 0..200 {
                    rig.deliver(net.peer(PEER_PORT), net.own(OWN_PORT), &vec![1; size]);
                }
                assert_eq!(rig.drain(socket).len(), 1, "round {round}, {size} bytes");
                assert_eq!(errors(&rig) - before, 199, "round {round}, {size} bytes");
            }
            let large = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, &[1; 20_000]);
            let before = errors(&rig);
            for id in [1, 2] {
                rig.inject_all("tun0", packets::fragments(&large, round * 2 + id, 1_400));
            }
            assert_eq!(rig.drain(socket), [[1; 20_000]], "round {round}");
            assert_eq!(errors(&rig) - before, 1, "round {round}");
            assert_eq!(rig.stack.socket_memory(), 0, "round {round}");
            let info = rig.stack.udp_info(socket).expect("open");
            assert_eq!((u64::from(info.drops), info.recv_q), (errors(&rig), 0));
        }
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn an_ipv6_socket_takes_ipv4_unless_it_is_told_not_to() {
    both(|mut rig| {
        let dual: SocketAddr = "[::]:2000".parse().expect("an address");
        let socket = rig.bind(dual);
        let only_v6 = rig.open(V6::OWN.into());
        rig.stack
            .udp_set_v6only(only_v6, true)
            .expect("an unbound socket");
        rig.stack
            .udp_bind(only_v6, Net::V6.any(OWN_PORT + 1))
            .expect("our address");
        for net in [Net::V4, Net::V6] {
            rig.deliver(net.peer(PEER_PORT), net.own(OWN_PORT), b"either");
            let datagram = rig.recv(socket).expect("no error").expect("a datagram");
            let expected = net.pick(
                ("[::ffff:10.0.0.2]:3000", "[::ffff:10.0.0.1]:2000"),
                ("[fd00::2]:3000", "[fd00::1]:2000"),
            );
            let names = (datagram.from.to_string(), datagram.local.to_string());
            assert_eq!((names.0.as_str(), names.1.as_str()), expected);
            assert!(rig.is_silent());

            rig.deliver(net.peer(PEER_PORT), net.own(OWN_PORT + 1), b"IPv6 only");
            assert_eq!(rig.has_received(only_v6), !net.is_v4());
            assert_eq!(rig.output("tun0").len(), net.pick(1, 0));
        }

        // Beside it, a socket of IPv4 is nearer to IPv4.
        let v4 = rig.bind(Net::V4.any(OWN_PORT));
        rig.deliver(Net::V4.peer(PEER_PORT), Net::V4.own(OWN_PORT), b"whose?");
        assert!(rig.has_received(v4) && !rig.has_received(socket));
        rig.deliver(Net::V6.peer(PEER_PORT), Net::V6.own(OWN_PORT), b"whose?");
        assert!(rig.has_received(socket) && !rig.has_received(v4));

        // It sends IPv4 to mapped addresses.
        let mapped: SocketAddr = "[::ffff:10.0.0.2]:3000".parse().expect("an address");
        let sent = packets::parse(&rig.send(socket, Some(mapped), b"to IPv4")[0]);
        assert_eq!((sent.src, sent.dst), (Net::V4.own, Net::V4.peer));
        let refused = rig.stack.udp_send(rig.now(), only_v6, b"", Some(mapped));
        assert!(refused.is_err());
    });
}

/// What a socket insists on is enough of a way: whoever is meant is taken to be on that link.
#[test]
fn an_interface_is_way_enough_to_a_neighbour_without_a_route() {
    everywhere(|mut rig, net| {
        let socket = rig.open(net.own);
        let tun0 = rig.ifindex("tun0");
        rig.stack
            .udp_set_device(socket, Some(tun0))
            .expect("a device");
        let to = SocketAddr::new(net.nowhere, PEER_PORT);
        assert_eq!(rig.send(socket, Some(to), b"there").len(), 1);
        rig.connect(socket, to);
        let sent = packets::parse(&rig.send(socket, None, b"there")[0]);
        assert_eq!((sent.src, sent.dst), (net.own, net.nowhere));
    });
}

#[test]
fn a_link_local_peer_is_reached_by_the_interface_that_its_address_names() {
    both(|mut rig| {
        for (interface, own) in [("tun0", "fe80::a"), ("tun1", "fe80::b")] {
            let own = own.parse().expect("an address");
            let ifindex = rig.ifindex(interface);
            rig.stack
                .add_address(ifindex, own, 64)
                .expect("a new address");
        }
        let socket = rig.bind(Net::V6.any(OWN_PORT));
        for interface in ["tun0", "tun1"] {
            let peer = "fe80::2".parse().expect("an address");
            let scope = rig.ifindex(interface);
            let to = SocketAddrV6::new(peer, PEER_PORT, 0, scope).into();
            rig.stack
                .udp_send(rig.now(), socket, b"here", Some(to))
                .expect("a neighbour");
            let sent = rig.output(interface);
            assert_eq!(packets::parse(&sent[0]).dst, IpAddr::V6(peer));

            rig.deliver_by(
                interface,
                SocketAddr::new(peer.into(), 9),
                Net::V6.own(OWN_PORT),
                b"",
            );
            let datagram = rig.recv(socket).expect("no error").expect("a datagram");
            let from = SocketAddrV6::new(peer, 9, 0, scope).into();
            assert_eq!(datagram.from, from, "an address to answer to");
            assert!(rig.is_silent());
        }
    });
}

/// A datagram whose IPv4 header carries options has its ports further behind.
#[test]
fn options_in_front_of_a_datagram_change_nothing_for_its_socket() {
    both(|mut rig| {
        let net = Net::V4;
        let socket = rig.bind_and_connect(net.own(OWN_PORT), net.peer(PEER_PORT));
        let datagram = packets::udp_datagram(net.peer, net.own, PEER_PORT, OWN_PORT, b"behind");
        let options = [1, 1, 1, 1, 1, 1, 1, 0];
        for _ in 0..3 {
            let packet =
                packets::ipv4_with_options(V4::PEER, V4::OWN, protocol::UDP, &options, &datagram);
            rig.inject("tun0", packet);
        }
        assert_eq!(rig.drain(socket), [b"behind"; 3]);
        let mut padded = packets::udp(net.peer, net.own, PEER_PORT, OWN_PORT, b"behind");
        ipv4::fill_checksum(&mut padded);
        padded.extend_from_slice(&[0; 18]);
        rig.inject("tun0", padded);
        assert_eq!(rig.drain(socket), [b"behind"], "padding of a short frame");
    });
}
