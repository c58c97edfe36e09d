//! QUIC, by a crate that knows nothing of Forebay, over the sockets for tokio: against itself over a
//! wire, and against itself on kernel sockets over a TUN device.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use forebay::core::udp::MAX_SEGMENTS;
use forebay::device::wire::{WireConfig, wire};
use forebay::tokio::UdpSocket;
use forebay::{Message, MtuDiscover, Received, Stack};
use forebay_tests::kernel::{Family, Lab, LabConfig, in_private_network};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{
    AsyncUdpSocket, ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime,
    UdpPoller,
};

const BYTES: usize = 2_000_000;

/// Most datagrams that one read returns.
const JOINED: usize = 64;

/// Long enough for all of them on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn between_two_stacks() {
    let (left, right) = wire(WireConfig::default());
    let hosts = [(left, 1), (right, 2)].map(|(device, number)| {
        let stack = Stack::builder().build().expect("a stack");
        let ifindex = stack.add_device("wire0", device).expect("a device");
        let addrs = [
            (IpAddr::from([10, 0, 0, number]), 24),
            (
                IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into())),
                64,
            ),
        ];
        for (addr, len) in addrs {
            let added = stack.inner().add_address(ifindex, addr, len);
            added.expect("an address");
        }
        let worker = stack.spawn_workers().expect("a worker");
        (stack, addrs.map(|(addr, _)| addr), worker)
    });
    let [(client, ..), (server, addrs, _)] = &hosts;
    for addr in *addrs {
        run(async {
            let any = any_like(addr);
            let client = endpoint(forebay_socket(client, any), None);
            let server_config = Identity::new();
            let server = endpoint(forebay_socket(server, addr), Some(&server_config));
            converse(&client, &server, &server_config, addr).await;
        });
    }
}

#[test]
fn between_a_stack_and_the_kernel() {
    in_private_network("between_a_stack_and_the_kernel", || {
        for offload in [false, true] {
            let config = LabConfig {
                offload,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            for Family { left, own, .. } in Family::both() {
                run(async {
                    let identity = Identity::new();
                    let client = endpoint(kernel_socket(&lab, left), None);
                    let server = endpoint(forebay_socket(&lab.stack, own), Some(&identity));
                    converse(&client, &server, &identity, own).await;
                });
                run(async {
                    let identity = Identity::new();
                    let client = endpoint(forebay_socket(&lab.stack, own), None);
                    let server = endpoint(kernel_socket(&lab, left), Some(&identity));
                    converse(&client, &server, &identity, left).await;
                });
            }
        }
    });
}

fn run(conversation: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let done = tokio::time::timeout(PATIENCE, conversation).await;
        done.expect("in time");
    });
}

/// A handshake, and bytes there and back.
async fn converse(client: &Endpoint, server: &Endpoint, identity: &Identity, addr: IpAddr) {
    let port = server.local_addr().expect("bound").port();
    let connecting = client
        .connect_with(identity.client(), SocketAddr::new(addr, port), "forebay")
        .expect("an address");
    let serving = tokio::spawn(echo(server.clone()));
    let connection = connecting.await.expect("a handshake");
    let text: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (mut sender, mut receiver) = connection.open_bi().await.expect("a stream");
    let back = tokio::spawn(async move { receiver.read_to_end(BYTES).await });
    sender.write_all(&text).await.expect("connected");
    sender.finish().expect("open");
    let back = back.await.expect("no panic");
    assert!(back.expect("all of it") == text);
    connection.close(0_u32.into(), b"done");
    serving.await.expect("no panic");
}

async fn echo(server: Endpoint) {
    let incoming = server.accept().await.expect("a client");
    let connection: Connection = incoming.await.expect("a handshake");
    let (mut sender, mut receiver) = connection.accept_bi().await.expect("a stream");
    let mut chunk = [0; 16_384];
    while let Some(len) = receiver.read(&mut chunk).await.expect("connected") {
        sender.write_all(&chunk[..len]).await.expect("connected");
    }
    sender.finish().expect("open");
    connection.closed().await;
}

/// A server's certificate and key.
struct Identity(rcgen::CertifiedKey<rcgen::KeyPair>);

impl Identity {
    fn new() -> Self {
        let names = vec!["forebay".to_owned()];
        Self(rcgen::generate_simple_self_signed(names).expect("a certificate"))
    }

    fn server(&self) -> ServerConfig {
        let Self(identity) = self;
        let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
        let chain = vec![identity.cert.der().clone()];
        ServerConfig::with_single_cert(chain, key.into()).expect("a good one")
    }

    fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.cert.der().clone()).expect("a good one");
        ClientConfig::with_root_certificates(Arc::new(roots)).expect("a good one")
    }
}

fn endpoint(socket: Arc<dyn AsyncUdpSocket>, serves: Option<&Identity>) -> Endpoint {
    let server = serves.map(Identity::server);
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), server, socket, runtime)
        .expect("an endpoint")
}

fn kernel_socket(lab: &Lab, addr: IpAddr) -> Arc<dyn AsyncUdpSocket> {
    use quinn::Runtime;

    let socket = lab.left.udp(addr, 0);
    socket.set_nonblocking(true).expect("open");
    TokioRuntime.wrap_udp_socket(socket).expect("a socket")
}

fn forebay_socket(stack: &Stack, addr: IpAddr) -> Arc<dyn AsyncUdpSocket> {
    let socket = forebay::UdpSocket::bind(stack, (addr, 0)).expect("an address");
    // The path's MTU is found out by packets that nobody may cut.
    socket.set_mtu_discover(MtuDiscover::Probe).expect("open");
    socket.set_udp_gro(true).expect("open");
    Arc::new(QuicSocket(socket.into()))
}

fn any_like(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => IpAddr::from([0_u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0_u8; 16]),
    }
}

/// What the crate wants of a socket.
#[derive(Debug)]
struct QuicSocket(UdpSocket);

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let port = self.0.local_addr()?.port();
        let message = Message {
            payload: &[IoSlice::new(transmit.contents)],
            to: Some(transmit.destination),
            from: transmit.src_ip.map(|ip| SocketAddr::new(ip, port)),
            tos: transmit.ecn.map(|ecn| ecn as u8),
            segment_size: transmit.segment_size.map(segment_size),
            ..Message::default()
        };
        self.0.get_ref().send_message(&message).map(drop)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let socket = self.0.get_ref();
        let mut places = bufs.chunks_mut(1).zip(meta);
        let Some((buf, first)) = places.next() else {
            return Poll::Ready(Ok(0));
        };
        *first = meta_of(&ready!(socket.poll_recv_vectored(cx, buf))?);
        let mut filled = 1;
        for (buf, meta) in places {
            let Ok(received) = socket.try_recv_vectored(buf) else {
                break;
            };
            *meta = meta_of(&received);
            filled += 1;
        }
        Poll::Ready(Ok(filled))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        MAX_SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        JOINED
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

fn segment_size(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("a datagram fits a packet")
}

fn meta_of(received: &Received) -> RecvMeta {
    RecvMeta {
        addr: received.from,
        len: received.len,
        stride: received.segment_size.map_or(received.len, usize::from),
        ecn: EcnCodepoint::from_bits(received.tos),
        dst_ip: Some(received.local.ip()),
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
