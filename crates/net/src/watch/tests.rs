use forebay_sync::tsc;

use super::*;
use crate::core::packet::PacketQueue;
use crate::device::Device;
use crate::device::wire::{WireConfig, WireEnd, wire};

const SECOND: u64 = 1_000_000_000;

/// A stack that is driven by hand, and the far end of its wire.
fn stack_and_peer() -> (Stack, WireEnd) {
    let (near, far) = wire(WireConfig::default());
    let builder = Stack::builder().buffers(256).seed([1, 2]);
    let stack = builder.manual_clock().build().expect("a stack");
    let ifindex = stack.add_device("w0", near).expect("a device");
    let addr = "10.9.0.1".parse().expect("an address");
    stack.inner().add_address(ifindex, addr, 24).expect("room");
    (stack, far)
}

fn at(nanos: u64) -> forebay_stack::time::Instant {
    forebay_stack::time::Instant::from_nanos(nanos)
}

/// Packets that nobody takes, of so many flows.
fn send(stack: &Stack, far: &mut WireEnd, flows: u8, nanos: u64) {
    let mut cache = stack.inner().pool().cache();
    let mut packets = PacketQueue::new();
    for flow in 0..flows {
        let mut packet = cache.alloc().expect("a buffer");
        let header = packet.put(20).expect("room");
        header.copy_from_slice(&[
            0x45, 0, 0, 20, 0, 0, 0, 0, 64, 254, 0, 0, 10, 9, 0, flow, 10, 9, 0, 1,
        ]);
        packets.push(packet);
    }
    far.transmit(at(nanos), &mut packets, &mut cache)
        .expect("a wire that takes them");
    stack.poll(at(nanos));
}

#[test]
fn stages_are_measured_only_while_somebody_watches() {
    let (stack, mut far) = stack_and_peer();
    send(&stack, &mut far, 10, 1);
    let watch = stack.watch();
    assert_eq!(watch.workers()[0].stages, StageCycles::default());

    send(&stack, &mut far, 10, 2);
    let measured = watch.workers()[0].stages;
    if tsc::read().is_some() {
        assert_eq!((measured.batches, measured.packets), (1, 10));
        assert!(measured.validate > 0 && measured.act > 0, "{measured:?}");
    }
    // Not again at once.
    send(&stack, &mut far, 10, 3);
    assert_eq!(watch.workers()[0].stages, measured);

    // A second watcher keeps it on.
    let second = stack.watch();
    drop(watch);
    send(&stack, &mut far, 10, SECOND);
    assert_ne!(second.workers()[0].stages.packets, measured.packets);
    let measured = second.workers()[0].stages;
    drop(second);
    send(&stack, &mut far, 10, 2 * SECOND);
    assert_eq!(stack.watch().workers()[0].stages, measured);
}

#[test]
fn flows_of_the_last_second_are_told() {
    let (stack, mut far) = stack_and_peer();
    let watch = stack.watch();
    send(&stack, &mut far, 30, SECOND);
    send(&stack, &mut far, 1, 2 * SECOND);
    let flows = watch.workers()[0].flows;
    assert!((28..=32).contains(&flows), "{flows}");
    stack.poll(at(9 * SECOND));
    assert_eq!(watch.workers()[0].flows, 0);
}

#[test]
fn workers_and_queues_say_what_they_did() {
    let (stack, mut far) = stack_and_peer();
    send(&stack, &mut far, 10, 1);
    let watch = stack.watch();
    let workers = watch.workers();
    assert_eq!(workers.len(), 1);
    assert_eq!(workers[0].softnet.processed, 10);
    assert_eq!(workers[0].counters.dropped_total(), 10);
    assert_eq!(workers[0].idle, None, "nobody works there");
    let queues = watch.queues();
    assert_eq!(queues.len(), 1);
    assert_eq!((queues[0].device.as_str(), queues[0].number), ("w0", 0));
    assert_eq!((queues[0].worker, queues[0].stats.rx_packets), (0, 10));
}

#[test]
fn a_worker_without_work_is_idle() {
    let stack = Stack::builder().buffers(64).build().expect("a stack");
    let _workers = stack.spawn_workers().expect("workers");
    let watch = stack.watch();
    let before = watch.workers()[0].idle.expect("a worker");
    std::thread::sleep(Duration::from_millis(50));
    let slept = watch.workers()[0].idle.expect("a worker") - before;
    assert!(slept >= Duration::from_millis(5), "{slept:?}");
}
