//! The ROUTER side over real sockets: names, takeover of a name, peers that are gone.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bytes::Bytes;
use octavo_transport::{Incoming, Transport, TransportError, ZmqRouter};
use zeromq::util::PeerIdentity;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqMessage};

struct Place {
    endpoint: String,
    _folder: tempfile::TempDir,
}

fn place() -> Place {
    let private = fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .permissions(private)
        .tempdir()
        .unwrap();
    Place {
        endpoint: format!("ipc://{}/f.sock", folder.path().display()),
        _folder: folder,
    }
}

async fn dealer(place: &Place, name: &'static str) -> DealerSocket {
    let mut options = SocketOptions::default();
    let name = PeerIdentity::try_from(Bytes::from_static(name.as_bytes())).unwrap();
    options.peer_identity(name);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(&place.endpoint).await.unwrap();
    socket
}

/// The next message; connections that end are passed over.
async fn receive(router: &mut ZmqRouter) -> (Bytes, Vec<Bytes>) {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), router.receive());
        if let Incoming::Message { peer, frames } = next.await.unwrap().unwrap() {
            return (peer, frames);
        }
    }
}

/// Says something and hears the answer.
async fn round_trip(router: &mut ZmqRouter, socket: &mut DealerSocket, name: &str, n: usize) {
    let mut message = ZmqMessage::from(format!("question {n}"));
    message.push_back(Bytes::new());
    socket.send(message).await.unwrap();
    let (peer, frames) = receive(router).await;
    assert_eq!(peer, name);
    assert_eq!(frames, [Bytes::from(format!("question {n}")), Bytes::new()]);
    let answer = vec![Bytes::from(format!("answer {n}"))];
    router.send(&peer, answer).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(10), socket.recv()).await;
    assert_eq!(
        heard.unwrap().unwrap().get(0).unwrap(),
        &format!("answer {n}")
    );
}

#[tokio::test]
async fn a_peer_that_comes_back_under_its_name_is_served() {
    let place = place();
    let mut router = ZmqRouter::bind(&place.endpoint).await.unwrap();
    for n in 0..50 {
        let mut socket = dealer(&place, "same").await;
        round_trip(&mut router, &mut socket, "same", n).await;
    }
}

#[tokio::test]
async fn a_name_is_taken_over_while_its_owner_lives() {
    let place = place();
    let mut router = ZmqRouter::bind(&place.endpoint).await.unwrap();
    let mut old = dealer(&place, "same").await;
    round_trip(&mut router, &mut old, "same", 0).await;
    for n in 1..30 {
        let mut new = dealer(&place, "same").await;
        round_trip(&mut router, &mut new, "same", n).await;
        drop(old);
        round_trip(&mut router, &mut new, "same", 1000 + n).await;
        old = new;
    }
}

#[tokio::test]
async fn peers_do_not_hear_each_other_and_one_that_is_gone_is_an_error() {
    let place = place();
    let mut router = ZmqRouter::bind(&place.endpoint).await.unwrap();
    let mut one = dealer(&place, "one").await;
    let mut two = dealer(&place, "two").await;
    for n in 0..20 {
        round_trip(&mut router, &mut one, "one", n).await;
        round_trip(&mut router, &mut two, "two", n).await;
    }
    drop(two);
    let name = Bytes::from_static(b"two");
    let left = tokio::time::timeout(Duration::from_secs(10), router.receive()).await;
    assert_eq!(left.unwrap().unwrap(), Incoming::Left(name.clone()));
    let again = router.send(&name, vec![Bytes::new()]).await;
    assert!(matches!(again, Err(TransportError::NotConnected)));
    round_trip(&mut router, &mut one, "one", 99).await;
}
