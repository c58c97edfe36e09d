//! Concurrency and memory building blocks of Forebay: all that needs `unsafe`
//! to be fast and is no system call.

pub mod cache_line;
pub mod doze;
pub mod huge;
#[doc(hidden)]
pub mod loom;
pub mod packet;
pub mod per_thread;
pub mod prefetch;
pub mod rcu;
pub mod segments;
pub mod short_lock;
pub mod static_key;
pub mod tsc;
