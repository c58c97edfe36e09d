//! Captures through a stack that nobody else uses: what `forebay trace` and `forebay replay` share,
//! and how the latter measures.

mod capture;
mod measure;
mod mix;
mod rig;
mod story;
mod timeline;
mod words;

pub(crate) use capture::{Capture, CaptureArgs, Frame};
pub(crate) use measure::{Measured, Plan, STAGES, Setting, measure, median, quartiles};
pub(crate) use rig::{Rig, RigArgs};
pub(crate) use story::{Fate, Told, early_word, tell};
