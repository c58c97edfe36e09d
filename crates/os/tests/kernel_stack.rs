//! Packets and connections out of thin air, for the kernel's own network stack.

mod common;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;

use common::ip;
use forebay_os::bpf::{Instruction, Program, Register::R0, Verdict};
use forebay_os::netif::{LinkKind, Netlink};
use forebay_os::{netns, tcp_repair};
use rustix::io::Errno;

/// Runs `body` on a thread with a network namespace of its own, where that is permitted: to root, and
/// not in every container, so that nobody demands it.
fn in_new_namespace(body: fn(Netlink)) {
    let visit = move || {
        if let Err(error) = netns::enter_new() {
            return eprintln!("not tested: {error}");
        }
        let mut netlink = Netlink::open().expect("netlink");
        let loopback = netlink.index("lo").expect("every namespace has one");
        netlink.set_up(loopback).expect("up");
        body(netlink);
    };
    thread::spawn(visit)
        .join()
        .expect("the body's own panic is above");
}

/// A table of /proc as the calling thread's namespace has it.
fn table(name: &str) -> String {
    fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect(name)
}

#[test]
fn a_connection_needs_no_peer() {
    in_new_namespace(|mut netlink| {
        let loopback = netlink.index("lo").expect("lo");
        for (own, prefix_len, peer, sockets) in [
            ("10.0.0.1", 8, "10.0.0.2", "tcp"),
            ("fd00::1", 64, "fd00::2", "tcp6"),
        ] {
            netlink
                .add_address(loopback, ip(own), prefix_len)
                .expect("an address");
            let local = SocketAddr::new(ip(own), 1_000);
            let peer = SocketAddr::new(ip(peer), 2_000);
            let socket = tcp_repair::connection(local, peer).expect("a connection");
            let again = tcp_repair::connection(local, peer).expect_err("there is one");
            assert_eq!(Errno::from_io_error(&again), Some(Errno::ADDRNOTAVAIL));
            // Its state: TCP_ESTABLISHED.
            assert!(table(sockets).contains(":03E8 ") && table(sockets).contains(":07D0 01 "));

            let stream = TcpStream::from(socket);
            assert_eq!(stream.local_addr().expect("an address"), local);
            assert_eq!(stream.peer_addr().expect("an address"), peer);
            drop(stream);
            assert!(!table(sockets).contains(":03E8 "), "it is still there");
        }
        assert_eq!(column("Tcp: ", "OutSegs"), 0, "segments were sent");
    });
}

#[test]
fn a_frame_is_received_as_often_as_it_passes() {
    in_new_namespace(|mut netlink| {
        let load = |verdict| {
            Program::load_xdp(&[Instruction::set(R0, verdict as i32), Instruction::exit()])
        };
        let (pass, drop) = match (load(Verdict::Pass), load(Verdict::Drop)) {
            (Ok(pass), Ok(drop)) => (pass, drop),
            (Err(error), _) | (_, Err(error)) => return eprintln!("not tested: {error}"),
        };
        let address = [2, 0, 0, 0, 0, 1];
        netlink
            .add_link("near", LinkKind::Veth, address)
            .expect("a link");
        let again = netlink.add_link("near", LinkKind::Veth, address);
        let again = again.expect_err("there is one");
        assert_eq!(Errno::from_io_error(&again), Some(Errno::EXIST));
        let near = netlink.index("near").expect("near");
        netlink.set_no_queue(near).expect("noqueue");

        // An IP header that is nothing but zeros.
        let frame = [&address[..], &[2, 0, 0, 0, 0, 2, 8, 0], &[0; 46]].concat();
        let run = |program: &Program, packets| program.run_live(&frame, near, packets, 64);
        netlink.set_up(near).expect("up");
        let errno = |result: io::Result<u32>| Errno::from_io_error(&result.expect_err("an error"));
        let short = pass.run_live(&frame[..13], near, 1, 64);
        assert_eq!(errno(short), Some(Errno::INVAL), "no Ethernet header");
        let nowhere = pass.run_live(&frame, 99, 1, 64);
        assert_eq!(errno(nowhere), Some(Errno::NODEV));

        let _link = pass.attach(near).expect("attach");
        for (program, packets, received) in [(&pass, 300, 300), (&drop, 50, 300), (&pass, 1, 301)] {
            run(program, packets).expect("live frames");
            assert_eq!(header_errors(), received);
        }
    });
}

/// Packets whose IPv4 header was wrong.
fn header_errors() -> u64 {
    column("Ip: ", "InHdrErrors")
}

fn column(table_of: &str, name: &str) -> u64 {
    let snmp = table("snmp");
    let mut lines = snmp.lines().filter(|line| line.starts_with(table_of));
    let (names, values) = (lines.next().expect(name), lines.next().expect(name));
    let mut columns = names.split(' ').zip(values.split(' '));
    let value = columns.find(|(column, _)| *column == name);
    value.and_then(|(_, value)| value.parse().ok()).expect(name)
}
