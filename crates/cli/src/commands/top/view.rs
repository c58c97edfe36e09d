//! What is on the screen: an interval's tables, as whoever looks at it wants them.

use std::time::Duration;

use super::interval::Interval;
use super::table::Table;
use super::tables::{TABLES, tables};
use super::terminal::{Key, Size, Span, Style};

/// A line of the screen.
pub(super) type Line = Vec<Span>;

const KEYS: &str =
    "q quit  p pause  Tab next table  left, right sort by  r reverse  up, down scroll";

/// What whoever looks has chosen.
pub(super) struct View {
    stack: String,
    every: Duration,
    interval: Option<Interval>,
    is_paused: bool,
    /// The table that the keys are for.
    focus: usize,
    orders: [Order; TABLES],
    /// Rows of each table that are scrolled out at the top.
    scrolled: [usize; TABLES],
}

/// How a table is sorted; as it comes without a column.
#[derive(Debug, Clone, Copy, Default)]
struct Order {
    column: Option<usize>,
    is_reversed: bool,
}

impl View {
    pub(super) fn new(stack: &str, every: Duration) -> Self {
        Self {
            stack: stack.to_owned(),
            every,
            interval: None,
            is_paused: false,
            focus: 0,
            orders: Default::default(),
            scrolled: Default::default(),
        }
    }

    /// Shows an interval, unless what is shown is to stay.
    pub(super) fn update(&mut self, interval: Interval) {
        if !self.is_paused {
            self.interval = Some(interval);
        }
    }

    pub(super) fn press(&mut self, key: Key) {
        match key {
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Tab => self.focus = (self.focus + 1) % TABLES,
            Key::BackTab => self.focus = (self.focus + TABLES - 1) % TABLES,
            Key::Left => self.sort_by(|column, columns| (column + columns - 1) % columns),
            Key::Right => self.sort_by(|column, columns| (column + 1) % columns),
            Key::Char('r') => {
                let order = &mut self.orders[self.focus];
                order.column = order.column.or(Some(0));
                order.is_reversed = !order.is_reversed;
            }
            Key::Up => self.scroll(|rows| rows.saturating_sub(1)),
            Key::Down => self.scroll(|rows| rows + 1),
            Key::Char(_) => {}
        }
    }

    /// Sorts the table in focus by the column that `next` says, given the one and how many there
    /// are.
    fn sort_by(&mut self, next: impl FnOnce(usize, usize) -> usize) {
        let Some(interval) = &self.interval else {
            return;
        };
        let columns = tables(interval)[self.focus].columns.len();
        let order = &mut self.orders[self.focus];
        *order = Order {
            // The first key is for the column that the table begins with.
            column: Some(order.column.map_or(0, |column| next(column, columns))),
            is_reversed: false,
        };
    }

    fn scroll(&mut self, to: impl FnOnce(usize) -> usize) {
        let Some(interval) = &self.interval else {
            return;
        };
        let rows = tables(interval)[self.focus].rows.len();
        let scrolled = &mut self.scrolled[self.focus];
        *scrolled = to(*scrolled).min(rows.saturating_sub(1));
    }

    /// The screen, as many lines as it has.
    pub(super) fn draw(&self, size: Size) -> Vec<Line> {
        let mut lines = vec![self.title()];
        let room = size.rows.saturating_sub(2);
        if let Some(interval) = &self.interval {
            lines.extend(self.body(interval, room));
        }
        lines.resize(room + 1, Line::new());
        lines.push(vec![Span::new(KEYS, Style::Faint)]);
        for line in &mut lines {
            cut(line, size.columns);
        }
        lines.truncate(size.rows);
        lines
    }

    fn title(&self) -> Line {
        let mut title = format!("forebay top: {}", self.stack);
        match &self.interval {
            None => title += ", looking",
            Some(interval) => {
                let workers = interval.cores.len();
                let plural = if workers == 1 { "" } else { "s" };
                title += &format!(", {workers} worker{plural}, {:.1} s", interval.seconds);
                if let Some(flows) = interval.sock_flows {
                    title += &format!(", {} of {} flow entries", flows.used, flows.entries);
                }
            }
        }
        let mut line = vec![Span::new(title, Style::Strong)];
        if self.is_paused {
            line.push(Span::new("  ", Style::Plain));
            line.push(Span::new(" paused ", Style::Marked));
        } else if self.every > Duration::from_secs(10) {
            let every = format!(", every {} s", self.every.as_secs());
            line.push(Span::new(every, Style::Strong));
        }
        line
    }

    /// The tables in `room` lines.
    fn body(&self, interval: &Interval, room: usize) -> Vec<Line> {
        let mut tables = tables(interval);
        for (table, order) in tables.iter_mut().zip(self.orders) {
            if let Some(column) = order.column {
                table.sort(column, order.is_reversed);
            }
        }
        let wanted: [usize; TABLES] = std::array::from_fn(|at| tables[at].rows.len() + 1);
        let gaps = usize::from(wanted.iter().sum::<usize>() + TABLES <= room);
        let rooms = share(wanted, room.saturating_sub(gaps * TABLES));
        let mut lines = Vec::new();
        for (at, (table, room)) in tables.iter().zip(rooms).enumerate() {
            lines.extend((0..gaps).map(|_| Line::new()));
            lines.extend(self.table(at, table, room));
        }
        lines
    }

    /// The heading and the rows of a table that fit into `room` lines.
    fn table(&self, at: usize, table: &Table, room: usize) -> Vec<Line> {
        let mut texts = table.lines().into_iter();
        let heading = texts.next().unwrap_or_default();
        let marked = self.orders[at]
            .column
            .and_then(|column| table.place(column));
        let style = match at == self.focus {
            true => Style::Focus,
            false => Style::Strong,
        };
        let shown = room.saturating_sub(1);
        let hidden = self.scrolled[at].min(table.rows.len().saturating_sub(shown));
        let rows = texts.skip(hidden).take(shown);
        let rows = rows.map(|row| vec![Span::new(row, Style::Plain)]);
        let heading = mark(&heading, marked, style);
        [heading].into_iter().chain(rows).take(room).collect()
    }
}

/// A heading with one of its words marked.
fn mark(heading: &str, word: Option<(usize, usize)>, style: Style) -> Line {
    let parts = word.and_then(|(start, end)| {
        Some([
            Span::new(heading.get(..start)?, style),
            Span::new(heading.get(start..end)?, Style::Marked),
            Span::new(heading.get(end..)?, style),
        ])
    });
    match parts {
        Some(parts) => parts.into(),
        None => vec![Span::new(heading, style)],
    }
}

/// Shares `room` lines out: a line to each in turn, until nobody wants more or all are gone.
fn share(wanted: [usize; TABLES], mut room: usize) -> [usize; TABLES] {
    let mut given = [0; TABLES];
    while room > 0 && given != wanted {
        for (given, wanted) in given.iter_mut().zip(wanted) {
            if *given < wanted && room > 0 {
                *given += 1;
                room -= 1;
            }
        }
    }
    given
}

/// Cuts what does not fit beside each other.
fn cut(line: &mut Line, columns: usize) {
    let mut left = columns;
    for span in line {
        let text: String = span.text.chars().take(left).collect();
        left -= text.chars().count();
        span.text = text;
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::tests::two_looks;
    use super::*;

    fn view() -> View {
        let (before, after) = two_looks();
        let mut view = View::new("main", Duration::from_secs(2));
        view.update(Interval::between("main", &before, &after).unwrap());
        view
    }

    fn screen(view: &View, columns: usize, rows: usize) -> Vec<String> {
        let lines = view.draw(Size { columns, rows }).into_iter();
        let texts = lines.map(|line| {
            let text: String = line.into_iter().map(|span| span.text).collect();
            text.trim_end().to_owned()
        });
        texts.collect()
    }

    /// Words of the screen that are shown in a style.
    fn styled(view: &View, style: Style) -> Vec<String> {
        let lines = view.draw(Size {
            columns: 200,
            rows: 40,
        });
        let spans = lines.into_iter().flatten();
        spans
            .filter(|span| span.style == style)
            .map(|span| span.text)
            .collect()
    }

    #[test]
    fn a_screen_with_room_for_all() {
        let expected = "\
forebay top: main, 2 workers, 2.0 s, 8 of 1024 flow entries

core busy packets/s forwarded/s delivered/s dropped/s flows by RPS/s backlog squeezed/s read
   0 75 % 1,000,000     999,500           0       500    37        0       0          0    3
   1  0 %        10           0           0         0     0       10       0          0    5

cycles a packet on core validate early demux route  act together packets
                      0     20.0         1.0  10.0 25.0     56.0     640
                      1        -           -     -    -        -       0

device queue core      in/s bytes/s lost/s   out/s bytes/s lost/s waiting
left       0    0 1,000,000 64.0 MB      0 999,500     0 B      0       0

reason      drops/s in all core 0/s core 1/s what it means
UdpNoSocket     501  1,011      500        0 UdpNoSocket happened.
TtlExceeded     1.0      2        0        0 TtlExceeded happened.
IpCsum            0      9        0        0 IpCsum happened.

q quit  p pause  Tab next table  left, right sort by  r reverse  up, down scroll";
        let lines: Vec<_> = expected.lines().collect();
        assert_eq!(screen(&view(), 100, lines.len()), lines);
    }

    #[test]
    fn a_screen_that_is_too_small_shows_the_beginnings() {
        let expected = [
            "forebay top: main, 2 workers, 2.0 s, 8 o",
            "core busy packets/s forwarded/s delivere",
            "   0 75 % 1,000,000     999,500",
            "cycles a packet on core validate early d",
            "                      0     20.0",
            "device queue core      in/s bytes/s lost",
            "left       0    0 1,000,000 64.0 MB",
            "reason      drops/s in all core 0/s core",
            "UdpNoSocket     501  1,011      500",
            "q quit  p pause  Tab next table  left, r",
        ];
        assert_eq!(screen(&view(), 40, 10), expected);
        for rows in 0..30 {
            for columns in [0, 1, 7] {
                let lines = screen(&view(), columns, rows);
                assert_eq!(lines.len(), rows);
                assert!(lines.iter().all(|line| line.len() <= columns));
            }
        }
    }

    #[test]
    fn keys_sort_and_scroll_the_table_in_focus() {
        for (keys, marked, first_of_drops) in [
            (&[][..], None, "UdpNoSocket"),
            (&[Key::Right], Some("core"), "UdpNoSocket"),
            (&[Key::Right, Key::Right], Some("busy"), "UdpNoSocket"),
            (&[Key::BackTab, Key::Right], Some("reason"), "IpCsum"),
            (
                &[Key::BackTab, Key::Right, Key::Left],
                Some("what it means"),
                "IpCsum",
            ),
            (
                &[Key::Tab, Key::Tab, Key::Tab, Key::Char('r')],
                Some("reason"),
                "UdpNoSocket",
            ),
        ] {
            let mut view = view();
            keys.iter().for_each(|key| view.press(*key));
            assert_eq!(
                styled(&view, Style::Marked).first().map(String::as_str),
                marked
            );
            let lines = screen(&view, 100, 40);
            let heading = lines
                .iter()
                .position(|line| line.starts_with("reason"))
                .unwrap();
            let first = lines[heading + 1].split(' ').next();
            assert_eq!(first, Some(first_of_drops), "{keys:?}");
        }
        let mut view = view();
        view.press(Key::BackTab);
        (0..9).for_each(|_| view.press(Key::Down));
        assert_eq!(
            screen(&view, 100, 10)[8],
            "IpCsum            0      9        0        0 IpCsum happened."
        );
        (0..9).for_each(|_| view.press(Key::Up));
        assert!(screen(&view, 100, 10)[8].starts_with("UdpNoSocket"));
    }

    #[test]
    fn what_is_shown_stays_while_paused() {
        let mut view = view();
        view.press(Key::Char('p'));
        assert_eq!(styled(&view, Style::Marked), [" paused "]);
        let before = screen(&view, 100, 40);
        let (before_look, mut after) = two_looks();
        after.cores[0].processed += 1;
        let newer = || Interval::between("main", &before_look, &after).unwrap();
        view.update(newer());
        assert_eq!(screen(&view, 100, 40), before);
        view.press(Key::Char(' '));
        view.update(newer());
        assert_ne!(screen(&view, 100, 40), before);
    }

    #[test]
    fn before_the_first_interval_there_is_a_title() {
        let mut view = View::new("main", Duration::from_secs(1));
        view.press(Key::Right);
        view.press(Key::Down);
        assert_eq!(screen(&view, 80, 2)[0], "forebay top: main, looking");
    }
}
