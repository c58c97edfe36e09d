//! A table of words and numbers, sorted by any column.

use std::cmp::Ordering;

use crate::numbers::{bytes, grouped};

pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

pub(super) struct Column {
    name: String,
    /// Words begin at the left, numbers end at the right.
    is_words: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Word(String),
    Number { text: String, value: f64 },
    Unknown,
}

impl Column {
    pub(super) fn words(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            name,
            is_words: true,
        }
    }

    pub(super) fn numbers(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            name,
            is_words: false,
        }
    }
}

impl Cell {
    pub(super) fn word(word: &str) -> Self {
        Self::Word(word.to_owned())
    }

    pub(super) fn count(value: impl Into<u64>) -> Self {
        let count = value.into();
        let value = count as f64;
        let text = grouped(count);
        Self::Number { text, value }
    }

    /// So many a second.
    pub(super) fn rate(count: u64, seconds: f64) -> Self {
        let value = count as f64 / seconds;
        // What is seldom is not nothing.
        let text = match value {
            seldom if seldom > 0.0 && seldom < 9.95 => format!("{seldom:.1}"),
            _ => grouped(value.round() as u64),
        };
        Self::Number { text, value }
    }

    pub(super) fn bytes_rate(count: u64, seconds: f64) -> Self {
        let value = count as f64 / seconds;
        let text = bytes(value.round() as u64);
        Self::Number { text, value }
    }

    pub(super) fn percent(share: Option<f64>) -> Self {
        share.map_or(Self::Unknown, |share| {
            let value = share * 100.0;
            let text = format!("{value:.0} %");
            Self::Number { text, value }
        })
    }

    pub(super) fn cycles(cycles: Option<f64>) -> Self {
        cycles.map_or(Self::Unknown, |value| {
            let text = format!("{value:.1}");
            Self::Number { text, value }
        })
    }

    fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Number { text, .. } => text,
            Self::Unknown => "-",
        }
    }

    /// Words from A on, numbers from the largest down, what is unknown last.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Word(one), Self::Word(other)) => one.cmp(other),
            (Self::Number { value: one, .. }, Self::Number { value: other, .. }) => {
                other.total_cmp(one)
            }
            (Self::Unknown, Self::Unknown) => Ordering::Equal,
            (Self::Unknown, _) => Ordering::Greater,
            (_, Self::Unknown) => Ordering::Less,
            (Self::Word(_), Self::Number { .. }) => Ordering::Less,
            (Self::Number { .. }, Self::Word(_)) => Ordering::Greater,
        }
    }
}

impl Table {
    /// Sorts by a column, if there is one of this number. Rows that are alike keep their order.
    pub(super) fn sort(&mut self, column: usize, is_reversed: bool) {
        self.rows.sort_by(|one, other| {
            let (Some(one), Some(other)) = (one.get(column), other.get(column)) else {
                return Ordering::Equal;
            };
            let order = one.compare(other);
            if is_reversed { order.reverse() } else { order }
        });
    }

    /// The heading, and a line for each row, aligned.
    pub(super) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let cells = |texts: Vec<&str>| {
            let columns = self.columns.iter().zip(&widths).zip(texts);
            let aligned = columns.map(|((column, width), text)| column.align(text, *width));
            aligned.collect::<Vec<_>>().join(" ")
        };
        let heading = cells(
            self.columns
                .iter()
                .map(|column| column.name.as_str())
                .collect(),
        );
        let rows = self.rows.iter();
        let rows = rows.map(|row| cells(row.iter().map(Cell::text).collect()));
        std::iter::once(heading).chain(rows).collect()
    }

    /// Where in the heading a column's name stands: its first character, and the one after the last.
    pub(super) fn place(&self, column: usize) -> Option<(usize, usize)> {
        let widths = self.widths();
        let (is_words, name) = self.columns.get(column).map(|c| (c.is_words, &c.name))?;
        let (before, width) = (widths.get(..column)?, widths.get(column)?);
        let start = before.iter().map(|width| width + 1).sum::<usize>();
        let start = if is_words {
            start
        } else {
            start + width - name.len()
        };
        Some((start, start + name.len()))
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        let widths = columns.map(|(index, column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let texts = cells.map(|cell| cell.text().chars().count());
            texts.chain([column.name.len()]).max().unwrap_or(0)
        });
        widths.collect()
    }
}

impl Column {
    fn align(&self, text: &str, width: usize) -> String {
        if self.is_words {
            format!("{text:<width$}")
        } else {
            format!("{text:>width$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            columns: vec![
                Column::words("name"),
                Column::numbers("size"),
                Column::numbers("share"),
            ],
            rows: vec![
                vec![Cell::word("b"), Cell::count(7_u64), Cell::Unknown],
                vec![
                    Cell::word("a"),
                    Cell::count(12_345_u64),
                    Cell::percent(Some(0.5)),
                ],
                vec![
                    Cell::word("long name"),
                    Cell::count(100_u64),
                    Cell::percent(Some(1.0)),
                ],
            ],
        }
    }

    #[test]
    fn words_begin_and_numbers_end_together() {
        let expected = [
            "name        size share",
            "b              7     -",
            "a         12,345  50 %",
            "long name    100 100 %",
        ];
        assert_eq!(table().lines(), expected);
        let names = [0, 1, 2, 3].map(|column| {
            let (start, end) = table().place(column)?;
            expected[0].get(start..end)
        });
        assert_eq!(names, [Some("name"), Some("size"), Some("share"), None]);
    }

    #[test]
    fn any_column_sorts() {
        for (column, is_reversed, expected) in [
            (0, false, ["a", "b", "long name"]),
            (0, true, ["long name", "b", "a"]),
            (1, false, ["a", "long name", "b"]),
            (1, true, ["b", "long name", "a"]),
            (2, false, ["long name", "a", "b"]),
            (9, false, ["b", "a", "long name"]),
        ] {
            let mut table = table();
            table.sort(column, is_reversed);
            let names: Vec<_> = table.rows.iter().map(|row| row[0].text()).collect();
            assert_eq!(names, expected, "column {column}");
        }
    }

    #[test]
    fn rates_are_easy_to_read() {
        for (count, seconds, text) in [
            (0, 1.0, "0"),
            (1, 2.0, "0.5"),
            (99, 10.0, "9.9"),
            (20, 2.0, "10"),
            (3_000_000, 2.0, "1,500,000"),
        ] {
            assert_eq!(Cell::rate(count, seconds).text(), text);
        }
    }
}
