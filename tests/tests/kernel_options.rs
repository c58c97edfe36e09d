//! Options against those of the kernel's sockets: what is taken, what is refused and how, and what
//! is read back.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay::{MtuDiscover, Stack, UdpOptions, UdpSocket};
use forebay_tests::kernel::{in_private_network, set};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::sockopt as kernel;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, SockRef, Socket, Type};

type Kernel = std::net::UdpSocket;

/// An option, as both sides set and get it.
struct Case {
    name: &'static str,
    families: &'static [IpAddr],
    /// Within the limits, at them, and beyond.
    values: &'static [u32],
    set: (Set<Kernel>, Set<UdpSocket>),
    get: (Get<Kernel>, Get<UdpSocket>),
}

type Set<S> = fn(&S, u32) -> io::Result<()>;
type Get<S> = fn(&S) -> io::Result<u32>;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const BOTH: &[IpAddr] = &[V4, V6];
const SWITCH: &[u32] = &[1, 0];
const BYTES: &[u32] = &[0, 1, 3, 0x10, 0x2e, 0xb8, 0xff];
/// Linux takes a hop limit of 0, too; such a packet goes nowhere (RFC 8200 section 3).
const TTLS: &[u32] = &[1, 64, 128, 255, 256, 257, 1 << 16, i32::MAX as u32];
const GROUP_TTLS: &[u32] = &[0, 1, 2, 255, 256, 1 << 16, i32::MAX as u32];
const SIZES: &[u32] = &[
    0,
    1,
    1_151,
    1_152,
    1_153,
    2_304,
    10_000,
    106_496,
    212_991,
    212_992,
    212_993,
    1 << 20,
    (1 << 30) - 1,
    1 << 30,
    (1 << 30) + 1,
    i32::MAX as u32,
];
const INTERFACES: &[u32] = &[
    Ipv4Addr::LOCALHOST.to_bits(),
    Ipv4Addr::new(192, 0, 2, 1).to_bits(),
    Ipv4Addr::UNSPECIFIED.to_bits(),
];

/// Every option that may be set at any time.
const CASES: &[Case] = &[
    Case {
        name: "SO_RCVBUF",
        families: BOTH,
        values: SIZES,
        set: (
            |socket, bytes| Ok(kernel::set_socket_recv_buffer_size(socket, bytes as usize)?),
            |socket, bytes| socket.set_recv_buffer_size(bytes).map(drop),
        ),
        get: (
            |socket| Ok(kernel::socket_recv_buffer_size(socket)? as u32),
            UdpSocket::recv_buffer_size,
        ),
    },
    Case {
        name: "SO_BROADCAST",
        families: BOTH,
        values: SWITCH,
        set: (
            |socket, on| socket.set_broadcast(on != 0),
            |socket, on| socket.set_broadcast(on != 0),
        ),
        get: (
            |socket| Ok(socket.broadcast()?.into()),
            |socket| Ok(socket.broadcast()?.into()),
        ),
    },
    Case {
        name: "IP_TTL",
        families: &[V4],
        values: TTLS,
        set: (Kernel::set_ttl, UdpSocket::set_ttl),
        get: (Kernel::ttl, UdpSocket::ttl),
    },
    Case {
        name: "IPV6_UNICAST_HOPS",
        families: &[V6],
        values: TTLS,
        set: (
            |socket, hops| SockRef::from(socket).set_unicast_hops_v6(hops),
            UdpSocket::set_ttl,
        ),
        get: (
            |socket| SockRef::from(socket).unicast_hops_v6(),
            UdpSocket::ttl,
        ),
    },
    Case {
        name: "IP_TOS",
        families: &[V4],
        values: BYTES,
        set: (
            |socket, tos| SockRef::from(socket).set_tos_v4(tos),
            |socket, tos| socket.set_tos(tos as u8),
        ),
        get: (
            |socket| SockRef::from(socket).tos_v4(),
            |socket| Ok(socket.tos()?.into()),
        ),
    },
    Case {
        name: "IPV6_TCLASS",
        families: &[V6],
        values: BYTES,
        set: (
            |socket, class| Ok(kernel::set_ipv6_tclass(socket, class)?),
            |socket, class| socket.set_tos(class as u8),
        ),
        get: (
            |socket| Ok(kernel::ipv6_tclass(socket)?),
            |socket| Ok(socket.tos()?.into()),
        ),
    },
    Case {
        name: "IP_MULTICAST_TTL",
        families: &[V4],
        values: GROUP_TTLS,
        set: (
            Kernel::set_multicast_ttl_v4,
            UdpSocket::set_multicast_ttl_v4,
        ),
        get: (Kernel::multicast_ttl_v4, UdpSocket::multicast_ttl_v4),
    },
    Case {
        name: "IPV6_MULTICAST_HOPS",
        families: &[V6],
        values: GROUP_TTLS,
        set: (
            |socket, hops| SockRef::from(socket).set_multicast_hops_v6(hops),
            UdpSocket::set_multicast_hops_v6,
        ),
        get: (
            |socket| SockRef::from(socket).multicast_hops_v6(),
            UdpSocket::multicast_hops_v6,
        ),
    },
    Case {
        name: "IP_MULTICAST_LOOP",
        families: &[V4],
        values: SWITCH,
        set: (
            |socket, on| socket.set_multicast_loop_v4(on != 0),
            |socket, on| socket.set_multicast_loop_v4(on != 0),
        ),
        get: (
            |socket| Ok(socket.multicast_loop_v4()?.into()),
            |socket| Ok(socket.multicast_loop_v4()?.into()),
        ),
    },
    Case {
        name: "IPV6_MULTICAST_LOOP",
        families: &[V6],
        values: SWITCH,
        set: (
            |socket, on| socket.set_multicast_loop_v6(on != 0),
            |socket, on| socket.set_multicast_loop_v6(on != 0),
        ),
        get: (
            |socket| Ok(socket.multicast_loop_v6()?.into()),
            |socket| Ok(socket.multicast_loop_v6()?.into()),
        ),
    },
    Case {
        name: "IP_MULTICAST_IF",
        families: &[V4],
        values: INTERFACES,
        set: (
            |socket, bits| SockRef::from(socket).set_multicast_if_v4(&Ipv4Addr::from(bits)),
            |socket, bits| socket.set_multicast_if_v4(&Ipv4Addr::from(bits)),
        ),
        get: (
            |socket| Ok(SockRef::from(socket).multicast_if_v4()?.to_bits()),
            |socket| Ok(socket.multicast_if_v4()?.to_bits()),
        ),
    },
    Case {
        name: "IPV6_MULTICAST_IF",
        families: &[V6],
        values: &[1, 77, 0],
        set: (
            |socket, index| SockRef::from(socket).set_multicast_if_v6(index),
            UdpSocket::set_multicast_if_v6,
        ),
        get: (
            |socket| SockRef::from(socket).multicast_if_v6(),
            UdpSocket::multicast_if_v6,
        ),
    },
    Case {
        name: "IP_MULTICAST_ALL",
        families: &[V4],
        values: SWITCH,
        set: (
            |socket, on| SockRef::from(socket).set_multicast_all_v4(on != 0),
            |socket, on| socket.set_multicast_all_v4(on != 0),
        ),
        get: (
            |socket| Ok(SockRef::from(socket).multicast_all_v4()?.into()),
            |socket| Ok(socket.multicast_all_v4()?.into()),
        ),
    },
    Case {
        name: "IPV6_MULTICAST_ALL",
        families: &[V6],
        values: SWITCH,
        set: (
            |socket, on| SockRef::from(socket).set_multicast_all_v6(on != 0),
            |socket, on| socket.set_multicast_all_v6(on != 0),
        ),
        get: (
            |socket| Ok(SockRef::from(socket).multicast_all_v6()?.into()),
            |socket| Ok(socket.multicast_all_v6()?.into()),
        ),
    },
    Case {
        name: "IP_MTU_DISCOVER",
        families: &[V4],
        values: &[0, 1, 2, 3, 4, 5],
        set: (
            |socket, how| {
                let how = Ipv4PathMtuDiscovery::from_raw(how as i32);
                Ok(kernel::set_ip_mtu_discover(socket, how)?)
            },
            set_mtu_discover,
        ),
        get: (
            |socket| Ok(kernel::ip_mtu_discover(socket)?.as_raw() as u32),
            |socket| Ok(socket.mtu_discover()? as u32),
        ),
    },
    Case {
        name: "IPV6_MTU_DISCOVER",
        families: &[V6],
        values: &[0, 1, 2, 3, 4, 5],
        set: (
            |socket, how| {
                let how = Ipv6PathMtuDiscovery::from_raw(how as i32);
                Ok(kernel::set_ipv6_mtu_discover(socket, how)?)
            },
            set_mtu_discover,
        ),
        get: (
            |socket| Ok(kernel::ipv6_mtu_discover(socket)?.as_raw() as u32),
            |socket| Ok(socket.mtu_discover()? as u32),
        ),
    },
    Case {
        name: "IP_RECVERR",
        families: &[V4],
        values: SWITCH,
        set: (
            |socket, on| Ok(setsockopt(socket, sockopt::Ipv4RecvErr, &(on != 0))?),
            |socket, on| socket.set_recv_err(on != 0),
        ),
        get: (
            |socket| Ok(getsockopt(socket, sockopt::Ipv4RecvErr)?.into()),
            |socket| Ok(socket.recv_err()?.into()),
        ),
    },
    Case {
        name: "IPV6_RECVERR",
        families: &[V6],
        values: SWITCH,
        set: (
            |socket, on| Ok(setsockopt(socket, sockopt::Ipv6RecvErr, &(on != 0))?),
            |socket, on| socket.set_recv_err(on != 0),
        ),
        get: (
            |socket| Ok(getsockopt(socket, sockopt::Ipv6RecvErr)?.into()),
            |socket| Ok(socket.recv_err()?.into()),
        ),
    },
    Case {
        name: "SO_BINDTODEVICE",
        families: BOTH,
        values: &[1, 2, 1, 0, 2],
        set: (
            |socket, which| SockRef::from(socket).bind_device(device(which).map(str::as_bytes)),
            |socket, which| socket.bind_device(device(which)),
        ),
        get: (
            |socket| Ok(SockRef::from(socket).device()?.is_some().into()),
            |socket| Ok(socket.device()?.is_some().into()),
        ),
    },
    Case {
        name: "IP_MTU",
        families: &[V4],
        values: SWITCH,
        set: (connect_kernel, connect_ours),
        get: (|socket| Ok(kernel::ip_mtu(socket)?), UdpSocket::mtu),
    },
    Case {
        name: "IPV6_MTU",
        families: &[V6],
        // Connected, it would tell the loopback's, which is 65,536 in Linux.
        values: &[0],
        set: (connect_kernel, connect_ours),
        get: (|socket| Ok(kernel::ipv6_mtu(socket)?), UdpSocket::mtu),
    },
    Case {
        name: "SO_ERROR",
        families: BOTH,
        values: SWITCH,
        set: (connect_kernel, connect_ours),
        get: (
            |socket| Ok(socket.take_error()?.is_some().into()),
            |socket| Ok(socket.take_error()?.is_some().into()),
        ),
    },
];

/// Which only who is root outside of namespaces may set.
const FORCED: Case = Case {
    name: "SO_RCVBUFFORCE",
    families: BOTH,
    values: SIZES,
    set: (
        |socket, bytes| {
            let bytes = bytes as usize;
            Ok(kernel::set_socket_recv_buffer_size_force(socket, bytes)?)
        },
        |socket, bytes| socket.force_recv_buffer_size(bytes).map(drop),
    ),
    get: (
        |socket| Ok(kernel::socket_recv_buffer_size(socket)? as u32),
        UdpSocket::recv_buffer_size,
    ),
};

fn set_mtu_discover(socket: &UdpSocket, how: u32) -> io::Result<()> {
    const HOW: [MtuDiscover; 6] = [
        MtuDiscover::Dont,
        MtuDiscover::Want,
        MtuDiscover::Do,
        MtuDiscover::Probe,
        MtuDiscover::Interface,
        MtuDiscover::Omit,
    ];
    socket.set_mtu_discover(HOW[how as usize])
}

fn device(which: u32) -> Option<&'static str> {
    [None, Some("lo"), Some("none0")][which as usize]
}

/// To the socket's own address, or to nobody.
fn connect_kernel(socket: &Kernel, on: u32) -> io::Result<()> {
    match on {
        0 => Ok(rustix::net::connect_unspec(socket)?),
        _ => socket.connect(socket.local_addr()?),
    }
}

fn connect_ours(socket: &UdpSocket, on: u32) -> io::Result<()> {
    match on {
        0 => socket.disconnect(),
        _ => socket.connect(socket.local_addr()?),
    }
}

#[test]
fn options_are_taken_refused_and_read_back_as_the_kernels() {
    in_private_network(
        "options_are_taken_refused_and_read_back_as_the_kernels",
        || {
            let stack = stack_like_the_kernel();
            let mut differences = Vec::new();
            for case in CASES {
                for own in case.families {
                    differences.extend(compare(case, &stack, SocketAddr::new(*own, 4_000)));
                }
            }
            assert!(differences.is_empty(), "{differences:#?}");
        },
    );
}

#[test]
fn a_forced_receive_buffer_is_what_the_kernel_makes_of_it() {
    let stack = stack_like_the_kernel();
    for own in FORCED.families {
        let own = SocketAddr::new(*own, 0);
        let tried = Kernel::bind(own).and_then(|socket| FORCED.set.0(&socket, 1));
        if let Err(error) = tried {
            eprintln!("not tested: {error}");
            return;
        }
        let differences = compare(&FORCED, &stack, own);
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

/// Sets every value on both sides, and says where they differ.
fn compare(case: &Case, stack: &Stack, own: SocketAddr) -> Vec<String> {
    let theirs = Kernel::bind(own).expect("a free port");
    let ours = UdpSocket::bind(stack, own).expect("a free port");
    let mut differences = Vec::new();
    let mut expect = |what: &str, ours: Outcome<u32>, theirs: Outcome<u32>| {
        if ours != theirs {
            let name = case.name;
            differences.push(format!(
                "{name} on {own}, {what}: {ours:?}, the kernel {theirs:?}"
            ));
        }
    };
    let read = || (outcome(case.get.1(&ours)), outcome(case.get.0(&theirs)));
    let (is, should) = read();
    expect("fresh", is, should);
    for value in case.values {
        let set = outcome(case.set.1(&ours, *value)).map(|()| *value);
        let should = outcome(case.set.0(&theirs, *value)).map(|()| *value);
        expect(&format!("set to {value}"), set, should);
        let (is, should) = read();
        expect(&format!("read after {value}"), is, should);
    }
    differences
}

/// With the kernel's limits of receive buffers, which are not the same on every machine.
fn stack_like_the_kernel() -> Stack {
    let socket = Kernel::bind((V4, 0)).expect("a free port");
    let rcvbuf = || kernel::socket_recv_buffer_size(&socket).expect("a size") as i64;
    let default = rcvbuf();
    kernel::set_socket_recv_buffer_size(&socket, i32::MAX as usize).expect("any size");
    let stack = Stack::builder().build().expect("a stack");
    set(&stack, "net.core.rmem_default", default);
    set(&stack, "net.core.rmem_max", rcvbuf() / 2);
    stack
}

type Outcome<T> = Result<T, ErrorKind>;

/// A result as something to compare: errors by their kind, of which std has none for ENODEV.
fn outcome<T>(result: io::Result<T>) -> Outcome<T> {
    result.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NODEV) => ErrorKind::NotFound,
        _ => error.kind(),
    })
}

/// What is said before a socket is bound.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    reuse_address: bool,
    reuse_port: bool,
    transparent: bool,
    freebind: bool,
    only_v6: Option<bool>,
}

/// What is read back afterwards.
type After = (bool, bool, bool, bool, bool);

impl Before {
    fn kernel(self, to: SocketAddr) -> io::Result<(Socket, After)> {
        let is_v6 = to.is_ipv6();
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
        socket.set_reuse_address(self.reuse_address)?;
        socket.set_reuse_port(self.reuse_port)?;
        match is_v6 {
            true => {
                socket.set_ip_transparent_v6(self.transparent)?;
                kernel::set_ipv6_freebind(&socket, self.freebind)?;
            }
            false => {
                socket.set_ip_transparent_v4(self.transparent)?;
                kernel::set_ip_freebind(&socket, self.freebind)?;
            }
        }
        if let Some(only_v6) = self.only_v6.filter(|_| is_v6) {
            socket.set_only_v6(only_v6)?;
        }
        socket.bind(&to.into())?;
        let after = (
            socket.reuse_address()?,
            socket.reuse_port()?,
            match is_v6 {
                true => socket.ip_transparent_v6()?,
                false => socket.ip_transparent_v4()?,
            },
            match is_v6 {
                true => kernel::ipv6_freebind(&socket)?,
                false => kernel::ip_freebind(&socket)?,
            },
            is_v6 && socket.only_v6()?,
        );
        Ok((socket, after))
    }

    fn ours(self, stack: &Stack, to: SocketAddr) -> io::Result<(UdpSocket, After)> {
        let options = UdpOptions::new()
            .reuse_address(self.reuse_address)
            .reuse_port(self.reuse_port)
            .transparent(self.transparent)
            .freebind(self.freebind);
        let socket = match self.only_v6 {
            Some(only_v6) => options.only_v6(only_v6),
            None => options,
        }
        .bind(stack, to)?;
        let after = (
            socket.reuse_address()?,
            socket.reuse_port()?,
            socket.transparent()?,
            socket.freebind()?,
            socket.only_v6()?,
        );
        Ok((socket, after))
    }
}

#[test]
fn sockets_are_bound_to_what_the_kernels_are() {
    in_private_network("sockets_are_bound_to_what_the_kernels_are", || {
        let stack = stack_like_the_kernel();
        let mut differences = Vec::new();
        let addresses = [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "255.255.255.255",
            "239.1.2.3",
            "192.0.2.1",
            "::1",
            "::",
            "ff02::1234%1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::ffff:192.0.2.1",
        ];
        for address in addresses {
            for how in 0..12_u32 {
                let before = Before {
                    transparent: how & 1 != 0,
                    freebind: how & 2 != 0,
                    only_v6: [None, Some(false), Some(true)][how as usize / 4],
                    ..Before::default()
                };
                let to = at(address, 4_000);
                let ours = outcome(before.ours(&stack, to).map(|(_, after)| after));
                let theirs = outcome(before.kernel(to).map(|(_, after)| after));
                if ours != theirs {
                    differences.push(format!("{address} {before:?}: {ours:?}, {theirs:?}"));
                }
            }
        }
        assert!(differences.is_empty(), "{differences:#?}");
    });
}

#[test]
fn ports_are_shared_by_whom_the_kernel_lets_share_them() {
    in_private_network(
        "ports_are_shared_by_whom_the_kernel_lets_share_them",
        || {
            let stack = stack_like_the_kernel();
            let addresses = ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"];
            let said = |how: u32| Before {
                reuse_address: how & 1 != 0,
                reuse_port: how & 2 != 0,
                only_v6: Some(how & 4 != 0),
                ..Before::default()
            };
            for (first, second) in addresses
                .iter()
                .flat_map(|first| addresses.iter().map(move |second| (first, second)))
            {
                for how in 0..64_u32 {
                    let (one, two) = (said(how % 8), said(how / 8));
                    let _kernel = one.kernel(at(first, 4_000)).expect("a free port");
                    let _ours = one.ours(&stack, at(first, 4_000)).expect("a free port");
                    let theirs = outcome(two.kernel(at(second, 4_000)).map(drop));
                    let ours = outcome(two.ours(&stack, at(second, 4_000)).map(drop));
                    assert_eq!(ours, theirs, "{first} {one:?}, {second} {two:?}");
                }
            }
        },
    );
}

fn at(address: &str, port: u16) -> SocketAddr {
    match address.split_once('%') {
        Some((address, scope)) => {
            let scope = scope.parse().expect("a number");
            let address = address.parse().expect("an address");
            std::net::SocketAddrV6::new(address, port, 0, scope).into()
        }
        None => SocketAddr::new(address.parse().expect("an address"), port),
    }
}
