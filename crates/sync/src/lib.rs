//! Concurrency and memory building blocks of Forebay.

pub mod packet;
