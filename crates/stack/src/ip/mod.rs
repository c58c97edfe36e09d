//! The Internet layer: both families.

pub(crate) mod destination;
pub(crate) mod ext_headers;
pub(crate) mod forward;
pub(crate) mod fragment;
pub(crate) mod icmp;
pub(crate) mod options;
pub(crate) mod path_mtu;
pub(crate) mod plain;
pub(crate) mod reassembly;
pub(crate) mod route;
pub(crate) mod source;
pub(crate) mod train;
pub(crate) mod validate;

#[cfg(test)]
pub(crate) mod bench;
