//! The rules of UDP and of early demux as programs meet them: at the library's sockets, in both
//! families, with early demux on and off, on sockets that block and such that don't.

mod arrivals;
mod flows;
mod host;
mod looks;
mod memory;

use host::{Host, everywhere};
