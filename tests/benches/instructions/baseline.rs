//! The baseline, and what has changed since.

use std::error::Error;
use std::fmt;
use std::fs;
use std::process::Command;

use crate::callgrind::Counts;

/// Where the baseline lies.
pub(crate) const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.toml");

/// How much dearer a path may get: a change of the source that has nothing to do with it may well
/// make the compiler place a few instructions otherwise.
const TOLERANCE: f64 = 0.03;

/// Instructions per packet, and who compiled them.
#[derive(Debug)]
pub(crate) struct Baseline {
    pub(crate) toolchain: String,
    counts: Counts,
}

impl Baseline {
    pub(crate) fn new(counts: Counts) -> Self {
        Self {
            toolchain: toolchain(),
            counts,
        }
    }

    pub(crate) fn load() -> Result<Self, Box<dyn Error>> {
        let text = fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
        let file: toml::Table = text.parse()?;
        let toolchain = file.get("toolchain").and_then(toml::Value::as_str);
        let paths = file.get("instructions").and_then(toml::Value::as_table);
        let counts = paths.into_iter().flatten();
        Ok(Self {
            toolchain: toolchain.unwrap_or_default().to_owned(),
            counts: counts
                .filter_map(|(name, count)| Some((name.clone(), count.as_float()?)))
                .collect(),
        })
    }

    pub(crate) fn save(&self) -> Result<(), Box<dyn Error>> {
        let mut text = format!(
            "# Instructions per packet. Written by:\n\
             # cargo bench -p forebay-tests --bench instructions -- --save\n\
             \n\
             toolchain = \"{}\"\n\
             \n\
             [instructions]\n",
            self.toolchain
        );
        for (name, count) in &self.counts {
            text += &format!("\"{name}\" = {count:.1}\n");
        }
        Ok(fs::write(FILE, text)?)
    }

    /// What has become of each path since `before`.
    pub(crate) fn compare(&self, before: &Self) -> Vec<Outcome> {
        let mut names: Vec<&String> = self.counts.keys().chain(before.counts.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let outcome = |name: &String| Outcome {
            name: name.clone(),
            now: self.counts.get(name).copied(),
            before: before.counts.get(name).copied(),
        };
        names.into_iter().map(outcome).collect()
    }
}

/// The compiler decides how many instructions there are, and the processor's family what one is.
fn toolchain() -> String {
    let version = Command::new("rustc").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = version.unwrap_or_else(|_| "an unknown rustc".to_owned());
    format!("{} for {}", version.trim(), std::env::consts::ARCH)
}

/// What has become of a path.
#[derive(Debug)]
pub(crate) struct Outcome {
    name: String,
    now: Option<f64>,
    before: Option<f64>,
}

impl Outcome {
    fn change(&self) -> Option<f64> {
        Some(self.now? / self.before? - 1.0)
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_as_before(&self) -> bool {
        self.change()
            .is_some_and(|change| change.abs() <= TOLERANCE)
    }

    /// Whether somebody should do something about it. What got cheaper is only told.
    pub(crate) fn is_failure(&self) -> bool {
        self.change().is_none_or(|change| change > TOLERANCE)
    }

    pub(crate) fn in_words(&self) -> String {
        let name = &self.name;
        match (self.now, self.before) {
            (Some(now), Some(before)) => {
                let how = if now > before { "dearer" } else { "cheaper" };
                let percent = (now / before - 1.0).abs() * 100.0;
                format!(
                    "{name}: {percent:.1} % {how}, {now:.1} instead of {before:.1} instructions a packet"
                )
            }
            (_, None) => format!("{name}: the baseline does not have it"),
            (None, _) => format!("{name}: in the baseline, but not counted any more"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |count: Option<f64>| count.map_or("-".to_owned(), |n| format!("{n:.1}"));
        let change = self.change().map(|change| change * 100.0);
        let change = change.map_or("-".to_owned(), |percent| format!("{percent:+.1} %"));
        let (now, before) = (number(self.now), number(self.before));
        write!(f, "{:<52}{now:>9}{before:>10}{change:>10}", self.name)
    }
}
