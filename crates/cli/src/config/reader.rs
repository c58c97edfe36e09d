//! Reads TOML tables key by key, and says what it found and what it expected.
//!
//! Serde's derives would do most of this, but they lose the place in the file inside tagged
//! tables, and cannot tell that a key is known but makes no sense for this kind of device.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Problem;

/// A value and its place in the file.
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// How alike two words must be for one to be taken for a slip of the other (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.8;

/// A table, whose keys are taken one after the other. Those that nobody asked for are unknown.
pub(super) struct Table<'a, 'i> {
    /// As it stands in the file: `[[device]]`.
    what: &'static str,
    span: Range<usize>,
    entries: &'a DeTable<'i>,
    asked: Vec<&'static str>,
}

impl<'a, 'i> Table<'a, 'i> {
    pub(super) fn new(what: &'static str, span: Range<usize>, entries: &'a DeTable<'i>) -> Self {
        Self {
            what,
            span,
            entries,
            asked: Vec::new(),
        }
    }

    pub(super) fn of(what: &'static str, value: &'a Value<'i>) -> Result<Self, Problem> {
        match value.get_ref() {
            DeValue::Table(entries) => Ok(Self::new(what, value.span(), entries)),
            _ => Err(unexpected(value, &format!("a table {what}"))),
        }
    }

    /// Where the table begins, for problems with it as a whole.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Value<'i>> {
        self.asked.push(key);
        self.entries.get(key)
    }

    pub(super) fn optional<T: Read>(&mut self, key: &'static str) -> Result<Option<T>, Problem> {
        let read = self.value(key).map(T::read).transpose();
        read.map_err(|problem| problem.of_key(key))
    }

    pub(super) fn required<T: Read>(&mut self, key: &'static str) -> Result<T, Problem> {
        self.optional(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn missing(&self, key: &str) -> Problem {
        Problem::new(self.span(), format!("{} needs the key `{key}`", self.what))
    }

    /// A whole number within a range.
    pub(super) fn number<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        number(value, &range)
            .map(Some)
            .map_err(|problem| problem.of_key(key))
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        word(value, words)
            .map(Some)
            .map_err(|problem| problem.of_key(key))
    }

    /// The tables of an array `[[key]]`.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        what: &'static str,
        read: impl Fn(Table<'a, 'i>) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(tables) = value.get_ref() else {
            let help = format!("begin each with a line {what} (two brackets on each side)");
            return Err(unexpected(value, &format!("an array of tables {what}")).help(help));
        };
        tables
            .iter()
            .map(|table| read(Table::of(what, table)?))
            .collect()
    }

    /// Every key with its value, whatever the keys are.
    pub(super) fn entries(self) -> impl Iterator<Item = (Spanned<&'a str>, &'a Value<'i>)> {
        let entries = self.entries.iter();
        entries.map(|(key, value)| (Spanned::new(key.span(), key.get_ref().as_ref()), value))
    }

    /// Refuses the first key that nobody asked for.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let is_unknown =
            |key: &&Spanned<_>| !self.asked.contains(&AsRef::<str>::as_ref(key.get_ref()));
        let unknown = self.entries.keys().filter(is_unknown);
        let Some(key) = unknown.min_by_key(|key| key.span().start) else {
            return Ok(());
        };
        let what = format!("unknown key `{}` in {}", key.get_ref(), self.what);
        let help = suggestion(key.get_ref(), &self.asked).map_or_else(
            || format!("the keys here are: {}", self.asked.join(", ")),
            |meant| format!("did you mean `{meant}`?"),
        );
        Err(Problem::new(key.span(), what).help(help))
    }
}

/// The word that was probably meant.
pub(crate) fn suggestion<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    let likeness = |candidate: &str| strsim::jaro_winkler(word, candidate);
    let best = words
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.copied().filter(|best| likeness(best) >= ALIKE)
}

/// What can be read from one value.
pub(super) trait Read: Sized {
    fn read(value: &Value<'_>) -> Result<Self, Problem>;
}

impl<T: Read> Read for Spanned<T> {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        Ok(Spanned::new(value.span(), T::read(value)?))
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        match value.get_ref() {
            DeValue::Array(values) => values.iter().map(T::read).collect(),
            _ => Err(unexpected(value, "an array [...]")),
        }
    }
}

impl Read for bool {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let found = value.get_ref().as_bool();
        found.ok_or_else(|| unexpected(value, "true or false"))
    }
}

impl Read for String {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        text(value, "a string", |text| Some(text.to_owned()))
    }
}

impl Read for PathBuf {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        text(value, "a file's path", |text| Some(text.into()))
    }
}

impl Read for IpAddr {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        text(value, "an IPv4 or IPv6 address", |text| text.parse().ok())
    }
}

impl Read for SocketAddr {
    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let expected = "an address and port (\"10.9.0.1:7\", \"[::]:7\")";
        text(value, expected, |text| text.parse().ok())
    }
}

/// A value that stands in the file as a string.
pub(super) fn text<T>(
    value: &Value<'_>,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, Problem> {
    let parsed = value.get_ref().as_str().and_then(parse);
    parsed.ok_or_else(|| unexpected(value, expected))
}

pub(super) fn number<T: TryFrom<u64>>(
    value: &Value<'_>,
    range: &RangeInclusive<u64>,
) -> Result<T, Problem> {
    let number = value.get_ref().as_integer().and_then(|integer| {
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        number.filter(|number| range.contains(number))
    });
    let converted = number.and_then(|number| T::try_from(number).ok());
    converted.ok_or_else(|| unexpected(value, &describe_range(range)))
}

fn describe_range(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (start, &u64::MAX) => format!("a whole number from {start} up"),
        (start, end) => format!("a whole number from {start} to {end}"),
    }
}

pub(super) fn word<T: Copy>(value: &Value<'_>, words: &[(&'static str, T)]) -> Result<T, Problem> {
    let found = value.get_ref().as_str();
    let known = words.iter().find(|(word, _)| Some(*word) == found);
    if let Some((_, meaning)) = known {
        return Ok(*meaning);
    }
    let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let problem = unexpected(value, &format!("one of: {}", words.join(", ")));
    Err(match found.and_then(|found| suggestion(found, &words)) {
        Some(meant) => problem.help(format!("did you mean \"{meant}\"?")),
        None => problem,
    })
}

/// A value that is not what it should be.
pub(super) fn unexpected(value: &Value<'_>, expected: &str) -> Problem {
    Problem::expected(value.span(), &describe(value.get_ref()), expected)
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
