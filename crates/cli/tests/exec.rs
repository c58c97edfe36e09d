//! `forebay exec`: commands in private networks. Passed over where the system permits none.

mod common;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use common::{example, forebay, in_private_network, is_inside, is_refused};

fn exec(options: &[&str], command: &[&str]) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let mut exec = forebay(dir.path());
    exec.arg("exec").args(options).arg("--").args(command);
    // Of whoever runs this: a directory there that may not be searched makes the kernel say that a
    // command is forbidden, where there is none.
    exec.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    exec.output().expect("run")
}

/// Sends a datagram and returns the answer.
fn ask(server: &str, question: &[u8]) -> Vec<u8> {
    let any = if server.starts_with('[') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any).expect("bind");
    socket.connect(server).expect("connect");
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("timeout");
    socket.send(question).expect("send");
    let mut answer = vec![0; 65_536];
    let len = socket.recv(&mut answer).expect(server);
    answer.truncate(len);
    answer
}

#[test]
fn the_commands_status_is_passed_on() {
    let cases: [(&[&str], i32); 6] = [
        (&["true"], 0),
        (&["false"], 1),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["/"], 126),
        (&["no-such-command"], 127),
    ];
    for (command, status) in cases {
        let output = exec(&[], command);
        if is_refused(&output) {
            return;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {errors}");
    }
}

#[test]
fn datagrams_come_back_from_the_echo_service() {
    const TEST: &str = "datagrams_come_back_from_the_echo_service";
    if !is_inside() {
        for options in [&[][..], &["--mtu", "1280"], &["--no-offload"]] {
            in_private_network(TEST, options);
        }
        return;
    }
    let long: Vec<u8> = (0..4_000_u16).map(|i| i.to_be_bytes()[1]).collect();
    for server in ["10.9.0.1:7", "[fd09::1]:7"] {
        for question in [&b""[..], b"hello", &long] {
            assert_eq!(ask(server, question), question, "{server}");
        }
    }
}

#[test]
fn a_small_mtu_is_for_ipv4_alone() {
    const TEST: &str = "a_small_mtu_is_for_ipv4_alone";
    if !is_inside() {
        return in_private_network(TEST, &["--mtu", "576"]);
    }
    let long = [7; 4_000];
    assert_eq!(ask("10.9.0.1:7", &long), long);
}

#[test]
fn a_configuration_takes_the_defaults_place() {
    const TEST: &str = "a_configuration_takes_the_defaults_place";
    if is_inside() {
        let daytime = ask("10.5.0.1:13", b"");
        assert!(daytime.ends_with(b"-UTC\r\n"), "{daytime:?}");
        assert_eq!(ask("[fd05::1]:13", b"")[..4], daytime[..4]);
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("net.toml");
    let text = "\
[[device]]
name = \"eth7\"
kind = \"exec\"
addresses = [\"10.5.0.1/24\", \"fd05::1/64\"]
peer_addresses = [\"10.5.0.2/24\", \"fd05::2/64\"]
impair = { delay = \"1ms\" }

[[service]]
kind = \"daytime\"
listen = \"[::]:13\"
";
    std::fs::write(&file, text).expect("write");
    let file = file.display().to_string();
    in_private_network(TEST, &["-c", &file]);

    std::fs::write(&file, "[stack]\nname = \"x\"\n").expect("write");
    let output = exec(&["-c", &file], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no device of kind \"exec\""), "{errors}");
}

#[test]
fn the_command_finds_its_stack() {
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let knob = "net.ipv4.ip_default_ttl";
    let output = exec(
        &["--set", &format!("{knob}=77")],
        &[forebay, "sysctl", knob],
    );
    if is_refused(&output) {
        return;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{knob} = 77\n"),
        "{errors}"
    );
}

#[test]
fn signals_reach_the_command() {
    let dir = tempfile::tempdir().expect("a directory");
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
    ] {
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let mut exec = forebay(dir.path());
        exec.args(["exec", "--", "sh", "-c", &script]);
        exec.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut exec = exec.spawn().expect("run");
        let mut output = BufReader::new(exec.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("read");
        if line != "ready\n" {
            assert!(is_refused(&exec.wait_with_output().expect("wait")));
            return;
        }
        kill_process(Pid::from_child(&exec), signal).expect("kill");
        assert_eq!(exec.wait().expect("wait").code(), Some(9), "{name}");
    }
}

/// `forebay run` with two TUN devices of the kernel, for which a private network has the rights.
#[test]
fn a_router_serves_the_kernel_over_tun() {
    const TEST: &str = "a_router_serves_the_kernel_over_tun";
    if !is_inside() {
        return in_private_network(TEST, &[]);
    }
    // It finds its runtime directory where `forebay exec` says.
    let mut router = Command::new(env!("CARGO_BIN_EXE_forebay"));
    router.args(["run", "-c", &example("router.toml")]);
    let mut router = router.stdout(Stdio::piped()).spawn().expect("run");
    let mut output = BufReader::new(router.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read");
    assert!(line.contains("fb0, fb1"), "{line}");
    for server in ["10.20.0.1:7", "[fd20::1]:7"] {
        assert_eq!(ask(server, b"hello"), b"hello", "{server}");
    }
    kill_process(Pid::from_child(&router), Signal::TERM).expect("kill");
    assert!(router.wait().expect("wait").success());
}
