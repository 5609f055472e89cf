#![allow(clippy::unwrap_used)]
use std::net::SocketAddr;

use super::*;
use crate::peers::message::Member;
use crate::peers::probe::Caller;
use crate::peers::send::{meet, send};

const KEY: [u8; 32] = [1; 32];
const BOUND: Duration = Duration::from_secs(60);

/// A callee with number 2; where it is, and the reports of its meetings.
async fn callee() -> (Member, JoinSet<()>, mpsc::Receiver<Report>) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (address, port) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap().port());
    let (reports, met) = mpsc::channel(9);
    let server = Arc::new(Server::new(Key::new(&KEY), 2, reports));
    let mut tasks = JoinSet::new();
    tasks.spawn(server.clone().accept(tcp));
    tasks.spawn(server.answer(udp));
    (Member { number: 2, addresses: vec![address], udp: port, here: true }, tasks, met)
}

fn caller(key: [u8; 32]) -> Caller {
    Caller { key: Key::new(&key), me: 1, local: Vec::new() }
}

#[tokio::test]
async fn a_stranger_gets_a_nonce_and_no_more() {
    let (member, _tasks, _) = callee().await;
    for request in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[7; 80]] {
        let mut stream = TcpStream::connect(member.addresses[0]).await.unwrap();
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        let mut got = Vec::new();
        // A reset is an end too.
        let _ = timeout(BOUND, stream.read_to_end(&mut got)).await.unwrap();
        assert!(got.len() <= NONCE, "{} bytes for a stranger", got.len());
    }
    let probed = caller([2; 32]).probe(&member, 1, true).await;
    assert!(probed.is_err(), "another key");
    let other = Member { number: 3, ..member.clone() };
    assert!(caller(KEY).probe(&other, 1, true).await.is_err(), "another member's request");
}

#[tokio::test]
async fn a_member_measures_times_and_rates() {
    let (member, _tasks, mut met) = callee().await;
    let caller = caller(KEY);
    let probed = caller.probe(&member, 1, false).await.unwrap();
    assert_eq!(probed.address, Some(member.addresses[0]));
    assert!(probed.rtts.len() >= 5 && probed.clock.abs() < 60_000_000_000, "{probed:?}");
    let most = 3 << 20;
    for streams in [1, 3] {
        let sent = send(&caller, &member, (2, streams), (2000, most)).await.unwrap();
        assert!(sent.rate > 0 && sent.bytes > 0, "{sent:?}");
        // Each stream reads one buffer too many at most.
        assert!(sent.bytes <= most + u64::from(streams) * STEP as u64, "{sent:?}");
    }
    meet(&caller, &member, 5, 50).await;
    let report = timeout(BOUND, met.recv()).await.unwrap();
    assert!(matches!(report, Some(Report::Met { task: 5, .. })), "{report:?}");
}

#[tokio::test]
async fn datagrams_are_answered_with_the_key_only_and_never_by_more_bytes() {
    let (member, _tasks, _) = callee().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(SocketAddr::new(member.addresses[0].ip(), member.udp)).await.unwrap();
    let datagram = |kind, number| Datagram { kind, task: 1, from: 1, to: 2, number };
    let (key, other) = (Key::new(&KEY), Key::new(&[2; 32]));
    // None of these is answered: the first answer is that of the last datagram.
    for bytes in [
        vec![0; 1200],
        datagram(Kind::Loss, 7).encode(1200, &other),
        datagram(Kind::Answer, 7).encode(100, &key),
        Datagram { to: 3, ..datagram(Kind::Loss, 7) }.encode(100, &key),
    ] {
        socket.send(&bytes).await.unwrap();
    }
    let mut buffer = [0; 2000];
    for (kind, number, length) in [(Kind::Loss, 8, 100), (Kind::Size, 1400, 1400)] {
        socket.send(&datagram(kind, number).encode(length, &key)).await.unwrap();
        let got = timeout(BOUND, socket.recv(&mut buffer)).await.unwrap().unwrap();
        let answer = Datagram::decode(&buffer[..got], &key).unwrap();
        assert_eq!((answer.kind, answer.number, answer.from, answer.to), (Kind::Answer, number, 2, 1));
        assert!(got <= length);
    }
}

#[test]
fn each_task_gets_a_bounded_number_of_answers() {
    let server = Server::new(Key::new(&KEY), 2, mpsc::channel(1).0);
    let datagram = |task, number| Datagram { kind: Kind::Loss, task, from: 1, to: 2, number };
    let answered = (0..ANSWERS + 100).filter(|number| server.note(&datagram(1, *number), 100)).count();
    assert_eq!(answered, ANSWERS as usize);
    let tasks = u32::try_from(TASKS).unwrap();
    let known = (0..tasks + 100).filter(|task| server.note(&datagram(*task + 10, 0), 100)).count();
    assert_eq!(known, TASKS - 1, "one task was there before");
}
