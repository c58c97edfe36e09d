//! Rows as bars, for who would rather look than read: an SVG file.
//!
//! What a bench measured under the same conditions stands together: a group has a heading, and in it
//! each row a bar of every kind (a setting, the bare loop, somebody else's stack). Whiskers show the
//! spread. Beside a row stands what of it carries over to other machines: ratios.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::statistics::Summary;

/// A plot that is being made.
#[derive(Debug)]
pub(super) struct Plot {
    words: Words,
    groups: Vec<Group>,
}

/// What stands around the bars.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) title: &'static str,
    /// How to read it, line by line.
    pub(super) caption: &'static [&'static str],
    /// What a bar's length is.
    pub(super) unit: &'static str,
    /// The kinds of bars, at most as many as there are [`COLORS`].
    pub(super) kinds: &'static [&'static str],
    /// What the figures beside the bars are.
    pub(super) notes: &'static [&'static str],
}

#[derive(Debug)]
struct Group {
    heading: String,
    rows: Vec<Row>,
}

/// Bars that belong together.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) label: String,
    /// Of each kind; `None` where there is nothing to show.
    pub(super) bars: Vec<Option<Summary>>,
    /// What stands beside them, in a column each.
    pub(super) notes: Vec<String>,
}

/// Where a plot goes.
#[derive(Debug)]
pub(super) struct SvgFile(PathBuf);

/// Of the benches that can draw what they measured.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PlotArgs {
    /// Draw the rows as bars, too, into this file, which is written at the end.
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

impl PlotArgs {
    /// Where a plot is to go, if one is wanted: to be asked before measuring.
    pub(super) fn svg_file(&self) -> anyhow::Result<Option<SvgFile>> {
        self.svg.as_deref().map(SvgFile::new).transpose()
    }
}

impl SvgFile {
    /// Makes sure that it can be written, so that nobody learns after a minute's measuring that it
    /// cannot. What was in it stays, and where there was none there is none yet.
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        let file = Self(path.to_owned());
        file.check().with_context(|| file.cannot())?;
        Ok(file)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.0 != Path::new("-"), "it needs a file of its own");
        match fs::metadata(&self.0) {
            Ok(found) => {
                // Opening a FIFO would wait for who reads it.
                ensure!(found.is_file(), "it is no regular file");
                ensure!(!is_stdout(&found)?, "that is where the rows go");
                OpenOptions::new().append(true).open(&self.0)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                File::create_new(&self.0)?;
                fs::remove_file(&self.0)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn write(&self, plot: &Plot) -> anyhow::Result<()> {
        let written = fs::write(&self.0, plot.svg()?);
        written.with_context(|| self.cannot())
    }

    fn cannot(&self) -> String {
        format!("cannot write the plot to {}", self.0.display())
    }
}

/// Whether it is the file that `/dev/stdout` leads to.
fn is_stdout(file: &Metadata) -> io::Result<bool> {
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()?;
    Ok((stdout.dev(), stdout.ino()) == (file.dev(), file.ino()))
}

// Pixels.
const WIDTH: i32 = 980;
const MARGIN: i32 = 16;
const LINE: i32 = 18;
/// Where the bars are, between their labels and their notes.
const BARS: (i32, i32) = (236, 700);
/// Where the first column of notes ends, and how wide the others are.
const NOTES: (i32, i32) = (820, 70);
const BAR: i32 = 11;
const ROW_GAP: i32 = 9;
const HEADING: i32 = 26;
const LEGEND_GAP: i32 = 8;

/// Of the kinds. Told apart by those who see few colours (Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(150, 150, 150),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
const INK: RGBColor = RGBColor(30, 30, 30);
const GRID: RGBColor = RGBColor(222, 222, 222);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Plot {
    pub(super) fn new(words: Words) -> Self {
        Self {
            words,
            groups: Vec::new(),
        }
    }

    /// Adds a row below those that have the same heading.
    pub(super) fn add(&mut self, heading: String, row: Row) {
        let known = self
            .groups
            .iter_mut()
            .find(|group| group.heading == heading);
        match known {
            Some(group) => group.rows.push(row),
            None => self.groups.push(Group {
                heading,
                rows: vec![row],
            }),
        }
    }

    /// The document.
    fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        {
            let size = (WIDTH as u32, self.height() as u32);
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&area).context("cannot draw the plot")?;
            area.present().context("cannot draw the plot")?;
        }
        Ok(text)
    }

    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        self.draw_words(area)?;
        let axis = Axis::to(self.longest());
        let (top, bottom) = (self.top(), self.height() - MARGIN - 2 * LINE);
        axis.draw(area, top, bottom, self.words.unit)?;
        draw_notes(area, self.words.notes, top - 8, &BOLD)?;
        let mut y = top;
        for group in &self.groups {
            y += HEADING;
            text(area, &group.heading, (MARGIN, y - 12), HPos::Left, &BOLD)?;
            for row in &group.rows {
                self.draw_row(area, &axis, row, y)?;
                y += self.row_height();
            }
        }
        Ok(())
    }

    fn draw_words<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let Words {
            title,
            caption,
            kinds,
            ..
        } = self.words;
        text(area, title, (MARGIN, MARGIN + 8), HPos::Left, &TITLE)?;
        let mut y = MARGIN + 8 + LINE + 6;
        for line in caption {
            text(area, line, (MARGIN, y), HPos::Left, &PLAIN)?;
            y += LINE;
        }
        y += LEGEND_GAP;
        let mut x = BARS.0;
        for (kind, color) in kinds.iter().zip(COLORS) {
            draw_square(area, (x, y), color)?;
            text(area, kind, (x + 18, y), HPos::Left, &PLAIN)?;
            x += 18 + 7 * kind.chars().count() as i32 + 28;
        }
        Ok(())
    }

    fn draw_row<'a>(&self, area: &Area<'a>, axis: &Axis, row: &Row, top: i32) -> Drawn<'a> {
        let middle = top + BAR * self.words.kinds.len() as i32 / 2;
        text(area, &row.label, (BARS.0 - 8, middle), HPos::Right, &PLAIN)?;
        draw_notes(area, &row.notes, middle, &PLAIN)?;
        for (index, (bar, color)) in row.bars.iter().zip(COLORS).enumerate() {
            let y = top + BAR * index as i32;
            if let Some(summary) = bar {
                axis.draw_bar(area, summary, y, color)?;
            }
        }
        Ok(())
    }

    /// Where the bars' field begins.
    fn top(&self) -> i32 {
        MARGIN + 8 + LINE + 6 + LINE * (self.words.caption.len() as i32 + 1) + LEGEND_GAP + LINE
    }

    fn row_height(&self) -> i32 {
        BAR * self.words.kinds.len() as i32 + ROW_GAP
    }

    fn height(&self) -> i32 {
        let group = |group: &Group| HEADING + self.row_height() * group.rows.len() as i32;
        self.top() + self.groups.iter().map(group).sum::<i32>() + MARGIN + 2 * LINE
    }

    /// How far the bars and their whiskers reach.
    fn longest(&self) -> f64 {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        let bars = rows.flat_map(|row| row.bars.iter().flatten());
        bars.map(Summary::high).fold(0.0, f64::max)
    }
}

/// Lengths of bars, from zero on.
struct Axis(RangedCoordf64);

impl Axis {
    /// Never of no length.
    fn to(longest: f64) -> Self {
        let end = if longest > 0.0 { longest } else { 1.0 };
        Self((0.0..end).into())
    }

    fn x(&self, value: f64) -> i32 {
        self.0.map(&value, BARS)
    }

    /// Lines from top to bottom with their values at both ends, and the unit below.
    fn draw<'a>(&self, area: &Area<'a>, top: i32, bottom: i32, unit: &str) -> Drawn<'a> {
        for value in self.0.key_points(8) {
            let x = self.x(value);
            area.draw(&PathElement::new([(x, top), (x, bottom)], GRID))?;
            // Rounded by its step, which has few digits.
            let value = format!("{}", (value * 1e6).round() / 1e6);
            text(area, &value, (x, top - 8), HPos::Center, &SMALL)?;
            text(area, &value, (x, bottom + 10), HPos::Center, &SMALL)?;
        }
        let middle = (BARS.0 + BARS.1) / 2;
        let below = bottom + 10 + LINE;
        text(area, unit, (middle, below), HPos::Center, &PLAIN)
    }

    /// A bar with its spread, and its length in digits.
    fn draw_bar<'a>(&self, area: &Area<'a>, bar: &Summary, y: i32, color: RGBColor) -> Drawn<'a> {
        let corners = [(self.x(0.0), y), (self.x(bar.median), y + BAR - 1)];
        area.draw(&Rectangle::new(corners, color.filled()))?;
        let (low, high) = (self.x(bar.low), self.x(bar.high()));
        let middle = y + BAR / 2;
        for line in [
            [(low, middle), (high, middle)],
            [(low, middle - 2), (low, middle + 3)],
            [(high, middle - 2), (high, middle + 3)],
        ] {
            area.draw(&PathElement::new(line, INK))?;
        }
        let digits = format!("{:.1}", bar.median);
        let behind = self.x(bar.median).max(high) + 5;
        text(area, &digits, (behind, middle + 1), HPos::Left, &SMALL)
    }
}

/// How a text looks: its size, which plotters takes for the height of a line, and its weight.
struct Look(i32, FontStyle);

const TITLE: Look = Look(22, FontStyle::Bold);
const BOLD: Look = Look(16, FontStyle::Bold);
const PLAIN: Look = Look(15, FontStyle::Normal);
const SMALL: Look = Look(12, FontStyle::Normal);

/// A line of text whose middle is as high as `at`.
fn text<'a>(area: &Area<'a>, text: &str, at: (i32, i32), side: HPos, look: &Look) -> Drawn<'a> {
    let font = ("sans-serif", look.0, look.1).into_font();
    let style = TextStyle::from(font)
        .color(&INK)
        .pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text, at, style))
}

/// Figures beside the bars, or what they are.
fn draw_notes<'a, T: AsRef<str>>(area: &Area<'a>, notes: &[T], y: i32, look: &Look) -> Drawn<'a> {
    let (first, width) = NOTES;
    for (note, x) in notes.iter().zip((first..).step_by(width as usize)) {
        text(area, note.as_ref(), (x, y), HPos::Right, look)?;
    }
    Ok(())
}

/// A square of the legend.
fn draw_square<'a>(area: &Area<'a>, at: (i32, i32), color: RGBColor) -> Drawn<'a> {
    let corners = [(at.0, at.1 - 6), (at.0 + 12, at.1 + 6)];
    area.draw(&Rectangle::new(corners, color.filled()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words = Words {
        title: "Forwarding <fast> & well",
        caption: &["Bars are medians.", "Less is better."],
        unit: "ns a packet",
        kinds: &["on", "off", "bare loop"],
        notes: &["ratio"],
    };

    fn row(label: &str, medians: [Option<f64>; 3]) -> Row {
        let summary = |median| Summary {
            median,
            low: median * 0.75,
            spread: median * 0.5,
        };
        Row {
            label: label.to_owned(),
            bars: medians.map(|median| median.map(summary)).to_vec(),
            notes: vec![format!("note of {label}")],
        }
    }

    fn plot() -> Plot {
        let mut plot = Plot::new(WORDS);
        let (few, many) = ("1 route".to_owned(), "many routes".to_owned());
        plot.add(
            few.clone(),
            row("no sockets", [Some(20.0), Some(21.0), Some(5.0)]),
        );
        plot.add(many, row("no sockets", [Some(80.0), Some(40.0), None]));
        plot.add(few, row("sockets", [Some(20.0), Some(20.0), Some(5.0)]));
        plot
    }

    /// Widths of the bars of a kind; the first is the legend's square.
    fn widths(document: &roxmltree::Document<'_>, color: &str) -> Vec<f64> {
        let rectangles = document.descendants().filter(|node| {
            node.has_tag_name("rect") || node.has_tag_name(("http://www.w3.org/2000/svg", "rect"))
        });
        let of_kind = rectangles.filter(|node| node.attribute("fill") == Some(color));
        let width = |node: roxmltree::Node<'_, '_>| node.attribute("width")?.parse().ok();
        of_kind.filter_map(width).collect()
    }

    #[test]
    fn bars_are_as_long_as_what_they_stand_for() {
        let svg = plot().svg().expect("a document");
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        // The longest whisker, 100, ends where the field does.
        let pixels = |ns: f64| ns / 100.0 * f64::from(BARS.1 - BARS.0);
        for (color, ns) in [
            ("#0072B2", &[20.0, 20.0, 80.0][..]),
            ("#E69F00", &[21.0, 20.0, 40.0]),
            ("#969696", &[5.0, 5.0]),
        ] {
            let widths = widths(&document, color);
            let [_legend, bars @ ..] = widths.as_slice() else {
                panic!("no {color} in\n{svg}");
            };
            assert_eq!(bars.len(), ns.len(), "{color} in\n{svg}");
            for (width, ns) in bars.iter().zip(ns) {
                assert!((width - pixels(*ns)).abs() <= 1.0, "{width} for {ns}");
            }
        }
    }

    #[test]
    fn everything_has_its_name() {
        let svg = plot().svg().expect("a document");
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let words = document.descendants().filter(roxmltree::Node::is_text);
        let texts: Vec<_> = words.filter_map(|node| node.text()).collect();
        let count = |text: &str| texts.iter().filter(|found| found.trim() == text).count();
        for (text, times) in [
            (WORDS.title, 1),
            (WORDS.caption[1], 1),
            (WORDS.unit, 1),
            ("on", 1),
            ("bare loop", 1),
            ("1 route", 1),
            ("no sockets", 2),
            ("ratio", 1),
            ("note of sockets", 1),
            ("80.0", 1),
            ("60", 2),
        ] {
            assert_eq!(count(text), times, "{text:?} in\n{svg}");
        }
    }

    #[test]
    fn nothing_measured_is_an_empty_plot() {
        let svg = Plot::new(WORDS).svg().expect("a document");
        roxmltree::Document::parse(&svg).expect("well-formed");
        let mut zero = Plot::new(WORDS);
        zero.add(String::new(), row("", [Some(0.0), None, None]));
        zero.svg().expect("a document");
    }

    #[test]
    fn a_file_is_tried_first_and_keeps_what_it_has() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("plot.svg");
        fs::write(&path, "before").expect("a file");
        let file = SvgFile::new(&path).expect("can be written");
        assert_eq!(fs::read_to_string(&path).expect("text"), "before");
        file.write(&plot()).expect("written");
        assert!(fs::read_to_string(&path).expect("text").starts_with("<svg"));
    }

    #[test]
    fn a_file_that_was_not_there_is_not_left_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("plot.svg");
        let file = SvgFile::new(&path).expect("can be written");
        assert!(!path.exists());
        file.write(&plot()).expect("written");
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, expected) in [
            (dir.path().join("no/plot.svg"), "no/plot.svg: No such file"),
            (dir.path().to_owned(), "no regular file"),
            ("/dev/full".into(), "no regular file"),
            ("-".into(), "a file of its own"),
        ] {
            let error = SvgFile::new(&path).expect_err("no file");
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{error}");
        }
    }
}
