//! The Internet layer: both families.

pub(crate) mod destination;
pub mod ext_headers;
pub mod forward;
pub mod fragment;
pub mod icmp;
pub mod options;
pub mod reassembly;
pub mod source;
pub mod validate;
