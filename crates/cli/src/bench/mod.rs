//! Measuring the path in memory: what the tables of `forebay bench` are made by.
//!
//! A [`bed`] is a stack with routes, sockets and buffers, through which chunks of packets go; a
//! [`runner`] does the chunks of all settings in random order, so that what the machine does
//! meanwhile hits them alike. Rows come out as a [table, JSON](report) and a [`plot`].

mod bed;
mod cores;
mod demux;
mod fib;
mod floor;
mod grow;
mod kernel;
mod net;
mod open;
mod packet;
mod parts;
mod plot;
mod report;
mod rfs;
mod route;
mod runner;
mod statistics;
mod udp;

use clap::Args;
use clap::builder::PossibleValuesParser;

pub(crate) use cores::{CoresArgs, run as cores};
pub(crate) use demux::{DemuxArgs, run as demux};
pub(crate) use fib::{FibArgs, run as fib};
pub(crate) use grow::{GrowArgs, run as grow};
pub(crate) use open::{OpenArgs, run as open};
pub(crate) use parts::{PartsArgs, run as parts};
pub(crate) use rfs::{RfsArgs, run as rfs};
pub(crate) use route::{RouteArgs, run as route, run_kernel as kernel_route};
pub(crate) use udp::{UdpArgs, run as udp, run_kernel as kernel_udp};

/// What all benches have in common.
#[derive(Debug, Clone, Args)]
struct Common {
    /// Only this family.
    #[arg(long, value_name = "FAMILY", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(["4", "6"]))]
    family: Vec<String>,

    /// Chunks of 16,384 packets that each setting is measured with; 300 with --full unless said.
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: Option<u32>,

    /// Every setting, instead of those that tell most: takes minutes.
    #[arg(long)]
    full: bool,

    /// Print JSON, an object a row.
    #[arg(short, long)]
    json: bool,
}

impl Common {
    fn families(&self) -> Vec<net::Family> {
        let is_wanted = |family: &net::Family| {
            self.family.is_empty() || self.family.contains(&family.to_string())
        };
        let families = [net::Family::V4, net::Family::V6];
        families.into_iter().filter(is_wanted).collect()
    }

    /// How many, if `few` are enough for a first look.
    fn rounds(&self, few: u32) -> u32 {
        self.rounds.unwrap_or(if self.full { 300 } else { few })
    }

    /// The values of a parameter, each once: those asked for, else all of them, else those that tell
    /// most.
    fn values<T: Clone + PartialEq>(&self, asked: &[T], all: &[T], default: &[T]) -> Vec<T> {
        let values = match asked {
            [] if self.full => all,
            [] => default,
            asked => asked,
        };
        let mut once = Vec::new();
        for value in values {
            if !once.contains(value) {
                once.push(value.clone());
            }
        }
        once
    }
}
