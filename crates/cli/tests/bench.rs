//! `forebay bench` on stacks that are small enough for a test.

mod common;

use std::{fs, io};

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
const ROWS: [(Option<&str>, Option<u64>); 6] = [
    (None, Some(1)),
    (None, Some(0)),
    (Some("control"), Some(0)),
    (Some("floor"), None),
    (Some("generate"), None),
    (Some("verify"), None),
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
            assert_eq!(row.get("row"), what.map(Value::from).as_ref());
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
    let of_sockets = [(4, Some(0)), (4, Some(1)), (6, None)];
    for args in ["", " --rp-filter 0,1,0"] {
        let args = format!("bench demux --sockets 50,50 --routes 100 --rounds 3 --json{args}");
        let rows = rows(&args);
        let (cells, rest) = rows.as_chunks::<5>();
        assert!(rest.is_empty(), "{rest:?}");
        let places: Vec<_> = cells
            .iter()
            .map(|cell| (cell[0]["family"].clone(), cell[0]["rp_filter"].clone()))
            .collect();
        let expected = of_sockets.map(|(family, filter)| (family.into(), filter.into()));
        assert_eq!(places, expected, "{args}");
    }
}

fn has_one_core() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2)
}

#[test]
fn udp_reads_on_one_core_and_on_two() {
    if has_one_core() {
        return;
    }
    let rows = rows(
        "bench udp --sockets 1,50 --cores 1,2 --queues 1,2 --read single,batch --rounds 3 --json",
    );
    let (cells, rest) = rows.as_chunks::<5>();
    assert!(rest.is_empty(), "{rest:?}");
    let mut places = Vec::new();
    for family in [4, 6] {
        for connected in [1, 0] {
            for sockets in [1, 50] {
                for cores in [1, 2] {
                    for queues in [1, 2] {
                        for read in ["single", "batch"] {
                            let place = (family, connected, sockets, cores, queues, read);
                            places.extend([(place, 1), (place, 0)]);
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cells.len(), places.len());
    for (cell, (place, prefetch)) in cells.iter().zip(places) {
        let (family, connected, sockets, cores, queues, read) = place;
        for row in cell {
            assert_eq!(row["bench"], "udp");
            assert_eq!(row["family"], family, "{row}");
            assert_eq!(row["connected"], connected, "{row}");
            assert_eq!(row["sockets"], sockets, "{row}");
            assert_eq!(row["cores"], cores, "{row}");
            assert_eq!(row["queues"], queues, "{row}");
            assert_eq!(row["read"], read, "{row}");
            assert_eq!(row["prefetch"], prefetch, "{row}");
            assert_eq!(row["payload"], 18, "{row}");
        }
        for (nth, row) in cell.iter().enumerate() {
            let is_measured = nth < 3;
            assert!(row["ns"].is_number(), "{row}");
            assert_eq!(row["on_off"].is_number(), is_measured, "{row}");
            let is_compared = is_measured && prefetch == 1;
            assert_eq!(row["prefetch_1_0"].is_number(), is_compared, "{row}");
        }
    }
}

#[test]
fn an_idle_socket_takes_half_a_kilobyte() {
    let rows = rows("bench open --sockets 200000 --rounds 1 --json");
    let places = [(4, 0), (4, 1), (6, 0), (6, 1)];
    assert_eq!(rows.len(), places.len());
    for (row, (family, connected)) in rows.iter().zip(places) {
        assert_eq!(
            (&row["bench"], &row["sockets"]),
            (&"open".into(), &200_000.into())
        );
        assert_eq!(
            (&row["family"], &row["connected"]),
            (&family.into(), &connected.into())
        );
        let bytes = row["bytes"].as_f64().expect("a number");
        // Memory comes in huge pages: a few of them more or less are 40 bytes a socket here.
        assert!(bytes > 100.0 && bytes <= 552.0, "{row}");
        assert!(
            row["open_seconds"]
                .as_f64()
                .is_some_and(|seconds| seconds > 0.0)
        );
        assert!(
            row["close_seconds"]
                .as_f64()
                .is_some_and(|seconds| seconds > 0.0)
        );
    }
}

#[test]
fn udp_measures_what_tells_most_unless_told_otherwise() {
    if has_one_core() {
        return;
    }
    let places = |args: &str| {
        let args = format!("bench udp --family 4 --rounds 3 --json --prefetch 1 {args}");
        let rows = rows(&args);
        let (cells, _) = rows.as_chunks::<5>();
        let keys = ["cores", "queues", "connected", "sockets", "read"];
        let place = |cell: &[Value; 5]| keys.map(|key| cell[0][key].to_string()).join(" ");
        cells.iter().map(place).collect::<Vec<_>>()
    };
    let of_one_socket = [
        "1 1 1 1 \"single\"",
        "1 1 1 1 \"batch\"",
        "2 1 1 1 \"single\"",
        "2 2 1 1 \"single\"",
    ];
    assert_eq!(places("--sockets 1 --connected 1"), of_one_socket);
    let of_many = ["1 1 1 10000 \"single\"", "1 1 0 10000 \"single\""];
    assert_eq!(places("--sockets 10000"), of_many);
    let of_queues = ["1 2 0 50 \"single\""];
    let args = "--sockets 50 --connected 0 --queues 2";
    assert_eq!(places(args), of_queues);
}

#[test]
fn rfs_makes_records_with_the_key_off_and_on() {
    let rows = rows("bench rfs --flows 3,1,3 --calls 1 --rounds 3 --json");
    let (cells, rest) = rows.as_chunks::<4>();
    assert!(rest.is_empty(), "{rest:?}");
    let places = [(1, 0), (1, 1), (3, 0), (3, 1)];
    assert_eq!(cells.len(), places.len());
    for (cell, (flows, key)) in cells.iter().zip(places) {
        let calls = ["empty", "unchecked", "control", "checked"];
        for (row, call) in cell.iter().zip(calls) {
            assert_eq!(row["bench"], "rfs");
            assert_eq!(row["flows"], flows);
            assert_eq!(row["key"], key);
            assert_eq!(row["call"], call);
            assert!(row["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
            assert_eq!(row["to_unchecked"].is_number(), call != "empty", "{row}");
        }
    }
}

#[test]
fn cores_lose_no_packet_without_counting_it() {
    if has_one_core() {
        return;
    }
    let rows = rows("bench cores --rounds 3 --window 20 --json");
    let mut places = Vec::new();
    for family in [4, 6] {
        for traffic in ["forward", "udp", "flood", "moving"] {
            if traffic == "forward" {
                places.push((family, traffic, 1, 0, 0, Some("bare")));
                places.push((family, traffic, 2, 0, 0, Some("bare")));
            }
            places.push((family, traffic, 1, 0, 0, None));
            places.push((family, traffic, 2, 0, 0, None));
            places.push((family, traffic, 2, 0, 0, Some("control")));
            places.push((family, traffic, 2, 1, 0, None));
            if traffic != "forward" {
                places.push((family, traffic, 2, 0, 1, None));
            }
        }
    }
    assert_eq!(rows.len(), places.len());
    for (row, (family, traffic, workers, rps, rfs, what)) in rows.iter().zip(places) {
        assert_eq!(row["bench"], "cores");
        assert_eq!(row["family"], family, "{row}");
        assert_eq!(row["traffic"], traffic, "{row}");
        assert_eq!(row["workers"], workers, "{row}");
        assert_eq!(row["rps"], rps, "{row}");
        assert_eq!(row["rfs"], rfs, "{row}");
        assert_eq!(row.get("row"), what.map(Value::from).as_ref(), "{row}");
        assert!(
            row["mpps"].as_f64().is_some_and(|mpps| mpps >= 0.0),
            "{row}"
        );
        for ratio in ["to_one", "best_to_one"] {
            assert_eq!(row[ratio].is_number(), workers == 2, "{row}");
        }
        assert!(
            row["fairness"].is_number() && row["lost"].is_number(),
            "{row}"
        );
        if workers == 1 || rps + rfs == 0 {
            assert_eq!(row["crossed"], 0.0, "{row}");
        }
        let has_one_reader = matches!(traffic, "flood" | "moving");
        assert_eq!(row["at_home"].is_number(), has_one_reader, "{row}");
    }
}

#[test]
fn a_plot_has_a_bar_for_each_setting() {
    let dir = tempfile::tempdir().expect("a directory");
    let plot = dir.path().join("plot.svg");
    for (args, kinds) in [
        (
            "bench route --routes 100 --sockets 0,50 --local 0,50 --rounds 3",
            3,
        ),
        ("bench demux --routes 100 --sockets 1,50 --rounds 3", 2),
        (
            "bench udp --cores 1 --queues 1,2 --sockets 1,50 --rounds 3",
            2,
        ),
    ] {
        let output = forebay(dir.path())
            .args(args.split(' '))
            .arg("--svg")
            .arg(&plot)
            .output()
            .expect("run");
        assert!(output.status.success(), "{output:?}");
        let table = String::from_utf8(output.stdout).expect("UTF-8");
        let is_row = |line: &&str| line.trim_start().starts_with(['4', '6']);
        let rows = table.lines().filter(is_row).count();

        let svg = fs::read_to_string(&plot).expect("a file");
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let elements = document.descendants().filter(roxmltree::Node::is_element);
        let is_bar = |color: &str| {
            let rectangles = elements
                .clone()
                .filter(|node| node.tag_name().name() == "rect");
            rectangles
                .filter(|node| node.attribute("fill") == Some(color))
                .count()
        };
        // The legend has one of each kind, too.
        let colors = ["#0072B2", "#E69F00", "#969696"];
        for color in colors.iter().take(kinds) {
            assert_eq!(is_bar(color), rows + 1, "{color} for {args}");
        }
        let headings = match args.contains("--routes") {
            true => ["IPv4, 100 routes", "IPv6, 100 routes", "ns a packet"],
            false => [
                "IPv4, connected, 1 core",
                "IPv6, not connected, 1 core, 2 queues",
                "ns a datagram",
            ],
        };
        for text in headings {
            assert!(svg.contains(text), "{text} in\n{svg}");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let plot = dir.path().join("plot.svg");
    for bench in ["route", "demux", "fib", "grow", "rfs", "cores"] {
        let mut command = forebay(dir.path());
        command.args(["bench", bench, "--rounds", "100000"]);
        if matches!(bench, "route" | "demux") {
            command.arg("--svg").arg(&plot);
        }
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let output = command.stdout(writer).output().expect("run");
        assert_eq!(output.status.code(), Some(0), "{bench}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{bench}");
        assert!(!plot.exists(), "{bench}");
    }
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    for bench in ["route", "demux", "udp", "rfs", "cores"] {
        let output = forebay(dir.path())
            .args(["bench", bench, "--rounds", "100000", "--svg"])
            .arg(dir.path().join("no/plot.svg"))
            .output()
            .expect("run");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stdout, b"", "nothing was measured");
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected = "no/plot.svg: No such file or directory";
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn a_plot_does_not_go_where_the_rows_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = dir.path().join("rows");
    let output = forebay(dir.path())
        .args(["bench", "route", "--svg", "/dev/stdout"])
        .stdout(fs::File::create(&rows).expect("a file"))
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("where the rows go"), "{errors}");
    assert_eq!(fs::read(&rows).expect("a file"), b"");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (args, expected) in [
        ("route --rounds 0", "0 is not in 3..=100000"),
        ("route --rounds -1", "-1 is not in 3..=100000"),
        ("route --routes 0", "0 is not in 1..=4000000"),
        ("route --sockets -1", "-1 is not in 0..=10000000"),
        ("route --local 101", "101 is not in 0..=100"),
        ("route --local -1", "-1 is not in 0..=100"),
        (
            "route --own 10.0.0.0/8",
            "a number from 1 to 10000, or 0.0.0.0/0",
        ),
        ("route --own -1", "a number from 1 to 10000, or 0.0.0.0/0"),
        ("route --family 5", "possible values: 4, 6"),
        ("demux --sockets 0", "0 is not in 1..=10000000"),
        ("demux --routes -1", "-1 is not in 1..=4000000"),
        ("demux --rp-filter 2", "2 is not in 0..=1"),
        ("fib --routes -1", "-1 is not in 1..=4000000"),
        ("fib --updates -1", "-1 is not in 1..=10000000"),
        ("grow --sockets -1", "-1 is not in 1..=10000000"),
        ("route --own 10001", "a number from 1 to 10000"),
        ("route --svg -", "it needs a file of its own"),
        ("udp --sockets 0", "0 is not in 1..=10000000"),
        ("udp --cores 3", "3 is not in 1..=2"),
        ("udp --connected 2", "possible values: 0, 1"),
        ("udp --read all", "possible values: single, batch"),
        ("udp --queues 3", "3 is not in 1..=2"),
        ("udp --prefetch 2", "possible values: 0, 1"),
        ("demux --kernel", "can ask the kernel"),
        ("cores --workers 3", "3 is not in 1..=2"),
        (
            "cores --traffic tcp",
            "possible values: forward, udp, flood, moving",
        ),
        ("cores --window 0", "0 is not in 5..=60000"),
        ("rfs --flows 0", "0 is not in 1..=65536"),
        ("rfs --key 2", "possible values: 0, 1"),
        ("rfs --rounds 2", "2 is not in 3..=100000"),
    ] {
        let output = forebay(dir.path())
            .arg("bench")
            .args(args.split(' '))
            .output()
            .expect("run");
        assert_eq!(output.status.code(), Some(1), "{args}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(expected), "{args}: {errors}");
    }
}
