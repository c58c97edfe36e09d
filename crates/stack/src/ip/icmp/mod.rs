//! ICMP for IPv4 (RFC 792, RFC 1122 section 3.2.2, RFC 1812 section 4.3) and IPv6 (RFC 4443).
//!
//! ```text
//! in:   receive ─┬▶ reply    echo and timestamp requests are answered
//!                ├▶ notify   errors about our packets reach their sockets
//!                └▶ dropped  what asks nothing of us
//! out:  send_error, send_redirect ─▶ limit ─▶ quote ─▶ transmit
//! ```
//!
//! No ICMP packet is built from scratch where a received one can be turned round: a reply leaves in
//! the request's buffers.

use crate::family::Family;
use crate::packet::{IpVersion, Packet};
use crate::wire::{Checksum, IcmpHeader};

mod count;
mod error;
mod limit;
mod notify;
mod quote;
mod receive;
mod redirect;
mod reply;

pub use error::IcmpError;
pub(crate) use error::{refuse, send_error};
pub(crate) use limit::RateLimiter;
pub(crate) use notify::Quoted;
pub(crate) use receive::receive;
pub(crate) use redirect::send_redirect;

/// The sum that the checksum of a message of `len` bytes starts from: ICMPv6 covers the
/// pseudo-header (RFC 4443 section 2.3), ICMP does not.
fn initial_sum<F: Family>(src: F::Addr, dst: F::Addr, len: usize) -> Checksum {
    match F::VERSION {
        IpVersion::V4 => Checksum::new(),
        IpVersion::V6 => F::pseudo_header(src, dst, F::ICMP, len),
    }
}

/// Fills the checksum of a message whose checksum field is zero.
fn fill_checksum<F: Family>(message: &mut Packet, src: F::Addr, dst: F::Addr) {
    let mut sum = initial_sum::<F>(src, dst, message.total_len());
    for chunk in message.chunks() {
        sum.add_bytes(chunk);
    }
    let field = IcmpHeader::CHECKSUM_OFFSET..IcmpHeader::CHECKSUM_OFFSET + 2;
    if let Some(field) = message.data_mut().get_mut(field) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
}
