//! What arrives at a far end, told by its headers.

use super::packets::{TRANSIT_MARK, UDP};
use super::tally::Tally;

/// Counts a packet that came out of the stack.
pub(super) fn count(packet: &[u8], tally: &mut Tally) {
    let count = match transport(packet) {
        Some((UDP, [_, _, _, _, _, _, _, _, payload @ ..]))
            if payload.starts_with(TRANSIT_MARK) =>
        {
            &mut tally.came_forwarded
        }
        // Echo reply; destination unreachable, redirect, time exceeded, parameter problem.
        Some((1, [0, ..])) | Some((58, [129, ..])) => &mut tally.came_echo_replies,
        Some((1, [3 | 5 | 11 | 12, ..])) | Some((58, [1..=4 | 137, ..])) => {
            &mut tally.came_icmp_errors
        }
        _ => &mut tally.came_other,
    };
    *count += 1;
}

/// The protocol and its part of the packet; options aside, which nothing here sends.
fn transport(packet: &[u8]) -> Option<(u8, &[u8])> {
    let (protocol, offset) = match packet.first()? >> 4 {
        4 => (9, 20),
        _ => (6, 40),
    };
    Some((*packet.get(protocol)?, packet.get(offset..)?))
}
