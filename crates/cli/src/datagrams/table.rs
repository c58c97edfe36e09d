//! The tables, in the form of those of `udp_sink` and `udp_flood`, or a JSON object a row.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;

use super::amount::cycles_per_ns;
use super::pktgen::Findings;
use super::{Amount, Received, Sent};

/// Whose sockets the rows are about.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    /// The kernel's, or else Forebay's.
    pub(crate) kernel: bool,
    /// 4 or 6.
    pub(crate) family: u8,
}

/// A run of the sink.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SinkRow {
    pub(crate) test: &'static str,
    pub(crate) run: u32,
    pub(crate) received: Received,
    pub(crate) ip_early_demux: u32,
    pub(crate) connect: bool,
}

/// A run of the flood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodRow {
    pub(crate) test: &'static str,
    pub(crate) sent: Sent,
    /// Packets that the stack dropped because the device's queue was full.
    pub(crate) dropped: u64,
}

/// Prints rows.
pub(crate) struct Table<W> {
    out: W,
    json: bool,
    place: Place,
    cycles_per_ns: Option<f64>,
    has_heading: bool,
}

impl<W: Write> Table<W> {
    pub(crate) fn new(out: W, json: bool, place: Place) -> Self {
        Self {
            out,
            json,
            place,
            cycles_per_ns: cycles_per_ns(),
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
        ]);
        let out = &mut self.out;
        writeln!(
            out,
            "{test:<10}\trun: {run:2}\t{packets:8}\t{figures}\t{flags}"
        )?;
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
        writeln!(self.out, "{test:<10}\t{packets:8}\t{figures}\t{flags}")?;
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

    /// Cycles for one packet, if the processor's frequency is known.
    fn cycles(&self, amount: &Amount) -> Option<u64> {
        Some((amount.ns() * self.cycles_per_ns?) as u64)
    }

    fn object(&mut self, object: &impl Serialize) -> io::Result<()> {
        writeln!(self.out, "{}", serde_json::to_string(object)?)?;
        self.out.flush()
    }

    fn sink_object(&self, row: &SinkRow) -> impl Serialize + use<W> {
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

    fn flood_object(&self, row: &FloodRow) -> impl Serialize + use<W> {
        FloodObject {
            figures: self.figures_object("flood", row.test, &row.sent.amount),
            full: row.sent.full,
            refused: row.sent.refused,
            dropped: row.dropped,
        }
    }

    fn figures_object(&self, bench: &'static str, test: &'static str, amount: &Amount) -> Figures {
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
    test: &'static str,
    #[serde(flatten)]
    place: Place,
    count: u64,
    ns: f64,
    pps: f64,
    /// `null` where the processor's frequency is not known.
    cycles: Option<u64>,
    payload: u64,
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
        missing,
    } = findings;
    format!(
        "- Failed pktgen checks OoO {out_of_order} wrong magic {wrong_magic} \
         bad repeat {bad_repeat} missing {missing}"
    )
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
