//! `forebay trace` and `forebay replay` on small captures of their own.

mod common;

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Output;

use forebay::device::pcap::{CaptureFormat, CaptureWriter, LinkType};
use serde_json::Value;

use common::forebay;

const CLIENT: [u8; 4] = [192, 0, 2, 7];
const SERVER: [u8; 4] = [192, 0, 2, 53];
const ELSEWHERE: [u8; 4] = [192, 0, 2, 200];

/// An IPv4 packet with a UDP datagram that has no checksum.
fn datagram(dst: [u8; 4], ttl: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 1, 0, 0, ttl, 17, 0, 0];
    packet.extend(CLIENT);
    packet.extend(dst);
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&folded.to_be_bytes());
    // 4000 > 53, 12 bytes.
    packet.extend([0x0f, 0xa0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

/// An IPv6 packet with no next header.
fn empty_v6() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
    for last in [1, 2] {
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet
}

fn ethernet(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &ether_type.to_be_bytes(), packet].concat()
}

/// Twelve frames: ARP, an IPv6 packet, one whose TTL ends, eight in transit, one for the server.
fn capture(dir: &Path) -> PathBuf {
    let path = dir.join("mix.pcap");
    let file = File::create(&path).expect("a file");
    let mut writer =
        CaptureWriter::new(file, CaptureFormat::Pcap, LinkType::ETHERNET).expect("a capture");
    let mut frames = vec![
        ethernet(0x0806, &[0; 28]),
        ethernet(0x86dd, &empty_v6()),
        ethernet(0x0800, &datagram(ELSEWHERE, 1)),
    ];
    frames.extend(vec![ethernet(0x0800, &datagram(ELSEWHERE, 64)); 7]);
    frames.extend(vec![ethernet(0x0800, &datagram(SERVER, 64)); 2]);
    for (frame, second) in frames.iter().zip(1..) {
        writer
            .write(second * 1_000_000_000, frame)
            .expect("a frame");
    }
    path
}

fn run(dir: &Path, args: &[&str]) -> Output {
    forebay(dir).args(args).output().expect("forebay runs")
}

fn stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn objects(output: &Output) -> Vec<Value> {
    let lines = stdout(output);
    let read = |line| serde_json::from_str(line).expect(line);
    lines.lines().map(read).collect()
}

#[test]
fn trace_tells_each_stage_down_to_the_verdict() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let file = file.to_str().expect("UTF-8");
    let text = stdout(&run(dir.path(), &["trace", file, "--local", "192.0.2.53"]));
    for expected in [
        "#1  0.000000 s  no IP packet: EtherType 0x0806 is not IP\n",
        "#2  1.000000 s  2001:db8:9::1 > 2001:db8:9::2 no next header, 40 bytes, ttl 64\n",
        "#3  2.000000 s  192.0.2.7:4000 > 192.0.2.200:53 udp, 32 bytes, ttl 1\n",
        "  verdict      forward, and there reject TtlExceeded: TTL or hop limit used up.\n",
        "icmp time exceeded (11/0)",
        "  early demux  not tried: it is not for this host alone\n",
        "  route        default dev out (table main, rule 32766: from all lookup main)\n",
        "  early demux  stale:",
        "  early demux  hit:",
        "  route        not looked up: the socket's\n",
        "  socket       udp 192.0.2.53:53 <- 192.0.2.7:4000: 4 bytes\n",
        "12 frames: 8 forwarded, 2 delivered, 1 rejected (TtlExceeded 1), 1 without an IP packet\n",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn trace_filters_and_prints_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let file = file.to_str().expect("UTF-8");
    let rejected = objects(&run(
        dir.path(),
        &["trace", file, "--json", "--verdict", "reject"],
    ));
    let [told] = rejected.as_slice() else {
        panic!("one: {rejected:?}");
    };
    assert_eq!(told["number"], 3);
    assert_eq!(told["reason"], "TtlExceeded");
    assert_eq!(told["counters"]["IpInHdrErrors"], 1);
    assert_eq!(told["dst"], Ipv4Addr::from(ELSEWHERE).to_string());

    let some = objects(&run(
        dir.path(),
        &["trace", file, "--json", "-n", "11-12", "--host"],
    ));
    let words: Vec<_> = some.iter().map(|told| &told["early_demux"]).collect();
    assert_eq!(words, ["stale", "hit"]);
    assert!(some.iter().all(|told| told["verdict"] == "deliver"));
}

#[test]
fn replay_says_what_a_knob_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let file = file.to_str().expect("UTF-8");
    let compare = ["--compare", "net.ipv4.ip_early_demux=0,1", "--loop", "200"];
    let local = ["replay", file, "--local", "192.0.2.53"];
    let text = stdout(&run(dir.path(), &[&local[..], &compare].concat()));
    for expected in [
        "11 packets of IP (10 IPv4, 1 IPv6)",
        "1 frame without an IP packet: passed over\n",
        "1 socket connected for the UDP flows to this host\n",
        "The same became of every packet under both.\n",
        "Their sockets were looked for otherwise: 11-12.\n",
        "it finds the socket of 2 of 11 packets.\n",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
    assert!(text.lines().count() <= 30, "one screen:\n{text}");

    let json = objects(&run(
        dir.path(),
        &[&local[..], &compare, &["--json"]].concat(),
    ));
    let [off, on] = json.as_slice() else {
        panic!("two: {json:?}");
    };
    for setting in [off, on] {
        assert_eq!(setting["bench"], "replay");
        assert_eq!(setting["verdicts"]["forward"], 8);
        assert_eq!(setting["drops"]["TtlExceeded"], 1);
        assert!(setting["ns"].as_f64().expect("ns") > 0.0);
    }
    assert_eq!(off["early_demux"], serde_json::json!({}));
    let found = serde_json::json!({ "hit": 1, "stale": 1 });
    assert_eq!(on["early_demux"], found);
    assert_eq!(on["differing"], serde_json::json!([]));
}

#[test]
fn replay_measures_as_many_passes_as_it_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let file = file.to_str().expect("UTF-8");
    for passes in [1, 10, 41, 42] {
        let args = ["replay", file, "--json", "--loop", &passes.to_string()];
        let told = objects(&run(dir.path(), &args));
        assert_eq!(told[0]["measured"], 11 * passes);
    }
}

/// Writes packets as a capture of raw IP, a millisecond apart.
fn raw(dir: &Path, packets: &[Vec<u8>]) -> String {
    let path = dir.join("raw.pcap");
    let file = File::create(&path).expect("a file");
    let mut writer =
        CaptureWriter::new(file, CaptureFormat::Pcap, LinkType::RAW).expect("a capture");
    for (packet, millisecond) in packets.iter().zip(1..) {
        writer
            .write(millisecond * 1_000_000, packet)
            .expect("a packet");
    }
    path.to_str().expect("UTF-8").to_owned()
}

/// A part of a datagram from the client to port 53 of the server: the first 24 bytes, or the rest.
fn fragment(id: u8, is_first: bool) -> Vec<u8> {
    let mut packet = datagram(SERVER, 64);
    packet[5] = id;
    if is_first {
        packet.resize(44, 0);
        packet[25] = 32;
        packet[6] = 0x20;
    } else {
        packet.truncate(28);
        packet[7] = 3;
    }
    packet[3] = packet.len() as u8;
    with_checksum(packet)
}

fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    packet[10..12].fill(0);
    let words = packet[..20].chunks(2);
    let sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&folded.to_be_bytes());
    packet
}

#[test]
fn fragments_that_make_room_do_not_decide_about_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut packets: Vec<_> = (1..=6).map(|id| fragment(id, true)).collect();
    packets.push(fragment(6, false));
    let file = raw(dir.path(), &packets);
    let limit = "net.ipv4.ipfrag_high_thresh=9000";
    let local = ["trace", &file, "--local", "192.0.2.53", "--json"];
    let told = objects(&run(dir.path(), &[&local[..], &["--set", limit]].concat()));
    let verdicts: Vec<_> = told.iter().map(|told| &told["verdict"]).collect();
    assert_eq!(
        verdicts,
        ["hold", "hold", "hold", "hold", "hold", "hold", "reject"]
    );
    assert_eq!(told[4]["drops"]["FragLimit"], 1);
    assert_eq!(told[6]["reason"], "UdpNoSocket");

    let limit = "net.ipv4.ipfrag_high_thresh=2000";
    let told = objects(&run(dir.path(), &[&local[..], &["--set", limit]].concat()));
    assert!(told.iter().all(|told| told["reason"] == "FragLimit"));
}

#[test]
fn what_expires_at_the_end_is_summed_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let packets: Vec<_> = (1..=10).map(|id| fragment(id, true)).collect();
    let file = raw(dir.path(), &packets);
    let text = stdout(&run(dir.path(), &["trace", &file, "--local", "192.0.2.53"]));
    let end = text.lines().find(|line| line.starts_with("afterwards: "));
    let end = end.expect("something happens");
    assert!(end.contains("10 packets FragTimeout"), "{end}");
    let more = "; sent 7 more: icmp reassembly time exceeded (11/1), by out";
    assert!(end.ends_with(more), "{end}");
}

#[test]
fn sockets_get_what_is_in_pieces_and_errors_about_what_they_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut refusal = datagram(SERVER, 64);
    refusal.truncate(20);
    refusal[9] = 1;
    // Port unreachable, about a datagram from the server to the client.
    refusal.extend([3, 3, 0, 0, 0, 0, 0, 0]);
    let mut quoted = datagram(SERVER, 64);
    quoted[12..16].copy_from_slice(&SERVER);
    quoted[16..20].copy_from_slice(&CLIENT);
    quoted[20..24].copy_from_slice(&[0, 53, 0x0f, 0xa0]);
    refusal.extend(&quoted);
    refusal[3] = refusal.len() as u8;
    let sum: u32 = refusal[20..]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = !((folded & 0xffff) + (folded >> 16)) as u16;
    refusal[22..24].copy_from_slice(&folded.to_be_bytes());
    let mut to_port_0 = datagram(SERVER, 64);
    to_port_0[22..24].fill(0);
    let file = raw(
        dir.path(),
        &[
            datagram(SERVER, 64),
            fragment(9, true),
            fragment(9, false),
            with_checksum(refusal),
            to_port_0,
        ],
    );
    let local = ["--json", "--local", "192.0.2.53"];
    let told = objects(&run(dir.path(), &[&["trace", &file][..], &local].concat()));
    let socket = "udp 192.0.2.53:53 <- 192.0.2.7:4000";
    assert_eq!(told[1]["verdict"], "hold");
    for (frame, bytes) in [(0, vec![4]), (2, vec![24]), (3, vec![])] {
        assert_eq!(told[frame]["sockets"][0]["socket"], socket, "{frame}");
        assert_eq!(told[frame]["sockets"][0]["bytes"], Value::from(bytes));
    }
    assert!(told[3]["sockets"][0]["error"].is_string());
    assert_eq!(told[4]["reason"], "UdpNoSocket");

    let replay = ["replay", &file, "--loop", "2"];
    let told = objects(&run(dir.path(), &[&replay[..], &local].concat()));
    assert_eq!(told[0]["sockets"], 1);
}

#[test]
fn replay_names_the_packets_that_a_knob_makes_a_difference_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let file = file.to_str().expect("UTF-8");
    let text = stdout(&run(
        dir.path(),
        &[
            "replay",
            file,
            "--compare",
            "net.ipv4.ip_forward=0,1",
            "--loop",
            "20",
        ],
    ));
    let expected = "Something else became of 10 packets: 3-12.\n";
    assert!(text.contains(expected), "{text}");
    assert!(
        text.contains("it changes what becomes of 10 of 11 packets.\n"),
        "{text}"
    );
}

#[test]
fn a_mix_needs_no_capture() {
    let dir = tempfile::tempdir().expect("a directory");
    let mix = ["--mix", "90:10"];
    let compare = ["--compare", "net.ipv4.ip_early_demux=0,1", "--loop", "4"];
    let text = stdout(&run(
        dir.path(),
        &[&["replay"], &mix[..], &compare].concat(),
    ));
    for expected in [
        "a mix of 90:10: 10,000 packets of IP (5,000 IPv4, 5,000 IPv6), 640.0 kB\n",
        "100 sockets connected for the UDP flows to this host\n",
        "The same became of every packet under both.\n",
        "it finds the socket of 1,000 of 10,000 packets.\n",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
    assert!(text.lines().count() <= 32, "one screen:\n{text}");

    let text = stdout(&run(
        dir.path(),
        &[&["trace", "-n", "1-2"], &mix[..]].concat(),
    ));
    let end = "10,000 frames: 9,000 forwarded, 1,000 delivered\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_configuration_decides_where_packets_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let config = dir.path().join("edge.toml");
    let text = r#"
        sysctl.net.ipv4.ip_forward = 1
        [[device]]
        name = "wan"
        kind = "wire"
        addresses = ["192.0.2.53/24"]
        [[route]]
        to = "192.0.2.200/32"
        type = "prohibit"
        [[service]]
        kind = "echo"
        listen = "192.0.2.53:53"
    "#;
    std::fs::write(&config, text).expect("a file");
    let (file, config) = (
        file.to_str().expect("UTF-8"),
        config.to_str().expect("UTF-8"),
    );
    let told = objects(&run(dir.path(), &["trace", file, "-c", config, "--json"]));
    assert_eq!(told[3]["reason"], "Prohibit");
    let route = "prohibit 192.0.2.200 (table main, rule 32766: from all lookup main)";
    assert_eq!(told[3]["route"], route);
    assert_eq!(told[11]["early_demux"], "not tried: no connected socket");
    assert_eq!(told[11]["sockets"][0]["socket"], "udp 192.0.2.53:53");
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = capture(dir.path());
    let file = file.to_str().expect("UTF-8");
    let nothing = dir.path().join("nothing.pcap");
    std::fs::write(&nothing, "no capture").expect("a file");
    let nothing = nothing.to_str().expect("UTF-8");
    for (args, expected) in [
        (
            vec!["trace", "/no/such.pcap"],
            "cannot read the capture /no/such.pcap",
        ),
        (vec!["trace", nothing], "neither a pcap nor a pcapng file"),
        (
            vec!["trace", file, "--dev", "x"],
            "the devices are: in, out",
        ),
        (
            vec!["trace", file, "-n", "0"],
            "expected a packet's number, from 1, or a range as 3-7",
        ),
        (
            vec!["replay", file, "--compare", "net.ipv4.ip_forward=1"],
            "expected KNOB=A,B",
        ),
        (
            vec!["replay", file, "--compare", "net.nonsense=0,1"],
            "net.nonsense",
        ),
        (
            vec!["replay", file, "--local", "x"],
            "expected an address or a prefix",
        ),
        (vec!["replay", file, "--loop", "0"], "--loop"),
        (vec!["replay", file, "--loop", "-1"], "-1 is not in 1.."),
        (
            vec!["replay", file, "--compare", "net.ipv4.ip_early_demux=1,01"],
            "the two values are the same",
        ),
        (
            vec![
                "replay",
                file,
                "--compare",
                "net.ipv4.ip_forward=0,1",
                "--set",
                "net/ipv4/ip_forward=1",
            ],
            "the knob has the values that are compared",
        ),
        (vec!["replay"], "<FILE.pcap|--mix <TRANSIT:LOCAL>>"),
        (vec!["replay", "--mix", "90"], "as in 90:10"),
        (vec!["replay", "--mix", "0:0"], "as in 90:10"),
        (vec!["replay", file, "--mix", "1:1"], "cannot be used with"),
        (
            vec!["trace", "--mix", "1:1", "--host"],
            "cannot be used with",
        ),
    ] {
        let output = run(dir.path(), &args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(errors.contains(expected), "{args:?}: {errors}");
    }
}
