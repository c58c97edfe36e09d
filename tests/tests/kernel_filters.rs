//! Socket filters against the kernel's: the same programs are refused, and those that are not say
//! the same of the same datagrams.

use std::net::{IpAddr, SocketAddr};

use forebay::filter::Instruction;
use forebay::filter::code::*;
use forebay::{Stack, UdpSocket};
use forebay_stack::random::Random;
use forebay_stack::time::Instant;
use forebay_tests::kernel::{PATIENCE, in_private_network, ip};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use socket2::{SockFilter, SockRef};

const PROGRAMS: usize = 3_000;

#[test]
fn programs_say_what_they_say_in_the_kernel() {
    in_private_network("programs_say_what_they_say_in_the_kernel", || {
        stay_on_one_cpu();
        for own in ["127.0.0.1", "::1"] {
            let (kernel, ours) = (Kernel::new(ip(own)), Ours::new(ip(own)));
            let mut dice = Random::new(7);
            let mut kept = 0;
            for _ in 0..PROGRAMS {
                let program = program(&mut dice, own.contains(':'));
                let accepted = kernel.attach(&program);
                assert_eq!(ours.attach(&program), accepted, "{program:?}");
                if !accepted {
                    continue;
                }
                let payload: Vec<u8> = (0..dice.below(80)).map(|_| dice.below(256) as u8).collect();
                let verdict = kernel.verdict(&payload);
                assert_eq!(ours.verdict(&payload), verdict, "{program:?}");
                kept += usize::from(verdict.is_some_and(|len| len > 0));
            }
            assert!(kept > PROGRAMS / 20, "{kept} tell something");
        }
    });
}

/// Datagrams on the loopback of one CPU arrive in the order in which they were sent.
fn stay_on_one_cpu() {
    let allowed = sched_getaffinity(None).expect("an affinity");
    let mut one = CpuSet::new();
    one.set(
        (0..CpuSet::MAX_CPU)
            .find(|cpu| allowed.is_set(*cpu))
            .expect("a CPU"),
    );
    sched_setaffinity(None, &one).expect("an allowed CPU");
}

/// The same ports on both sides: programs see them.
const TO: u16 = 40_001;
const FROM: u16 = 40_002;

struct Kernel {
    filtered: std::net::UdpSocket,
    sender: std::net::UdpSocket,
    /// What arrives here arrives behind what was sent before.
    witness: std::net::UdpSocket,
}

impl Kernel {
    fn new(own: IpAddr) -> Self {
        let bind = |port| {
            let socket = std::net::UdpSocket::bind(SocketAddr::new(own, port)).expect("bind");
            socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
            socket
        };
        Self {
            filtered: bind(TO),
            sender: bind(FROM),
            witness: bind(0),
        }
    }

    fn attach(&self, program: &[Instruction]) -> bool {
        let program: Vec<_> = program
            .iter()
            .map(|&Instruction { code, jt, jf, k }| SockFilter::new(code, jt, jf, k))
            .collect();
        SockRef::from(&self.filtered)
            .attach_filter(&program)
            .is_ok()
    }

    /// How much of a datagram is kept, if any.
    fn verdict(&self, payload: &[u8]) -> Option<usize> {
        let address = |socket: &std::net::UdpSocket| socket.local_addr().expect("address");
        self.sender
            .send_to(payload, address(&self.filtered))
            .expect("send");
        self.sender
            .send_to(b"", address(&self.witness))
            .expect("send");
        let mut buf = [0; 128];
        self.witness.recv(&mut buf).expect("the witness");
        self.filtered.set_nonblocking(true).expect("non-blocking");
        self.filtered.recv(&mut buf).ok()
    }
}

struct Ours {
    stack: Stack,
    filtered: UdpSocket,
    sender: UdpSocket,
}

impl Ours {
    fn new(own: IpAddr) -> Self {
        let stack = Stack::builder().manual_clock().build().expect("a stack");
        let bind = |port| {
            let socket = UdpSocket::bind(&stack, SocketAddr::new(own, port)).expect("bind");
            socket.set_nonblocking(true).expect("non-blocking");
            socket
        };
        Self {
            filtered: bind(TO),
            sender: bind(FROM),
            stack,
        }
    }

    fn attach(&self, program: &[Instruction]) -> bool {
        self.filtered.attach_filter(program).is_ok()
    }

    fn verdict(&self, payload: &[u8]) -> Option<usize> {
        let to = self.filtered.local_addr().expect("address");
        self.sender.send_to(payload, to).expect("send");
        self.stack.poll(Instant::ZERO);
        self.filtered.recv(&mut [0; 128]).ok()
    }
}

const CODES: [u16; 50] = [
    LD | W | ABS,
    LD | H | ABS,
    LD | B | ABS,
    LD | W | IND,
    LD | H | IND,
    LD | B | IND,
    LD | IMM,
    LD | MEM,
    LD | LEN,
    LDX | IMM,
    LDX | MEM,
    LDX | LEN,
    LDX | B | MSH,
    ST,
    STX,
    ALU | ADD | K,
    ALU | SUB | K,
    ALU | MUL | K,
    ALU | DIV | K,
    ALU | MOD | K,
    ALU | OR | K,
    ALU | AND | K,
    ALU | XOR | K,
    ALU | LSH | K,
    ALU | RSH | K,
    ALU | ADD | X,
    ALU | SUB | X,
    ALU | MUL | X,
    ALU | DIV | X,
    ALU | MOD | X,
    ALU | OR | X,
    ALU | AND | X,
    ALU | XOR | X,
    ALU | LSH | X,
    ALU | RSH | X,
    ALU | NEG,
    JMP | JA,
    JMP | JEQ | K,
    JMP | JGT | K,
    JMP | JGE | K,
    JMP | JSET | K,
    JMP | JEQ | X,
    JMP | JGT | X,
    JMP | JGE | X,
    JMP | JSET | X,
    RET | K,
    RET | A,
    MISC | TAX,
    MISC | TXA,
    LD | B | ABS,
];

/// What both stacks know, and know alike.
const KNOWN: [u32; 10] = [
    AD_PROTOCOL,
    AD_PKTTYPE,
    AD_IFINDEX,
    AD_MARK,
    AD_HATYPE,
    AD_ALU_XOR_X,
    AD_VLAN_TAG,
    AD_VLAN_TAG_PRESENT,
    AD_PAY_OFFSET,
    AD_VLAN_TPID,
];

fn program(dice: &mut Random, is_v6: bool) -> Vec<Instruction> {
    let mut program = Vec::new();
    for _ in 0..dice.below(4) {
        program.push(Instruction::stmt(ST, dice.below(4)));
    }
    for _ in 0..dice.below(14) {
        program.push(instruction(dice, is_v6));
    }
    program.push(Instruction::stmt(ALU | AND | K, 0x3f));
    program.extend([Instruction::stmt(RET | A, 0); 4]);
    // Some end in the middle of things.
    program.truncate(program.len() - usize::from(dice.below(10) == 0));
    program
}

fn instruction(dice: &mut Random, is_v6: bool) -> Instruction {
    let code = match dice.below(60) {
        0 => dice.below(256) as u16,
        _ => CODES[dice.below(CODES.len() as u32) as usize],
    };
    let absolute = [LD | W | ABS, LD | H | ABS, LD | B | ABS].contains(&code);
    let k = match dice.below(10) {
        0 if absolute => AD_OFF + KNOWN[dice.below(KNOWN.len() as u32) as usize],
        1 if absolute => NET_OFF + header_offset(dice, is_v6),
        2 => large(dice),
        3..=5 => dice.below(100),
        _ => dice.below(16),
    };
    Instruction {
        code,
        jt: dice.below(5) as u8,
        jf: dice.below(5) as u8,
        k,
    }
}

/// Any number but an offset from the headers: there the two see different things.
fn large(dice: &mut Random) -> u32 {
    match dice.next_u64() as u32 >> dice.below(32) {
        LL_OFF.. => u32::MAX,
        number => number,
    }
}

/// Where both write the same into an IP header: not the identification, nor what depends on it.
fn header_offset(dice: &mut Random, is_v6: bool) -> u32 {
    let offsets: &[u32] = match is_v6 {
        false => &[0, 12, 13, 14, 16],
        true => &[4, 6, 8, 12, 16, 20, 24, 36],
    };
    offsets[dice.below(offsets.len() as u32) as usize]
}
