//! The tables, in the form of those of `udp_sink` and `udp_flood`, or a JSON object a row.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use serde::Serialize;

use super::pktgen::Findings;
use super::{Amount, Received, Sent};
use crate::clock::Clock;

/// Whose sockets the rows are about.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    /// The kernel's, or else Forebay's.
    pub(crate) kernel: bool,
    /// 4 or 6.
    pub(crate) family: u8,
}

/// A way to receive or to send.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Test {
    #[serde(rename = "test")]
    pub(crate) name: &'static str,
    /// Datagrams that a call may take, if several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<u16>,
}

/// A run of the sink.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SinkRow {
    pub(crate) test: Test,
    pub(crate) run: u32,
    pub(crate) received: Received,
    pub(crate) ip_early_demux: u32,
    pub(crate) connect: bool,
}

/// A run of the flood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRow {
    pub(crate) test: Test,
    pub(crate) sent: Sent,
    /// Packets that the stack dropped because the device's queue was full.
    pub(crate) dropped: u64,
}

/// Prints rows.
pub(crate) struct Table<W> {
    out: W,
    json: bool,
    place: Place,
    /// Of the time-stamp counter, if there is one.
    cycles_per_ns: Option<f64>,
    has_heading: bool,
}

impl<W: Write> Table<W> {
    pub(crate) fn new(out: W, json: bool, place: Place, clock: &Clock) -> Self {
        Self {
            out,
            json,
            place,
            cycles_per_ns: clock.cycles(1.0),
            has_heading: false,
        }
    }

    pub(crate) fn sink(&mut self, row: &SinkRow) -> io::Result<()> {
        if self.json {
            return self.object(&self.sink_object(row));
        }
        self.heading(SINK_HEADING)?;
        let SinkRow { test, run, .. } = row;
        let Received {
            amount,
            empty,
            pktgen,
            ..
        } = &row.received;
        let (packets, figures) = (amount.packets, self.figures(amount));
        let flags = flags(&[
            ("demux", row.ip_early_demux.into()),
            ("c", row.connect.into()),
            ("emptyq", *empty),
            ("lost", pktgen.map_or(0, |findings| findings.lost)),
        ]);
        let out = &mut self.out;
        writeln!(out, "{test}\trun: {run:2}\t{packets:8}\t{figures}\t{flags}")?;
        if let Some(findings) = pktgen {
            writeln!(out, "{}", verdict(findings))?;
        }
        out.flush()
    }

    pub(crate) fn flood(&mut self, row: &FloodRow) -> io::Result<()> {
        if self.json {
            return self.object(&self.flood_object(row));
        }
        self.heading(FLOOD_HEADING)?;
        let (test, sent) = (row.test, &row.sent);
        let (packets, figures) = (sent.amount.packets, self.figures(&sent.amount));
        let flags = flags(&[
            ("c", 1),
            ("full", sent.full),
            ("refused", sent.refused),
            ("dropped", row.dropped),
        ]);
        writeln!(self.out, "{test}\t{packets:8}\t{figures}\t{flags}")?;
        self.out.flush()
    }

    fn heading(&mut self, heading: &str) -> io::Result<()> {
        if !self.has_heading {
            writeln!(self.out, "{heading}")?;
            self.has_heading = true;
        }
        Ok(())
    }

    /// The columns that both tables have.
    fn figures(&self, amount: &Amount) -> String {
        let (ns, pps, payload) = (amount.ns(), amount.pps(), amount.payload());
        let cycles = self.cycles(amount).unwrap_or(0);
        format!("{ns:.2}\t{pps:.2}\t{cycles}\t{payload}")
    }

    /// Cycles of the time-stamp counter for one packet, if there is one.
    fn cycles(&self, amount: &Amount) -> Option<u64> {
        Some((amount.ns() * self.cycles_per_ns?) as u64)
    }

    fn object(&mut self, object: &impl Serialize) -> io::Result<()> {
        writeln!(self.out, "{}", serde_json::to_string(object)?)?;
        self.out.flush()
    }

    fn sink_object(&self, row: &SinkRow) -> SinkObject {
        let Received {
            amount,
            empty,
            pktgen,
            ..
        } = row.received;
        SinkObject {
            figures: self.figures_object("sink", row.test, &amount),
            run: row.run,
            ip_early_demux: row.ip_early_demux,
            connect: row.connect,
            emptyq: empty,
            pktgen,
        }
    }

    fn flood_object(&self, row: &FloodRow) -> FloodObject {
        FloodObject {
            figures: self.figures_object("flood", row.test, &row.sent.amount),
            full: row.sent.full,
            refused: row.sent.refused,
            dropped: row.dropped,
        }
    }

    fn figures_object(&self, bench: &'static str, test: Test, amount: &Amount) -> Figures {
        Figures {
            bench,
            test,
            place: self.place,
            count: amount.packets,
            ns: hundredths(amount.ns()),
            pps: hundredths(amount.pps()),
            cycles: self.cycles(amount),
            payload: amount.payload(),
        }
    }
}

const SINK_HEADING: &str = "          \trun      count   \tns/pkt\tpps\t\tcycles\tpayload";
const FLOOD_HEADING: &str = "              \t packets \tns/pkt\tpps\t\tcycles\tpayload";

#[derive(Serialize)]
struct SinkObject {
    #[serde(flatten)]
    figures: Figures,
    run: u32,
    ip_early_demux: u32,
    connect: bool,
    emptyq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pktgen: Option<Findings>,
}

#[derive(Serialize)]
struct FloodObject {
    #[serde(flatten)]
    figures: Figures,
    full: u64,
    refused: u64,
    dropped: u64,
}

#[derive(Serialize)]
struct Figures {
    bench: &'static str,
    #[serde(flatten)]
    test: Test,
    #[serde(flatten)]
    place: Place,
    count: u64,
    ns: f64,
    pps: f64,
    /// `null` where the processor has no time-stamp counter.
    cycles: Option<u64>,
    payload: u64,
}

/// The name as wide as the column, and what there are of it in a call.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, batch } = self;
        let batch = batch.map_or_else(String::new, |batch| format!("/{batch}"));
        let rest = 10 - name.len().min(10);
        write!(f, "{name}{batch}{:rest$}", "")
    }
}

/// What is not zero, as ` demux:1 c:1`.
fn flags(flags: &[(&str, u64)]) -> String {
    let mut text = String::new();
    for (name, value) in flags.iter().filter(|(_, value)| *value > 0) {
        // Writing to a string cannot fail.
        let _ = write!(text, " {name}:{value}");
    }
    text
}

/// The line below a row whose headers were checked.
fn verdict(findings: &Findings) -> String {
    let Findings {
        out_of_order,
        wrong_magic,
        bad_repeat,
        ..
    } = findings;
    format!(
        "- Failed pktgen checks OoO {out_of_order} wrong magic {wrong_magic} bad repeat {bad_repeat}"
    )
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::End;
    use super::*;

    const AMOUNT: Amount = Amount {
        packets: 20_000,
        bytes: 360_000,
        elapsed: Duration::from_nanos(67_936_200),
    };

    fn test(name: &'static str, batch: Option<u16>) -> Test {
        Test { name, batch }
    }

    fn received(amount: Amount) -> Received {
        Received {
            amount,
            empty: 0,
            pktgen: None,
            end: End::Complete,
        }
    }

    fn sink_row(received: Received) -> SinkRow {
        SinkRow {
            test: test("recvfrom", None),
            run: 0,
            received,
            ip_early_demux: 1,
            connect: true,
        }
    }

    fn printed(json: bool, print: impl FnOnce(&mut Table<Vec<u8>>) -> io::Result<()>) -> String {
        let mut table = Table {
            out: Vec::new(),
            json,
            place: Place {
                kernel: true,
                family: 4,
            },
            cycles_per_ns: Some(2.5),
            has_heading: false,
        };
        print(&mut table).unwrap();
        String::from_utf8(table.out).unwrap()
    }

    #[test]
    fn the_sinks_rows_are_those_of_udp_sink() {
        let plain = SinkRow {
            test: test("recv", None),
            run: 12,
            ip_early_demux: 0,
            connect: false,
            ..sink_row(received(AMOUNT))
        };
        let batch = SinkRow {
            test: test("recvMmsg", Some(32)),
            ..plain
        };
        let checked = sink_row(Received {
            empty: 3_921,
            pktgen: Some(Findings {
                out_of_order: 1,
                wrong_magic: 2,
                bad_repeat: 3,
                lost: 4,
            }),
            ..received(AMOUNT)
        });
        let text = printed(false, |table| {
            table.sink(&sink_row(received(AMOUNT)))?;
            table.sink(&plain)?;
            table.sink(&batch)?;
            table.sink(&checked)
        });
        let expected = [
            "          \trun      count   \tns/pkt\tpps\t\tcycles\tpayload",
            "recvfrom  \trun:  0\t   20000\t3396.81\t294393.86\t8492\t18\t demux:1 c:1",
            "recv      \trun: 12\t   20000\t3396.81\t294393.86\t8492\t18\t",
            "recvMmsg/32  \trun: 12\t   20000\t3396.81\t294393.86\t8492\t18\t",
            "recvfrom  \trun:  0\t   20000\t3396.81\t294393.86\t8492\t18\t demux:1 c:1 emptyq:3921 lost:4",
            "- Failed pktgen checks OoO 1 wrong magic 2 bad repeat 3",
            "",
        ];
        assert_eq!(text, expected.join("\n"));
    }

    #[test]
    fn the_floods_rows_are_those_of_udp_flood() {
        let row = |sent: Sent, dropped| FloodRow {
            test: test("sendto", None),
            sent,
            dropped,
        };
        let sent = Sent {
            amount: AMOUNT,
            ..Sent::default()
        };
        let troubled = Sent {
            full: 1,
            refused: 2,
            ..sent
        };
        let text = printed(false, |table| {
            table.flood(&row(sent, 0))?;
            table.flood(&row(troubled, 3))
        });
        let expected = [
            "              \t packets \tns/pkt\tpps\t\tcycles\tpayload",
            "sendto    \t   20000\t3396.81\t294393.86\t8492\t18\t c:1",
            "sendto    \t   20000\t3396.81\t294393.86\t8492\t18\t c:1 full:1 refused:2 dropped:3",
            "",
        ];
        assert_eq!(text, expected.join("\n"));
    }

    #[test]
    fn objects_name_what_the_columns_hold() {
        let text = printed(true, |table| {
            table.sink(&sink_row(received(AMOUNT)))?;
            table.cycles_per_ns = None;
            table.flood(&FloodRow {
                test: test("send", None),
                sent: Sent::default(),
                dropped: 0,
            })
        });
        let expected = [
            r#"{"bench":"sink","test":"recvfrom","kernel":true,"family":4,"count":20000,"ns":3396.81,"pps":294393.86,"cycles":8492,"payload":18,"run":0,"ip_early_demux":1,"connect":true,"emptyq":0}"#,
            r#"{"bench":"flood","test":"send","kernel":true,"family":4,"count":0,"ns":0.0,"pps":0.0,"cycles":null,"payload":0,"full":0,"refused":0,"dropped":0}"#,
            "",
        ];
        assert_eq!(text, expected.join("\n"));
    }
}
