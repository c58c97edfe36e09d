//! What the `code` of an [`Instruction`](super::Instruction) is put together from, under Linux's
//! names without their `BPF_`.
//!
//! A load is class, size and mode (`LD | H | ABS`), a calculation class, operation and source
//! (`ALU | ADD | K`), and so is a jump (`JMP | JEQ | X`).

/// Class: load into the accumulator.
pub const LD: u16 = 0x00;
/// Class: load into the index register.
pub const LDX: u16 = 0x01;
/// Class: store the accumulator in scratch memory.
pub const ST: u16 = 0x02;
/// Class: store the index register in scratch memory.
pub const STX: u16 = 0x03;
/// Class: calculate with the accumulator.
pub const ALU: u16 = 0x04;
/// Class: go on elsewhere.
pub const JMP: u16 = 0x05;
/// Class: end.
pub const RET: u16 = 0x06;
/// Class: between the registers.
pub const MISC: u16 = 0x07;

/// Size of a load: 4 bytes.
pub const W: u16 = 0x00;
/// Size of a load: 2 bytes.
pub const H: u16 = 0x08;
/// Size of a load: 1 byte.
pub const B: u16 = 0x10;

/// Mode of a load: the constant itself.
pub const IMM: u16 = 0x00;
/// Mode of a load: the packet at a constant offset.
pub const ABS: u16 = 0x20;
/// Mode of a load: the packet at a constant offset behind the index register.
pub const IND: u16 = 0x40;
/// Mode of a load: scratch memory.
pub const MEM: u16 = 0x60;
/// Mode of a load: the packet's length.
pub const LEN: u16 = 0x80;
/// Mode of a load: four times the low half of a byte, as an IPv4 header gives its length.
pub const MSH: u16 = 0xa0;

/// Source: the constant.
pub const K: u16 = 0x00;
/// Source: the index register.
pub const X: u16 = 0x08;
/// Source of a `RET`: the accumulator.
pub const A: u16 = 0x10;

/// Calculation: `+`.
pub const ADD: u16 = 0x00;
/// Calculation: `-`.
pub const SUB: u16 = 0x10;
/// Calculation: `*`.
pub const MUL: u16 = 0x20;
/// Calculation: `/`; by zero, the program ends and keeps nothing.
pub const DIV: u16 = 0x30;
/// Calculation: `|`.
pub const OR: u16 = 0x40;
/// Calculation: `&`.
pub const AND: u16 = 0x50;
/// Calculation: `<<`.
pub const LSH: u16 = 0x60;
/// Calculation: `>>`.
pub const RSH: u16 = 0x70;
/// Calculation: the negative of the accumulator.
pub const NEG: u16 = 0x80;
/// Calculation: the rest of a division; by zero, the program ends and keeps nothing.
pub const MOD: u16 = 0x90;
/// Calculation: exclusive or.
pub const XOR: u16 = 0xa0;

/// Jump: always.
pub const JA: u16 = 0x00;
/// Jump: if equal.
pub const JEQ: u16 = 0x10;
/// Jump: if greater, without sign.
pub const JGT: u16 = 0x20;
/// Jump: if greater or equal, without sign.
pub const JGE: u16 = 0x30;
/// Jump: if they have a bit in common.
pub const JSET: u16 = 0x40;

/// Between registers: accumulator to index register.
pub const TAX: u16 = 0x00;
/// Between registers: index register to accumulator.
pub const TXA: u16 = 0x80;

/// Absolute loads from here on read no byte but what is known of the packet (`SKF_AD_OFF`).
pub const AD_OFF: u32 = -0x1000_i32 as u32;
/// Loads from here on count from the IP header (`SKF_NET_OFF`).
pub const NET_OFF: u32 = -0x10_0000_i32 as u32;
/// Loads from here on count from the link layer's header (`SKF_LL_OFF`). Here packets have none, so
/// that is where the IP header begins, as on a kernel's TUN device.
pub const LL_OFF: u32 = -0x20_0000_i32 as u32;

/// Behind [`AD_OFF`]: the EtherType.
pub const AD_PROTOCOL: u32 = 0;
/// Behind [`AD_OFF`]: 0 for this host, 1 broadcast, 2 multicast (`PACKET_HOST` and so on), by the
/// destination address.
pub const AD_PKTTYPE: u32 = 4;
/// Behind [`AD_OFF`]: index of the interface that the packet came in by.
pub const AD_IFINDEX: u32 = 8;
/// Behind [`AD_OFF`]: the packet's mark; none here has one, so 0.
pub const AD_MARK: u32 = 20;
/// Behind [`AD_OFF`]: the receive queue.
pub const AD_QUEUE: u32 = 24;
/// Behind [`AD_OFF`]: the kind of interface: 772 (`ARPHRD_LOOPBACK`) or 65,534 (`ARPHRD_NONE`).
pub const AD_HATYPE: u32 = 28;
/// Behind [`AD_OFF`]: a hash of addresses and ports, the same for all packets of a flow.
pub const AD_RXHASH: u32 = 32;
/// Behind [`AD_OFF`]: the number of the core that receives.
pub const AD_CPU: u32 = 36;
/// Behind [`AD_OFF`]: no load, but exclusive or with the index register.
pub const AD_ALU_XOR_X: u32 = 40;
/// Behind [`AD_OFF`]: the VLAN tag; here none has one, so 0.
pub const AD_VLAN_TAG: u32 = 44;
/// Behind [`AD_OFF`]: whether there is a VLAN tag: 0.
pub const AD_VLAN_TAG_PRESENT: u32 = 48;
/// Behind [`AD_OFF`]: offset of the transport's payload.
pub const AD_PAY_OFFSET: u32 = 52;
/// Behind [`AD_OFF`]: a random number.
pub const AD_RANDOM: u32 = 56;
/// Behind [`AD_OFF`]: EtherType of the VLAN tag: 0.
pub const AD_VLAN_TPID: u32 = 60;
