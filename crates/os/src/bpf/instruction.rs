//! Instructions of the BPF machine, as RFC 9669 encodes them.

/// One of the machine's registers.
///
/// A helper's call leaves its result in `R0` and may change `R1` to `R5`. At the start `R1` has the
/// address of the context, at the end `R0` the program's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Register {
    R0 = 0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

/// How much a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Two bytes.
    Half = 0x08,
    /// Four bytes.
    Word = 0x00,
}

/// A function of the kernel's that programs may call (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// `bpf_get_prandom_u32()`: 32 random bits.
    Random = 7,
}

/// One instruction: the kernel's `struct bpf_insn`.
///
/// ```
/// use forebay_os::bpf::{Instruction, Register::R0, Verdict};
///
/// // All frames pass.
/// let program = [Instruction::set(R0, Verdict::Pass as i32), Instruction::exit()];
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    opcode: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

// Classes of instructions, and what distinguishes those of a class.
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const JMP: u8 = 0x05;
const ALU64: u8 = 0x07;
const MEM: u8 = 0x60;
const IMMEDIATE: u8 = 0x00;
const REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const RSH: u8 = 0x70;
const XOR: u8 = 0xa0;
const MOV: u8 = 0xb0;
const JGT: u8 = 0x20;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;

impl Instruction {
    /// `register = value`
    pub const fn set(register: Register, value: i32) -> Self {
        Self::new(ALU64 | MOV | IMMEDIATE, register as u8, 0, 0, value)
    }

    /// `to = from`
    pub const fn copy(to: Register, from: Register) -> Self {
        Self::new(ALU64 | MOV | REGISTER, to as u8, from as u8, 0, 0)
    }

    /// `register += value`
    pub const fn add(register: Register, value: i32) -> Self {
        Self::new(ALU64 | ADD | IMMEDIATE, register as u8, 0, 0, value)
    }

    /// `register ^= value`, which is extended by its sign.
    pub const fn xor(register: Register, value: i32) -> Self {
        Self::new(ALU64 | XOR | IMMEDIATE, register as u8, 0, 0, value)
    }

    /// `register >>= bits`
    pub const fn shift_right(register: Register, bits: i32) -> Self {
        Self::new(ALU64 | RSH | IMMEDIATE, register as u8, 0, 0, bits)
    }

    /// `to = *(base + offset)`
    pub const fn load(width: Width, to: Register, base: Register, offset: i16) -> Self {
        let opcode = LDX | MEM | width as u8;
        Self::new(opcode, to as u8, base as u8, offset, 0)
    }

    /// `*(base + offset) = value`
    pub const fn store(width: Width, base: Register, offset: i16, value: i32) -> Self {
        Self::new(ST | MEM | width as u8, base as u8, 0, offset, value)
    }

    /// `*(base + offset) = from`
    pub const fn store_from(width: Width, base: Register, offset: i16, from: Register) -> Self {
        let opcode = STX | MEM | width as u8;
        Self::new(opcode, base as u8, from as u8, offset, 0)
    }

    /// Passes over the next `skip` instructions if `left > right`, both without a sign.
    pub const fn skip_if_greater(left: Register, right: Register, skip: i16) -> Self {
        Self::new(JMP | JGT | REGISTER, left as u8, right as u8, skip, 0)
    }

    /// `R0 = helper()`
    pub const fn call(helper: Helper) -> Self {
        Self::new(JMP | CALL, 0, 0, 0, helper as i32)
    }

    /// Ends the program.
    pub const fn exit() -> Self {
        Self::new(JMP | EXIT, 0, 0, 0, 0)
    }

    const fn new(opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // Two bit-fields, which the C compiler lays out by the machine's byte order.
        let registers = if cfg!(target_endian = "little") {
            source << 4 | destination
        } else {
            destination << 4 | source
        };
        Self {
            opcode,
            registers,
            offset,
            immediate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R6, R9};
    use super::*;

    /// Opcode, registers (on a little-endian machine), offset and immediate of RFC 9669's notation.
    #[test]
    fn instructions_are_encoded_as_the_rfc_says() {
        let table = [
            (Instruction::set(R0, 2), (0xb7, 0x00, 0, 2)),
            (Instruction::copy(R6, R1), (0xbf, 0x16, 0, 0)),
            (Instruction::add(R2, 78), (0x07, 0x02, 0, 78)),
            (Instruction::xor(R9, -1), (0xa7, 0x09, 0, -1)),
            (Instruction::shift_right(R1, 16), (0x77, 0x01, 0, 16)),
            (
                Instruction::load(Width::Word, R2, R1, 4),
                (0x61, 0x12, 4, 0),
            ),
            (
                Instruction::load(Width::Half, R2, R1, 4),
                (0x69, 0x12, 4, 0),
            ),
            (
                Instruction::store(Width::Half, R6, 12, 8),
                (0x6a, 0x06, 12, 8),
            ),
            (
                Instruction::store_from(Width::Half, R6, 30, R0),
                (0x6b, 0x06, 30, 0),
            ),
            (
                Instruction::store_from(Width::Word, R6, 30, R9),
                (0x63, 0x96, 30, 0),
            ),
            (Instruction::skip_if_greater(R2, R1, 3), (0x2d, 0x12, 3, 0)),
            (Instruction::call(Helper::Random), (0x85, 0x00, 0, 7)),
            (Instruction::exit(), (0x95, 0x00, 0, 0)),
        ];
        for (instruction, (opcode, registers, offset, immediate)) in table {
            let expected = Instruction {
                opcode,
                registers: if cfg!(target_endian = "little") {
                    registers
                } else {
                    u8::rotate_left(registers, 4)
                },
                offset,
                immediate,
            };
            assert_eq!(instruction, expected);
        }
    }
}
