//! What is shown of an interval, and in which columns.

use super::interval::{Core, Interval, Stages};
use super::table::{Cell, Column, Table};

/// How many tables there are.
pub(super) const TABLES: usize = 4;

/// More cores than these have no columns of their own in the table of drops.
const MAX_COLUMNS: usize = 8;

/// Workers, stages, queues, drops.
pub(super) fn tables(interval: &Interval) -> [Table; TABLES] {
    [
        cores(interval),
        stages(interval),
        queues(interval),
        drops(interval),
    ]
}

fn cores(interval: &Interval) -> Table {
    let seconds = interval.seconds;
    let names = [
        "busy",
        "packets/s",
        "forwarded/s",
        "delivered/s",
        "dropped/s",
        "flows",
        "by RPS/s",
        "backlog",
        "squeezed/s",
    ];
    let names = names.into_iter().chain(interval.sock_flows.map(|_| "read"));
    let row = |core: &Core| {
        let counted = [
            Cell::count(core.core),
            Cell::percent(core.busy),
            Cell::rate(core.processed, seconds),
            Cell::rate(core.forwarded, seconds),
            Cell::rate(core.delivered, seconds),
            Cell::rate(core.dropped, seconds),
            Cell::count(core.flows),
            Cell::rate(core.received_rps, seconds),
            Cell::count(core.backlog),
            Cell::rate(core.time_squeeze, seconds),
        ];
        let read = core.flows_read.map(Cell::count);
        counted.into_iter().chain(read).collect()
    };
    Table {
        columns: columns("core", names),
        rows: interval.cores.iter().map(row).collect(),
    }
}

fn stages(interval: &Interval) -> Table {
    let names = [
        "validate",
        "early demux",
        "route",
        "act",
        "together",
        "packets",
    ];
    let row = |core: &Core| {
        let stages = core.stages.as_ref();
        let cycles = |of: fn(&Stages) -> f64| Cell::cycles(stages.map(of));
        vec![
            Cell::count(core.core),
            cycles(|stages| stages.validate),
            cycles(|stages| stages.early_demux),
            cycles(|stages| stages.route),
            cycles(|stages| stages.act),
            cycles(Stages::all),
            Cell::count(stages.map_or(0, |stages| stages.packets)),
        ]
    };
    Table {
        columns: columns("cycles a packet on core", names),
        rows: interval.cores.iter().map(row).collect(),
    }
}

fn queues(interval: &Interval) -> Table {
    let seconds = interval.seconds;
    let names = [
        "queue", "core", "in/s", "bytes/s", "lost/s", "out/s", "bytes/s", "lost/s", "waiting",
    ];
    let numbers = names.map(Column::numbers);
    let rows = interval.queues.iter().map(|queue| {
        vec![
            Cell::word(&queue.dev),
            Cell::count(queue.queue),
            Cell::count(queue.core),
            Cell::rate(queue.rx_packets, seconds),
            Cell::bytes_rate(queue.rx_bytes, seconds),
            Cell::rate(queue.rx_dropped + queue.rx_errors, seconds),
            Cell::rate(queue.tx_packets, seconds),
            Cell::bytes_rate(queue.tx_bytes, seconds),
            Cell::rate(queue.tx_dropped + queue.tx_errors, seconds),
            Cell::count(queue.waiting),
        ]
    });
    Table {
        columns: [Column::words("device")]
            .into_iter()
            .chain(numbers)
            .collect(),
        rows: rows.collect(),
    }
}

fn drops(interval: &Interval) -> Table {
    let seconds = interval.seconds;
    let cores = match interval.cores.as_slice() {
        // The one core has dropped them all.
        [_] => &[],
        some if some.len() <= MAX_COLUMNS => some,
        _ => &[],
    };
    let by_core = cores.iter().map(|core| format!("core {}/s", core.core));
    let numbers = ["drops/s", "in all"]
        .map(str::to_owned)
        .into_iter()
        .chain(by_core);
    let rows = interval.drops.iter().map(|drops| {
        let by_core = drops.by_core.iter().take(cores.len());
        let rates = by_core.map(|packets| Cell::rate(*packets, seconds));
        [
            Cell::word(&drops.reason),
            Cell::rate(drops.packets, seconds),
            Cell::count(drops.total),
        ]
        .into_iter()
        .chain(rates)
        .chain([Cell::word(&drops.doc)])
        .collect()
    });
    Table {
        columns: [Column::words("reason")]
            .into_iter()
            .chain(numbers.map(Column::numbers))
            .chain([Column::words("what it means")])
            .collect(),
        rows: rows.collect(),
    }
}

fn columns<'n>(first: &'n str, names: impl IntoIterator<Item = &'n str>) -> Vec<Column> {
    let names = [first].into_iter().chain(names);
    names.map(Column::numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::super::interval::tests::two_looks;
    use super::*;

    #[test]
    fn an_interval_in_four_tables() {
        let (before, after) = two_looks();
        let interval = Interval::between("main", &before, &after).unwrap();
        let expected = [
            "core busy packets/s forwarded/s delivered/s dropped/s flows by RPS/s backlog squeezed/s read",
            "   0 75 % 1,000,000     999,500           0       500    37        0       0          0    3",
            "   1  0 %        10           0           0         0     0       10       0          0    5",
            "cycles a packet on core validate early demux route  act together packets",
            "                      0     20.0         1.0  10.0 25.0     56.0     640",
            "                      1        -           -     -    -        -       0",
            "device queue core      in/s bytes/s lost/s   out/s bytes/s lost/s waiting",
            "left       0    0 1,000,000 64.0 MB      0 999,500     0 B      0       0",
            "reason      drops/s in all core 0/s core 1/s what it means        ",
            "UdpNoSocket     501  1,011      500        0 UdpNoSocket happened.",
            "TtlExceeded     1.0      2        0        0 TtlExceeded happened.",
            "IpCsum            0      9        0        0 IpCsum happened.     ",
        ];
        let lines: Vec<_> = tables(&interval).iter().flat_map(Table::lines).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn one_core_needs_no_columns_of_its_own() {
        let (before, mut after) = two_looks();
        after.cores.truncate(1);
        let interval = Interval::between("main", &before, &after).unwrap();
        let [.., drops] = tables(&interval);
        assert!(drops.lines()[0].starts_with("reason      drops/s in all what it means"));
    }
}
