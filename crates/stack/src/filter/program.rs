//! Verifying a program, once, so that running it needs no checks.

use super::code::*;
use super::instruction::Instruction;

/// Most instructions of a program (Linux's `BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4_096;

/// Words of scratch memory (Linux's `BPF_MEMWORDS`).
pub(super) const MEMORY_WORDS: usize = 16;

/// Why a program was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// None at all, or more than [`MAX_INSTRUCTIONS`].
    #[error("{0} instructions: a program has 1 to {MAX_INSTRUCTIONS}")]
    Length(usize),
    /// No instruction has this code.
    #[error("instruction {at}: there is no code {code:#04x}")]
    Code {
        /// Which instruction, counted from 0.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// It divides by a constant zero.
    #[error("instruction {at}: division by zero")]
    DivisionByZero {
        /// Which instruction, counted from 0.
        at: usize,
    },
    /// It shifts by a constant of 32 or more.
    #[error("instruction {at}: a shift by 32 bits or more")]
    Shift {
        /// Which instruction, counted from 0.
        at: usize,
    },
    /// It names a word of scratch memory beyond the 16 that there are.
    #[error("instruction {at}: scratch memory has words 0 to 15")]
    Memory {
        /// Which instruction, counted from 0.
        at: usize,
    },
    /// It reads a word of scratch memory that may not have been written before.
    #[error("instruction {at}: reads scratch memory that was not written on every way here")]
    NotWritten {
        /// Which instruction, counted from 0.
        at: usize,
    },
    /// It jumps beyond the program.
    #[error("instruction {at}: jumps out of the program")]
    Jump {
        /// Which instruction, counted from 0.
        at: usize,
    },
    /// It asks for something that is not known of a packet.
    #[error("instruction {at}: no ancillary data at SKF_AD_OFF + {offset}")]
    Ancillary {
        /// Which instruction, counted from 0.
        at: usize,
        /// Behind [`AD_OFF`](super::code::AD_OFF).
        offset: u32,
    },
    /// The last instruction is no `RET`.
    #[error("the last instruction is no return")]
    NoReturn,
}

/// A verified program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(super) ops: Box<[Op]>,
}

/// An instruction that was verified: jumps stay inside, memory is there, divisors are not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    LoadWord(u32),
    LoadHalf(u32),
    LoadByte(u32),
    LoadWordBehindX(u32),
    LoadHalfBehindX(u32),
    LoadByteBehindX(u32),
    LoadImmediate(u32),
    LoadMemory(u8),
    LoadLen,
    LoadAncillary(Ancillary),
    XorX,
    LoadXImmediate(u32),
    LoadXMemory(u8),
    LoadXLen,
    LoadXHeaderLen(u32),
    Store(u8),
    StoreX(u8),
    Negate,
    CalculateK(Calculation, u32),
    CalculateX(Calculation),
    Jump(u32),
    JumpK(Condition, u32, Branches),
    JumpX(Condition, Branches),
    ReturnK(u32),
    ReturnA,
    AToX,
    XToA,
}

const _: () = assert!(size_of::<Op>() == 12 || size_of::<Op>() == 8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calculation {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Equal,
    Greater,
    GreaterOrEqual,
    BitInCommon,
}

/// Instructions to skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branches {
    pub(super) holds: u8,
    pub(super) fails: u8,
}

/// What is known of a packet besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ancillary {
    Protocol,
    PacketType,
    Ifindex,
    Mark,
    Queue,
    HardwareType,
    RxHash,
    Cpu,
    VlanTag,
    VlanTagPresent,
    PayloadOffset,
    Random,
    VlanTpid,
}

impl Program {
    /// Verifies a program.
    pub(crate) fn new(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        if !(1..=MAX_INSTRUCTIONS).contains(&instructions.len()) {
            return Err(ProgramError::Length(instructions.len()));
        }
        let decode = |(at, instruction)| Op::decode(at, instruction);
        let ops = instructions.iter().enumerate().map(decode);
        let ops = ops.collect::<Result<Box<[_]>, _>>()?;
        check_jumps(&ops)?;
        if !matches!(ops.last(), Some(Op::ReturnK(_) | Op::ReturnA)) {
            return Err(ProgramError::NoReturn);
        }
        check_memory(&ops)?;
        Ok(Self { ops })
    }
}

impl Op {
    fn decode(at: usize, instruction: &Instruction) -> Result<Self, ProgramError> {
        let &Instruction { code, jt, jf, k } = instruction;
        let unknown = ProgramError::Code { at, code };
        let memory = || match u8::try_from(k) {
            Ok(word) if usize::from(word) < MEMORY_WORDS => Ok(word),
            _ => Err(ProgramError::Memory { at }),
        };
        let branches = Branches {
            holds: jt,
            fails: jf,
        };
        // All eight bits of a code mean something; there are no more.
        const LD_W_ABS: u16 = LD | W | ABS;
        const LD_H_ABS: u16 = LD | H | ABS;
        const LD_B_ABS: u16 = LD | B | ABS;
        const LD_W_IND: u16 = LD | W | IND;
        const LD_H_IND: u16 = LD | H | IND;
        const LD_B_IND: u16 = LD | B | IND;
        const LD_IMM: u16 = LD | IMM;
        const LD_MEM: u16 = LD | MEM;
        const LD_LEN: u16 = LD | W | LEN;
        const LDX_IMM: u16 = LDX | IMM;
        const LDX_MEM: u16 = LDX | MEM;
        const LDX_LEN: u16 = LDX | W | LEN;
        const LDX_MSH: u16 = LDX | B | MSH;
        const ALU_NEG: u16 = ALU | NEG;
        const JMP_JA: u16 = JMP | JA;
        const RET_A: u16 = RET | A;
        const MISC_TAX: u16 = MISC | TAX;
        const MISC_TXA: u16 = MISC | TXA;
        Ok(match code {
            LD_W_ABS | LD_H_ABS | LD_B_ABS if k >= AD_OFF => Self::ancillary(at, k - AD_OFF)?,
            LD_W_ABS => Self::LoadWord(k),
            LD_H_ABS => Self::LoadHalf(k),
            LD_B_ABS => Self::LoadByte(k),
            LD_W_IND => Self::LoadWordBehindX(k),
            LD_H_IND => Self::LoadHalfBehindX(k),
            LD_B_IND => Self::LoadByteBehindX(k),
            LD_IMM => Self::LoadImmediate(k),
            LD_MEM => Self::LoadMemory(memory()?),
            LD_LEN => Self::LoadLen,
            LDX_IMM => Self::LoadXImmediate(k),
            LDX_MEM => Self::LoadXMemory(memory()?),
            LDX_LEN => Self::LoadXLen,
            LDX_MSH => Self::LoadXHeaderLen(k),
            ST => Self::Store(memory()?),
            STX => Self::StoreX(memory()?),
            ALU_NEG => Self::Negate,
            JMP_JA => Self::Jump(k),
            RET => Self::ReturnK(k),
            RET_A => Self::ReturnA,
            MISC_TAX => Self::AToX,
            MISC_TXA => Self::XToA,
            _ => {
                let (class, operation) = (code & 0x07, code & !0x0f);
                let by_x = code & X != 0;
                match (class, by_x) {
                    (ALU, false) => {
                        let calculation = Calculation::decode(operation).ok_or(unknown)?;
                        calculation.check_constant(at, k)?;
                        Self::CalculateK(calculation, k)
                    }
                    (ALU, true) => Self::CalculateX(Calculation::decode(operation).ok_or(unknown)?),
                    (JMP, false) => {
                        Self::JumpK(Condition::decode(operation).ok_or(unknown)?, k, branches)
                    }
                    (JMP, true) => {
                        Self::JumpX(Condition::decode(operation).ok_or(unknown)?, branches)
                    }
                    _ => return Err(unknown),
                }
            }
        })
    }

    fn ancillary(at: usize, offset: u32) -> Result<Self, ProgramError> {
        Ok(Self::LoadAncillary(match offset {
            AD_PROTOCOL => Ancillary::Protocol,
            AD_PKTTYPE => Ancillary::PacketType,
            AD_IFINDEX => Ancillary::Ifindex,
            AD_MARK => Ancillary::Mark,
            AD_QUEUE => Ancillary::Queue,
            AD_HATYPE => Ancillary::HardwareType,
            AD_RXHASH => Ancillary::RxHash,
            AD_CPU => Ancillary::Cpu,
            AD_ALU_XOR_X => return Ok(Self::XorX),
            AD_VLAN_TAG => Ancillary::VlanTag,
            AD_VLAN_TAG_PRESENT => Ancillary::VlanTagPresent,
            AD_PAY_OFFSET => Ancillary::PayloadOffset,
            AD_RANDOM => Ancillary::Random,
            AD_VLAN_TPID => Ancillary::VlanTpid,
            offset => return Err(ProgramError::Ancillary { at, offset }),
        }))
    }
}

impl Calculation {
    fn decode(operation: u16) -> Option<Self> {
        Some(match operation {
            ADD => Self::Add,
            SUB => Self::Sub,
            MUL => Self::Mul,
            DIV => Self::Div,
            MOD => Self::Mod,
            OR => Self::Or,
            AND => Self::And,
            XOR => Self::Xor,
            LSH => Self::Lsh,
            RSH => Self::Rsh,
            _ => return None,
        })
    }

    fn check_constant(self, at: usize, k: u32) -> Result<(), ProgramError> {
        match self {
            Self::Div | Self::Mod if k == 0 => Err(ProgramError::DivisionByZero { at }),
            Self::Lsh | Self::Rsh if k >= 32 => Err(ProgramError::Shift { at }),
            _ => Ok(()),
        }
    }
}

impl Condition {
    fn decode(operation: u16) -> Option<Self> {
        Some(match operation {
            JEQ => Self::Equal,
            JGT => Self::Greater,
            JGE => Self::GreaterOrEqual,
            JSET => Self::BitInCommon,
            _ => return None,
        })
    }
}

/// Where an instruction may go on, as instructions to skip.
fn targets(op: &Op) -> [Option<usize>; 2] {
    match *op {
        Op::Jump(skip) => [usize::try_from(skip).ok(), None],
        Op::JumpK(_, _, to) | Op::JumpX(_, to) => [Some(to.holds.into()), Some(to.fails.into())],
        _ => [None, None],
    }
}

fn check_jumps(ops: &[Op]) -> Result<(), ProgramError> {
    for (at, op) in ops.iter().enumerate() {
        let behind = ops.len() - at - 1;
        if targets(op).into_iter().flatten().any(|skip| skip >= behind) {
            return Err(ProgramError::Jump { at });
        }
    }
    Ok(())
}

/// Sees to it that no way through the program reads a word of scratch memory before it is written:
/// it would tell what another program left there, or whatever the stack holds. One pass is enough,
/// since jumps go forward.
fn check_memory(ops: &[Op]) -> Result<(), ProgramError> {
    const ALL: u16 = u16::MAX;
    // What every jump to an instruction has written before.
    let mut written_at = vec![ALL; ops.len()];
    let mut written = 0;
    for (at, op) in ops.iter().enumerate() {
        written &= written_at[at];
        match *op {
            Op::Store(word) | Op::StoreX(word) => written |= 1 << word,
            Op::LoadMemory(word) | Op::LoadXMemory(word) if written & 1 << word == 0 => {
                return Err(ProgramError::NotWritten { at });
            }
            Op::Jump(_) | Op::JumpK(..) | Op::JumpX(..) => {
                for skip in targets(op).into_iter().flatten() {
                    if let Some(there) = written_at.get_mut(at + 1 + skip) {
                        *there &= written;
                    }
                }
                // The next instruction is reached by jumps alone.
                written = ALL;
            }
            _ => {}
        }
    }
    Ok(())
}
