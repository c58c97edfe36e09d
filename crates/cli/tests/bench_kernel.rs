//! `forebay bench --kernel` where the system lets it, small enough for a test.

mod common;

use std::process::Output;

use serde_json::Value;

use common::{forebay, is_refused_to_us};

fn run(args: &str) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = forebay(dir.path());
    command.args(args.split(' ')).output().expect("run")
}

fn rows_of(output: &Output) -> Vec<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    let lines = str::from_utf8(&output.stdout).expect("UTF-8");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// What a cell's rows are.
const ROWS: [(Option<&str>, Option<u64>); 5] = [
    (None, Some(1)),
    (None, Some(0)),
    (Some("control"), Some(0)),
    (Some("generate"), None),
    (Some("verify"), None),
];

#[test]
fn the_kernel_is_asked_the_same() {
    let output = run("bench --kernel route --sockets 0,300 --rounds 3 --json");
    if is_refused_to_us(&output) {
        return;
    }
    let rows = rows_of(&output);
    let (cells, rest) = rows.as_chunks::<5>();
    assert!(rest.is_empty(), "{rest:?}");
    let mut places = Vec::new();
    for family in [4, 6] {
        for sockets in [0, 300] {
            for protocol in ["udp", "tcp"] {
                places.push((family, sockets, protocol, true));
                places.push((family, sockets, protocol, false));
            }
        }
    }
    assert_eq!(cells.len(), places.len());
    for (cell, (family, sockets, protocol, is_kernel)) in cells.iter().zip(places) {
        for (row, (what, early_demux)) in cell.iter().zip(ROWS) {
            assert_eq!(row["bench"], "route");
            assert_eq!(row["kernel"], is_kernel);
            assert_eq!(row["family"], family);
            assert_eq!(row["protocol"], protocol);
            assert_eq!(row["routes"], 1);
            assert_eq!(row["sockets"], sockets);
            assert_eq!(row.get("row"), what.map(Value::from).as_ref());
            assert_eq!(row["ip_early_demux"].as_u64(), early_demux);
            assert!(row["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
            let is_compared = is_kernel && what.is_none();
            assert_eq!(row["kernel_ours"].is_number(), is_compared, "{row}");
        }
    }
}

#[test]
fn the_kernels_sockets_are_read_beside_ours() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return;
    }
    let output = run("bench --kernel udp --rounds 3 --json");
    if is_refused_to_us(&output) {
        return;
    }
    let rows = rows_of(&output);
    let (cells, rest) = rows.as_chunks::<5>();
    assert!(rest.is_empty(), "{rest:?}");
    let mut places = Vec::new();
    for family in [4, 6] {
        for connected in [1, 0] {
            for read in ["single", "batch"] {
                places.push((family, connected, read, true));
                places.push((family, connected, read, false));
            }
        }
    }
    assert_eq!(cells.len(), places.len());
    for (cell, (family, connected, read, is_kernel)) in cells.iter().zip(places) {
        for (row, (what, early_demux)) in cell.iter().zip(ROWS) {
            assert_eq!(row["bench"], "udp");
            assert_eq!(row["kernel"], is_kernel);
            assert_eq!(row["family"], family);
            assert_eq!(row["cores"], 2);
            assert_eq!(row["queues"], 1);
            assert_eq!(row["connected"], connected);
            assert_eq!(row["sockets"], 1);
            assert_eq!(row["read"], read);
            assert_eq!(row["payload"], 18);
            assert_eq!(row.get("row"), what.map(Value::from).as_ref());
            assert_eq!(row["ip_early_demux"].as_u64(), early_demux);
            assert_eq!(row["lost"].is_number(), is_kernel, "{row}");
            assert_eq!(row["feed"].is_number(), is_kernel, "{row}");
            let is_compared = is_kernel && what.is_none();
            assert_eq!(row["kernel_ours"].is_number(), is_compared, "{row}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        ("bench --kernel demux", "only `bench route` and `bench udp`"),
        ("bench --kernel fib", "only `bench route` and `bench udp`"),
        ("bench grow --kernel", "only `bench route` and `bench udp`"),
        ("bench udp --kernel --sockets 1", "--sockets"),
        ("bench --kernel udp --prefetch 0", "--prefetch"),
        ("bench route --kernel --routes 100", "--routes"),
        ("bench route --kernel --local 10", "--local"),
        ("bench route --protocol udp", "needs --kernel"),
        ("bench route --kernel --protocol icmp", "udp or tcp"),
    ] {
        let output = run(args);
        assert!(!output.status.success(), "{args}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(expected), "{args}: {errors}");
    }
}
