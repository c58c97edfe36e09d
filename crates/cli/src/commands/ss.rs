//! `forebay ss`, in the manner of ss(8).

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::asking::{self, Asking, CommandError, finish};
use super::words::FamilyArgs;
use crate::control::protocol::{Family, UdpSocket};

/// Show a running stack's sockets.
///
/// Connected sockets only, unless -a or -l is given. Ports are always numbers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  forebay ss -ua            all UDP sockets
  forebay ss -ul            those that are not connected
  forebay ss -uam           with the memory of their receive queues
  forebay ss -ua --json

In skmem, r is what waits to be read with what it takes in memory, rb the limit of r, d how many
datagrams were dropped for want of room; the rest is 0: Forebay queues nothing on the way out.")]
pub(crate) struct SsArgs {
    /// UDP sockets; there are no others yet.
    #[arg(short, long)]
    udp: bool,

    /// Connected and unconnected sockets.
    #[arg(short, long)]
    all: bool,

    /// Unconnected sockets.
    #[arg(short, long, conflicts_with = "all")]
    listening: bool,

    /// Numbers for ports, as always.
    #[arg(short, long)]
    numeric: bool,

    /// Memory of the receive queue.
    #[arg(short, long)]
    memory: bool,

    /// Options that are set: v6only, transparent.
    #[arg(short, long)]
    extended: bool,

    /// No header.
    #[arg(short = 'H', long)]
    no_header: bool,

    #[command(flatten)]
    family: FamilyArgs,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) fn run(args: &SsArgs) -> anyhow::Result<ExitCode> {
    finish(obey(args))
}

fn obey(args: &SsArgs) -> Result<(), CommandError> {
    let mut sockets = args.asking.client()?.udp_sockets()?;
    sockets.retain(|socket| is_wanted(args, socket));
    if args.asking.json {
        asking::print_json(&sockets.iter().map(json).collect::<Vec<_>>())
    } else {
        asking::print(&text(args, &sockets))
    }
}

fn is_wanted(args: &SsArgs, socket: &UdpSocket) -> bool {
    let family = args.family.family();
    (args.all || socket.peer.is_none() == args.listening)
        && family.is_none_or(|family| family == Family::of(socket.local.ip()))
}

/// A cell of ss(8)'s table.
enum Cell {
    Left(String),
    /// Aligned at the colon.
    Endpoint {
        address: String,
        port: String,
    },
}

fn text(args: &SsArgs, sockets: &[UdpSocket]) -> String {
    // All would be ESTAB otherwise.
    let with_state = args.all || args.listening;
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    if !args.no_header {
        rows.push(cells(
            with_state,
            ["State", "Recv-Q", "Send-Q"].map(str::to_owned),
            [
                ("Local Address".to_owned(), "Port".to_owned()),
                ("Peer Address".to_owned(), "Port".to_owned()),
            ],
            String::new(),
        ));
    }
    rows.extend(sockets.iter().map(|socket| {
        let left = [
            state(socket).to_owned(),
            socket.rmem.to_string(),
            "0".to_owned(),
        ];
        let endpoints = [local(socket), peer(socket)];
        cells(with_state, left, endpoints, extended(args, socket))
    }));
    let mut lines = align(&rows).into_iter();
    let mut text: String = lines.by_ref().take(rows.len() - sockets.len()).collect();
    for (line, socket) in lines.zip(sockets) {
        text += &line;
        text += &memory(args, socket);
    }
    text
}

fn cells(
    with_state: bool,
    left: [String; 3],
    endpoints: [(String, String); 2],
    extended: String,
) -> Vec<Cell> {
    let left = left
        .into_iter()
        .skip(if with_state { 0 } else { 1 })
        .map(Cell::Left);
    let endpoints = endpoints.map(|(address, port)| Cell::Endpoint { address, port });
    let extended = std::iter::once(Cell::Left(extended));
    left.chain(endpoints).chain(extended).collect()
}

/// Pads the cells of each column to the widest.
fn align(rows: &[Vec<Cell>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let mut lines = vec![String::new(); rows.len()];
    for column in 0..columns {
        let cells = || rows.iter().filter_map(|row| row.get(column));
        let widest = |part: fn(&Cell) -> &String| cells().map(|cell| part(cell).len()).max();
        let width = widest(Cell::head).unwrap_or(0);
        let port_width = widest(Cell::tail).unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(cells()) {
            let padded = match cell {
                Cell::Left(text) => format!("{text:<width$} "),
                Cell::Endpoint { address, port } => {
                    format!("{address:>width$}:{port:<port_width$} ")
                }
            };
            line.push_str(&padded);
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
        line.push('\n');
    }
    lines
}

impl Cell {
    fn head(&self) -> &String {
        match self {
            Self::Left(text) | Self::Endpoint { address: text, .. } => text,
        }
    }

    fn tail(&self) -> &String {
        match self {
            Self::Left(text) | Self::Endpoint { port: text, .. } => text,
        }
    }
}

fn state(socket: &UdpSocket) -> &'static str {
    if socket.peer.is_some() {
        "ESTAB"
    } else {
        "UNCONN"
    }
}

fn local(socket: &UdpSocket) -> (String, String) {
    let dev = socket
        .dev
        .as_ref()
        .map(|dev| format!("%{dev}"))
        .unwrap_or_default();
    (
        host(socket, socket.local.ip()) + &dev,
        port(socket.local.port()),
    )
}

fn peer(socket: &UdpSocket) -> (String, String) {
    let nobody = SocketAddr::new(unspecified(socket), 0);
    let peer = socket.peer.unwrap_or(nobody);
    (host(socket, peer.ip()), port(peer.port()))
}

/// An IPv6 socket that takes IPv4 as well stands for any address of both with a star.
fn host(socket: &UdpSocket, addr: IpAddr) -> String {
    match addr {
        IpAddr::V6(addr) if addr.is_unspecified() && !socket.v6only => "*".to_owned(),
        IpAddr::V6(addr) => format!("[{addr}]"),
        IpAddr::V4(addr) => addr.to_string(),
    }
}

fn port(port: u16) -> String {
    if port == 0 {
        "*".to_owned()
    } else {
        port.to_string()
    }
}

fn unspecified(socket: &UdpSocket) -> IpAddr {
    match Family::of(socket.local.ip()) {
        Family::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        Family::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// What -e adds to the line.
fn extended(args: &SsArgs, socket: &UdpSocket) -> String {
    let mut words = Vec::new();
    if args.extended && socket.local.is_ipv6() {
        words.push(format!("v6only:{}", u8::from(socket.v6only)));
    }
    if args.extended && socket.transparent {
        words.push("transparent".to_owned());
    }
    words.join(" ")
}

/// What -m adds, in a line of its own.
fn memory(args: &SsArgs, socket: &UdpSocket) -> String {
    if !args.memory {
        return String::new();
    }
    format!(
        "\t skmem:(r{},rb{},t0,tb0,f0,w0,o0,bl0,d{})\n",
        socket.rmem, socket.rcvbuf, socket.drops
    )
}

/// ss(8) has no JSON; the words are its columns'.
#[derive(Debug, Serialize)]
struct Json<'a> {
    netid: &'static str,
    state: &'static str,
    recv_q: u64,
    send_q: u64,
    local: IpAddr,
    local_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<&'a str>,
    v6only: bool,
    transparent: bool,
    skmem: Skmem,
}

#[derive(Debug, Serialize)]
struct Skmem {
    rmem_alloc: u64,
    rcv_buf: u64,
    drops: u64,
}

fn json(socket: &UdpSocket) -> Json<'_> {
    Json {
        netid: "udp",
        state: state(socket),
        recv_q: socket.rmem,
        send_q: 0,
        local: socket.local.ip(),
        local_port: socket.local.port(),
        peer: socket.peer.map(|peer| peer.ip()),
        peer_port: socket.peer.map(|peer| peer.port()),
        dev: socket.dev.as_deref(),
        v6only: socket.v6only,
        transparent: socket.transparent,
        skmem: Skmem {
            rmem_alloc: socket.rmem,
            rcv_buf: socket.rcvbuf,
            drops: socket.drops,
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SsArgs,
    }

    fn socket(local: &str, peer: Option<&str>) -> UdpSocket {
        UdpSocket {
            local: local.parse().unwrap(),
            peer: peer.map(|peer| peer.parse().unwrap()),
            dev: None,
            v6only: false,
            transparent: false,
            rmem: 0,
            rcvbuf: 212_992,
            drops: 0,
        }
    }

    /// What `ss` with these options prints of the same sockets everywhere.
    fn printed(options: &str) -> String {
        let args = Line::try_parse_from(["ss", options]).unwrap().args;
        let mut sockets = vec![
            socket("0.0.0.0:9", None),
            UdpSocket {
                rmem: 832,
                drops: 3,
                ..socket("127.0.0.1:53", None)
            },
            socket("127.0.0.1:5353", Some("127.0.0.1:53")),
            socket("[::]:7", None),
            socket("[::1]:98", Some("[::1]:99")),
            UdpSocket {
                v6only: true,
                ..socket("[::1]:99", None)
            },
            UdpSocket {
                transparent: true,
                dev: Some("tun0".to_owned()),
                ..socket("0.0.0.0:0", None)
            },
        ];
        sockets.retain(|socket| is_wanted(&args, socket));
        text(&args, &sockets)
    }

    #[test]
    fn prints_what_ss_prints() {
        let expected = "\
State  Recv-Q Send-Q Local Address:Port Peer Address:Port
UNCONN 0      0            0.0.0.0:9         0.0.0.0:*
UNCONN 832    0          127.0.0.1:53        0.0.0.0:*
ESTAB  0      0          127.0.0.1:5353    127.0.0.1:53
UNCONN 0      0                  *:7               *:*
ESTAB  0      0              [::1]:98          [::1]:99
UNCONN 0      0              [::1]:99           [::]:*
UNCONN 0      0       0.0.0.0%tun0:*         0.0.0.0:*
";
        assert_eq!(printed("-uan"), expected);
        let expected = "\
Recv-Q Send-Q Local Address:Port Peer Address:Port
0      0          127.0.0.1:5353    127.0.0.1:53
0      0              [::1]:98          [::1]:99
";
        assert_eq!(printed("-u"), expected);
        let expected = "UNCONN 0 0     *:7     *:*\nUNCONN 0 0 [::1]:99 [::]:*\n";
        assert_eq!(printed("-6ulH"), expected);
    }

    #[test]
    fn memory_has_a_line_of_its_own_and_options_have_not() {
        let memory = printed("-4uamH");
        let line = "\t skmem:(r832,rb212992,t0,tb0,f0,w0,o0,bl0,d3)";
        assert_eq!(memory.lines().nth(3), Some(line));
        let expected = "\
UNCONN 0 0     *:7     *:* v6only:0
UNCONN 0 0 [::1]:99 [::]:* v6only:1
";
        assert_eq!(printed("-6uleH"), expected);
        let transparent = printed("-4uaeH");
        let last = transparent.lines().last().map(str::split_whitespace);
        let words: Vec<_> = last.into_iter().flatten().skip(3).collect();
        assert_eq!(words, ["0.0.0.0%tun0:*", "0.0.0.0:*", "transparent"]);
    }

    #[test]
    fn json_names_the_columns() {
        let expected = concat!(
            r#"{"netid":"udp","state":"ESTAB","recv_q":0,"send_q":0,"local":"127.0.0.1","local_port":5353,"#,
            r#""peer":"127.0.0.1","peer_port":53,"v6only":false,"transparent":false,"#,
            r#""skmem":{"rmem_alloc":0,"rcv_buf":212992,"drops":0}}"#,
        );
        let socket = socket("127.0.0.1:5353", Some("127.0.0.1:53"));
        assert_eq!(serde_json::to_string(&json(&socket)).unwrap(), expected);
    }
}
