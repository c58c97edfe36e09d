//! `forebay bench` on stacks that are small enough for a test.

mod common;

use serde_json::Value;

use common::forebay;

/// The rows that the command prints.
fn rows(args: &str) -> Vec<Value> {
    let dir = tempfile::tempdir().expect("a directory");
    let output = forebay(dir.path())
        .args(args.split(' '))
        .output()
        .expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
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
