//! More than the readers take, for as long as it lasts: each datagram is read or has a reason, memory
//! stays within bounds, and who keeps up notices nothing.
//!
//! `FOREBAY_OVERLOAD_SECS` says how long each of the floods lasts.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_stack::Stack;
use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::PacketQueue;
use forebay_stack::socket::SocketId;
use forebay_tests::kernel::resident_bytes;
use forebay_tests::{Net, Rig, packets};

/// How long a flood lasts, unless the environment says otherwise.
const SECONDS: f64 = 1.0;

/// How much longer it may last until all memory is used up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many datagrams come for each that the slow reader takes.
const EXCESS: u64 = 10;

/// Sockets that nobody reads; together their queues may hold more than all sockets may have.
const HOARDERS: u16 = 60;

/// Datagrams of the quick reader that may be under way, as where a peer waits for answers: no more
/// than a queue may hold whatever others do (`udp_rmem_min`), with what its reader owes.
const UNDER_WAY: u64 = 1;

/// Payloads in one buffer whose checksums are verified on arrival and when they are read, and in two.
const SIZES: [usize; 4] = [18, 69, 1_400, 3_000];

const BATCH: usize = 64;

const SLOW: u16 = 2_000;
const QUICK: u16 = 3_000;
const CLOSED: u16 = 4_000;
const FIRST_HOARDER: u16 = 5_000;
const PEER: u16 = 1_000;

/// What the application may hold of the pool, and what may be on its way to it, in bytes.
const RESIDENT_GROWTH: u64 = 16 << 20;

#[test]
fn ipv4_with_early_demux() {
    flood(Net::V4, true);
}

#[test]
fn ipv4_without_early_demux() {
    flood(Net::V4, false);
}

#[test]
fn ipv6_with_early_demux() {
    flood(Net::V6, true);
}

#[test]
fn ipv6_without_early_demux() {
    flood(Net::V6, false);
}

/// What was sent to each, and which of that was damaged on the way.
#[derive(Debug, Default)]
struct Sent {
    slow: u64,
    quick: u64,
    hoarders: u64,
    to_nobody: u64,
    damaged: u64,
    /// Those of them that are verified on arrival.
    damaged_and_short: u64,
}

/// What the readers share with who sends.
#[derive(Debug, Default)]
struct Shared {
    sent_to_slow: AtomicU64,
    read_by_quick: AtomicU64,
    over: AtomicBool,
}

fn flood(net: Net, early_demux: bool) {
    let mut rig = Rig::with_early_demux(early_demux);
    let [slow, quick] =
        [SLOW, QUICK].map(|port| rig.bind_and_connect(net.own(port), net.peer(PEER)));
    let hoarders: Vec<_> = (FIRST_HOARDER..FIRST_HOARDER + HOARDERS)
        .map(|port| rig.bind(net.own(port)))
        .collect();
    let shared = Shared::default();
    let stack = Arc::clone(&rig.stack);
    let mut flood = Flood {
        net,
        sent: Sent::default(),
        most_in_use: 0,
    };
    let (mut read_slowly, read_quickly) = thread::scope(|scope| {
        let _over = SetWhenDropped(&shared.over);
        let slowly = scope.spawn(|| read_slowly(&stack, slow, &shared));
        let quickly = scope.spawn(|| read_quickly(&stack, quick, &shared));
        flood.run(&mut rig, &shared);
        shared.over.store(true, Ordering::Release);
        (
            slowly.join().expect("above"),
            quickly.join().expect("above"),
        )
    });
    let Flood {
        sent, most_in_use, ..
    } = flood;

    // Whoever keeps up has lost nothing, whatever became of others.
    let info = |id| rig.stack.udp_info(id).expect("open");
    assert_eq!((read_quickly, info(quick).drops), (sent.quick, 0));
    assert!(read_slowly * EXCESS <= sent.slow);

    let waiting = info(slow).recv_q;
    assert!(waiting <= info(slow).rcvbuf, "{waiting}");
    read_slowly += rig.drain(slow).len() as u64;
    let kept: u64 = hoarders.iter().map(|id| rig.drain(*id).len() as u64).sum();

    // To the packet: read, or dropped for a reason that is counted.
    let all = sent.slow + sent.quick + sent.hoarders + sent.to_nobody;
    let read = read_slowly + read_quickly + kept;
    let drops = rig.drops();
    let dropped: u64 = drops.iter().map(|(_, count)| count).sum();
    assert_eq!(all, read + dropped, "{sent:?} {drops:?}");
    let expected = [
        DropReason::UdpCsum,
        DropReason::UdpNoSocket,
        DropReason::SocketRcvbuff,
        DropReason::ProtoMem,
    ];
    assert!(
        drops.iter().all(|(reason, _)| expected.contains(reason)),
        "{drops:?}"
    );
    assert_eq!(rig.dropped(DropReason::UdpNoSocket), sent.to_nobody);
    // Some of the damaged found no room, and nobody looked at them.
    let [csum, rcvbuf, memory] = [
        DropReason::UdpCsum,
        DropReason::SocketRcvbuff,
        DropReason::ProtoMem,
    ]
    .map(|reason| rig.dropped(reason));
    assert!(
        0 < csum && csum <= sent.damaged && rcvbuf > 0 && memory > 0,
        "{drops:?}"
    );
    let count = |v4, v6| rig.count(net.pick(v4, v6));
    assert_eq!(
        count(Counter::UdpInDatagrams, Counter::Udp6InDatagrams),
        read
    );
    assert_eq!(
        count(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors),
        rcvbuf
    );
    assert_eq!(count(Counter::UdpMemErrors, Counter::Udp6MemErrors), memory);
    assert_eq!(
        count(Counter::UdpInCsumErrors, Counter::Udp6InCsumErrors),
        csum
    );
    assert_eq!(
        count(Counter::UdpInErrors, Counter::Udp6InErrors),
        rcvbuf + memory + csum
    );
    let of_sockets = hoarders
        .iter()
        .chain([&slow])
        .map(|id| u64::from(info(*id).drops));
    assert_eq!(
        of_sockets.sum::<u64>(),
        rcvbuf + memory + csum - sent.damaged_and_short
    );
    println!("{sent:?}\nread {read}, dropped {drops:?}, buffers in use at most {most_in_use}");

    for id in hoarders.into_iter().chain([slow, quick]) {
        rig.close(id);
    }
    assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
}

struct Flood {
    net: Net,
    sent: Sent,
    /// Buffers of the pool.
    most_in_use: usize,
}

impl Flood {
    /// The first half of the time for the slow reader alone, the second for the hoarders as well.
    fn run(&mut self, rig: &mut Rig, shared: &Shared) {
        let time = how_long();
        let start = Instant::now();
        let mut resident = None;
        for nth in 0.. {
            let passed = start.elapsed();
            // On a busy machine it may take longer until the memory is used up.
            let is_full = || rig.dropped(DropReason::ProtoMem) > 0;
            if passed >= time && (is_full() || passed >= time + PATIENCE) {
                break;
            }
            self.send(rig, shared, nth, passed * 2 > time);
            self.most_in_use = self.most_in_use.max(rig.stack.pool().in_use());
            // When all memory is in use that ever will be.
            if passed * 4 > time * 3 {
                let before = *resident.get_or_insert_with(resident_bytes);
                if nth.is_multiple_of(1_024) {
                    assert!(resident_bytes() < before + RESIDENT_GROWTH);
                }
            }
        }
    }

    /// A batch: something for the slow reader and for nobody, for the quick one if that has room, for
    /// hoarders if they are there.
    fn send(&mut self, rig: &mut Rig, shared: &Shared, nth: u64, with_hoarders: bool) {
        let mut queue = PacketQueue::new();
        let under_way = self.sent.quick - shared.read_by_quick.load(Ordering::Acquire);
        for _ in under_way..UNDER_WAY {
            let datagram = self.datagram(QUICK, self.sent.quick, 200);
            self.sent.quick += 1;
            queue.push(rig.packet(&datagram));
        }
        if nth.is_multiple_of(64) {
            queue.push(rig.packet(&self.datagram(CLOSED, nth, 18)));
            self.sent.to_nobody += 1;
        }
        while queue.len() < BATCH {
            let turn = queue.len() as u64 + nth * BATCH as u64;
            let size = SIZES[(turn / 7) as usize % SIZES.len()];
            let mut datagram = if with_hoarders && turn.is_multiple_of(2) {
                self.sent.hoarders += 1;
                let port = FIRST_HOARDER + (turn / 2 % u64::from(HOARDERS)) as u16;
                self.datagram(port, turn, size)
            } else {
                self.sent.slow += 1;
                self.datagram(SLOW, self.sent.slow, size)
            };
            if turn.is_multiple_of(53) {
                self.sent.damaged += 1;
                self.sent.damaged_and_short += u64::from(size == SIZES[0]);
                *datagram.last_mut().expect("not empty") ^= 1;
            }
            queue.push(rig.packet(&datagram));
        }
        rig.receive("tun0", &mut queue);
        shared.sent_to_slow.store(self.sent.slow, Ordering::Release);
        rig.output("tun0");
    }

    /// A datagram that begins with its number.
    fn datagram(&self, port: u16, number: u64, size: usize) -> Vec<u8> {
        let mut payload = vec![7; size];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        packets::udp(self.net.peer, self.net.own, PEER, port, &payload)
    }
}

fn how_long() -> Duration {
    let asked = env::var("FOREBAY_OVERLOAD_SECS").ok();
    let seconds = asked.map_or(SECONDS, |asked| asked.parse().expect("seconds"));
    Duration::from_secs_f64(seconds)
}

/// One for ten that come.
fn read_slowly(stack: &Stack, id: SocketId, shared: &Shared) -> u64 {
    let (mut read, mut last) = (0, None);
    while !shared.over.load(Ordering::Relaxed) {
        if (read + 1) * EXCESS > shared.sent_to_slow.load(Ordering::Acquire) {
            thread::yield_now();
        } else if let Some(number) = receive(stack, id) {
            assert!(last < Some(number), "in the order of arrival");
            (read, last) = (read + 1, Some(number));
        } else {
            thread::yield_now();
        }
    }
    read
}

/// All that come, until the end and what came before it.
fn read_quickly(stack: &Stack, id: SocketId, shared: &Shared) -> u64 {
    let mut read = 0;
    loop {
        let over = shared.over.load(Ordering::Acquire);
        match receive(stack, id) {
            Some(number) => {
                assert_eq!(number, read, "each of them");
                read += 1;
                shared.read_by_quick.store(read, Ordering::Release);
            }
            None if over => return read,
            None => thread::yield_now(),
        }
    }
}

/// The number of the next datagram.
fn receive(stack: &Stack, id: SocketId) -> Option<u64> {
    let mut buf = [0; 4_096];
    let received = stack.udp_recv(id, &mut buf, false).expect("no error")?;
    assert_eq!(received.len, received.full_len);
    buf.first_chunk().map(|number| u64::from_be_bytes(*number))
}

/// Lets the readers end where who sends has panicked.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
