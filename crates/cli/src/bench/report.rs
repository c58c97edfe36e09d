//! Rows, as a table or as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::plot;
use super::runner::Series;
use super::statistics::{Summary, ratio};
use crate::clock::Clock;

/// What a cell's series are: the knob on, off, off once more under another name, and the bare loop.
pub(super) struct Cell<'a> {
    pub(super) on: &'a Series,
    pub(super) off: &'a Series,
    pub(super) again: &'a Series,
    pub(super) floor: Option<&'a Series>,
}

/// The figures of a row of JSON.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    /// What the row is, if it is not what was to be measured: `control`, the setting with the knob
    /// off under another name; the bare loop `floor`; `generate` or `verify`, which no figure has in
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<&'static str>,
    /// None where the knob means nothing.
    ip_early_demux: Option<u8>,
    /// Nanoseconds a packet.
    ns: f64,
    /// The same in cycles of the time-stamp counter.
    cycles: Option<f64>,
    /// Million packets a second.
    mpps: f64,
    /// Interquartile range in nanoseconds.
    spread: f64,
    /// What the knob costs: time on to time off. In the control, off to off.
    on_off: Option<f64>,
}

impl Figures {
    fn new(
        row: Option<&'static str>,
        demux: Option<u8>,
        times: &[f64],
        on_off: Option<f64>,
        clock: &Clock,
    ) -> Self {
        let Summary { median, spread, .. } = Summary::of(times.iter().copied());
        Self {
            row,
            ip_early_demux: demux,
            ns: rounded(median, 2),
            cycles: clock.cycles(median).map(|cycles| rounded(cycles, 1)),
            mpps: rounded(1_000.0 / median, 2),
            spread: rounded(spread, 2),
            on_off: on_off.map(|ratio| rounded(ratio, 4)),
        }
    }
}

impl Cell<'_> {
    /// What the knob costs.
    pub(super) fn on_off(&self) -> f64 {
        ratio(&self.on.stages, &self.off.stages)
    }

    /// What the same setting differs by from itself.
    pub(super) fn control(&self) -> f64 {
        ratio(&self.again.stages, &self.off.stages)
    }

    /// All of its rows.
    pub(super) fn figures(&self, clock: &Clock) -> Vec<Figures> {
        let on_off = Some(self.on_off());
        let mut rows = vec![
            Figures::new(None, Some(1), &self.on.stages, on_off, clock),
            Figures::new(None, Some(0), &self.off.stages, on_off, clock),
            Figures::new(
                Some("control"),
                Some(0),
                &self.again.stages,
                Some(self.control()),
                clock,
            ),
        ];
        if let Some(floor) = self.floor {
            rows.push(Figures::new(
                Some("floor"),
                None,
                &floor.stages,
                None,
                clock,
            ));
        }
        rows.push(Figures::new(
            Some("generate"),
            None,
            &self.off.generate,
            None,
            clock,
        ));
        rows.push(Figures::new(
            Some("verify"),
            None,
            &self.off.verify,
            None,
            clock,
        ));
        rows
    }

    /// Its row in a plot, whose kinds are [`KINDS`] and whose notes [`NOTES`].
    pub(super) fn plot_row(&self, label: String) -> plot::Row {
        let on = self.on.summary();
        let floor = self.floor.map(Series::summary);
        let mut notes = vec![
            format!("{:.3}", self.on_off()),
            format!("{:.3}", self.control()),
        ];
        notes.extend(floor.map(|floor| format!("{:.1}", on.median / floor.median)));
        plot::Row {
            label,
            bars: vec![Some(on), Some(self.off.summary()), floor],
            notes,
        }
    }

    /// The columns of a line of the table that [`COLUMNS`] names.
    pub(super) fn columns(&self, clock: &Clock) -> String {
        let (on, off) = (self.on.summary(), self.off.summary());
        let floor = match self.floor.map(|floor| floor.summary().median) {
            Some(floor) => format!(" {floor:>6.1} {:>7.2}", on.median / floor),
            None => format!("{:>7}{:>8}", "-", "-"),
        };
        let cycles = match clock.cycles(on.median) {
            Some(cycles) => format!(" {cycles:>7.0}"),
            None => format!("{:>8}", "-"),
        };
        format!(
            " {:>7.1} {:>7.1} {:>7.1}{cycles} {:>7.1} {:>7.3} {:>7.3}{floor} {:>7.1} {:>7.1}",
            on.median,
            off.median,
            on.spread,
            1_000.0 / on.median,
            self.on_off(),
            self.control(),
            Summary::of(self.off.generate.iter().copied()).median,
            Summary::of(self.off.verify.iter().copied()).median,
        )
    }
}

/// The bars of a cell in a plot.
pub(super) const KINDS: [&str; 3] = ["early demux on", "early demux off", "bare loop"];

/// The figures beside them.
pub(super) const NOTES: [&str; 3] = ["on/off", "off/off", "on/bare"];

/// The heads of the columns of figures.
pub(super) const COLUMNS: &str =
    "   on ns  off ns  spread  cycles    Mpps  on/off off/off  floor on/floor generate verify";

/// What they mean.
pub(super) const LEGEND: &str = "\
on, off        median over chunks of 16,384 packets, in ns a packet, early demux on and off
spread, cycles, Mpps
               of early demux on; spread is the interquartile range
on/off         what early demux costs: median of the ratios of chunks measured side by side
off/off        the same for one setting measured under two names: what the machine can't tell apart
floor          a bare loop over the same buffers: read the header, load an entry, rewrite
generate, verify
               writing the packets and checking each that came out; in none of the other figures
";

/// Prints a line at once, for the next may take a while. A reader that has seen enough (`| head`)
/// ends the bench.
pub(super) fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints a row as an object.
pub(super) fn json(row: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string(row)?)
}

pub(super) fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_apart() {
        let series = Series {
            generate: vec![123_456_789.0],
            stages: vec![123_456_789.0],
            verify: vec![123_456_789.0],
        };
        for floor in [None, Some(&series)] {
            let cell = Cell {
                on: &series,
                off: &series,
                again: &series,
                floor,
            };
            let columns = cell.columns(&Clock::new());
            assert_eq!(columns.split_whitespace().count(), 11, "{columns}");
            assert!(columns.starts_with(' '), "{columns}");
        }
    }
}
