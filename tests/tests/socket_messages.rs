//! What sockets have beyond std's, over a wire between two stacks that workers drive: several
//! buffers, batches, datagrams without a copy, readiness, path MTUs and error reports.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, SystemTime};

use forebay::device::wire::{WireConfig, WireEnd, wire};
use forebay::{ErrorOrigin, Message, MtuDiscover, RecvSlot, Stack, UdpOptions, UdpSocket, Workers};

/// Long enough for a datagram to cross the wire on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

struct Host {
    stack: Stack,
    addrs: [IpAddr; 2],
    _worker: Workers,
}

impl Host {
    fn new(device: WireEnd, number: u8) -> Self {
        let stack = Stack::builder().build().expect("a stack");
        let ifindex = stack.add_device("wire0", device).expect("a device");
        let addrs = [
            IpAddr::from([10, 0, 0, number]),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]),
        ];
        for (addr, len) in addrs.into_iter().zip([24, 64]) {
            let added = stack.inner().add_address(ifindex, addr, len);
            added.expect("an address");
        }
        let worker = stack.spawn_workers().expect("a worker");
        Self {
            stack,
            addrs,
            _worker: worker,
        }
    }

    fn bind(&self, family: usize, port: u16) -> UdpSocket {
        let addr = SocketAddr::new(self.addrs[family], port);
        let socket = UdpSocket::bind(&self.stack, addr).expect("a free address");
        let set = socket.set_read_timeout(Some(PATIENCE));
        set.expect("a timeout that is not zero");
        socket
    }
}

/// Runs a scenario between sockets of two hosts, in each family.
fn between(scenario: impl Fn(&Host, UdpSocket, &Host, UdpSocket)) {
    let (left, right) = wire(WireConfig::default());
    let (left, right) = (Host::new(left, 1), Host::new(right, 2));
    for family in [0, 1] {
        let server = right.bind(family, 7);
        let client = left.bind(family, 0);
        let peer = server.local_addr().expect("bound");
        client.connect(peer).expect("a way");
        scenario(&left, client, &right, server);
    }
}

/// The call waits for the first datagram and for no other.
#[test]
fn a_batch_waits_for_the_first_datagram() {
    between(|_, client, _, server| {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bufs = [[0; 8]; 16];
                let mut read = Vec::new();
                while read.len() < 40 {
                    let mut slots: Vec<_> = bufs.iter_mut().map(|buf| RecvSlot::new(buf)).collect();
                    let count = server.recv_batch(&mut slots).expect("datagrams");
                    let lens: Vec<_> = slots.iter().filter_map(|slot| slot.received).collect();
                    assert_eq!(lens.len(), count);
                    read.extend(bufs[..count].iter().map(|buf| buf[0]));
                }
                read
            });
            thread::sleep(Duration::from_millis(5));
            for nth in (0..40_u8).step_by(4) {
                let payloads = [[nth], [nth + 1], [nth + 2], [nth + 3]];
                let slices = payloads.each_ref().map(|payload| [IoSlice::new(payload)]);
                let messages = slices.each_ref().map(|payload| Message {
                    payload,
                    ..Message::default()
                });
                assert_eq!(client.send_batch(&messages).expect("sent"), 4);
            }
            let read = reader.join().expect("a reader");
            assert_eq!(read, (0..40).collect::<Vec<_>>());
        });
        assert_eq!(server.recv_batch(&mut []).expect("nothing asked for"), 0);
    });
}

#[test]
fn a_call_that_never_waits_says_so_on_a_socket_that_does() {
    between(|left, client, _, server| {
        let (mut head, mut tail) = ([0; 4], [0; 16]);
        let mut bufs = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
        let error = server.try_recv_vectored(&mut bufs).expect_err("nothing");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(!server.is_readable().expect("open"));
        client.set_tos(0x20).expect("open");
        let before = SystemTime::now();
        client.send(b"head and tail").expect("sent");
        let peeked = server.peek_vectored(&mut bufs).expect("a datagram");
        assert!(server.is_readable().expect("open"));
        assert_eq!(server.next_len().expect("open"), 13);
        let received = server.try_recv_vectored(&mut bufs).expect("the same");
        assert_eq!(received, peeked);
        assert_eq!((&head, &tail[..9]), (b"head", &b" and tail"[..]));
        assert_eq!((received.tos, received.ttl), (0x20, 64));
        assert_eq!(received.from, client.local_addr().expect("bound"));
        let age = left.stack.system_time(left.stack.now());
        assert!(age >= before);
    });
}

/// A header first, then as much as it says; datagrams in several buffers, too.
#[test]
fn a_look_may_begin_anywhere_in_the_datagram() {
    between(|_, client, _, server| {
        let payload: Vec<u8> = (0..5_000).map(|at| at as u8).collect();
        client.send(&payload).expect("sent");
        client.send(b"the next").expect("sent");
        let (mut one, mut two) = ([0; 3], [0; 2_000]);
        for offset in [0, 1, 1_300, 3_000, 4_998, 4_999, 5_000, 5_001, usize::MAX] {
            let bufs = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            let peeked = server.peek_at(offset, bufs).expect("a datagram");
            let seen: Vec<u8> = one.iter().chain(&two).copied().collect();
            let rest = payload.get(offset..).unwrap_or_default();
            let len = rest.len().min(2_003);
            assert_eq!((peeked.len, peeked.full_len), (len, 5_000), "{offset}");
            assert_eq!(seen[..len], rest[..len], "{offset}");
        }
        assert_eq!(server.recv(&mut [0; 1]).expect("a datagram"), 1);
        let bufs = &mut [IoSliceMut::new(&mut one)];
        assert_eq!(server.peek_at(4, bufs).expect("a datagram").len, 3);
        assert_eq!(&one, b"nex");
    });
}

#[test]
fn a_datagram_is_handed_out_as_it_came() {
    between(|_, client, right, server| {
        let sent = vec![5; 4_000];
        for recycle in [true, false] {
            client.send(&sent).expect("sent");
            let datagram = server.recv_datagram().expect("a datagram");
            assert_eq!(
                datagram.chunks().flatten().copied().collect::<Vec<_>>(),
                sent
            );
            assert!(right.stack.inner().socket_memory() >= 3 * 2_112);
            let arrived = right.stack.system_time(datagram.about().timestamp);
            assert!(arrived.elapsed().is_ok_and(|age| age < PATIENCE));
            if recycle {
                server.recycle(datagram);
            }
        }
        assert_eq!(right.stack.inner().socket_memory(), 0);
    });
}

/// Nobody listens where the datagram goes, and the sender asked to be told.
#[test]
fn who_asked_for_errors_is_told_all_of_them() {
    between(|_, client, _, server| {
        let mut closed = server.local_addr().expect("bound");
        closed.set_port(9);
        client.disconnect().expect("open");
        client.set_recv_err(true).expect("open");
        client.send_to(b"anybody?", closed).expect("sent");
        let error = client.recv(&mut [0; 8]).expect_err("nobody");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let report = client.recv_error().expect("open").expect("a report");
        assert_eq!((report.to, &report.payload[..]), (closed, &b"anybody?"[..]));
        assert_eq!(report.offender, Some(closed.ip()));

        client.set_mtu_discover(MtuDiscover::Do).expect("open");
        let error = client.send_to(&[0; 2_000], closed).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let report = client.recv_error().expect("open").expect("a report");
        assert_eq!(
            (report.origin, report.mtu),
            (ErrorOrigin::Local, Some(1_500))
        );
        assert!(client.recv_error().expect("open").is_none());
    });
}

/// Servers of one group on one port, each in a thread of its own.
#[test]
fn a_group_shares_a_port() {
    between(|left, client, right, server| {
        let port = 70;
        let addr = SocketAddr::new(server.local_addr().expect("bound").ip(), port);
        let bind = || UdpOptions::new().reuse_port(true).bind(&right.stack, addr);
        let group = [bind(), bind(), bind()].map(|member| member.expect("a member"));
        let alone = UdpSocket::bind(&right.stack, addr).expect_err("taken");
        assert_eq!(alone.kind(), ErrorKind::AddrInUse);
        let own = client.local_addr().expect("bound").ip();
        let senders: Vec<_> = (0..30)
            .map(|_| UdpSocket::bind(&left.stack, SocketAddr::new(own, 0)).expect("a port"))
            .collect();
        for sender in &senders {
            sender.send_to(b"to one of you", addr).expect("sent");
        }
        let mut read = [0; 3];
        while read.iter().sum::<u32>() < 30 {
            for (member, count) in group.iter().zip(&mut read) {
                member.set_nonblocking(true).expect("open");
                while member.recv(&mut [0; 32]).is_ok() {
                    *count += 1;
                }
            }
            thread::yield_now();
        }
        assert!(read.iter().all(|count| *count > 0), "{read:?}");
    });
}
