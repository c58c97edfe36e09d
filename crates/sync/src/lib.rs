//! Concurrency and memory building blocks of Forebay.
