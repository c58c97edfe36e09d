//! What is wrong with a configuration, and where.

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

    /// The problem as people are told of it: file, line and column, the line itself, what to do.
    pub(crate) fn explain(&self, problem: Problem) -> ConfigError {
        let start = boundary(&self.text, problem.span.start);
        let end = boundary(&self.text, problem.span.end).max(start);
        let (before, after) = self.text.split_at(start);
        let lead = before.rsplit('\n').next().unwrap_or_default();
        let rest = after.lines().next().unwrap_or_default();
        let marked = self.text[start..end].lines().next().unwrap_or_default();
        let line = (before.matches('\n').count() + 1).to_string();
        let column = lead.chars().count() + 1;
        let margin = " ".repeat(line.len());
        let mut text = format!(
            "{file}:{line}:{column}: {what}\n {margin} |\n {line} | {lead}{rest}\n {margin} | {marker}",
            file = self.name,
            what = problem.what,
            marker = marker(lead, marked),
        );
        if let Some(help) = problem.help {
            text += &format!("\n {margin} = {help}");
        }
        ConfigError(text)
    }
}

/// The beginning of the character at this byte, or the text's end.
fn boundary(text: &str, at: usize) -> usize {
    let mut places = (0..=at.min(text.len())).rev();
    places
        .find(|place| text.is_char_boundary(*place))
        .unwrap_or(0)
}

/// Carets under what is marked; tabs stay tabs, so that they line up.
fn marker(lead: &str, marked: &str) -> String {
    let blank = |c| if c == '\t' { '\t' } else { ' ' };
    let carets = "^".repeat(marked.chars().count().max(1));
    lead.chars().map(blank).collect::<String>() + &carets
}

/// A configuration that is refused: where, what was found and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);
