//! Several buffers, several datagrams in one call, datagrams without a copy, and what is told along
//! with them.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::transmit::SendError;
use forebay_stack::udp::{Message, UdpSendError};
use forebay_tests::{Net, Rig, everywhere, packets};

use super::*;

const PORT: u16 = 53;
const PEER_PORT: u16 = 1000;

/// A datagram of so many bytes, in fragments if it is long.
fn deliver(rig: &mut Rig, net: &Net, payload: &[u8]) {
    let packet = packets::udp(net.peer, net.own, PEER_PORT, PORT, payload);
    if packet.len() <= 1_500 {
        return rig.inject("tun0", packet);
    }
    rig.inject_all("tun0", packets::fragments(&packet, 7, 1_400));
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_datagram_fills_one_buffer_after_the_other() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        for len in [0, 1, 10, 1_400, 5_000] {
            let sent = payload(len);
            for sizes in [&[][..], &[0], &[4], &[3, 0, 4], &[1, 2_000, 2_000, 2_000]] {
                deliver(&mut rig, &net, &sent);
                for peek in [true, false] {
                    let mut places: Vec<_> = sizes.iter().map(|size| vec![0; *size]).collect();
                    let mut bufs: Vec<_> =
                        places.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
                    let received = rig.stack.udp_recv_vectored(id, &mut bufs, peek);
                    let received = received.expect("no error").expect("a datagram");
                    let room = sizes.iter().sum::<usize>();
                    assert_eq!((received.len, received.full_len), (len.min(room), len));
                    assert_eq!(places.concat()[..received.len], sent[..received.len]);
                }
                assert_eq!(rig.stack.udp_recv(id, &mut [0; 9], false), Ok(None));
            }
        }
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn a_batch_is_what_single_reads_would_have_been() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        for (waiting, places) in [(0, 3), (3, 0), (3, 3), (2, 5), (9, 4)] {
            let lens: Vec<_> = (0..waiting).map(|nth| nth * 300).collect();
            for len in &lens {
                deliver(&mut rig, &net, &payload(*len));
            }
            let mut bufs = vec![[0; 500]; places];
            let mut slots: Vec<_> = bufs.iter_mut().map(|buf| RecvSlot::new(buf)).collect();
            let filled = waiting.min(places);
            assert_eq!(rig.stack.udp_recv_batch(id, &mut slots), Ok(filled));
            let received: Vec<_> = slots.iter().map(|slot| slot.received).collect();
            for (nth, received) in received.iter().enumerate() {
                let received = received.map(|received| (received.len, received.full_len));
                let expected = (nth < filled).then(|| (lens[nth].min(500), lens[nth]));
                assert_eq!(received, expected);
            }
            for (buf, len) in bufs.iter().zip(&lens) {
                let len = len.min(&500);
                assert_eq!(buf[..*len], payload(*len));
            }
            // A place that is not filled says so, whatever it held.
            assert_eq!(rig.drain(id).len(), waiting - filled);
            let mut again: Vec<_> = bufs.iter_mut().map(|buf| RecvSlot::new(buf)).collect();
            assert_eq!(rig.stack.udp_recv_batch(id, &mut again), Ok(0));
            assert!(again.iter().all(|slot| slot.received.is_none()));
        }
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn a_datagram_handed_out_keeps_its_buffers_until_it_is_given_back() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        for recycle in [true, false] {
            for (len, buffers) in [(0, 1), (100, 1), (3_000, 3)] {
                deliver(&mut rig, &net, &payload(len));
                let datagram = rig.stack.udp_take(id).expect("no error").expect("one");
                assert_eq!(datagram.about().from, net.peer(PEER_PORT));
                assert_eq!(
                    (datagram.about().len, datagram.about().full_len),
                    (len, len)
                );
                assert_eq!(
                    datagram.chunks().flatten().copied().collect::<Vec<_>>(),
                    payload(len)
                );
                // The socket has room again, others have not.
                assert_eq!(rig.stack.udp_info(id).expect("open").recv_q, 0);
                assert_eq!(rig.stack.socket_memory(), buffers * 2_112);
                assert_eq!(rig.buffers_in_use(), buffers);
                match recycle {
                    true => rig.stack.udp_recycle(datagram),
                    false => drop(datagram),
                }
                assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
            }
        }
        let read = net.pick(Counter::UdpInDatagrams, Counter::Udp6InDatagrams);
        assert_eq!(rig.count(read), 6);
        // It may outlive its socket.
        deliver(&mut rig, &net, b"last");
        let datagram = rig.stack.udp_take(id).expect("no error").expect("one");
        rig.close(id);
        assert_eq!(datagram.chunks().collect::<Vec<_>>(), [b"last"]);
    });
}

#[test]
fn a_datagram_comes_with_its_ttl_its_type_of_service_and_its_time() {
    everywhere(|mut rig, net| {
        let id = rig.bind_and_connect(net.own(PORT), net.peer(PEER_PORT));
        for (ttl, tos) in [(1, 0), (64, 0xb8), (255, 3)] {
            rig.advance(Duration::from_millis(5));
            let mut packet = packets::udp(net.peer, net.own, PEER_PORT, PORT, b"x");
            if net.is_v4() {
                packet[1] = tos;
            } else {
                packet[0] = 0x60 | tos >> 4;
                packet[1] = tos << 4;
            }
            let arrival = rig.now();
            rig.inject("tun0", packets::with_ttl(packet, ttl));
            rig.advance(Duration::from_secs(1));
            let (received, _) = recv(&rig, id).expect("a datagram");
            assert_eq!((received.ttl, received.tos), (ttl, tos));
            assert_eq!(received.timestamp, arrival);
            assert_eq!(received.local, net.own(PORT));
        }
    });
}

#[test]
fn messages_say_for_themselves_how_they_are_sent() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.any(PORT));
        rig.stack.udp_set_tos(id, 4).expect("open");
        let payload = [b"gathered ".as_slice(), b"", &[7; 3_000], b" bytes"];
        let slices = payload.map(IoSlice::new);
        let plain = Message {
            payload: &slices,
            to: Some(net.peer(PEER_PORT)),
            ..Message::default()
        };
        rig.stack
            .udp_set_mtu_discover(id, forebay_stack::udp::MtuDiscover::Omit)
            .expect("open");
        let sent = rig.stack.udp_send_message(rig.now(), id, &plain);
        assert_eq!(sent, Ok(()));
        // In fragments, which come back whole as the peer's.
        let pieces = rig.output("tun0");
        assert_eq!(pieces.len(), 3);

        let short = [IoSlice::new(b"short")];
        let marked = Message {
            payload: &short,
            from: Some(net.own(PORT)),
            ttl: Some(9),
            tos: Some(0xb8),
            device: Some(rig.ifindex("tun0")),
            ..plain
        };
        let stack = rig.stack.clone();
        let send =
            |rig: &Rig, messages: &[Message<'_>]| stack.udp_send_batch(rig.now(), id, messages);
        assert_eq!(send(&rig, &[]), Ok(0));
        let plain = Message {
            payload: &short,
            ..plain
        };
        assert_eq!(send(&rig, &[marked, plain, marked]), Ok(3));
        let sent: Vec<_> = rig
            .output("tun0")
            .iter()
            .map(|packet| {
                let parsed = packets::parse(packet);
                let tos = match net.is_v4() {
                    true => packet[1],
                    false => packet[0] << 4 | packet[1] >> 4,
                };
                (parsed.src, parsed.ttl, tos)
            })
            .collect();
        assert_eq!(
            sent,
            [(net.own, 9, 0xb8), (net.own, 64, 4), (net.own, 9, 0xb8)]
        );

        // What follows one that can't be sent is not.
        let wrong = [
            (
                Message {
                    ttl: Some(0),
                    ..plain
                },
                SendError::InvalidArgument,
            ),
            (
                Message {
                    to: Some(net.peer(0)),
                    ..plain
                },
                SendError::InvalidArgument,
            ),
            (
                Message {
                    from: Some(net.own(PORT + 1)),
                    ..plain
                },
                SendError::InvalidArgument,
            ),
            (
                Message {
                    from: Some(net.peer(PORT)),
                    ..plain
                },
                SendError::AddressNotAvailable,
            ),
        ];
        for (wrong, error) in wrong {
            assert_eq!(
                send(&rig, &[wrong, plain]),
                Err(UdpSendError::Network(error))
            );
            assert_eq!(send(&rig, &[plain, wrong, plain]), Ok(1));
            assert_eq!(rig.output("tun0").len(), 1);
        }
        // A socket of one interface sends by no other.
        rig.stack
            .udp_set_device(id, Some(rig.ifindex("tun0")))
            .expect("a device");
        let by_other = Message {
            device: Some(rig.ifindex("tun1")),
            ..plain
        };
        let refused = UdpSendError::Network(SendError::InvalidArgument);
        assert_eq!(send(&rig, &[by_other]), Err(refused));
    });
}
