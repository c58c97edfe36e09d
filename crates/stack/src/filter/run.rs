//! Running a program.

use super::Subject;
use super::program::{Calculation, Condition, MEMORY_WORDS, Op, Program};

impl Program {
    /// Runs the program on a packet: how many bytes of it to keep, 0 for none of it. A load beyond
    /// the packet's end, and a division by zero, end it with 0.
    pub(crate) fn run(&self, subject: &mut Subject<'_, '_>) -> u32 {
        self.try_run(subject).unwrap_or(0)
    }

    fn try_run(&self, subject: &mut Subject<'_, '_>) -> Option<u32> {
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY_WORDS]);
        let mut next = 0;
        // Every step goes forward, so this ends.
        loop {
            let op = *self.ops.get(next)?;
            next += 1;
            match op {
                Op::LoadWord(at) => a = subject.word(at)?,
                Op::LoadHalf(at) => a = subject.half(at)?,
                Op::LoadByte(at) => a = subject.byte(at)?,
                Op::LoadWordBehindX(at) => a = subject.word(x.wrapping_add(at))?,
                Op::LoadHalfBehindX(at) => a = subject.half(x.wrapping_add(at))?,
                Op::LoadByteBehindX(at) => a = subject.byte(x.wrapping_add(at))?,
                Op::LoadImmediate(k) => a = k,
                Op::LoadMemory(word) => a = memory[place(word)],
                Op::LoadLen => a = subject.len(),
                Op::LoadAncillary(what) => a = subject.ancillary(what),
                Op::XorX => a ^= x,
                Op::LoadXImmediate(k) => x = k,
                Op::LoadXMemory(word) => x = memory[place(word)],
                Op::LoadXLen => x = subject.len(),
                Op::LoadXHeaderLen(at) => x = (subject.byte(at)? & 0x0f) << 2,
                Op::Store(word) => memory[place(word)] = a,
                Op::StoreX(word) => memory[place(word)] = x,
                Op::Negate => a = a.wrapping_neg(),
                Op::CalculateK(calculation, k) => a = calculation.of(a, k)?,
                Op::CalculateX(calculation) => a = calculation.of(a, x)?,
                Op::Jump(skip) => next += usize::try_from(skip).ok()?,
                Op::JumpK(condition, k, to) => next += usize::from(to.of(condition.holds(a, k))),
                Op::JumpX(condition, to) => next += usize::from(to.of(condition.holds(a, x))),
                Op::ReturnK(k) => return Some(k),
                Op::ReturnA => return Some(a),
                Op::AToX => x = a,
                Op::XToA => a = x,
            }
        }
    }
}

impl Calculation {
    #[inline]
    fn of(self, a: u32, operand: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(operand),
            Self::Sub => a.wrapping_sub(operand),
            Self::Mul => a.wrapping_mul(operand),
            Self::Div => a.checked_div(operand)?,
            Self::Mod => a.checked_rem(operand)?,
            Self::Or => a | operand,
            Self::And => a & operand,
            Self::Xor => a ^ operand,
            // Of a register, the low five bits count.
            Self::Lsh => a.wrapping_shl(operand),
            Self::Rsh => a.wrapping_shr(operand),
        })
    }
}

impl Condition {
    #[inline]
    fn holds(self, a: u32, operand: u32) -> bool {
        match self {
            Self::Equal => a == operand,
            Self::Greater => a > operand,
            Self::GreaterOrEqual => a >= operand,
            Self::BitInCommon => a & operand != 0,
        }
    }
}

impl super::program::Branches {
    #[inline]
    fn of(self, holds: bool) -> u8 {
        if holds { self.holds } else { self.fails }
    }
}

/// A word's place, as the verifier has seen to; masked, so that the compiler knows it, too.
#[inline]
fn place(word: u8) -> usize {
    usize::from(word) % MEMORY_WORDS
}
