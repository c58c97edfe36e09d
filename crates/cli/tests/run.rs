//! `forebay run` as people run it: an ordinary process without privileges.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use forebay::device::pcap::{CaptureFormat, CaptureReader, CaptureWriter, LinkType};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use common::{forebay, runtime_dir};

#[test]
fn traffic_of_its_own_shows_life_and_adds_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut run = forebay(dir.path());
    let output = run
        .args(["run", "--duration", "2", "--json"])
        .output()
        .expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");

    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let [.., second, summary] = lines.as_slice() else {
        panic!("two lines at least: {lines:?}");
    };
    assert_eq!(second["event"], "second");
    assert_eq!(summary["event"], "summary");

    let count = |name: &str| summary[name].as_u64().expect(name);
    for name in ["packets", "bytes", "forwarded", "delivered", "dropped"] {
        assert!(count(name) > 0, "{name}: {summary}");
    }
    // A packet has one fate.
    let fates = count("forwarded") + count("delivered") + count("dropped");
    assert_eq!(count("packets"), fates, "{summary}");
    let reasons = summary["drops"].as_object().expect("drops");
    let by_reason: u64 = reasons.values().filter_map(Value::as_u64).sum();
    assert_eq!(by_reason, count("dropped"));

    // What the hosts outside say agrees. (On a busy machine a socket may overflow.)
    let traffic = |name: &str| summary["traffic"][name].as_u64().expect(name);
    for name in ["came_other", "came_icmp_errors"] {
        assert_eq!(traffic(name), 0, "{name}: {summary}");
    }
    let sum = |names: &[&str]| names.iter().map(|name| traffic(name)).sum::<u64>();
    let kinds = ["transit", "connected", "unconnected", "ping", "malformed"];
    let sent = kinds.map(|kind| format!("sent_{kind}"));
    let arrivals = [
        "came_forwarded",
        "came_echo_replies",
        "read_connected",
        "read_unconnected",
    ];
    for name in sent.iter().map(String::as_str).chain(arrivals) {
        assert!(traffic(name) > 0, "{name}: {summary}");
    }
    let sent = sum(&sent.each_ref().map(String::as_str));
    assert_eq!(sent, count("packets"), "{summary}");
    assert_eq!(sent, sum(&arrivals) + count("dropped"), "{summary}");
    assert_eq!(traffic("came_forwarded"), count("forwarded"), "{summary}");
}

#[test]
fn a_signal_ends_it_with_a_summary() {
    let dir = tempfile::tempdir().expect("a directory");
    for signal in [Signal::INT, Signal::TERM] {
        let mut run = forebay(dir.path());
        let mut run = run.arg("run").stdout(Stdio::piped()).spawn().expect("run");
        let mut output = BufReader::new(run.stdout.take().expect("a pipe"));
        let mut text = String::new();
        while !text.contains("IpInHdr") {
            assert_ne!(output.read_line(&mut text).expect("read"), 0, "{text}");
        }
        kill_process(Pid::from_child(&run), signal).expect("kill");
        output.read_to_string(&mut text).expect("read");
        assert!(run.wait().expect("wait").success());
        assert!(text.contains(" packets came in, "), "{text}");
        let left: Vec<_> = std::fs::read_dir(runtime_dir(dir.path()))
            .expect("list")
            .collect();
        let sockets = left.iter().flatten().filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "sock")
        });
        assert_eq!(sockets.count(), 0, "{left:?}");
    }
}

/// Captures, impairments, routes and the end: what the output device holds is written down.
#[test]
fn a_capture_is_routed_into_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut packet = vec![
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1, // IPv4
        0x30, 0x39, 0, 9, 0, 8, 0, 0, // UDP without a checksum
    ];
    let header_sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&header_sum.to_be_bytes());
    let file = File::create(dir.path().join("in.pcap")).expect("create");
    let mut capture = CaptureWriter::new(file, CaptureFormat::Pcap, LinkType::RAW).expect("begin");
    capture.write(1_000_000_000, &packet).expect("write");
    drop(capture);
    let config = "\
[sysctl]
net.ipv4.ip_forward = 1

[[device]]
name = \"in\"
kind = \"pcap\"
read = \"in.pcap\"
addresses = [\"10.1.0.1/24\"]
impair = { duplicate = \"100%\" }

[[device]]
name = \"out\"
kind = \"pcap\"
write = \"out.pcapng\"
addresses = [\"10.2.0.1/24\"]

[[route]]
to = \"198.51.100.0/24\"
via = \"10.2.0.2\"
";
    std::fs::write(dir.path().join("replay.toml"), config).expect("write");
    let mut run = forebay(dir.path());
    run.current_dir(dir.path());
    run.args(["run", "-c", "replay.toml", "--duration", "500ms", "--json"]);
    let output = run.output().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("one line");
    assert_eq!(
        (&summary["packets"], &summary["forwarded"]),
        (&2.into(), &2.into())
    );
    assert_eq!(summary.get("traffic"), None);

    let mut out = CaptureReader::open(dir.path().join("out.pcapng")).expect("a capture");
    for _ in 0..2 {
        let record = out.next_record().expect("a record").expect("a packet");
        assert_eq!(record.data[8], 63, "a hop further");
        assert_eq!(record.data[12..], packet[12..]);
    }
    assert!(out.next_record().expect("an end").is_none());
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("few words")
}

#[test]
fn an_end_of_reading_is_an_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut run = forebay(dir.path());
    let mut run = run.arg("run").stdout(Stdio::piped()).spawn().expect("run");
    drop(run.stdout.take());
    assert!(run.wait().expect("wait").success());
}

#[test]
fn a_wrong_configuration_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, "[stack]\nbufers = 5\n").expect("write");
    let cases = [
        (
            vec!["-c", "bad.toml"],
            "forebay: bad.toml:2:1: unknown key `bufers` in [stack]\n",
        ),
        (
            vec!["-c", "none.toml"],
            "forebay: cannot read the configuration none.toml: No such file",
        ),
        (
            vec!["--set", "net.ipv4.ip_early_demux=256"],
            "forebay: --set net.ipv4.ip_early_demux=256: ",
        ),
        (
            vec!["--set", "ip_early_demux"],
            "error: invalid value 'ip_early_demux' for '--set",
        ),
        (
            vec!["--duration", "soon"],
            "error: invalid value 'soon' for '--duration",
        ),
    ];
    for (args, expected) in cases {
        let mut run = forebay(dir.path());
        let output = run
            .current_dir(dir.path())
            .arg("run")
            .args(&args)
            .output()
            .expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.starts_with(expected), "{args:?}: {errors}");
        assert!(!output.status.success());
        assert!(output.stdout.is_empty());
    }
}

/// A device with a capture; the place of its first key is 4:1.
fn capture(keys: &str) -> String {
    format!("[[device]]\nname = \"c\"\nkind = \"pcap\"\n{keys}\n")
}

#[test]
fn captures_are_files_and_never_overwritten_by_themselves() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RWXU).expect("a FIFO");
    std::fs::write(dir.path().join("text"), "no capture").expect("write");
    let cases = [
        (
            "read = \"fifo\"",
            "4:8: `read`: cannot open c: it is no regular file",
        ),
        (
            "read = \".\"",
            "4:8: `read`: cannot open c: it is no regular file",
        ),
        (
            "read = \"/dev/zero\"",
            "4:8: `read`: cannot open c: it is no regular file",
        ),
        (
            "read = \"none\"",
            "4:8: `read`: cannot open c: No such file",
        ),
        (
            "read = \"text\"",
            "4:8: `read`: cannot open c: neither a pcap nor",
        ),
        (
            "write = \"fifo\"",
            "4:9: `write`: cannot open c: it is no regular file",
        ),
        (
            "write = \".\"",
            "4:9: `write`: cannot open c: Is a directory",
        ),
        (
            "write = \"./text\"\nread = \"text\"",
            "4:9: `write`: this file is read",
        ),
    ];
    for (keys, expected) in cases {
        std::fs::write(dir.path().join("c.toml"), capture(keys)).expect("write");
        let mut run = forebay(dir.path());
        run.current_dir(dir.path());
        let output = run
            .args(["run", "-c", "c.toml", "--duration", "1"])
            .output();
        let output = output.expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected = format!("forebay: c.toml:{expected}");
        assert!(errors.starts_with(&expected), "{keys}: {errors}");
        assert_eq!(output.status.code(), Some(1));
    }
    let text = std::fs::read_to_string(dir.path().join("text")).expect("read");
    assert_eq!(text, "no capture");
}

#[test]
fn a_device_that_was_given_up_shows_at_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "\
[sysctl]
net.ipv4.ip_forward = 1

[[device]]
name = \"w\"
kind = \"wire\"
addresses = [\"10.1.0.1/24\"]
peer_addresses = [\"10.1.0.2/24\"]

[[device]]
name = \"full\"
kind = \"pcap\"
write = \"/dev/full\"
addresses = [\"10.2.0.1/24\"]

[[route]]
to = \"198.18.0.0/15\"
dev = \"full\"

[[traffic]]
device = \"w\"
rate = 1000
transit_to = [\"198.18.0.0/15\"]
mix = { transit = 1 }
";
    std::fs::write(dir.path().join("full.toml"), config).expect("write");
    for json in [true, false] {
        let mut run = forebay(dir.path());
        run.current_dir(dir.path());
        run.args(["run", "-c", "full.toml", "--duration", "300ms"]);
        run.args(json.then_some("--json"));
        let output = run.output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.starts_with("forebay: full is down: No space left"),
            "{errors}"
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = match json {
            true => "\"failures\":{\"full\":\"No space left",
            false => "The device full was given up: No space left",
        };
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn nobody_to_tell_is_no_reason_to_panic() {
    let dir = tempfile::tempdir().expect("a directory");
    let full = || File::options().write(true).open("/dev/full").expect("open");
    let cases = [
        vec!["run", "-c", "none.toml"],
        vec!["run", "--duration", "1"],
        vec!["sysctl", "-a"],
        vec!["exec", "-c", "none.toml", "--", "true"],
        vec!["sink", "--config", "none.toml"],
        vec!["flood", "--config", "none.toml", "10.0.0.1"],
        vec!["--help"],
        vec!["frob"],
    ];
    for args in cases {
        let mut command = forebay(dir.path());
        command.args(&args).stdout(full()).stderr(full());
        let status = command.status().expect("run").code();
        assert!(matches!(status, Some(0 | 1 | 125)), "{args:?}: {status:?}");
    }
}

/// As a shell hands on `<(...)`; and what never ends is refused.
#[test]
fn a_configuration_may_come_through_a_pipe() {
    let dir = tempfile::tempdir().expect("a directory");
    for (file, input, expected) in [
        (
            "/dev/stdin",
            "[stack]\nbufers = 5\n",
            ":2:1: unknown key `bufers`",
        ),
        ("/dev/zero", "", ": it is longer than 16 MiB"),
    ] {
        let mut run = forebay(dir.path());
        run.args(["run", "--duration", "1", "-c", file]);
        run.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut run = run.spawn().expect("run");
        let mut pipe = run.stdin.take().expect("a pipe");
        pipe.write_all(input.as_bytes()).expect("write");
        drop(pipe);
        let output = run.wait_with_output().expect("wait");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(expected), "{errors}");
        assert_eq!(output.status.code(), Some(1));
    }
}
