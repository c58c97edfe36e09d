//! TCP segment by segment, against a peer that is played by hand: what Linux does with each, and what
//! it answers.

mod closing;
mod connecting;
mod floods;
mod half_open;
mod hostile;
mod marks;
mod peer;
mod ports;
mod resets;
mod sizes;
mod streams;
mod time_wait;
mod timers;
mod ways;
mod world;
