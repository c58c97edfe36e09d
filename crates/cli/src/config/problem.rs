//! What is wrong with a configuration, and where.

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// A configuration's text, and what it is called.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    name: String,
    text: String,
}

/// Something wrong at a place of the text, given in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    span: Range<usize>,
    what: String,
    /// What to do about it.
    help: Option<String>,
}

impl Problem {
    pub(crate) fn new(span: Range<usize>, what: impl Into<String>) -> Self {
        Self {
            span,
            what: what.into(),
            help: None,
        }
    }

    pub(super) fn expected(span: Range<usize>, found: &str, expected: &str) -> Self {
        Self::new(span, format!("found {found}, expected {expected}"))
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// Says which key it is about.
    pub(super) fn of_key(self, key: &str) -> Self {
        Self {
            what: format!("`{key}`: {}", self.what),
            ..self
        }
    }
}

impl Source {
    pub(super) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The problem as people are told of it.
    pub(crate) fn explain(&self, problem: Problem) -> ConfigError {
        let start = self.text.floor_char_boundary(problem.span.start);
        let (before, after) = self.text.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let lead = &before[line_start..];
        let rest = after.lines().next().unwrap_or_default();
        let end = self.text.floor_char_boundary(problem.span.end).max(start);
        let marked = self.text[start..end].lines().next().unwrap_or_default();
        ConfigError {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: lead.chars().count() + 1,
            what: problem.what,
            excerpt: format!("{lead}{rest}"),
            marker: marker(lead, marked),
            help: problem.help,
        }
    }
}

/// Carets under what is marked; tabs stay tabs, so that they line up.
fn marker(lead: &str, marked: &str) -> String {
    let blank = |c| if c == '\t' { '\t' } else { ' ' };
    let carets = "^".repeat(marked.chars().count().max(1));
    lead.chars().map(blank).collect::<String>() + &carets
}

/// A configuration that is refused: file, line, column, what was found and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    file: String,
    line: usize,
    column: usize,
    what: String,
    excerpt: String,
    marker: String,
    help: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            what,
            excerpt,
            marker,
            help,
        } = self;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "{file}:{line}:{column}: {what}")?;
        writeln!(f, " {margin} |")?;
        writeln!(f, " {number} | {excerpt}")?;
        write!(f, " {margin} | {marker}")?;
        if let Some(help) = help {
            write!(f, "\n {margin} = {help}")?;
        }
        Ok(())
    }
}

impl Error for ConfigError {}
