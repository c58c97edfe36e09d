//! How many instructions a packet takes, by kind of way through the stack, against a baseline.
//!
//! ```text
//! cargo bench -p forebay-tests --bench instructions              # compare
//! cargo bench -p forebay-tests --bench instructions -- --save    # take a new baseline
//! ```
//!
//! A slow-down is seen without a clock, on any machine, however busy. What a clock alone shows,
//! cache misses above all, `forebay bench` measures.
//!
//! The program runs itself under valgrind's callgrind (`paths` says what it does there). Seeds and
//! keys are fixed, so two builds by one compiler of the same source count the same.

mod baseline;
mod callgrind;
mod family;
mod paths;
mod router;

use std::error::Error;
use std::process::ExitCode;

use baseline::{Baseline, Outcome};

/// The argument by which the program is told that it runs under valgrind.
const COUNTED: &str = "--counted";

fn main() -> ExitCode {
    // cargo says --bench.
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare(),
        ["--save"] => save(),
        [COUNTED] => {
            paths::run();
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: instructions [--save]".into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("instructions: {error}");
        ExitCode::FAILURE
    })
}

fn save() -> Result<ExitCode, Box<dyn Error>> {
    let counts = callgrind::count()?;
    Baseline::new(counts).save()?;
    println!("saved to {}", baseline::FILE);
    Ok(ExitCode::SUCCESS)
}

fn compare() -> Result<ExitCode, Box<dyn Error>> {
    let baseline = Baseline::load()?;
    let now = Baseline::new(callgrind::count()?);
    println!(
        "{:<52}{:>9}{:>10}{:>10}",
        "instructions per packet", "now", "baseline", "change"
    );
    let compared = now.compare(&baseline);
    for comparison in &compared {
        println!("{comparison}");
    }
    if now.toolchain != baseline.toolchain {
        eprintln!(
            "not tested: the baseline is of {}, and this is {}.\n{HOW_TO_SAVE}",
            baseline.toolchain, now.toolchain
        );
        return Ok(ExitCode::SUCCESS);
    }
    let told: Vec<&Outcome> = compared
        .iter()
        .filter(|what| !what.is_as_before())
        .collect();
    for outcome in &told {
        eprintln!("{}", outcome.in_words());
    }
    if told.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("callgrind_annotate shows where: {}", callgrind::DIRECTORY);
    eprintln!("{HOW_TO_SAVE}");
    if told.iter().any(|outcome| outcome.is_failure()) {
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

const HOW_TO_SAVE: &str = "Is it meant so? Then take a new baseline, and commit it: \
                           cargo bench -p forebay-tests --bench instructions -- --save";
