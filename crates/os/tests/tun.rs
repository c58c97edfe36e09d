//! TUN devices against the kernel's own sockets, in a private network.

mod common;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::time::Duration;

use common::{in_private_network, receive_udp, send_back, tun};
use forebay_os::tun::{MAX_BUFFERS, Tun, TunConfig, TunError};
use forebay_os::vnet::VnetHeader;
use rustix::io::Errno;

fn config(name: &str, queues: usize, offload: bool) -> TunConfig {
    TunConfig {
        name: name.into(),
        queues,
        offload,
    }
}

fn socket(address: &str, peer: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).expect("bind");
    socket.connect((peer, 7)).expect("connect");
    let patience = Duration::from_secs(10);
    socket.set_read_timeout(Some(patience)).expect("timeout");
    socket
}

#[test]
fn datagrams_there_and_back() {
    in_private_network("datagrams_there_and_back", || {
        let addresses = [("10.9.0.2", 24), ("fd09::2", 64)];
        for (name, queues, offload) in [("tun0", 1, false), ("tun1", 1, true), ("tun%d", 2, true)] {
            let Some(mut tun) = tun(&config(name, queues, offload), &addresses) else {
                return;
            };
            assert_eq!(tun.name(), name.replace("%d", "0"));
            assert_eq!(tun.queues.len(), queues);
            for (address, peer) in [("10.9.0.2", "10.9.0.1"), ("fd09::2", "fd09::1")] {
                let socket = socket(address, peer);
                socket.send(b"from the kernel").expect("send");
                let frame = receive_udp(&mut tun.queues, 7);
                assert!(frame.bytes.ends_with(b"from the kernel"));
                let left_to_fill_in = frame.header.flags & VnetHeader::NEEDS_CSUM != 0;
                assert_eq!(left_to_fill_in, offload);
                assert_eq!(frame.header.gso_type, VnetHeader::GSO_NONE);

                send_back(&mut tun.queues[frame.queue], &frame).expect("send back");
                let mut answer = [0; 64];
                let len = socket.recv(&mut answer).expect("an answer");
                assert_eq!(&answer[..len], b"from the kernel");
            }
        }
    });
}

#[test]
fn a_super_packet_there_and_back() {
    in_private_network("a_super_packet_there_and_back", || {
        let addresses = [("10.9.0.2", 24), ("fd09::2", 64)];
        let Some(mut tun) = tun(&config("tun0", 2, true), &addresses) else {
            return;
        };
        for (address, peer) in [("10.9.0.2", "10.9.0.1"), ("fd09::2", "fd09::1")] {
            let socket = socket(address, peer);
            if let Err(error) = set_udp_segment(&socket, 1_000) {
                eprintln!("not tested: no UDP segmentation: {error}");
                return;
            }
            socket.send(&[0x55; 40_500]).expect("send");
            let frame = receive_udp(&mut tun.queues, 7);
            if frame.header.gso_type != VnetHeader::GSO_UDP_L4 {
                eprintln!("not tested: the kernel segments UDP by itself");
                return;
            }
            assert_eq!(frame.header.gso_size, 1_000);
            assert!(frame.bytes.ends_with(&[0x55; 40_500]));

            send_back(&mut tun.queues[frame.queue], &frame).expect("send back");
            let mut answer = [0; 2_000];
            for datagram in 0..=40 {
                let len = socket.recv(&mut answer).expect("an answer");
                assert_eq!(len, if datagram < 40 { 1_000 } else { 500 });
            }
        }
    });
}

/// Lets the kernel cut what is sent into datagrams of `size` bytes, as late as possible.
fn set_udp_segment(socket: &UdpSocket, size: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the option's value is an `int`, which is read during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
fn a_queue_never_blocks_and_says_what_is_wrong() {
    in_private_network("a_queue_never_blocks_and_says_what_is_wrong", || {
        let Some(mut up) = tun(&config("tun0", 1, true), &[]) else {
            return;
        };
        let queue = &mut up.queues[0];
        let mut buffer = [0; 2_000];
        // The kernel's own multicast comes in at times; after that the queue is empty.
        let error = loop {
            if let Err(error) = queue.recv(&mut [IoSliceMut::new(&mut buffer)]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);

        let header = VnetHeader::default();
        let packet = [0x45; 20];
        let send = |queue: &mut forebay_os::tun::Queue, bufs: &[IoSlice<'_>]| {
            queue.send(&header, bufs).map_err(|error| error.kind())
        };
        assert_eq!(send(queue, &[IoSlice::new(&packet)]), Ok(()));
        let invalid = Err(io::ErrorKind::InvalidInput);
        assert_eq!(send(queue, &[IoSlice::new(&[0xff; 20])]), invalid);
        let one = [IoSlice::new(&packet[..1])];
        assert_eq!(send(queue, &one.repeat(MAX_BUFFERS)), Ok(()));
        assert_eq!(send(queue, &one.repeat(MAX_BUFFERS + 1)), invalid);
        let mut many: Vec<_> = (0..=MAX_BUFFERS).map(|_| [0]).collect();
        let mut many: Vec<_> = many.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
        let error = queue.recv(&mut many).expect_err("too many buffers");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);

        let mut down = Tun::open(&config("tun1", 1, true)).expect("another device");
        let error = down.queues[0]
            .send(&header, &[IoSlice::new(&packet)])
            .expect_err("the interface is down");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_private_network("what_cannot_be_opened_says_why", || {
        let Some(single) = tun(&config("single", 1, false), &[]) else {
            return;
        };
        let _several = Tun::open(&config("several", 2, false)).expect("two queues");
        let open = |name, queues| Tun::open(&config(name, queues, false)).expect_err(name);

        assert!(matches!(open("single", 1), TunError::Busy { .. }));
        assert!(matches!(open("single", 2), TunError::OtherKind { .. }));
        assert!(matches!(open("several", 1), TunError::OtherKind { .. }));
        assert!(matches!(open("lo", 1), TunError::OtherKind { .. }));
        assert!(matches!(open("sixteen-bytes-xx", 1), TunError::Name(_)));
        assert!(matches!(open("none", 0), TunError::Queues(0)));
        assert!(matches!(open("many", 257), TunError::Queues(257)));

        drop(single);
        Tun::open(&config("single", 2, false)).expect("the old device is gone");
        let most = Tun::open(&config("most", 256, true)).expect("the most queues");
        assert_eq!(most.queues.len(), 256);
    });
}
