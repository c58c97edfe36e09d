//! `forebay sink` and `forebay flood`, on Forebay's sockets and on the kernel's.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use common::{forebay, is_refused};

fn run(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    forebay(dir.path()).args(args).output().expect("run")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

fn objects(output: &Output) -> Vec<Value> {
    let object = |line: &String| serde_json::from_str(line).expect(line);
    lines(output).iter().map(object).collect()
}

/// A port at which nobody is.
fn free_port() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.local_addr().expect("an address").port().to_string()
}

/// Waits until somebody receives there.
fn wait_for_socket(port: &str) {
    let local = format!(":{:04X} ", port.parse::<u16>().expect(port));
    let is_there = (0..2_000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        let sockets = fs::read_to_string("/proc/net/udp").expect("/proc/net/udp");
        sockets.contains(&local)
    });
    assert!(is_there, "nobody receives at port {port}");
}

#[test]
fn a_sink_floods_itself_and_prints_the_table_of_udp_sink() {
    let output = run(&["sink", "-c", "500", "-r", "2", "-C", "--check-pktgen=2"]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(errors(&output), "");
    let lines = lines(&output);
    let [heading, rows @ ..] = lines.as_slice() else {
        panic!("nothing printed");
    };
    assert!(
        heading.starts_with("          \trun      count"),
        "{heading}"
    );
    assert_eq!(rows.len(), 4 * 2 * 2, "{rows:?}");
    for (index, pair) in rows.chunks(2).enumerate() {
        let test = ["recvMmsg/32  ", "recvmsg   ", "recvfrom  ", "recv      "][index / 2];
        let begin = format!("{test}\trun:  {}\t     500\t", index % 2);
        assert!(pair[0].starts_with(&begin), "{pair:?}");
        assert!(pair[0].contains("\t18\t demux:1 c:1"), "{pair:?}");
        let nothing = "- Failed pktgen checks OoO 0 wrong magic 0 bad repeat 0";
        assert_eq!(pair[1], nothing);
    }
}

#[test]
fn objects_say_under_which_conditions() {
    let knob = "net.ipv4.ip_early_demux=0";
    let output = run(&[
        "sink", "-6", "-c", "300", "--recv", "-d", "-m", "40", "--set", knob, "--json",
    ]);
    assert!(output.status.success(), "{}", errors(&output));
    let rows = objects(&output);
    let [row] = rows.as_slice() else {
        panic!("one row: {rows:?}");
    };
    for (key, value) in [
        ("bench", Value::from("sink")),
        ("test", "recv".into()),
        ("kernel", false.into()),
        ("family", 6.into()),
        ("count", 300.into()),
        ("payload", 40.into()),
        ("run", 0.into()),
        ("ip_early_demux", 0.into()),
        ("connect", false.into()),
    ] {
        assert_eq!(row[key], value, "{key}: {row}");
    }
    let ns = row["ns"].as_f64().expect("ns");
    let pps = row["pps"].as_f64().expect("pps");
    assert!((ns * pps / 1e9 - 1.0).abs() < 0.01, "{row}");
}

#[test]
fn a_flood_stays_in_this_process_without_an_address() {
    for family in ["-4", "-6"] {
        let output = run(&["flood", family, "-c", "300", "-P", "-b", "7"]);
        assert!(output.status.success(), "{}", errors(&output));
        let lines = lines(&output);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(
            lines[0].starts_with("              \t packets"),
            "{lines:?}"
        );
        let tests = ["send      ", "sendto    ", "sendmsg   ", "sendMmsg/7  "];
        for (line, test) in lines[1..].iter().zip(tests) {
            let begin = format!("{test}\t     300\t");
            assert!(line.starts_with(&begin), "{line}");
            assert!(line.contains("\t18\t c:1"), "{line}");
        }
    }
}

#[test]
fn the_kernel_floods_the_kernel_and_the_sink_ends_with_it() {
    let port = free_port();
    let dir = tempfile::tempdir().expect("a directory");
    // More than is going to come.
    let sink = forebay(dir.path())
        .args(["sink", "--kernel", "--json", "-C", "-I", "1.5", "-l"])
        .args([&port, "--check-pktgen"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run");
    wait_for_socket(&port);
    let args = ["flood", "--kernel", "--json", "-P", "-c", "50", "-p"];
    let sent = run(&[&args[..], &[&port, "127.0.0.1"]].concat());
    assert!(sent.status.success(), "{}", errors(&sent));
    let sent = objects(&sent);
    let tests: Vec<_> = sent.iter().map(|row| row["test"].clone()).collect();
    assert_eq!(tests, ["send", "sendto", "sendmsg", "sendMmsg", "write"]);

    let output = sink.wait_with_output().expect("output");
    assert!(output.status.success(), "{}", errors(&output));
    let note = "nothing came any more; 1 of 5 runs were made";
    assert!(errors(&output).contains(note), "{}", errors(&output));
    let rows = objects(&output);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["kernel"], true);
    let came = rows[0]["count"].as_u64().expect("count");
    assert!((1..250).contains(&came), "{}", rows[0]);
    for fault in ["out_of_order", "wrong_magic", "bad_repeat"] {
        assert_eq!(rows[0]["pktgen"][fault], 0, "{}", rows[0]);
    }
}

#[test]
fn the_kernel_floods_forebay_over_a_tun_device() {
    let flood = [env!("CARGO_BIN_EXE_forebay"), "flood", "--kernel", "-P"];
    for (family, addr) in [("-4", "10.9.0.1"), ("-6", "fd09::1")] {
        let sink = ["sink", family, "-c", "300", "-C", "--check-pktgen=2", "--"];
        let output = run(&[&sink[..], &flood, &[addr]].concat());
        if is_refused(&output) {
            return;
        }
        assert!(output.status.success(), "{}", errors(&output));
        let lines = lines(&output);
        let is_row = |line: &&String| line.contains("\trun: ");
        let rows: Vec<_> = lines.iter().filter(is_row).collect();
        assert_eq!(rows.len(), 4, "{lines:?}");
        for row in rows {
            assert!(row.contains("\t     300\t"), "{row}");
            assert!(row.contains("\t18\t demux:1 c:1"), "{row}");
        }
        let checks: Vec<_> = lines.iter().filter(|line| line.starts_with('-')).collect();
        let nothing = "- Failed pktgen checks OoO 0 wrong magic 0 bad repeat 0";
        assert_eq!(checks, [nothing; 4]);
    }
}

#[test]
fn sinks_share_a_port() {
    let port = free_port();
    let dir = tempfile::tempdir().expect("a directory");
    let sink = || {
        let mut command = forebay(dir.path());
        command.args([
            "sink",
            "--kernel",
            "-U",
            "-s",
            "--use-bpf",
            "-I",
            "1",
            "-l",
            &port,
        ]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run")
    };
    let first = sink();
    wait_for_socket(&port);
    let alone = run(&["sink", "--kernel", "-l", &port]);
    assert!(errors(&alone).contains("in use"), "{}", errors(&alone));
    let mut second = sink();
    thread::sleep(Duration::from_millis(300));
    assert!(second.try_wait().expect("a status").is_none(), "it is gone");
    second.kill().expect("it runs");
    second.wait().expect("a status");
    let args = [
        "flood",
        "--kernel",
        "-U",
        "-c",
        "500",
        "-p",
        &port,
        "127.0.0.1",
    ];
    assert!(run(&args).status.success());
    let output = first.wait_with_output().expect("output");
    let rows = lines(&output);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[1].starts_with("recvMmsg/32  \trun:  0\t"), "{rows:?}");

    let own = run(&[
        "sink",
        "-U",
        "-b",
        "8",
        "-c",
        "200",
        "-s",
        "--use-bpf",
        "--json",
    ]);
    assert!(own.status.success(), "{}", errors(&own));
    let row = &objects(&own)[0];
    assert_eq!(
        (&row["test"], &row["batch"]),
        (&"recvMmsg".into(), &8.into())
    );
    assert_eq!(row["count"], 200);
}

#[test]
fn a_sink_does_not_wait_for_a_command_that_has_ended() {
    let output = run(&["sink", "--", "false"]);
    if is_refused(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    let expected = "nothing came: the command ended (exit status: 1)";
    assert!(errors(&output).contains(expected), "{}", errors(&output));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        (&["flood", "127.0.0.1"][..], "add --kernel"),
        (&["flood", "--kernel"], "<ADDR>"),
        (&["flood", "--write"], "--kernel"),
        (&["flood", "-P", "-m", "15"], "16 bytes"),
        (&["flood", "--kernel", "::1", "-4"], "no IPv4 address"),
        (&["sink", "--read"], "--kernel"),
        (&["sink", "--kernel", "-m", "20"], "--payload"),
        (&["sink", "--check-pktgen", "-m", "15"], "16 bytes"),
        (&["sink", "--check-pktgen=4"], "--check-pktgen"),
        (&["sink", "-c", "0"], "--count"),
        (&["sink", "-b", "0"], "--batch"),
        (&["sink", "--use-bpf"], "--reuse-port"),
        (&["flood", "-b", "1025"], "--batch"),
        (&["sink", "--set", "net.nonsense=1"], "net.nonsense"),
    ] {
        let output = run(args);
        assert!(!output.status.success(), "{args:?}");
        let errors = errors(&output);
        assert!(errors.contains(expected), "{args:?}: {errors}");
    }
}
