//! Programs of all kinds: what is refused, what they do, and that they end.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::code::*;
use super::{Instruction, MAX_INSTRUCTIONS, Program, ProgramError, Subject};
use crate::core::Context;
use crate::packet::{Packet, PacketCache};
use crate::time::Instant;
use crate::{Stack, StackConfig};

mod naive;

/// Bytes in front of what a program sees.
const START: usize = 20;

/// A packet whose transport header begins at `START`, in buffers of so many bytes.
fn packet(cache: &mut PacketCache, bytes: &[u8], per_buffer: usize) -> Packet {
    let mut chunks = bytes.chunks(per_buffer).map(|chunk| {
        let mut buffer = cache.alloc().expect("a buffer");
        buffer
            .put(chunk.len())
            .expect("room")
            .copy_from_slice(chunk);
        buffer
    });
    let mut head = chunks.next().expect("bytes");
    for frag in chunks {
        head.push_frag(frag);
    }
    head.l4_offset = START as u16;
    head.iif = 7;
    head
}

fn stack() -> Stack {
    Stack::new(&StackConfig::default())
}

fn in_context<R>(stack: &Stack, f: impl FnOnce(&mut Context<'_>) -> R) -> R {
    stack.with_context(Instant::ZERO, f)
}

fn run(stack: &Stack, program: &Program, packet: &Packet) -> u32 {
    in_context(stack, |cx| program.run(&mut Subject::datagram(cx, packet)))
}

const RETURN_A: Instruction = Instruction::stmt(RET | A, 0);

/// What one instruction after some others leaves in the accumulator, for a packet of 20 bytes of an
/// IPv4 header and the bytes 0 to 19 behind it.
fn accumulator(instructions: &[Instruction]) -> u32 {
    let stack = stack();
    let bytes: Vec<u8> = [0x45; START].into_iter().chain(0..20).collect();
    let packet = packet(&mut stack.pool().cache(), &bytes, 33);
    let mut program = instructions.to_vec();
    program.push(RETURN_A);
    run(&stack, &Program::new(&program).expect("a program"), &packet)
}

#[test]
fn every_instruction_does_what_its_name_says() {
    let stmt = Instruction::stmt;
    let ten = stmt(LD | IMM, 10);
    let x_three = stmt(LDX | IMM, 3);
    let table: &[(&[Instruction], u32)] = &[
        (&[], 0),
        (&[stmt(LD | W | ABS, 1)], 0x0102_0304),
        // Across two buffers.
        (&[stmt(LD | W | ABS, 11)], 0x0b0c_0d0e),
        (&[stmt(LD | H | ABS, 18)], 0x1213),
        (&[stmt(LD | B | ABS, 19)], 19),
        (&[stmt(LD | W | ABS, 17)], 0),
        (&[stmt(LD | H | ABS, 19)], 0),
        (&[stmt(LD | B | ABS, 20)], 0),
        (&[x_three, stmt(LD | W | IND, 2)], 0x0506_0708),
        (&[x_three, stmt(LD | H | IND, u32::MAX)], 0x0203),
        (&[x_three, stmt(LD | B | IND, 16)], 19),
        (&[x_three, stmt(LD | B | IND, 17)], 0),
        (&[stmt(LD | B | ABS, NET_OFF)], 0x45),
        (&[stmt(LD | B | ABS, LL_OFF)], 0x45),
        (&[stmt(LD | W | ABS, NET_OFF + 20)], 0x0001_0203),
        (&[stmt(LD | B | ABS, NET_OFF - 1)], 0),
        (&[stmt(LD | B | ABS, LL_OFF - 1)], 0),
        (&[stmt(LD | B | ABS, 1 << 31)], 0),
        (&[stmt(LD | W | LEN, 0)], 20),
        (&[stmt(LDX | W | LEN, 0), stmt(MISC | TXA, 0)], 20),
        (&[stmt(LDX | B | MSH, NET_OFF), stmt(MISC | TXA, 0)], 20),
        (&[ten, stmt(LDX | B | MSH, 20)], 0),
        (&[ten, stmt(ALU | ADD | K, u32::MAX)], 9),
        (&[ten, stmt(ALU | SUB | K, 11)], u32::MAX),
        (&[ten, stmt(ALU | MUL | K, 1 << 31)], 0),
        (&[ten, stmt(ALU | DIV | K, 3)], 3),
        (&[ten, stmt(ALU | MOD | K, 3)], 1),
        (&[ten, stmt(ALU | OR | K, 5)], 15),
        (&[ten, stmt(ALU | AND | K, 6)], 2),
        (&[ten, stmt(ALU | XOR | K, 3)], 9),
        (&[ten, stmt(ALU | LSH | K, 31)], 0),
        (&[ten, stmt(ALU | RSH | K, 1)], 5),
        (&[ten, stmt(ALU | NEG, 0)], 10_u32.wrapping_neg()),
        (&[ten, x_three, stmt(ALU | ADD | X, 0)], 13),
        (&[ten, x_three, stmt(ALU | DIV | X, 0)], 3),
        (&[ten, stmt(ALU | DIV | X, 0)], 0),
        (&[ten, stmt(ALU | MOD | X, 0)], 0),
        (&[ten, stmt(LDX | IMM, 33), stmt(ALU | LSH | X, 0)], 20),
        (
            &[ten, stmt(ST, 15), stmt(LD | IMM, 0), stmt(LD | MEM, 15)],
            10,
        ),
        (
            &[
                x_three,
                stmt(STX, 0),
                stmt(LDX | MEM, 0),
                stmt(MISC | TXA, 0),
            ],
            3,
        ),
        (&[ten, stmt(MISC | TAX, 0), stmt(ALU | ADD | X, 0)], 20),
    ];
    for (instructions, expected) in table {
        assert_eq!(accumulator(instructions), *expected, "{instructions:?}");
    }
}

#[test]
fn jumps_skip_instructions() {
    let holds = |code, a, operand| {
        accumulator(&[
            Instruction::stmt(LD | IMM, a),
            Instruction::jump(JMP | code | K, operand, 1, 0),
            Instruction::stmt(RET | K, 0),
            Instruction::stmt(LD | IMM, 1),
        ]) == 1
    };
    for (code, below, equal, above) in [
        (JEQ, false, true, false),
        (JGT, false, false, true),
        (JGE, false, true, true),
    ] {
        assert_eq!(holds(code, 4, 5), below);
        assert_eq!(holds(code, 5, 5), equal);
        assert_eq!(holds(code, u32::MAX, 5), above);
    }
    assert!(holds(JSET, 6, 2) && !holds(JSET, 6, 9));
    let over = [
        Instruction::stmt(JMP | JA, 1),
        Instruction::stmt(RET | K, 0),
        Instruction::stmt(LD | IMM, 1),
    ];
    assert_eq!(accumulator(&over), 1);
}

#[test]
fn what_is_known_of_a_packet_can_be_asked() {
    let ancillary = |what| accumulator(&[Instruction::stmt(LD | W | ABS, AD_OFF + what)]);
    assert_eq!(ancillary(AD_PROTOCOL), 0x0800);
    assert_eq!(ancillary(AD_IFINDEX), 7);
    assert_eq!(ancillary(AD_HATYPE), 65_534);
    assert_eq!(ancillary(AD_PKTTYPE), 0);
    assert_eq!(ancillary(AD_PAY_OFFSET), 8);
    for nothing in [
        AD_MARK,
        AD_QUEUE,
        AD_VLAN_TAG,
        AD_VLAN_TAG_PRESENT,
        AD_VLAN_TPID,
    ] {
        assert_eq!(ancillary(nothing), 0);
    }
    let xor = [
        Instruction::stmt(LD | IMM, 6),
        Instruction::stmt(LDX | IMM, 3),
        Instruction::stmt(LD | B | ABS, AD_OFF + AD_ALU_XOR_X),
    ];
    assert_eq!(accumulator(&xor), 5);

    let stack = stack();
    let packet = packet(&mut stack.pool().cache(), &[0x45; 60], 60);
    let ask = |what| {
        let load = Instruction::stmt(LD | W | ABS, AD_OFF + what);
        let program = Program::new(&[load, RETURN_A]).expect("a program");
        run(&stack, &program, &packet)
    };
    assert_ne!(ask(AD_RANDOM), ask(AD_RANDOM));
    assert_eq!(ask(AD_RXHASH), ask(AD_RXHASH));
}

#[test]
fn what_could_go_wrong_is_refused() {
    let stmt = Instruction::stmt;
    let jump = Instruction::jump;
    let keep = stmt(RET | K, u32::MAX);
    let table: &[(&[Instruction], ProgramError)] = &[
        (&[], ProgramError::Length(0)),
        (
            &vec![keep; MAX_INSTRUCTIONS + 1],
            ProgramError::Length(MAX_INSTRUCTIONS + 1),
        ),
        (
            &[stmt(LDX | H | ABS, 0), keep],
            ProgramError::Code { at: 0, code: 0x29 },
        ),
        (
            &[stmt(RET | X, 0)],
            ProgramError::Code { at: 0, code: 0x0e },
        ),
        (
            &[stmt(0x100 | RET, 0)],
            ProgramError::Code { at: 0, code: 0x106 },
        ),
        (
            &[keep, stmt(ALU | DIV | K, 0), keep],
            ProgramError::DivisionByZero { at: 1 },
        ),
        (
            &[stmt(ALU | MOD | K, 0), keep],
            ProgramError::DivisionByZero { at: 0 },
        ),
        (
            &[stmt(ALU | RSH | K, 32), keep],
            ProgramError::Shift { at: 0 },
        ),
        (&[stmt(ST, 16), keep], ProgramError::Memory { at: 0 }),
        (
            &[stmt(LD | MEM, u32::MAX), keep],
            ProgramError::Memory { at: 0 },
        ),
        (
            &[stmt(LD | MEM, 3), keep],
            ProgramError::NotWritten { at: 0 },
        ),
        // Written on one of two ways only.
        (
            &[
                jump(JMP | JEQ | K, 0, 0, 1),
                stmt(ST, 3),
                stmt(LDX | MEM, 3),
                keep,
            ],
            ProgramError::NotWritten { at: 2 },
        ),
        (
            &[jump(JMP | JEQ | X, 0, 0, 1), keep],
            ProgramError::Jump { at: 0 },
        ),
        (
            &[jump(JMP | JEQ | X, 0, 1, 0), keep],
            ProgramError::Jump { at: 0 },
        ),
        (&[stmt(JMP | JA, 1), keep], ProgramError::Jump { at: 0 }),
        (
            &[stmt(JMP | JA, u32::MAX), keep],
            ProgramError::Jump { at: 0 },
        ),
        (
            &[stmt(LD | W | ABS, AD_OFF + 12), keep],
            ProgramError::Ancillary { at: 0, offset: 12 },
        ),
        (
            &[stmt(LD | B | ABS, u32::MAX), keep],
            ProgramError::Ancillary {
                at: 0,
                offset: 4_095,
            },
        ),
        (&[keep, stmt(LD | IMM, 0)], ProgramError::NoReturn),
    ];
    for (instructions, error) in table {
        assert_eq!(Program::new(instructions).err(), Some(*error));
    }
    let longest = vec![keep; MAX_INSTRUCTIONS];
    Program::new(&longest).expect("as long as may be");
    let both_ways = [
        jump(JMP | JEQ | K, 0, 0, 2),
        stmt(ST, 3),
        stmt(JMP | JA, 1),
        stmt(STX, 3),
        stmt(LD | MEM, 3),
        keep,
    ];
    Program::new(&both_ways).expect("written on both ways");
}

/// Every code that there is.
fn codes() -> Vec<u16> {
    let sources = |class: u16, operations: &[u16]| {
        let with = |source: u16| operations.iter().map(move |op| class | op | source);
        with(K).chain(with(X)).collect::<Vec<_>>()
    };
    let mut codes = sources(ALU, &[ADD, SUB, MUL, DIV, MOD, OR, AND, XOR, LSH, RSH]);
    codes.extend(sources(JMP, &[JEQ, JGT, JGE, JSET]));
    for mode in [ABS, IND] {
        codes.extend([W, H, B].map(|size| LD | size | mode));
    }
    codes.extend([LD | IMM, LD | MEM, LD | LEN, LDX | IMM, LDX | MEM]);
    codes.extend([LDX | LEN, LDX | B | MSH, ST, STX, ALU | NEG, JMP | JA]);
    codes.extend([RET | K, RET | A, MISC | TAX, MISC | TXA]);
    codes
}

/// Constants at which something happens.
fn constants() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 0_u32..16,
        4 => 0_u32..70,
        2 => (0_u32..40).prop_map(|at| NET_OFF + at),
        1 => (0_u32..40).prop_map(|at| LL_OFF.wrapping_add(at).wrapping_sub(8)),
        2 => (0_u32..16).prop_map(|what| AD_OFF + 4 * what),
        1 => any::<u32>(),
    ]
}

/// Programs of which many are good, and some look like it.
fn programs() -> impl Strategy<Value = Vec<Instruction>> {
    let instruction = (select(codes()), constants(), 0_u8..6, 0_u8..6)
        .prop_map(|(code, k, jt, jf)| Instruction { code, jt, jf, k });
    (
        prop::collection::vec(instruction, 0..24),
        prop::collection::vec(0_u32..16, 0..6),
        any::<u32>(),
    )
        .prop_map(|(mut body, written, kept)| {
            let stores = written.into_iter().map(|word| Instruction::stmt(ST, word));
            let mut program: Vec<_> = stores.collect();
            program.append(&mut body);
            program.extend([Instruction::stmt(RET | K, kept); 6]);
            program.push(RETURN_A);
            program
        })
}

/// Packets, and how many bytes of them lie in one buffer.
fn packets() -> impl Strategy<Value = (Vec<u8>, usize)> {
    (
        prop::collection::vec(any::<u8>(), START..120),
        prop_oneof![Just(120_usize), 24_usize..60],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A second machine, made in another way, comes to the same verdict.
    #[test]
    fn programs_do_what_a_naive_machine_does(program in programs(), (bytes, per_buffer) in packets()) {
        let Ok(verified) = Program::new(&program) else {
            return Ok(());
        };
        let stack = Stack::new(&StackConfig { buffers: 16, reserve: 0, seed: [1, 2], ..StackConfig::default() });
        let packet = packet(&mut stack.pool().cache(), &bytes, per_buffer);
        let (known, naive) = naive::run(&program, &bytes, START);
        let ours = run(&stack, &verified, &packet);
        prop_assert!(!known || ours == naive, "{ours} instead of {naive}");
    }

    /// Whatever the bits: refused, or safe to run.
    #[test]
    fn no_bits_break_anything(
        words in prop::collection::vec(any::<u64>(), 1..40),
        damage in any::<(Index, u8)>(),
        good in programs(),
        (bytes, per_buffer) in packets(),
    ) {
        let from_bits = |word: u64| Instruction {
            code: word as u16,
            jt: (word >> 16) as u8,
            jf: (word >> 24) as u8,
            k: (word >> 32) as u32,
        };
        let random: Vec<_> = words.into_iter().map(from_bits).collect();
        let mut damaged = good;
        let at = damage.0.index(damaged.len());
        damaged[at].code ^= 1 << (damage.1 % 8);
        damaged[at].jf = damage.1;
        let stack = Stack::new(&StackConfig { buffers: 16, reserve: 0, seed: [1, 2], ..StackConfig::default() });
        let packet = packet(&mut stack.pool().cache(), &bytes, per_buffer);
        for program in [random, damaged] {
            if let Ok(program) = Program::new(&program) {
                run(&stack, &program, &packet);
            }
        }
    }
}
