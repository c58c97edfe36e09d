//! A name server in `forebay exec`, asked by the resolvers that people have, in answers of the sizes
//! at which receive paths change their ways: checksummed on arrival or later, in one buffer or more,
//! in one packet or in fragments.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use domain::base::{Message, MessageBuilder, Name, Rtype};
use forebay::Stack;
use forebay::device::tun::{TunConfig, TunDevice};
use forebay::fib::{Route, RouteKind, TableId};
use forebay::netif::Netlink;

use common::{in_private_network, is_inside};

/// Bytes of an answer to a query without EDNS.
const SIZES: [usize; 7] = [60, 68, 69, 77, 512, 1_232, 3_000];

/// What such an answer has beside its name and its records: a header, a type and a class.
const FRAME: usize = 12 + 4;

/// What EDNS adds to it.
const OPT: usize = 11;

const SERVERS: [&str; 2] = ["10.9.0.1", "fd09::1"];

/// The port of the server that answers at whatever length, as a client like glibc needs it that
/// takes more than it says, and of the one that goes by what clients say.
const WHOLE: u16 = 53;
const TRUNCATING: u16 = 5_353;

const PATIENCE: Duration = Duration::from_secs(10);

/// What a server has under one name, to make the answer as long as it is to be.
struct Records {
    size: usize,
    rtype: Rtype,
    name: String,
    count: usize,
}

impl Records {
    fn all() -> impl Iterator<Item = Self> {
        let types = [Rtype::A, Rtype::AAAA, Rtype::TXT];
        SIZES
            .into_iter()
            .flat_map(move |size| types.map(|rtype| Self::new(size, rtype)))
    }

    /// Records of addresses are as many as fit, and the name takes what is left.
    fn new(size: usize, rtype: Rtype) -> Self {
        let stem = format!("{}{size}", rtype.to_string().to_lowercase());
        // Each label has a byte in front of it, and the name one behind it.
        let left = size - FRAME - (stem.len() + ".test".len() + 2);
        let (count, filling) = match rtype {
            Rtype::A => (left / 16, left % 16),
            Rtype::AAAA => (left / 28, left % 28),
            _ => (1, 0),
        };
        Self {
            size,
            rtype,
            name: format!("{stem}{}.test", "x".repeat(filling)),
            count,
        }
    }

    /// A line of the configuration.
    fn line(&self) -> String {
        let addresses = |prefix: &str| {
            let all = (1..=self.count).map(|nth| format!("\"{prefix}{nth}\""));
            all.collect::<Vec<_>>().join(", ")
        };
        let values = match self.rtype {
            Rtype::A => addresses("192.0.2."),
            Rtype::AAAA => addresses("2001:db8::"),
            _ => {
                let data = self.size - FRAME - (self.name.len() + 2) - 12;
                // A byte in front of each string of at most 255.
                format!("\"{}\"", "t".repeat(data - data.div_ceil(256)))
            }
        };
        format!("\"{}\" = [{values}]\n", self.name)
    }
}

/// What a network is like whose programs ask the server at the given address first.
fn configuration(first: &str, early_demux: bool) -> String {
    let mut addresses = [("10.9.0.1/24", "10.9.0.2/24"), ("fd09::1/64", "fd09::2/64")];
    if addresses[0].0.split('/').next() != Some(first) {
        addresses.reverse();
    }
    let [(own, peer), (own1, peer1)] = addresses;
    let mut text = format!(
        "[sysctl]\nnet.ipv4.ip_early_demux = {}\n\
         [[device]]\nname = \"tun0\"\nkind = \"exec\"\n\
         addresses = [\"{own}\", \"{own1}\"]\npeer_addresses = [\"{peer}\", \"{peer1}\"]\n\
         [[route]]\nto = \"10.20.0.0/24\"\nvia = \"10.9.0.2\"\n\
         [[route]]\nto = \"fd20::/64\"\nvia = \"fd09::2\"\n",
        u8::from(early_demux)
    );
    for (port, truncate) in [(WHOLE, false), (TRUNCATING, true)] {
        let head = format!(
            "[[service]]\nkind = \"dns\"\nlisten = \"[::]:{port}\"\ntruncate = {truncate}\n"
        );
        text += &head;
        for table in ["addresses", "texts"] {
            writeln!(text, "[service.{table}]").expect("memory");
            let has_texts = table == "texts";
            let lines = Records::all().filter(|it| (it.rtype == Rtype::TXT) == has_texts);
            text.extend(lines.map(|records| records.line()));
        }
    }
    text
}

/// Runs a test once more in such networks: with either server first, and early demux on and off.
fn in_networks(test: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dns.toml");
    for first in SERVERS {
        for early_demux in [true, false] {
            std::fs::write(&file, configuration(first, early_demux)).expect("write");
            in_private_network(test, &["-c", &file.display().to_string()]);
        }
    }
}

fn query(records: &Records, udp_payload_size: Option<u16>) -> Vec<u8> {
    let mut query = MessageBuilder::new_vec();
    query.header_mut().set_rd(true);
    let mut query = query.question();
    let name: Name<Vec<u8>> = records.name.parse().expect("a name");
    query.push((name, records.rtype)).expect("room");
    let mut query = query.additional();
    if let Some(size) = udp_payload_size {
        let pushed = query.opt(|opt| {
            opt.set_udp_payload_size(size);
            Ok(())
        });
        pushed.expect("room");
    }
    query.finish()
}

fn assert_whole(answer: &[u8], size: usize, records: &Records) {
    let what = format!("{} {}", records.name, records.rtype);
    assert_eq!(answer.len(), size, "{what}");
    let answer = Message::from_slice(answer).expect("a message");
    assert!(answer.no_error() && !answer.header().tc(), "{what}");
    assert_eq!(usize::from(answer.header_counts().ancount()), records.count);
}

fn at(server: &str, port: u16) -> SocketAddr {
    SocketAddr::new(server.parse().expect("an address"), port)
}

#[test]
fn sizes_are_what_they_are_called() {
    for records in Records::all() {
        assert!(records.count > 0 && records.name.len() < 64);
    }
    let names: BTreeSet<_> = Records::all().map(|records| records.name).collect();
    assert_eq!(names.len(), Records::all().count());
}

#[test]
fn a_connected_socket_of_the_kernel_is_answered() {
    if !is_inside() {
        return in_networks("a_connected_socket_of_the_kernel_is_answered");
    }
    for server in SERVERS {
        for records in Records::all() {
            let whole = |port, room, size| {
                let answer = ask(at(server, port), &query(&records, room));
                assert_whole(&answer, size, &records);
            };
            let (size, with_opt) = (records.size, records.size + OPT);
            let room = u16::try_from(with_opt).expect("a few thousand");
            whole(WHOLE, None, size);
            whole(WHOLE, Some(512), with_opt);
            whole(TRUNCATING, Some(room), with_opt);

            let room = (size > 512).then_some(room - 1);
            let answer = ask(at(server, TRUNCATING), &query(&records, room));
            let header = Message::from_slice(&answer).expect("a message").header();
            assert_eq!(header.tc(), size > 512, "{size}");
            assert!(answer.len() <= 512);
        }
    }
}

fn ask(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).expect("bind");
    socket.connect(server).expect("connect");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket.send(query).expect("send");
    let mut answer = vec![0; 65_536];
    let len = socket.recv(&mut answer).expect("an answer");
    answer.truncate(len);
    answer
}

/// From a second stack behind the kernel, by datagrams that are verified at one time or another:
/// whatever a resolver does before it reads, it gets the answer once.
#[test]
fn a_connected_socket_of_forebay_is_answered() {
    if !is_inside() {
        return in_networks("a_connected_socket_of_forebay_is_answered");
    }
    let stack = behind_the_kernel();
    let _worker = stack.spawn_workers().expect("a worker");
    for early_demux in ["1", "0"] {
        let set = stack
            .inner()
            .set_sysctl("net.ipv4.ip_early_demux", early_demux);
        set.expect("a knob");
        for nonblocking in [false, true] {
            for server in SERVERS {
                let any = if server.contains(':') {
                    "[::]:0"
                } else {
                    "0.0.0.0:0"
                };
                let socket = forebay::UdpSocket::bind(&stack, any).expect("bind");
                socket.connect(at(server, WHOLE)).expect("connect");
                socket.set_nonblocking(nonblocking).expect("a mode");
                for records in Records::all() {
                    socket.send(&query(&records, None)).expect("send");
                    assert_whole(&read_as_resolvers_do(&socket), records.size, &records);
                }
                assert!(!socket.is_readable().expect("open"));
            }
        }
    }
}

/// Polls, polls once more, asks for the length (FIONREAD), peeks and reads.
fn read_as_resolvers_do(socket: &forebay::UdpSocket) -> Vec<u8> {
    let deadline = Instant::now() + PATIENCE;
    while !(socket.is_readable().expect("open") && socket.is_readable().expect("open")) {
        assert!(Instant::now() < deadline, "no answer");
        std::thread::sleep(Duration::from_micros(200));
    }
    let len = socket.next_len().expect("open");
    let mut answer = vec![0; len];
    assert_eq!(socket.peek(&mut answer).expect("an answer"), len);
    assert_eq!(socket.recv(&mut answer).expect("an answer"), len);
    answer
}

/// A stack with 10.20.0.1 and fd20::1, for which the kernel of this network is the router.
fn behind_the_kernel() -> Stack {
    for knob in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(Path::new("/proc/sys/net").join(knob), "1").expect("a router");
    }
    let config = TunConfig {
        name: "fb0".to_owned(),
        queues: 1,
        offload: true,
    };
    let device = TunDevice::open(&config, 1_500).expect("a TUN device");
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index("fb0").expect("fb0");
    netlink.set_up(index).expect("up");
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (address, len) in [("10.20.0.2", 24), ("fd20::2", 64)] {
        netlink
            .add_address(index, ip(address), len)
            .expect("an address");
    }
    let stack = Stack::builder().build().expect("a stack");
    let ifindex = stack.add_device("fb0", device).expect("a device");
    let inner = stack.inner();
    inner
        .add_address(ifindex, ip("10.20.0.1"), 24)
        .expect("an address");
    inner
        .add_address(ifindex, ip("fd20::1"), 64)
        .expect("an address");
    let default = "0.0.0.0/0".parse().expect("a prefix");
    let route = Route::new(RouteKind::Unicast, default).via([10, 20, 0, 2].into());
    inner.fib4().add(TableId::MAIN, route).expect("a route");
    let default = "::/0".parse().expect("a prefix");
    let gateway = "fd20::2".parse().expect("an address");
    let route = Route::new(RouteKind::Unicast, default).via(gateway);
    inner.fib6().add(TableId::MAIN, route).expect("a route");
    stack
}

#[test]
fn getent_is_answered() {
    if !is_inside() {
        return in_networks("getent_is_answered");
    }
    for (database, rtype) in [("ahostsv4", Rtype::A), ("ahostsv6", Rtype::AAAA)] {
        let all: Vec<_> = Records::all().filter(|it| it.rtype == rtype).collect();
        let mut arguments = vec![database];
        arguments.extend(all.iter().map(|records| &*records.name));
        let Some(output) = output_of("getent", &arguments) else {
            return;
        };
        // Each address has a line for each kind of socket; the first one of a name bears it.
        let mut found: Vec<(&str, BTreeSet<&str>)> = Vec::new();
        for line in output.lines() {
            let mut words = line.split_whitespace();
            let (address, name) = (words.next().expect("an address"), words.nth(1));
            found.extend(name.map(|name| (name, BTreeSet::new())));
            found.last_mut().expect("a name").1.insert(address);
        }
        let found: Vec<_> = found.iter().map(|(name, set)| (*name, set.len())).collect();
        let expected: Vec<_> = all.iter().map(|it| (&*it.name, it.count)).collect();
        assert_eq!(found, expected, "{output}");
    }
}

#[test]
fn dig_is_answered() {
    if !is_inside() {
        return in_networks("dig_is_answered");
    }
    for server in SERVERS {
        for (port, edns, more) in [(WHOLE, "+noedns", 0), (TRUNCATING, "+bufsize=4096", OPT)] {
            let at = format!("@{server}");
            let port = port.to_string();
            let mut arguments = Vec::new();
            for records in Records::all() {
                let rtype = records.rtype.to_string();
                let question = [&at, "-p", &port, &records.name, &rtype].map(str::to_owned);
                arguments.extend(question);
                arguments.extend([edns, "+ignore", "+tries=1", "+time=10"].map(str::to_owned));
            }
            let Some(output) = output_of("dig", &arguments) else {
                return;
            };
            let sizes = |line: &str| line.strip_prefix(";; MSG SIZE  rcvd: ")?.parse().ok();
            let sizes: Vec<usize> = output.lines().filter_map(sizes).collect();
            let expected = Records::all().map(|records| records.size + more);
            assert_eq!(sizes, expected.collect::<Vec<_>>(), "{output}");
            let whole = |records: Records| format!("ANSWER: {}, AUTH", records.count);
            assert!(Records::all().map(whole).all(|it| output.contains(&it)));
            assert!(!output.contains("flags: qr aa tc"), "{output}");
        }
    }
}

/// Its own resolver, which is the C library's, and a socket of its own.
#[test]
fn python_is_answered() {
    const RESOLVE: &str = "\
import socket, sys
family = {'A': socket.AF_INET, 'AAAA': socket.AF_INET6}[sys.argv[1]]
for name in sys.argv[2:]:
    found = socket.getaddrinfo(name, 53, family, socket.SOCK_DGRAM)
    print(len({info[4][0] for info in found}))
";
    const ASK: &str = "\
import socket, sys
for query in sys.argv[2:]:
    family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
    asking = socket.socket(family, socket.SOCK_DGRAM)
    asking.settimeout(10)
    asking.connect((sys.argv[1], 53))
    asking.send(bytes.fromhex(query))
    print(len(asking.recv(65536)))
";
    if !is_inside() {
        return in_networks("python_is_answered");
    }
    for rtype in [Rtype::A, Rtype::AAAA] {
        let all = || Records::all().filter(|records| records.rtype == rtype);
        let mut arguments = vec!["-c".to_owned(), RESOLVE.to_owned(), rtype.to_string()];
        arguments.extend(all().map(|records| records.name));
        let Some(output) = output_of("python3", &arguments) else {
            return;
        };
        let counts: String = all()
            .map(|records| format!("{}\n", records.count))
            .collect();
        assert_eq!(output, counts);
    }
    for server in SERVERS {
        let mut arguments = ["-c", ASK, server].map(str::to_owned).to_vec();
        arguments.extend(Records::all().map(|records| {
            let bytes = query(&records, None);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }));
        let output = output_of("python3", &arguments).expect("it was there a moment ago");
        let sizes: String = Records::all()
            .map(|records| format!("{}\n", records.size))
            .collect();
        assert_eq!(output, sizes);
    }
}

/// What a command prints, which must succeed; `None` where it is not installed.
fn output_of(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("not tested: {program} is not installed");
            return None;
        }
        output => output.expect("run"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program}: {errors}{out}");
    Some(out)
}
