use super::*;
use crate::device::testing::{Wakes, bytes, packet};
use crate::device::{BadFrame, PacketPool};
use std::thread;

const NOW: Instant = Instant::ZERO;

fn cache() -> PacketCache {
    PacketPool::new(256).cache()
}

fn receive(device: &mut PortDevice, cache: &mut PacketCache, budget: usize) -> Vec<Vec<u8>> {
    let mut out = PacketQueue::new();
    device
        .receive(NOW, cache, &mut out, budget)
        .expect("a port never fails");
    out.iter().map(bytes).collect()
}

fn transmit(device: &mut PortDevice, cache: &mut PacketCache, sent: &[&[u8]]) -> usize {
    let mut packets = PacketQueue::new();
    sent.iter()
        .for_each(|bytes| packets.push(packet(cache, bytes)));
    device
        .transmit(NOW, &mut packets, cache)
        .expect("a port never fails");
    packets.len()
}

#[test]
fn what_is_no_packet_is_refused_to_the_writer() {
    let (mut device, port) = port(PortConfig::default());
    let long = vec![0x45; 65_535];
    let cases: [(&[u8], Option<BadFrame>); 11] = [
        (&[], Some(BadFrame::Empty)),
        (&[0x00], Some(BadFrame::Version)),
        (&[0x55, 0, 0], Some(BadFrame::Version)),
        (&[0xf0; 20], Some(BadFrame::Version)),
        (&long, Some(BadFrame::TooLong)),
        (&long[..1_501], Some(BadFrame::TooLong)),
        (&long[..1_500], None),
        // The stack judges these, and counts them where Linux does.
        (&[0x45], None),
        (&[0x45, 0, 0], None),
        (&[0x60], None),
        (&[0x60; 39], None),
    ];
    for (frame, expected) in cases {
        let Err(error) = port.try_send(frame) else {
            assert_eq!(expected, None);
            continue;
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let reason = error
            .get_ref()
            .and_then(|reason| reason.downcast_ref::<BadFrame>());
        assert_eq!(reason, expected.as_ref());
        assert!(port.send(frame).is_err());
    }
    let good: Vec<_> = cases
        .iter()
        .filter(|case| case.1.is_none())
        .map(|case| case.0)
        .collect();
    assert_eq!(receive(&mut device, &mut cache(), 64), good);
}

#[test]
fn packets_pass_whole_in_order_and_bounded() {
    let (mut device, port) = port(PortConfig {
        queue: 3_000,
        ..PortConfig::default()
    });
    let wakes = Wakes::new();
    device.set_waker(wakes.waker());
    let mut cache = cache();
    let sent: Vec<Vec<u8>> = (0..4)
        .map(|i| [&[0x45, i][..], &[i; 998]].concat())
        .collect();

    for round in 0..20 {
        for (i, frame) in sent.iter().enumerate() {
            let sending = port.try_send(frame);
            assert_eq!(sending.is_ok(), i < 3, "round {round}");
            assert!(i < 3 || sending.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
        }
        assert_eq!(wakes.take(), 1);
        assert_eq!(receive(&mut device, &mut cache, 2), sent[..2]);
        assert_eq!(receive(&mut device, &mut cache, 2), sent[2..3]);

        let frames: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
        assert_eq!(transmit(&mut device, &mut cache, &frames), 1);
        let mut buffer = [0; 1_500];
        for frame in &sent[..3] {
            let len = port.try_recv(&mut buffer).expect("a packet waits");
            assert_eq!(&buffer[..len], frame);
        }
        assert_eq!(wakes.take(), 1, "room again");
        let nothing = port.try_recv(&mut buffer).expect_err("no packet waits");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
    let stats = device.stats();
    assert_eq!((stats.rx_packets, stats.rx_bytes), (60, 60_000));
    assert_eq!((stats.tx_packets, stats.tx_bytes), (60, 60_000));
}

#[test]
fn a_short_buffer_gets_the_front_of_a_packet() {
    let (mut device, port) = port(PortConfig::default());
    let mut cache = cache();
    transmit(&mut device, &mut cache, &[&[0x45, 1, 2, 3], &[0x46]]);
    let mut buffer = [0; 2];
    assert_eq!(port.recv(&mut buffer).expect("a packet waits"), 2);
    assert_eq!(buffer, [0x45, 1]);
    assert_eq!(port.recv(&mut buffer).expect("another packet waits"), 1);
    assert_eq!(buffer, [0x46, 1]);
}

#[test]
fn either_side_may_go() {
    let mut cache = cache();
    let mut buffer = [0; 64];
    let (mut device, first) = port(PortConfig::default());
    let second = first.clone();
    drop(first);
    assert_eq!(transmit(&mut device, &mut cache, &[&[0x45]]), 0);
    drop(second);
    assert_eq!(transmit(&mut device, &mut cache, &[&[0x45]]), 0);
    assert_eq!(
        (device.stats().tx_packets, device.stats().tx_dropped),
        (1, 1)
    );

    let (mut device, port) = port(PortConfig::default());
    transmit(&mut device, &mut cache, &[&[0x45]]);
    let waiting = {
        let port = port.clone();
        thread::spawn(move || {
            let mut buffer = [0; 64];
            (port.recv(&mut buffer).is_ok(), port.recv(&mut buffer))
        })
    };
    let (first, second) = {
        // Whichever comes first, the drop or the second wait, it must end.
        thread::sleep(Duration::from_millis(10));
        drop(device);
        waiting.join().expect("the thread does not panic")
    };
    assert!(first);
    let broken = |error: io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    assert!(second.is_err_and(broken));
    assert!(port.send(&[0x45]).is_err_and(broken));
    assert!(port.try_recv(&mut buffer).is_err_and(broken));
}

#[test]
fn a_receive_with_a_timeout_ends() {
    let (_device, port) = port(PortConfig::default());
    let result = port.recv_timeout(&mut [0; 64], Duration::from_millis(5));
    assert!(result.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
}

#[test]
fn tasks_are_woken_once_each() {
    let (mut device, port) = port(PortConfig {
        queue: 1,
        ..PortConfig::default()
    });
    let mut cache = cache();
    let wakes = Wakes::new();
    let waker = wakes.waker();
    let context = &mut Context::from_waker(&waker);
    let mut buffer = [0; 64];

    assert!(port.poll_recv(context, &mut buffer).is_pending());
    assert!(port.poll_recv(context, &mut buffer).is_pending());
    transmit(&mut device, &mut cache, &[&[0x45]]);
    assert_eq!(wakes.take(), 1);
    assert!(matches!(
        port.poll_recv(context, &mut buffer),
        Poll::Ready(Ok(1))
    ));

    assert!(matches!(
        port.poll_send(context, &[0x45]),
        Poll::Ready(Ok(()))
    ));
    assert!(port.poll_send(context, &[0x45]).is_pending());
    assert!(matches!(
        port.poll_send(context, &[0x55]),
        Poll::Ready(Err(_))
    ));
    receive(&mut device, &mut cache, 1);
    assert_eq!(wakes.take(), 1);
    assert!(matches!(
        port.poll_send(context, &[0x45]),
        Poll::Ready(Ok(()))
    ));
}

#[test]
fn threads_lose_nothing_through_a_small_port() {
    const PACKETS: u32 = 5_000;
    let (mut device, port) = port(PortConfig {
        queue: 64,
        ..PortConfig::default()
    });
    let mut cache = cache();
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..PACKETS {
                let [a, b, c, d] = i.to_be_bytes();
                port.send(&[0x45, a, b, c, d]).expect("the device lives");
            }
        });
        let reader = scope.spawn(|| {
            let mut buffer = [0; 8];
            (0..PACKETS).all(|i| {
                let len = port.recv(&mut buffer).expect("the device lives");
                buffer[..len] == [&[0x45], &i.to_be_bytes()[..]].concat()
            })
        });
        let mut packets = PacketQueue::new();
        while !reader.is_finished() {
            // Else a slow reader would leave the pool without buffers, and a port drops then.
            if packets.is_empty() {
                device
                    .receive(NOW, &mut cache, &mut packets, 64)
                    .expect("a port never fails");
            }
            device
                .transmit(NOW, &mut packets, &mut cache)
                .expect("a port never fails");
        }
        assert!(
            reader.join().expect("the reader does not panic"),
            "in order"
        );
    });
}
