//! Which of a device's queues a packet leaves by (Linux's `netdev_pick_tx`).

use super::flow_hash;
use crate::core::Local;
use crate::interface::Interface;
use crate::packet::{Packet, PacketQueue};
use crate::stack::Stack;
use crate::time::Instant;

impl Stack {
    /// Puts packets into the queues of a device that has several; those that find no room stay.
    ///
    /// A worker has a queue for itself, as long as there are as many queues as workers. What
    /// application threads send goes by its flow, and so does everything where the device wants a
    /// flow to leave by the queue that its replies come by.
    #[inline(never)]
    pub(crate) fn enqueue_by_queue(
        &self,
        core: &Local,
        now: Instant,
        interface: &Interface,
        packets: &mut PacketQueue,
    ) {
        if let (Some(cpu), None) = (core.cpu(), &interface.affinity) {
            let queue = usize::from(cpu) % interface.tx.len();
            interface.tx[queue].enqueue(packets);
            return;
        }
        let mut bursts: Vec<PacketQueue> =
            interface.tx.iter().map(|_| PacketQueue::new()).collect();
        while let Some(packet) = packets.pop() {
            let queue = self.queue_of_flow(now, interface, &packet);
            bursts[queue].push(packet);
        }
        for (queue, burst) in interface.tx.iter().zip(&mut bursts) {
            if !burst.is_empty() {
                queue.enqueue(burst);
                packets.append(burst);
            }
        }
    }

    fn queue_of_flow(&self, now: Instant, interface: &Interface, packet: &Packet) -> usize {
        // The packet's own hash may be that of what came in: not yet translated, say.
        let hash = flow_hash(self.steering.key, packet);
        let affinity = interface.affinity.as_ref();
        let known = affinity.and_then(|affinity| affinity.queue_of(hash, now));
        let queues = interface.tx.len();
        let spread = (u64::from(hash) * queues as u64) >> 32;
        let queue = known.map_or(spread as usize, usize::from);
        queue.min(queues - 1)
    }
}
