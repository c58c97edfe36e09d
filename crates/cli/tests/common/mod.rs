//! What the tests of the command share.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Says which part of a test a process plays that a test has started.
const ROLE: &str = "FOREBAY_CLI_TEST_ROLE";

/// The command under test, with a place of its own for control sockets.
pub(crate) fn forebay(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env("FOREBAY_RUNTIME_DIR", runtime_dir(dir));
    command
}

/// Where its control sockets are.
pub(crate) fn runtime_dir(dir: &Path) -> PathBuf {
    dir.join("run")
}

/// Runs a test of the same binary once more, in a private network that `forebay exec` makes with
/// these options.
pub(crate) fn in_private_network(test: &str, options: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut exec = forebay(dir.path());
    exec.env(ROLE, "inside").arg("exec").args(options).arg("--");
    exec.arg(env::current_exe().expect("this test"));
    let output = exec
        .args(["--exact", test, "--nocapture"])
        .output()
        .expect("run");
    if !is_refused(&output) {
        let (out, errors) = (&output.stdout, &output.stderr);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(out),
            String::from_utf8_lossy(errors)
        );
        assert!(output.status.success(), "{text}");
        let is_about_tools = |line: &&str| line.starts_with("not tested:");
        text.lines()
            .filter(is_about_tools)
            .for_each(|line| eprintln!("{line}"));
    }
}

/// Whether this process is what `in_private_network` has started.
pub(crate) fn is_inside() -> bool {
    env::var_os(ROLE).is_some_and(|role| role == "inside")
}

/// Lets a test pass over what this machine does not permit, but not where that is demanded: says
/// whether `forebay exec`, or a sink with a command, failed before the command ran.
pub(crate) fn is_refused(output: &Output) -> bool {
    let demanded = env::var_os("FOREBAY_REQUIRE_NET").is_some_and(|value| value == "1");
    is_passed_over(output, &["private network", "/dev/net/tun"], demanded)
}

/// The same for what root alone may do, and asking its kernel not even in most containers: nobody
/// demands that.
pub(crate) fn is_refused_to_us(output: &Output) -> bool {
    is_passed_over(output, &["cannot measure this kernel"], false)
}

fn is_passed_over(output: &Output, refusals: &[&str], demanded: bool) -> bool {
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_about_permission = refusals.iter().any(|what| errors.contains(what));
    let is_refused = matches!(output.status.code(), Some(1 | 125)) && is_about_permission;
    if is_refused {
        assert!(!demanded, "{errors}");
        eprintln!("not tested: {errors}");
    }
    is_refused
}

/// An example of the repository.
pub(crate) fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}
