//! `forebay run` as people run it: an ordinary process without privileges.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

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

    // What the hosts outside say agrees.
    let traffic = |name: &str| summary["traffic"][name].as_u64().expect(name);
    assert_eq!(traffic("refused"), 0, "{summary}");
    assert_eq!(traffic("came_other"), 0, "{summary}");
    assert_eq!(traffic("came_icmp_errors"), 0, "{summary}");
    let same = [
        ("sent_transit", "came_forwarded"),
        ("sent_connected", "read_connected"),
        ("sent_unconnected", "read_unconnected"),
        ("sent_ping", "came_echo_replies"),
    ];
    for (sent, arrived) in same {
        assert!(traffic(sent) > 0, "{sent}: {summary}");
        assert_eq!(traffic(sent), traffic(arrived), "{sent}: {summary}");
    }
    assert_eq!(traffic("sent_transit"), count("forwarded"));
    assert_eq!(traffic("sent_malformed"), count("dropped"));
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
