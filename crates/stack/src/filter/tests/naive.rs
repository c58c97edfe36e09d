//! The machine once more, as its description in words reads, and nothing done beforehand.

use std::collections::HashMap;

use crate::filter::Instruction;

/// What the program returns; and whether that is known, for some of what programs ask only the
/// stack can tell. To be called with programs that end.
pub(super) fn run(program: &[Instruction], packet: &[u8], start: usize) -> (bool, u32) {
    let (mut a, mut x) = (0_u64, 0_u64);
    let mut memory: HashMap<u32, u64> = HashMap::new();
    let mut pc = 0;
    let load = |offset: u64, size: u64| -> Option<u64> {
        let offset = i64::from(offset as u32 as i32);
        let at = if offset >= 0 {
            start as i64 + offset
        } else if offset >= -0x10_0000 {
            offset + 0x10_0000
        } else if offset >= -0x20_0000 {
            offset + 0x20_0000
        } else {
            return None;
        };
        (at..at + size as i64)
            .map(|at| packet.get(at as usize).copied())
            .try_fold(0, |sum, byte| Some(sum * 256 + u64::from(byte?)))
    };
    let len = (packet.len() - start) as u64;
    loop {
        let Instruction { code, jt, jf, k } = program[pc];
        let k64 = u64::from(k);
        pc += 1;
        let operand = if code & 0x08 == 0 { k64 } else { x };
        let condition = match code & 0xf7 {
            0x15 => Some(a == operand),
            0x25 => Some(a > operand),
            0x35 => Some(a >= operand),
            0x45 => Some(a & operand != 0),
            _ => None,
        };
        if let Some(holds) = condition {
            pc += usize::from(if holds { jt } else { jf });
            continue;
        }
        let loaded = match code {
            0x20 | 0x28 | 0x30 if k >= 0xffff_f000 => match k - 0xffff_f000 {
                0 => Some(0x800),
                4 | 20 | 24 | 44 | 48 | 60 => Some(0),
                8 => Some(7),
                28 => Some(0xfffe),
                40 => Some(a ^ x),
                52 => Some(8),
                _ => return (false, 0),
            },
            0x20 => load(k64, 4),
            0x28 => load(k64, 2),
            0x30 => load(k64, 1),
            0x40 => load(x + k64, 4),
            0x48 => load(x + k64, 2),
            0x50 => load(x + k64, 1),
            0x00 => Some(k64),
            0x60 => Some(memory[&k]),
            0x80 => Some(len),
            0x87 => Some(x),
            0x84 => Some((1 << 32) - a),
            0x04 | 0x0c => Some(a + operand),
            0x14 | 0x1c => Some((1 << 32) + a - operand),
            0x24 | 0x2c => Some(a * operand),
            0x34 | 0x3c => a.checked_div(operand),
            0x44 | 0x4c => Some(a | operand),
            0x54 | 0x5c => Some(a & operand),
            0x64 | 0x6c => Some(a << (operand % 32)),
            0x74 | 0x7c => Some(a >> (operand % 32)),
            0x94 | 0x9c => a.checked_rem(operand),
            0xa4 | 0xac => Some(a ^ operand),
            _ => Some(a),
        };
        match code {
            0x01 => x = k64,
            0x61 => x = memory[&k],
            0x81 => x = len,
            0xb1 => match load(k64, 1) {
                Some(byte) => x = byte % 16 * 4,
                None => return (true, 0),
            },
            0x07 => x = a,
            0x02 => _ = memory.insert(k, a),
            0x03 => _ = memory.insert(k, x),
            0x05 => pc += k as usize,
            0x06 => return (true, k),
            0x16 => return (true, a as u32),
            _ => {}
        }
        match loaded {
            Some(value) => a = value % (1 << 32),
            None => return (true, 0),
        }
    }
}
