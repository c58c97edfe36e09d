//! Who is where: ports, listeners, half-open connections.

use super::*;

#[test]
fn a_connection_begun_by_a_cookie_is_as_good_as_any() {
    for addr in BOTH {
        for timestamps in [false, true] {
            let (stack, listener) = listening(addr);
            let on = if timestamps { "1" } else { "0" };
            for (knob, value) in [("tcp_syncookies", "2"), ("tcp_timestamps", on)] {
                let name = format!("net.ipv4.{knob}");
                stack.inner().set_sysctl(&name, value).expect("a knob");
            }
            let (mut client, mut server) = pair(&stack, &listener);
            client.write_all(b"on").expect("connected");
            drive(&stack);
            let mut buf = [0; 8];
            assert_eq!(server.read(&mut buf).expect("connected"), 2);
            // Options have their place in timestamps.
            for end in [&client, &server] {
                let info = end.info().expect("connected");
                let agreed = (info.timestamps, info.sack);
                assert_eq!(agreed, (timestamps, timestamps), "{addr}");
            }
        }
    }
}

#[test]
fn a_port_is_one_listener_s() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        let is_in_use = |outcome: io::Result<TcpListener>| {
            outcome.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        assert!(is_in_use(TcpListener::bind(&stack, addr)));
        let (client, server) = pair(&stack, &listener);
        drop(listener);
        // Its connections have the port still, and share it with who says so, too.
        let to: SocketAddr = addr.parse().expect("an address");
        let strict = TcpSocket::new_for(&stack, to.ip()).expect("a socket");
        let error = strict.bind(to).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let listener = TcpListener::bind(&stack, addr).expect("shared");
        drop((listener, client));
        drive(&stack);
        drop(server);
        drive(&stack);
        // What is left of the connection is the client's.
        assert!(strict.bind(to).is_ok());
    }
}

#[test]
fn a_listener_that_closes_resets_who_waits() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        let mut client = connecting(&stack, &listener);
        drive(&stack);
        assert!(client.is_connected().expect("connected"));
        drop(listener);
        drive(&stack);
        let error = client.read(&mut [0]).expect_err("reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        // Nobody listens any more.
        let again =
            TcpSocket::new_for(&stack, addr.parse::<SocketAddr>().expect("an address").ip());
        let begun = again
            .expect("a socket")
            .start_connect(addr.parse().expect("an address"));
        let refused = begun.expect("loopback");
        drive(&stack);
        let error = refused.is_connected().expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_socket_that_is_closed_while_it_connects_leaves_nothing() {
    for addr in BOTH {
        let (stack, listener) = listening(addr);
        drop(connecting(&stack, &listener));
        drive(&stack);
        let (client, server) = pair(&stack, &listener);
        drop((client, server));
    }
}
