//! `forebay bench` on stacks that are small enough for a test.

mod common;

use std::process::Output;

use serde_json::Value;

use common::{forebay, is_refused};

/// The rows that the command prints.
fn rows(args: &str) -> Vec<Value> {
    rows_of(&run(args))
}

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
const ROWS: [(&str, Option<u64>); 6] = [
    ("stages", Some(1)),
    ("stages", Some(0)),
    ("control", Some(0)),
    ("floor", None),
    ("generate", None),
    ("verify", None),
];

#[test]
fn route_prints_every_cell() {
    let rows = rows(
        "bench route --routes 100 --sockets 0,50 --own 0.0.0.0/0 --local 50 --rounds 3 --json",
    );
    let (cells, rest) = rows.as_chunks::<6>();
    assert!(rest.is_empty(), "{rest:?}");
    let places = [
        (4, 0, "0.0.0.0/0"),
        (4, 50, "0.0.0.0/0"),
        (6, 0, "::/0"),
        (6, 50, "::/0"),
    ];
    assert_eq!(cells.len(), places.len());
    for (cell, (family, sockets, own)) in cells.iter().zip(places) {
        for (row, (what, early_demux)) in cell.iter().zip(ROWS) {
            assert_eq!(row["bench"], "route");
            assert_eq!(row["kernel"], false);
            assert_eq!(row["family"], family);
            assert_eq!(row["routes"], 100);
            assert_eq!(row["sockets"], sockets);
            assert_eq!(row["own"], own);
            assert_eq!(row["local"], 50);
            assert_eq!(row["row"], what);
            assert_eq!(row["ip_early_demux"].as_u64(), early_demux);
            assert!(row["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
            assert!(row["mpps"].as_f64().is_some_and(|mpps| mpps > 0.0), "{row}");
            assert!(row["spread"].as_f64().is_some(), "{row}");
            assert_eq!(row["on_off"].is_number(), early_demux.is_some(), "{row}");
        }
    }
}

#[test]
fn demux_filters_by_reverse_path_in_ipv4() {
    let rows = rows("bench demux --sockets 1,50 --routes 100 --rounds 3 --json");
    let (cells, rest) = rows.as_chunks::<5>();
    assert!(rest.is_empty(), "{rest:?}");
    let places: Vec<_> = cells
        .iter()
        .map(|cell| (cell[0]["family"].clone(), cell[0]["rp_filter"].clone()))
        .collect();
    assert_eq!(
        places,
        [(4, 0), (4, 1), (4, 0), (4, 1), (6, 0), (6, 0)].map(|(f, r)| (f.into(), r.into()))
    );
}

#[test]
fn the_kernel_is_asked_the_same() {
    let output = run("bench --kernel route --sockets 0,300 --rounds 3 --json");
    if is_refused(&output) {
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
    let what = ROWS.iter().filter(|(what, _)| *what != "floor");
    for (cell, (family, sockets, protocol, is_kernel)) in cells.iter().zip(places) {
        for (row, (what, early_demux)) in cell.iter().zip(what.clone()) {
            assert_eq!(row["bench"], "route");
            assert_eq!(row["kernel"], is_kernel);
            assert_eq!(row["family"], family);
            assert_eq!(row["protocol"], protocol);
            assert_eq!(row["routes"], 1);
            assert_eq!(row["sockets"], sockets);
            assert_eq!(row["row"], *what);
            assert_eq!(row["ip_early_demux"].as_u64(), *early_demux);
            assert!(row["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
            let is_compared = is_kernel && *what == "stages";
            assert_eq!(row["kernel_ours"].is_number(), is_compared, "{row}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, expected) in [
        ("bench --kernel demux", "only `bench route`"),
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
