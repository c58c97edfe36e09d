//! Where flows come in, are handled, and go out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn any_worker_finds_the_socket() {
    for v6 in [false, true] {
        let host = Host::new(4, 4);
        let sockets: Vec<_> = (0..1_000)
            .map(|number| host.connected(v6, number))
            .collect();
        let queues: Vec<_> = (0..4)
            .map(|queue| host.port.queue(queue).expect("a queue"))
            .collect();
        for number in 0..1_000 {
            let queue = &queues[usize::from(number) % 4];
            queue
                .send(&datagram(v6, number, number.into()))
                .expect("a packet");
        }
        for (number, socket) in (0_u64..).zip(&sockets) {
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .expect("a timeout");
            let mut payload = [0; 8];
            assert_eq!(socket.recv(&mut payload).expect("its datagram"), 8);
            assert_eq!(u64::from_be_bytes(payload), number);
        }
        let stats: Vec<_> = (0..4)
            .map(|cpu| host.stack.inner().softnet_stats(cpu).expect("a worker"))
            .collect();
        for stats in &stats {
            assert_eq!((stats.processed, stats.received_rps), (250, 0));
        }
    }
}

/// Datagrams of the flow that is followed.
const DATAGRAMS: u64 = 2_000;

#[test]
fn a_flow_is_handled_where_it_is_read() {
    let Some(processors) = processors() else {
        return;
    };
    for v6 in [false, true] {
        let host = Host::new(2, 1);
        host.steer_flows(1);
        let socket = host.connected(v6, 1);
        let (done, read) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                cpu::pin(processors[1]).expect("an allowed processor");
                let mut next = 0;
                read_all(&socket, &done, |number| {
                    assert!(number >= next, "{number} after {next}");
                    next = number + 1;
                    read.fetch_add(1, Ordering::Release);
                });
            });
            host.port.send(&datagram(v6, 1, 0)).expect("a packet");
            // From the first read on it is known where that is.
            while read.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            for number in 1..DATAGRAMS {
                host.port.send(&datagram(v6, 1, number)).expect("a packet");
            }
            host.settle();
            done.store(true, Ordering::Release);
        });
        let lost = host.dropped(DropReason::SocketRcvbuff) + host.dropped(DropReason::CpuBacklog);
        assert_eq!(read.into_inner() + lost, DATAGRAMS);
        let elsewhere = host.stack.inner().softnet_stats(0).expect("a worker");
        assert!(elsewhere.processed <= DATAGRAMS / 20, "{elsewhere:?}");
    }
}

#[test]
fn a_flow_leaves_by_the_queue_that_it_came_by_last() {
    for workers in [1, 2] {
        for v6 in [false, true] {
            let host = Host::new(workers, 4);
            let queues: Vec<_> = (0..4)
                .map(|queue| host.port.queue(queue).expect("a queue"))
                .collect();
            let server = UdpSocket::bind(&host.stack, SocketAddr::new(own(v6), 7)).expect("free");
            server
                .set_read_timeout(Some(Duration::from_secs(5)))
                .expect("a timeout");
            for round in 0..3 {
                for flow in 0..32_u16 {
                    let queue = usize::from(flow + round) % 4;
                    let ping = packets::udp(peer(v6), own(v6), 20_000 + flow, 7, b"ping");
                    queues[queue].send(&ping).expect("a packet");
                    let mut payload = [0; 8];
                    let (len, from) = server.recv_from(&mut payload).expect("a ping");
                    assert_eq!(from.port(), 20_000 + flow);
                    server.send_to(&payload[..len], from).expect("a route");
                    let mut reply = [0; 100];
                    let len = queues[queue]
                        .recv_timeout(&mut reply, Duration::from_secs(5))
                        .expect("a reply at the queue that the ping came by");
                    let parsed = packets::parse(&reply[..len]);
                    assert_eq!(parsed.udp().1, 20_000 + flow);
                }
            }
        }
    }
}

#[test]
fn a_million_flows_through_a_port_are_not_all_remembered() {
    let host = Host::new(2, 2);
    let server = UdpSocket::bind(&host.stack, SocketAddr::new(own(false), 7)).expect("free");
    server.set_nonblocking(true).expect("an option");
    let [first, second] = [0, 1].map(|queue| host.port.queue(queue).expect("a queue"));
    let mut sent = 0_u64;
    for flow in 0..1_000_000_u32 {
        // A packet for the discard port of nobody: counted, answered at most a few times.
        let src = Ipv4Addr::from(0x0b00_0000 + flow);
        let packet = packets::udp(src, Ipv4Addr::new(10, 0, 0, 1), 9, 9, &[]);
        let queue = if flow % 2 == 0 { &first } else { &second };
        queue.send(&packet).expect("a packet");
        sent += 1;
    }
    host.settle();
    let status = host.stack.device_status("port0").expect("a device");
    assert_eq!(status.stats.rx_packets + status.stats.rx_dropped, sent);
    let ifindex = host
        .stack
        .inner()
        .interface_named("port0")
        .expect("a device")
        .index;
    let flows = host
        .stack
        .inner()
        .remembered_flows(ifindex, host.stack.now());
    assert!((1..=4_096).contains(&flows), "{flows} flows");
}

#[test]
fn a_busy_reader_finds_what_comes_and_sleeps_when_its_time_is_over() {
    let host = Host::new(1, 1);
    let socket = host.connected(false, 1);
    assert_eq!(socket.busy_poll(), Duration::ZERO);
    host.set("net.core.busy_read", "50");
    assert_eq!(socket.busy_poll(), Duration::from_micros(50));
    assert!(socket.set_busy_poll(Duration::from_secs(3_600)).is_err());
    socket
        .set_busy_poll(Duration::from_millis(3))
        .expect("a time");
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a timeout");
    let mut payload = [0; 8];
    // Sooner than it would sleep, and later.
    for (number, pause) in [(1, 0), (2, 1), (3, 20)] {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(pause));
                host.port
                    .send(&datagram(false, 1, number))
                    .expect("a packet");
            });
            assert_eq!(socket.recv(&mut payload).expect("a datagram"), 8);
            assert_eq!(u64::from_be_bytes(payload), number);
        });
    }
    let poller = forebay::Poller::new(&host.stack);
    host.set("net.core.busy_poll", "3000");
    poller
        .add(&socket, 7, forebay::Interest::READABLE)
        .expect("a socket");
    let mut events = forebay::Events::with_capacity(4);
    let patience = Some(Duration::from_secs(5));
    for pause in [0, 1, 20] {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(pause));
                host.port.send(&datagram(false, 1, 9)).expect("a packet");
            });
            assert_eq!(poller.wait(&mut events, patience).expect("events"), 1);
            assert_eq!(socket.recv(&mut payload).expect("a datagram"), 8);
        });
    }
    let nothing = poller.wait(&mut events, Some(Duration::from_millis(1)));
    assert_eq!(nothing.expect("none"), 0);
}
