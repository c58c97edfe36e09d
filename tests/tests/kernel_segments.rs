//! Segmentation offload against the kernel's own: sends that are cut into datagrams, and datagrams
//! that are read joined, over TUN devices that leave the cutting to the other side and over ones
//! that don't.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket as KernelSocket};
use std::os::fd::AsRawFd;

use forebay::UdpSocket;
use forebay_tests::kernel::{Family, Lab, LabConfig, PATIENCE, in_private_network};
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};

/// Payload bytes of all and of each, as programs have them: QUIC's, few and large, many and small,
/// as many as can be, and one that needs no cutting.
const SENDS: [(usize, u16); 6] = [
    (40 * 1_200 + 7, 1_200),
    (3 * 1_452, 1_452),
    (128, 1),
    (65_000, 1_400),
    (64 * 500, 500),
    (1_000, 1_000),
];

fn labs() -> impl Iterator<Item = Lab> {
    let settings = [(true, true), (true, false), (false, true), (false, false)];
    settings.into_iter().map_while(|(offload, early_demux)| {
        println!("offload {offload}, early demux {early_demux}");
        Lab::start(LabConfig {
            offload,
            early_demux,
            ..LabConfig::default()
        })
    })
}

/// Whether the kernel takes and gives UDP uncut.
fn is_uncut(lab: &Lab) -> bool {
    let tun0 = lab.stack.inner().interface_named("tun0").expect("tun0");
    tun0.offload.udp_segmentation
}

fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

fn bind(lab: &Lab, address: IpAddr) -> UdpSocket {
    let address = SocketAddr::new(address, 0);
    let socket = UdpSocket::bind(&lab.stack, address).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

/// The datagrams of one read.
struct Joined {
    bytes: Vec<u8>,
    segment_size: Option<usize>,
}

fn read_ours(socket: &UdpSocket) -> Joined {
    let mut bytes = vec![0; 65_535];
    let bufs = &mut [IoSliceMut::new(&mut bytes)];
    let received = socket.recv_vectored(bufs).expect("a datagram");
    assert_eq!(received.len, received.full_len);
    bytes.truncate(received.len);
    Joined {
        bytes,
        segment_size: received.segment_size.map(usize::from),
    }
}

fn read_theirs(socket: &KernelSocket) -> Joined {
    let mut bytes = vec![0; 65_535];
    let mut control = nix::cmsg_space!(i32);
    let bufs = &mut [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let fd = socket.as_raw_fd();
    let received = recvmsg::<()>(fd, bufs, Some(&mut control), flags).expect("a datagram");
    let mut parts = received.cmsgs().expect("room for it");
    let segment_size = parts.find_map(|part| match part {
        ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
        _ => None,
    });
    let len = received.bytes;
    bytes.truncate(len);
    Joined {
        bytes,
        segment_size,
    }
}

/// Reads until `expected` has come, as datagrams of `size`. Returns the number of reads.
fn read_all(expected: &[u8], size: usize, mut read: impl FnMut() -> Joined) -> usize {
    let (mut came, mut reads) = (Vec::new(), 0);
    while came.len() < expected.len() {
        let Joined {
            bytes,
            segment_size,
        } = read();
        assert_eq!(came.len() % size, 0, "only the last one is shorter");
        match segment_size {
            Some(found) => assert_eq!(found, size),
            None => assert!(bytes.len() <= size),
        }
        came.extend(bytes);
        reads += 1;
    }
    assert!(came == expected);
    reads
}

#[test]
fn the_kernels_sends_are_read_together() {
    in_private_network("the_kernels_sends_are_read_together", || {
        for lab in labs() {
            for Family { left, own, .. } in Family::both() {
                let ours = bind(&lab, own);
                ours.force_recv_buffer_size(1 << 20).expect("open");
                let address = ours.local_addr().expect("bound");
                let sender = lab.left.udp(left, 0);
                for connected in [false, true] {
                    if connected {
                        ours.connect(sender.local_addr().expect("bound"))
                            .expect("connect");
                    }
                    for gro in [true, false] {
                        ours.set_udp_gro(gro).expect("open");
                        for (len, size) in SENDS {
                            let bytes = payload(len);
                            setsockopt(&sender, UdpGsoSegment, &size.into()).expect("set");
                            sender.send_to(&bytes, address).expect("send");
                            let size = usize::from(size);
                            let reads = read_all(&bytes, size, || read_ours(&ours));
                            let datagrams = len.div_ceil(size);
                            match (gro, is_uncut(&lab)) {
                                (true, true) => assert_eq!(reads, 1),
                                (true, false) => assert!(reads <= datagrams),
                                (false, _) => assert_eq!(reads, datagrams),
                            }
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn our_sends_are_read_together_by_the_kernel() {
    in_private_network("our_sends_are_read_together_by_the_kernel", || {
        for lab in labs() {
            for Family { left, own, .. } in Family::both() {
                let ours = bind(&lab, own);
                let receiver = lab.left.udp(left, 0);
                let address = receiver.local_addr().expect("bound");
                for gro in [true, false] {
                    setsockopt(&receiver, UdpGroSegment, &gro).expect("set");
                    for (len, size) in SENDS.into_iter().chain([(65_507, 1_400)]) {
                        let bytes = payload(len);
                        ours.set_udp_segment(size).expect("open");
                        assert_eq!(ours.send_to(&bytes, address).expect("send"), len);
                        let size = usize::from(size);
                        let reads = read_all(&bytes, size, || read_theirs(&receiver));
                        let whole = gro && is_uncut(&lab);
                        let expected = if whole { 1 } else { len.div_ceil(size) };
                        assert_eq!(reads, expected, "{len} by {size}, gro {gro}");
                    }
                }
            }
        }
    });
}

/// A router hands on what came uncut as it came, where the next device takes it so.
#[test]
fn sends_cross_a_router_uncut() {
    in_private_network("sends_cross_a_router_uncut", || {
        for lab in labs() {
            // Nor does it join what comes cut: only sockets ask for that, here one that has nothing
            // to do with it.
            let bystander = bind(&lab, Family::both()[0].own);
            bystander.set_udp_gro(true).expect("open");
            for Family { left, right, .. } in Family::both() {
                let sender = lab.left.udp(left, 0);
                let receiver = lab.right.udp(right, 0);
                setsockopt(&receiver, UdpGroSegment, &true).expect("set");
                let address = receiver.local_addr().expect("bound");
                for (len, size) in SENDS {
                    let bytes = payload(len);
                    setsockopt(&sender, UdpGsoSegment, &size.into()).expect("set");
                    sender.send_to(&bytes, address).expect("send");
                    let size = usize::from(size);
                    let reads = read_all(&bytes, size, || read_theirs(&receiver));
                    match is_uncut(&lab) {
                        true => assert_eq!(reads, 1, "{len} by {size}"),
                        false => assert_eq!(reads, len.div_ceil(size)),
                    }
                }
            }
        }
    });
}
