//! Requests on a stack, without a socket.
