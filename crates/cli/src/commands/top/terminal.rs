//! A terminal as a screen: what is drawn, which keys are pressed, and leaving it as it was.
//!
//! What is needed of a terminal is what every one has had since the VT220 and xterm: so this is a
//! page of escape sequences (ECMA-48, and xterm's for the second screen) and no dependency.

use std::io::{self, Write};
use std::panic;
use std::thread;

use rustix::termios::{
    self, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// In characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Text in a style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) text: String,
    pub(super) style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Strong,
    /// The table that the keys are for.
    Focus,
    /// The column that is sorted by.
    Marked,
    Faint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Tab,
    BackTab,
    Left,
    Right,
    Up,
    Down,
}

impl Span {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        Self { text, style }
    }
}

impl Style {
    fn sequence(self, has_colour: bool) -> &'static str {
        match (self, has_colour) {
            (Self::Plain, _) => "",
            (Self::Strong, _) => "\x1b[1m",
            (Self::Focus, true) => "\x1b[1;36m",
            (Self::Focus, false) => "\x1b[1;4m",
            (Self::Marked, _) => "\x1b[7m",
            (Self::Faint, _) => "\x1b[2m",
        }
    }
}

/// The screen, until it is dropped.
pub(super) struct Terminal {
    has_colour: bool,
    before: Termios,
}

impl Terminal {
    /// Takes the terminal over, which stdin and stdout are. Ctrl-C and Ctrl-Z stay signals.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal = Self { has_colour, before };
        terminal.take_over()?;
        // A panic says why where people can read it.
        let (before, then) = (terminal.before.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |info| {
            leave(&before);
            then(info);
        }));
        Ok(terminal)
    }

    /// Takes the terminal over again.
    pub(super) fn take_over(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        modes.special_codes[termios::SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[termios::SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        write(ENTER)
    }

    /// Gives it to others as it was.
    pub(super) fn hand_over(&self) {
        leave(&self.before);
    }

    pub(super) fn size() -> Size {
        let size = tcgetwinsize(io::stdout()).ok();
        let known = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
        known.map_or(
            Size {
                columns: 80,
                rows: 24,
            },
            |size| Size {
                columns: size.ws_col.into(),
                rows: size.ws_row.into(),
            },
        )
    }

    /// Shows lines, over what was shown.
    pub(super) fn show(&self, lines: &[Vec<Span>]) -> io::Result<()> {
        write(&frame(lines, self.has_colour))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A panic has left it, and may have written something since.
        if !thread::panicking() {
            leave(&self.before);
            drop(panic::take_hook());
        }
    }
}

/// Where the terminal is gone, nothing has to be put right.
fn leave(before: &Termios) {
    let _ = write(LEAVE);
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// From the top left, each line with what was behind it wiped out; nothing is wiped that stays, so
/// nothing flickers.
fn frame(lines: &[Vec<Span>], has_colour: bool) -> String {
    let mut frame = "\x1b[H".to_owned();
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            frame += "\r\n";
        }
        for span in line.iter().filter(|span| !span.text.is_empty()) {
            match span.style.sequence(has_colour) {
                "" => frame += &span.text,
                begin => {
                    frame += begin;
                    frame += &span.text;
                    frame += "\x1b[0m";
                }
            }
        }
        frame += "\x1b[K";
    }
    frame
}

/// The keys that a terminal says were pressed. What is no key here is passed over.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        keys.extend(match first {
            b'\x1b' => {
                let (sequence, rest) = control_sequence(bytes);
                bytes = rest;
                arrow(sequence)
            }
            b'\t' => Some(Key::Tab),
            b' '..=b'~' => Some(Key::Char((*first).into())),
            _ => None,
        });
    }
    keys
}

/// Splits off what belongs to an ESC: `[` or `O`, parameters, and a final byte.
fn control_sequence(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (Some(b'[' | b'O'), Some(parameters)) = (bytes.first(), bytes.get(1..)) else {
        return bytes.split_at(0);
    };
    let last = parameters
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte));
    let end = last.map_or(bytes.len(), |last| last + 2);
    bytes.split_at(end)
}

fn arrow(sequence: &[u8]) -> Option<Key> {
    match sequence {
        [_, b'A'] => Some(Key::Up),
        [_, b'B'] => Some(Key::Down),
        [_, b'C'] => Some(Key::Right),
        [_, b'D'] => Some(Key::Left),
        [b'[', b'Z'] => Some(Key::BackTab),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_what_terminals_send() {
        for (bytes, expected) in [
            (&b""[..], &[][..]),
            (b"q", &[Key::Char('q')]),
            (b"\t p", &[Key::Tab, Key::Char(' '), Key::Char('p')]),
            (
                b"\x1b[A\x1b[B\x1b[C\x1b[D",
                &[Key::Up, Key::Down, Key::Right, Key::Left],
            ),
            (b"\x1bOA", &[Key::Up]),
            (b"\x1b[Zr", &[Key::BackTab, Key::Char('r')]),
            // F5, a mouse's report, a lone ESC, a letter with Alt, one in UTF-8.
            (b"\x1b[15~q", &[Key::Char('q')]),
            (b"\x1b[<0;1;1M", &[]),
            (b"\x1b", &[]),
            (b"\x1b[", &[]),
            (b"\x1bq", &[Key::Char('q')]),
            ("\u{e4}q".as_bytes(), &[Key::Char('q')]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_replaces_the_one_before() {
        let lines = [
            vec![
                Span::new("title", Style::Strong),
                Span::new("", Style::Focus),
            ],
            vec![],
            vec![Span::new("a ", Style::Plain), Span::new("b", Style::Focus)],
        ];
        let plain = "\x1b[H\x1b[1mtitle\x1b[0m\x1b[K\r\n\x1b[K\r\na \x1b[1;4mb\x1b[0m\x1b[K";
        assert_eq!(frame(&lines, false), plain);
        assert_eq!(frame(&lines, true), plain.replace("1;4m", "1;36m"));
    }
}
