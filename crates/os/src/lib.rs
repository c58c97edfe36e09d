//! What Forebay asks of the operating system.
