//! `forebay top`, as people and programs run it.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use serde_json::Value;

use common::forebay;

/// A `forebay run` with traffic of its own, over wires, on two workers.
struct Running {
    dir: tempfile::TempDir,
    child: Child,
}

impl Running {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut run = forebay(dir.path());
        run.args(["run", "--name", "main", "--workers", "2"])
            .stdout(Stdio::piped());
        let mut child = run.spawn().expect("run");
        let mut heading = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut heading)
            .expect("a line");
        Self { dir, child }
    }

    /// What a command prints that succeeds.
    #[track_caller]
    fn tell(&self, line: &str) -> String {
        let words = line.split_whitespace();
        let output = forebay(self.dir.path()).args(words).output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sum(objects: &Value, key: &str) -> u64 {
    let objects = objects.as_array().expect("an array").iter();
    objects.map(|object| object[key].as_u64().expect(key)).sum()
}

#[test]
fn programs_get_an_object_with_what_each_core_did() {
    let stack = Running::start();
    // Both cores, whichever of them drives the device that the traffic comes by.
    stack.tell("sysctl -w class/net/left/queues/rx-0/rps_cpus=3");
    let seen: Value = serde_json::from_str(&stack.tell("top --once --json")).expect("JSON");
    assert_eq!(seen["stack"], "main");
    assert!(seen["seconds"].as_f64().expect("seconds") > 0.9);
    let cores = &seen["cores"];
    assert_eq!(cores.as_array().map(Vec::len), Some(2));
    for (number, core) in cores.as_array().expect("cores").iter().enumerate() {
        assert_eq!(core["core"], number);
        let busy = core["busy"].as_f64().expect("a share");
        assert!((0.0..=1.0).contains(&busy), "{core}");
        assert!(core["processed"].as_u64() > Some(0), "{core}");
        assert_eq!(core["flows_read"], Value::Null);
        if cfg!(target_arch = "x86_64") {
            let stages = &core["stages"];
            assert!(stages["packets"].as_u64() > Some(0), "{core}");
            assert!(stages["validate"].as_f64() > Some(0.0), "{core}");
        }
    }
    assert!(sum(cores, "received_rps") > 0, "{seen}");
    assert!(sum(cores, "forwarded") > 0, "{seen}");
    let queues = &seen["queues"];
    let devices: Vec<_> = queues.as_array().expect("queues").iter().collect();
    assert_eq!(
        (&devices[0]["dev"], &devices[1]["dev"]),
        (&"left".into(), &"right".into())
    );
    assert!(sum(queues, "rx_packets") > 0 && sum(queues, "tx_packets") > 0);
    let drops = seen["drops"].as_array().expect("drops");
    let rates: Vec<_> = drops
        .iter()
        .map(|drops| drops["packets"].as_u64())
        .collect();
    assert!(rates.is_sorted_by(|one, next| one >= next), "{seen}");
    assert!(rates.first() > Some(&Some(0)), "{seen}");
    assert_eq!(seen["sock_flows"], Value::Null);
}

#[test]
fn where_there_is_no_terminal_text_is_printed() {
    let stack = Running::start();
    let text = stack.tell("top --once --interval 0.2");
    for heading in [
        "core busy packets/s",
        "cycles a packet on core",
        "device queue",
        "reason ",
    ] {
        assert!(text.contains(heading), "{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");

    // Again and again, until nobody reads any more.
    let mut top = forebay(stack.dir.path());
    let top = top.args(["top", "-i", "0.1"]).stdout(Stdio::piped());
    let mut top = top.spawn().expect("top");
    let stdout = top.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    let is_heading = |line: &String| line.starts_with("core ");
    for _ in 0..2 {
        assert!(
            lines
                .by_ref()
                .map(|line| line.expect("UTF-8"))
                .any(|line| is_heading(&line))
        );
    }
    drop(lines);
    assert!(top.wait().expect("an end").success());
}

#[test]
fn an_interval_longer_than_a_stacks_patience_or_none_is_told_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    for (interval, is_understood) in [("0.1", true), ("2min", true), ("0", false), ("x", false)] {
        let mut top = forebay(dir.path());
        let top = top.args(["top", "--once", "--interval", interval]);
        let output = top.output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = if is_understood {
            "no stack is running"
        } else {
            "0.1 seconds"
        };
        assert!(!output.status.success() && errors.contains(why), "{errors}");
    }
}

#[test]
fn a_stack_that_ends_ends_it() {
    let mut stack = Running::start();
    let mut top = forebay(stack.dir.path());
    top.args(["top", "--json", "-i", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut top = top.spawn().expect("top");
    let stdout = top.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(
        first.starts_with(r#"{"stack":"main","seconds":0."#),
        "{first}"
    );
    stack.child.kill().expect("the stack");
    stack.child.wait().expect("its end");
    lines.for_each(drop);
    let mut errors = String::new();
    let stderr = top.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut errors).expect("UTF-8");
    assert!(!top.wait().expect("an end").success());
    assert!(
        errors.contains("no stack called \"main\" is running"),
        "{errors}"
    );
}
