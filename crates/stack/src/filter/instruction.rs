//! The form in which programs are handed over.

/// An instruction: the kernel's `struct sock_filter`.
///
/// ```
/// use forebay_stack::filter::{Instruction, code::*};
///
/// // Keeps datagrams from port 53. For a UDP socket, packets begin at the UDP header.
/// let from_dns = [
///     Instruction::stmt(LD | H | ABS, 0),
///     Instruction::jump(JMP | JEQ | K, 53, 0, 1),
///     Instruction::stmt(RET | K, u32::MAX),
///     Instruction::stmt(RET | K, 0),
/// ];
/// # assert_eq!(from_dns[1].jf, 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instruction {
    /// What to do: class, size or operation, mode or source; see [`code`](super::code).
    pub code: u16,
    /// Instructions to skip if a condition holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// The constant: a number, an offset, a place in scratch memory, instructions to skip.
    pub k: u32,
}

impl Instruction {
    /// Anything but a condition (Linux's `BPF_STMT`).
    pub const fn stmt(code: u16, k: u32) -> Self {
        Self {
            code,
            jt: 0,
            jf: 0,
            k,
        }
    }

    /// A condition (Linux's `BPF_JUMP`).
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Self {
        Self { code, jt, jf, k }
    }
}
