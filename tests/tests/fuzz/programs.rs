//! Programs for socket filters: good ones, and what looks like it.

use forebay_stack::filter::Instruction;
use forebay_stack::filter::code::*;

use crate::dice::Dice;

const CODES: [u16; 24] = [
    LD | W | ABS,
    LD | H | ABS,
    LD | B | ABS,
    LD | W | IND,
    LD | B | IND,
    LD | LEN,
    LD | IMM,
    LD | MEM,
    LDX | IMM,
    LDX | LEN,
    LDX | MEM,
    LDX | B | MSH,
    ST,
    STX,
    ALU | ADD | X,
    ALU | DIV | X,
    ALU | LSH | X,
    ALU | MOD | K,
    JMP | JA,
    JMP | JGT | K,
    JMP | JSET | X,
    MISC | TAX,
    MISC | TXA,
    RET | A,
];

pub(crate) fn program(dice: &Dice) -> Vec<Instruction> {
    let mut program: Vec<_> = (0..dice.below(12)).map(|_| instruction(dice)).collect();
    program.extend([Instruction::stmt(RET | K, dice.below(100) as u32); 4]);
    program
}

fn instruction(dice: &Dice) -> Instruction {
    Instruction {
        code: match dice.once_in(12) {
            true => dice.u8().into(),
            false => dice.pick(&CODES),
        },
        jt: dice.below(4) as u8,
        jf: dice.below(4) as u8,
        k: match dice.below(8) {
            0 => dice.u32(),
            1 => NET_OFF + dice.below(40) as u32,
            2 => AD_OFF + 4 * dice.below(17) as u32,
            _ => dice.below(32) as u32,
        },
    }
}
