//! Who looks before he reads, as glibc's resolver does: looking may find out that a checksum is bad,
//! and must lose nothing that is good.

use std::io::{ErrorKind, IoSliceMut};

use forebay::filter::{Instruction, code};
use forebay::{Events, Interest, Poller, UdpSocket};
use forebay_tests::{V4, packets};

use super::host::{PEER_PORT, PORT, bad_packets_of, drain, rx};
use super::*;

/// Verified on arrival up to 68 bytes, and beyond where somebody looks.
const SIZES: [usize; 10] = [0, 60, 68, 69, 76, 77, 501, 1_232, 1_400, 3_001];

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

fn keep(bytes: u32) -> [Instruction; 1] {
    [Instruction::stmt(code::RET | code::K, bytes)]
}

/// Linux lost answers of more than 68 bytes in June 2017: poll verified them and noted it nowhere,
/// and so the read verified again what was verified, and found it bad.
#[test]
fn what_poll_fionread_and_peek_have_seen_is_read() {
    everywhere(|host| {
        for (connected, filtered) in [(false, false), (true, false), (false, true), (true, true)] {
            let socket = host.bind(host.net.own(PORT));
            if connected {
                socket.connect(host.net.peer(PEER_PORT)).expect("a way");
            }
            if filtered {
                socket.attach_filter(&keep(u32::MAX)).expect("a program");
            }
            for size in SIZES {
                let sent = payload(size);
                host.peer_sends(&sent);
                look(&socket, &sent);
                assert_eq!(rx(&socket), Some(sent), "{size} bytes");
                assert_eq!(rx(&socket), None);
            }
        }
        assert_eq!((host.csum_errors(), host.in_errors()), (0, 0));
    });
}

/// In every way there is, and twice.
fn look(socket: &UdpSocket, sent: &[u8]) {
    let (mut buf, mut rest) = (vec![0; 4_000], vec![0; 4_000]);
    for _ in 0..2 {
        assert!(socket.is_readable().expect("an open socket"));
        assert_eq!(socket.next_len().expect("an open socket"), sent.len());
        assert_eq!(socket.peek(&mut buf).expect("a datagram"), sent.len());
        assert_eq!(buf[..sent.len()], *sent);
        let bufs = &mut [IoSliceMut::new(&mut rest)];
        let seen = socket.peek_at(3, bufs).expect("a datagram");
        assert_eq!(seen.full_len, sent.len());
        assert_eq!(rest[..seen.len], *sent.get(3..).unwrap_or_default());
    }
}

/// A poller looks for itself.
#[test]
fn what_a_poller_has_told_of_is_read() {
    everywhere(|host| {
        let socket = host.flow();
        for interest in [Interest::READABLE, Interest::READABLE.edge_triggered()] {
            let poller = Poller::new(&host.stack);
            poller.add(&socket, 7, interest).expect("a socket");
            let mut events = Events::with_capacity(4);
            let mut told = || {
                let waited = poller.wait(&mut events, Some(std::time::Duration::ZERO));
                waited.expect("a poller");
                events.iter().filter(|event| event.readable).count()
            };
            for size in SIZES {
                // A bad one in front, which is nothing to tell of.
                let (from, to) = (host.net.peer(PEER_PORT), host.net.own(PORT));
                host.inject_all("tun0", bad_packets_of(from, to, &payload(size.max(1))));
                assert_eq!(told(), 0, "{size} bytes");
                host.peer_sends(&payload(size));
                assert_eq!(told(), 1, "{size} bytes");
                assert_eq!(rx(&socket), Some(payload(size)));
                assert_eq!(told(), 0, "{size} bytes");
            }
        }
        assert_eq!(host.csum_errors(), 2 * SIZES.len() as u64);
    });
}

/// Poll drops and counts a long bad one where a read would have to wait for a good one; where reads
/// don't wait it leaves that to the read. Nobody ever gets it.
#[test]
fn a_bad_checksum_is_counted_once_wherever_it_is_found() {
    everywhere(|host| {
        let (from, to) = (host.net.peer(PEER_PORT), host.net.own(PORT));
        let socket = host.bind(to);
        let mut counted = 0;
        for (size, is_short) in [(60, true), (200, false), (3_000, false)] {
            let bad = bad_packets_of(from, to, &payload(size));
            host.inject_all("tun0", &bad);
            assert_eq!(host.csum_errors() - counted, u64::from(is_short));
            let told = socket.is_readable().expect("an open socket");
            let is_left = !host.blocking && !is_short;
            assert_eq!(told, is_left, "{size} bytes");
            assert_eq!(host.csum_errors() - counted, u64::from(!is_left));
            let mut buf = [0; 4];
            let bufs = &mut [IoSliceMut::new(&mut buf)];
            let nothing = socket.try_recv_vectored(bufs).expect_err("nothing to read");
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
            assert_eq!(buf, [0; 4], "nothing of the bad one");
            assert_eq!(host.csum_errors() - counted, 1, "{size} bytes");

            host.inject_all("tun0", &bad);
            host.peer_sends(b"good");
            assert_eq!(drain(&socket), [b"good"]);
            counted += 2;
            assert_eq!((host.csum_errors(), host.in_errors()), (counted, counted));
        }
    });
}

/// A filter sees nothing whose checksum is bad, and never cuts into the header.
#[test]
fn a_filter_judges_what_is_verified() {
    everywhere(|host| {
        let (from, to) = (host.net.peer(PEER_PORT), host.net.own(PORT));
        let socket = host.bind(to);
        let kept: [(u32, Option<&[u8]>); 8] = [
            (0, None),
            (1, Some(b"")),
            (4, Some(b"")),
            (7, Some(b"")),
            (8, Some(b"")),
            (9, Some(b"s")),
            (12, Some(b"some")),
            (u32::MAX, Some(b"some bytes")),
        ];
        for (bytes, expected) in kept {
            socket.attach_filter(&keep(bytes)).expect("a program");
            let errors = host.in_errors();
            host.peer_sends(b"some bytes");
            let is_kept = expected.is_some();
            assert_eq!(socket.is_readable().expect("an open socket"), is_kept);
            let len = expected.map_or(0, <[u8]>::len);
            assert_eq!(socket.next_len().expect("an open socket"), len);
            assert_eq!(rx(&socket).as_deref(), expected, "{bytes}");
            assert_eq!(host.in_errors() - errors, u64::from(!is_kept));
            let before = host.csum_errors();
            for size in [60, 200, 3_000] {
                host.inject_all("tun0", bad_packets_of(from, to, &payload(size)));
            }
            assert_eq!(host.csum_errors() - before, 3, "before anybody reads");
            assert_eq!(rx(&socket), None);
        }
    });
}

/// What is told beside a datagram is of the time when it came, whatever became of its route and
/// its options since, and however it was cut.
#[test]
fn what_is_told_of_a_datagram_outlives_its_route() {
    everywhere(|host| {
        let net = host.net;
        let socket = host.warm_flow();
        let tun0 = host.ifindex("tun0");
        let mut packet = packets::udp(net.peer, net.own, PEER_PORT, PORT, b"0123456789");
        if net.is_v4() {
            let datagram = packet.split_off(20);
            let options = [7, 7, 4, 0, 0, 0, 0, 0];
            packet = packets::ipv4_with_options(V4::PEER, V4::OWN, 17, &options, &datagram);
        }
        let packet = packets::with_ttl(packet, 9);
        for filtered in [false, true] {
            if filtered {
                socket.attach_filter(&keep(8 + 6)).expect("a program");
            }
            let full = if filtered { 6 } else { 10 };
            host.inject("tun0", &packet);
            host.own_address(false);
            let mut buf = [0; 4];
            let bufs = &mut [IoSliceMut::new(&mut buf)];
            let peeked = socket.peek_at(1, bufs).expect("a datagram");
            assert_eq!(&buf, b"1234");
            let bufs = &mut [IoSliceMut::new(&mut buf)];
            let received = socket.recv_vectored(bufs).expect("a datagram");
            assert_eq!(&buf, b"0123");
            assert_eq!(received, peeked);
            assert_eq!((received.len, received.full_len), (4, full));
            assert_eq!((received.iif, received.ttl), (tun0, 9));
            assert_eq!(received.from, net.peer(PEER_PORT));
            assert_eq!(received.local, net.own(PORT));
            host.own_address(true);
        }
    });
}

#[test]
fn what_does_not_fit_is_lost_and_its_length_told() {
    everywhere(|host| {
        let socket = host.flow();
        for size in [10, 69, 3_001] {
            host.peer_sends(&payload(size));
            host.peer_sends(b"");
            let (mut one, mut two) = ([0; 3], [0; 1]);
            let mut recv = |peek| {
                let bufs = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                match peek {
                    true => socket.peek_vectored(bufs),
                    false => socket.recv_vectored(bufs),
                }
                .map(|received| (received.len, received.full_len))
                .map_err(|error| error.kind())
            };
            assert_eq!(recv(true), Ok((4, size)));
            assert_eq!(recv(false), Ok((4, size)));
            assert_eq!(recv(true), Ok((0, 0)), "an empty one is one, too");
            assert_eq!(recv(false), Ok((0, 0)));
            assert_eq!(recv(false), Err(ErrorKind::WouldBlock));
            assert_eq!((one, two), ([0, 1, 2], [3]));
        }
    });
}
