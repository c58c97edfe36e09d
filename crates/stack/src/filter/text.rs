//! Programs as `tcpdump -ddd` prints them.

use super::Instruction;

/// Why a text is no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The first line is not the number of instructions.
    #[error("the first line is {0:?}, not the number of instructions")]
    Count(String),
    /// A line is not four numbers in range.
    #[error("instruction {at}: {line:?} is not \"code jt jf k\" in decimal numbers")]
    Line {
        /// Which instruction, counted from 0.
        at: usize,
        /// What stands there.
        line: String,
    },
    /// There are more or fewer instructions than the first line says.
    #[error("the first line announces {announced} instructions, and {found} follow")]
    Length {
        /// What the first line says.
        announced: usize,
        /// What follows.
        found: usize,
    },
}

/// Reads a program as `tcpdump -ddd` prints it: the number of instructions, then `code jt jf k` for
/// each, in decimal. Commas may stand for the ends of lines, as iptables and tc want it.
///
/// The program is not verified yet: attaching it does that. `tcpdump` compiles for the link layer
/// that it is told of (`-y RAW` where packets begin with the IP header).
///
/// ```
/// let program = forebay_stack::filter::parse("4\n40 0 0 0\n21 0 1 53\n6 0 0 65535\n6 0 0 0\n")?;
/// assert_eq!(program.len(), 4);
/// # Ok::<(), forebay_stack::filter::TextError>(())
/// ```
///
/// # Errors
///
/// [`TextError`].
pub fn parse(text: &str) -> Result<Vec<Instruction>, TextError> {
    let mut lines = text
        .split(['\n', ','])
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let announced: usize = first
        .parse()
        .map_err(|_| TextError::Count(first.to_owned()))?;
    let program = lines
        .enumerate()
        .map(|(at, line)| {
            instruction(line).ok_or_else(|| TextError::Line {
                at,
                line: line.to_owned(),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if program.len() != announced {
        return Err(TextError::Length {
            announced,
            found: program.len(),
        });
    }
    Ok(program)
}

fn instruction(line: &str) -> Option<Instruction> {
    let mut words = line.split_ascii_whitespace();
    let instruction = Instruction {
        code: words.next()?.parse().ok()?,
        jt: words.next()?.parse().ok()?,
        jf: words.next()?.parse().ok()?,
        k: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(instruction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::code::*;

    #[test]
    fn tcpdump_and_iptables_write_the_same_program() {
        let program = [
            Instruction::stmt(LD | B | ABS, 9),
            Instruction::jump(JMP | JEQ | K, 17, 0, 1),
            Instruction::stmt(RET | K, 262_144),
            Instruction::stmt(RET | K, 0),
        ];
        let lines = "4\n48 0 0 9\n21 0 1 17\n6 0 0 262144\n6 0 0 0\n";
        let commas = "4,48 0 0 9,21 0 1 17,6 0 0 262144,6 0 0 0,";
        assert_eq!(parse(lines).as_deref(), Ok(&program[..]));
        assert_eq!(parse(commas).as_deref(), Ok(&program[..]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let line = |at, line: &str| {
            Err(TextError::Line {
                at,
                line: line.to_owned(),
            })
        };
        assert_eq!(parse(""), Err(TextError::Count(String::new())));
        assert_eq!(parse("one\n6 0 0 0"), Err(TextError::Count("one".into())));
        assert_eq!(parse("1\n6 0 0"), line(0, "6 0 0"));
        assert_eq!(parse("2\n6 0 0 0\n6 0 0 0 0"), line(1, "6 0 0 0 0"));
        assert_eq!(parse("1\n6 256 0 0"), line(0, "6 256 0 0"));
        assert_eq!(parse("1\n6 0 0 -1"), line(0, "6 0 0 -1"));
        let length = TextError::Length {
            announced: 2,
            found: 1,
        };
        assert_eq!(parse("2\n6 0 0 0"), Err(length));
    }
}
