//! Commands that read and change a running stack, as people run them.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use common::forebay;

/// A `forebay run` with traffic of its own.
struct Running {
    dir: tempfile::TempDir,
    child: Child,
}

impl Running {
    fn start(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let child = run(dir.path(), name);
        Self { dir, child }
    }

    fn ask(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        forebay(self.dir.path()).args(words).output().expect("run")
    }

    /// What a command prints that succeeds.
    #[track_caller]
    fn tell(&self, line: &str) -> String {
        let output = self.ask(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
        assert_eq!(errors, "", "{line}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.tell(line)).expect("JSON")
    }

    #[track_caller]
    fn refused(&self, line: &str, status: i32, why: &str) {
        let output = self.ask(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {errors}");
        assert!(errors.contains(why), "{line}: {errors}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a stack and waits until it runs.
fn run(dir: &Path, name: &str) -> Child {
    let mut run = forebay(dir);
    run.args(["run", "--name", name]).stdout(Stdio::piped());
    let mut child = run.spawn().expect("run");
    let mut heading = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout)
        .read_line(&mut heading)
        .expect("a line");
    child
}

#[test]
fn each_command_reads_and_changes_the_running_stack() {
    let stack = Running::start("main");

    assert_eq!(
        stack.tell("sysctl net.ipv4.ip_forward"),
        "net.ipv4.ip_forward = 1\n"
    );
    assert_eq!(
        stack.tell("sysctl -w net.ipv4.ip_early_demux=0"),
        "net.ipv4.ip_early_demux = 0\n"
    );
    assert_eq!(stack.tell("sysctl -n net/ipv4/ip_early_demux"), "0\n");
    stack.refused(
        "sysctl net.ipv4.ip_early_demux=256",
        1,
        "a number from 0 to 255",
    );
    stack.refused("sysctl net.nonsense", 1, "No such file or directory");
    let all = stack.tell("sysctl -a");
    assert!(
        all.lines().is_sorted() && all.contains("net.ipv4.conf.left.rp_filter = 0\n"),
        "{all}"
    );

    let before = stack.tell("route");
    stack.tell("addr add 10.9.0.1/24 dev right");
    assert!(
        stack
            .tell("addr s right")
            .contains("    inet 10.9.0.1/24 brd 10.9.0.255 scope global")
    );
    stack.refused("addr add 10.9.0.1/24 dev right", 2, "File exists");
    stack.tell("link set right mtu 1400");
    assert_eq!(stack.json("link show right --json")[0]["mtu"], 1_400);

    stack.tell("route add 10.7.0.0/16 via 10.9.0.2 proto static metric 5");
    let line = "10.7.0.0/16 via 10.9.0.2 dev right proto static metric 5\n";
    assert_eq!(stack.tell("route show 10.7.0.0/16"), line);
    let found = "10.7.1.1 via 10.9.0.2 dev right src 10.9.0.1\n";
    assert_eq!(stack.tell("route get 10.7.1.1"), found);
    stack.refused(
        "route add 10.7.0.0/16 via 10.9.0.2 metric 5",
        2,
        "File exists",
    );
    stack.refused("route get 192.0.2.1", 2, "Network is unreachable");
    stack.refused("route add nonsense", 1, "neither an address");
    stack.tell("route del 10.7.0.0/16");
    stack.tell("addr del 10.9.0.1/24 dev right");
    assert_eq!(stack.tell("route"), before);
    assert_eq!(
        stack.json("route -6 --json show root 2001:db8::/32")[0]["gateway"],
        "fd02::2"
    );

    stack.tell("rule add from 10.1.0.3 lookup 100");
    let rules = stack.tell("rule");
    assert!(
        rules.contains("\n32765:\tfrom 10.1.0.3 lookup 100\n"),
        "{rules}"
    );
    stack.tell("rule del from 10.1.0.3");
    stack.refused("rule del from 10.1.0.3", 2, "No such file or directory");

    let sockets = stack.tell("ss -ua");
    assert!(sockets.starts_with("State  Recv-Q Send-Q"), "{sockets}");
    assert!(sockets.contains(" *:7 "), "{sockets}");
    assert_eq!(stack.json("ss -ulj")[0]["local_port"], 7);
    let memory = stack.tell("ss -uam");
    let mut lines = memory.lines().filter(|line| line.starts_with('\t'));
    assert!(
        lines.clone().count() > 0
            && lines.all(|line| line.starts_with("\t skmem:(r")
                && line.contains(",rb212992,t0,tb0,f0,w0,o0,bl0,d")),
        "{memory}"
    );
}

#[test]
fn nstat_knows_all_that_linux_counts_of_udp() {
    let stack = Running::start("main");
    let counters = stack.json("nstat -aszj Udp*");
    let names = counters["kernel"].as_object().expect("an object").keys();
    let names: Vec<&str> = names.map(String::as_str).collect();
    let mut expected = Vec::new();
    for group in ["Udp", "Udp6"] {
        expected.extend(
            [
                "IgnoredMulti",
                "InCsumErrors",
                "InDatagrams",
                "InErrors",
                "MemErrors",
                "NoPorts",
                "OutDatagrams",
                "RcvbufErrors",
                "SndbufErrors",
            ]
            .map(|counter| format!("{group}{counter}")),
        );
    }
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn nstat_tells_what_came_since_the_last_time() {
    let stack = Running::start("main");
    let deadline = Instant::now() + Duration::from_secs(20);
    let drops = loop {
        let drops = stack.tell("nstat -as --drops");
        if drops.contains("\nForebayDrop") {
            break drops;
        }
        assert!(
            Instant::now() < deadline,
            "no packet of the traffic was dropped: {drops}"
        );
    };
    assert!(!drops.contains("IpInReceives"), "{drops}");
    let received = |line: &str| {
        let counters = stack.json(line);
        counters["kernel"]["IpInReceives"]
            .as_u64()
            .expect("a counter")
    };
    let all = received("nstat -jz");
    let since = received("nstat -jz");
    let all_again = received("nstat -asj");
    assert!(
        all_again >= all + since,
        "{all} and {since} make more than {all_again}"
    );
    assert!(
        stack
            .tell("nstat -as")
            .starts_with("#forebay\nIpInReceives ")
    );
    assert_eq!(stack.tell("nstat -asz udpnop*").lines().count(), 2);
}

#[test]
fn commands_find_their_stack() {
    let stack = Running::start("one");
    let mut other = run(stack.dir.path(), "two");
    stack.refused("route", 1, "one, two; name one with --stack NAME");
    stack.tell("route --stack two");
    let _ = other.kill();
    let _ = other.wait();
    stack.tell("route");
    let mut unnamed = forebay(stack.dir.path());
    let unnamed = unnamed.arg("route").env("FOREBAY_STACK", "").output();
    assert!(unnamed.expect("run").status.success());
    stack.refused(
        "route --stack two",
        1,
        "no stack called \"two\" is running; running: one",
    );
    let again = run(stack.dir.path(), "two");
    drop(Running {
        dir: tempfile::tempdir().expect("a directory"),
        child: again,
    });
    let output = forebay(stack.dir.path())
        .args(["run", "--name", "one"])
        .output()
        .expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("is running already"),
        "{errors}"
    );
}
