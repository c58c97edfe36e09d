//! HTTP, by a crate that knows nothing of Forebay, over the sockets for tokio: against itself over a
//! wire, and against itself on kernel sockets over a TUN device.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use forebay::Stack;
use forebay::device::wire::{WireConfig, wire};
use forebay::tokio::{TcpListener, TcpStream};
use forebay_tests::kernel::{Family, Lab, LabConfig, in_private_network};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Of a large body.
const BYTES: usize = 2_000_000;

const CONNECTIONS: usize = 20;
const REQUESTS: usize = 10;

/// Long enough for all of it on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
            let to = serve(server, addr).await;
            converse(|| connect(client, to)).await;
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
                    let to = serve(&lab.stack, own).await;
                    converse(|| async { kernel_stream(&lab, to) }).await;
                });
                run(async {
                    let to = serve_by_the_kernel(&lab, left);
                    converse(|| connect(&lab.stack, to)).await;
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

async fn connect(stack: &Stack, to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(stack, to).await;
    stream.expect("somebody who listens")
}

fn kernel_stream(lab: &Lab, to: SocketAddr) -> tokio::net::TcpStream {
    let stream = lab.left.connect(to).expect("somebody who listens");
    stream.set_nonblocking(true).expect("open");
    tokio::net::TcpStream::from_std(stream).expect("a socket")
}

async fn serve(stack: &Stack, addr: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind(stack, (addr, 0)).await.expect("free");
    let to = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    to
}

fn serve_by_the_kernel(lab: &Lab, addr: IpAddr) -> SocketAddr {
    let listener = lab.left.listen(addr);
    let to = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("open");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    to
}

/// Answers the requests of a connection.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let answered = server::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(respond))
        .await;
    answered.expect("a client that ends well");
}

/// What was sent comes back.
async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.collect().await.expect("all of it").to_bytes();
    let (status, body) = match path.as_str() {
        "/echo" => (StatusCode::OK, body),
        _ => (StatusCode::NOT_FOUND, Bytes::from(path)),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

/// Many connections at once, of several requests each.
async fn converse<S, F>(connect: impl Fn() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = S>,
{
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let stream = connect().await;
        clients.push(tokio::spawn(ask(stream, number)));
    }
    for client in clients {
        client.await.expect("no panic");
    }
}

async fn ask(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, number: usize) {
    let (mut requests, connection) = client::handshake(TokioIo::new(stream))
        .await
        .expect("connected");
    let driver = tokio::spawn(connection);
    for round in 0..REQUESTS {
        let (path, expected) = match round % 2 {
            0 => ("/echo", StatusCode::OK),
            _ => ("/nothing/there", StatusCode::NOT_FOUND),
        };
        // One of them large.
        let len = match (number, round) {
            (0, 0) => BYTES,
            _ => number * 1_000 + round,
        };
        let body: Bytes = (0..len).map(|at| (at % 251) as u8).collect();
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", "forebay")
            .body(Full::new(body.clone()))
            .expect("a good one");
        let response = requests.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), expected);
        let back = response.collect().await.expect("all of it").to_bytes();
        match expected {
            StatusCode::OK => assert!(back == body, "{number} {round}"),
            _ => assert_eq!(back, path),
        }
    }
    drop(requests);
    driver.await.expect("no panic").expect("ended well");
}
