//! A kernel host: one network namespace with a TUN device in it.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::thread;

use forebay::device::tun::{Tun, TunConfig};
use forebay::netns::{Interface, PrivateNetwork, PrivateNetworkError};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{HOST, PATIENCE, pass_over, test_name, this_test};

/// The kernel's network stack in a network namespace of its own. It lives as long as this does.
#[derive(Debug)]
pub struct Host {
    netns: File,
}

impl Host {
    /// A host whose only way out is a TUN device with these addresses, and its default routes `via`
    /// these gateways. Returns the device's other end, too; `None` where the machine does not
    /// permit it.
    pub fn start(
        tun: TunConfig,
        mtu: u32,
        addresses: &[(IpAddr, u8)],
        via: &[IpAddr],
    ) -> Option<(Self, Tun)> {
        let mut interface = Interface::new(tun).mtu(mtu);
        for &(address, prefix_len) in addresses {
            interface = interface.address(address, prefix_len);
        }
        for &gateway in via {
            interface = interface.default_via(gateway);
        }
        let mut holder = this_test(&test_name(), HOST);
        holder.stdin(Stdio::piped()).stdout(Stdio::null());
        let (mut holder, tun) = match PrivateNetwork::new().spawn_with(holder, &interface) {
            Ok(started) => started,
            Err(error @ (PrivateNetworkError::Tun(_) | PrivateNetworkError::Step { .. })) => {
                pass_over(&error);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let netns = File::open(format!("/proc/{}/ns/net", holder.id())).expect("a namespace");
        drop(holder.stdin.take());
        assert!(holder.wait().expect("wait").success());
        Some((Self { netns }, tun))
    }

    /// Runs `body` on a thread that is on this host. Sockets stay on the host that they were made
    /// on, wherever they are used afterwards.
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        let visit = || {
            move_into_link_name_space(self.netns.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("setns");
            body()
        };
        thread::scope(|scope| scope.spawn(visit).join()).expect("the visitor's own panic is above")
    }

    /// A UDP socket of this host, which waits no longer than [`PATIENCE`].
    pub fn udp(&self, address: impl Into<IpAddr>, port: u16) -> UdpSocket {
        let address = SocketAddr::new(address.into(), port);
        let socket = self.run(|| UdpSocket::bind(address)).expect("bind");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        socket
    }

    /// The same, connected.
    pub fn udp_to(&self, peer: SocketAddr) -> UdpSocket {
        let any = match peer {
            SocketAddr::V4(_) => IpAddr::from([0_u8; 4]),
            SocketAddr::V6(_) => IpAddr::from([0_u8; 16]),
        };
        let socket = self.udp(any, 0);
        socket.connect(peer).expect("connect");
        socket
    }

    /// A TCP listener of this host.
    pub fn listen(&self, address: impl Into<IpAddr>) -> TcpListener {
        let address = SocketAddr::new(address.into(), 0);
        self.run(|| TcpListener::bind(address)).expect("listen")
    }

    /// A TCP connection from this host.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<TcpStream> {
        self.run(|| TcpStream::connect_timeout(&peer, PATIENCE))
    }
}
