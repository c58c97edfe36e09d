//! No flow is reordered, wherever it is read.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// How long a reader stays on a processor.
const STAY: Duration = Duration::from_millis(10);

const FLOWS: u16 = 4;

/// Sends numbered datagrams of every flow until time is up, as fast as they are taken. Each flow
/// keeps to one queue. Returns how many there were of each.
fn feed(port: &Port, v6: bool, flows: &[u16], end: Instant) -> u64 {
    let mut sent = 0;
    while Instant::now() < end {
        for flow in flows {
            port.send(&datagram(v6, *flow, sent)).expect("a packet");
        }
        sent += 1;
    }
    sent
}

/// Reads a flow on one processor after the other. Returns how many datagrams were read.
fn read_here_and_there(socket: &UdpSocket, processors: &[usize], done: &AtomicBool) -> u64 {
    let (mut read, mut next) = (0, 0);
    let mut places = processors.iter().cycle();
    let mut moves = Instant::now();
    read_all(socket, done, |number| {
        assert!(number >= next, "{number} after {next}");
        (read, next) = (read + 1, number + 1);
        if Instant::now() >= moves {
            let place = places.next().expect("a cycle does not end");
            cpu::pin(*place).expect("an allowed processor");
            moves = Instant::now() + STAY;
        }
    });
    read
}

#[test]
fn no_flow_is_reordered_while_its_reader_migrates() {
    let Some(processors) = processors() else {
        return;
    };
    for v6 in [false, true] {
        let host = Host::new(2, 2);
        host.steer_flows(2);
        let sockets: Vec<_> = (0..FLOWS).map(|flow| host.connected(v6, flow)).collect();
        let done = AtomicBool::new(false);
        let end = Instant::now() + how_long();
        let (sent, read) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let readers: Vec<_> = sockets
                .iter()
                .map(|socket| {
                    scope.spawn(|| {
                        let count = read_here_and_there(socket, &processors, &done);
                        read.fetch_add(count, Ordering::Relaxed);
                    })
                })
                .collect();
            let feeders: Vec<_> = (0..2_u16)
                .map(|queue| {
                    let port = host.port.queue(queue).expect("a queue");
                    let sent = &sent;
                    scope.spawn(move || {
                        let flows: Vec<_> = (0..FLOWS).filter(|flow| flow % 2 == queue).collect();
                        let of_each = feed(&port, v6, &flows, end);
                        sent.fetch_add(of_each * flows.len() as u64, Ordering::Relaxed);
                    })
                })
                .collect();
            for feeder in feeders {
                feeder.join().expect("no panic");
            }
            host.settle();
            done.store(true, Ordering::Release);
            for reader in readers {
                reader.join().expect("no panic");
            }
        });
        let lost = host.dropped(DropReason::SocketRcvbuff)
            + host.dropped(DropReason::CpuBacklog)
            + host
                .stack
                .device_status("port0")
                .expect("a device")
                .stats
                .rx_dropped;
        let (sent, read) = (sent.into_inner(), read.into_inner());
        assert_eq!(sent, read + lost, "{lost} were dropped for a reason");
        assert_eq!(
            host.stack.inner().counters().dropped_total(),
            lost - host
                .stack
                .device_status("port0")
                .expect("a device")
                .stats
                .rx_dropped
        );
        let handed_over: u64 = (0..2)
            .map(|cpu| {
                host.stack
                    .inner()
                    .softnet_stats(cpu)
                    .expect("a worker")
                    .received_rps
            })
            .sum();
        assert!(handed_over > 0, "nothing was steered");
        eprintln!("{sent} sent, {read} read, {lost} dropped, {handed_over} handed over");
    }
}
