//! Tickets as strings: round trip, and errors for every kind of damage.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::SocketAddr;

use proptest::prelude::*;
use tidecast_identity::{
    Access, MAX_ADDRS, MAX_NAME, MAX_TICKET_CHARS, MAX_USES, ManifestId, NodeId, Secret, Terms, Ticket,
    TicketError, Token, TokenId,
};

fn sample() -> Ticket {
    let token = Token { id: TokenId([3; 8]), secret: Secret([4; 16]) };
    Ticket {
        manifest: ManifestId::V2([1; 32]),
        plain: false,
        access: Access::Private { authority: NodeId([2; 32]), token },
        terms: Terms::default(),
        name: Some("genomes".into()),
        addrs: vec!["10.0.0.1:6881".parse().unwrap(), "[fd00::1]:6882".parse().unwrap()],
    }
}

/// Field by field, since secrets have no `==` on purpose.
fn same(a: &Ticket, b: &Ticket) -> bool {
    let access = match (&a.access, &b.access) {
        (Access::Open, Access::Open) => true,
        (Access::Private { authority: x, token: s }, Access::Private { authority: y, token: t }) => {
            x == y && s.id == t.id && s.secret.0 == t.secret.0
        }
        _ => false,
    };
    access
        && a.terms == b.terms
        && a.manifest == b.manifest
        && a.plain == b.plain
        && a.name == b.name
        && a.addrs == b.addrs
}

prop_compose! {
    fn tickets()(
        v2: bool, id: [u8; 32], plain: bool, private: bool, authority: [u8; 32], token: [u8; 8],
        secret: [u8; 16], expires in prop::option::of(1u64..), uses in prop::option::of(1..=MAX_USES), name in "[^\\p{Cc}]{0,40}",
        addrs in prop::collection::vec((any::<std::net::IpAddr>(), any::<u16>()), 0..=MAX_ADDRS),
    ) -> Ticket {
        let mut v1 = [0; 20];
        v1.copy_from_slice(&id[..20]);
        let token = Token { id: TokenId(token), secret: Secret(secret) };
        Ticket {
            manifest: if v2 { ManifestId::V2(id) } else { ManifestId::V1(v1) },
            plain,
            access: if private { Access::Private { authority: NodeId(authority), token } } else { Access::Open },
            terms: if private { Terms { expires, uses } } else { Terms::default() },
            name: (!name.is_empty()).then_some(name),
            addrs: addrs.into_iter().map(|(ip, port)| SocketAddr::new(ip, port)).collect(),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(ticket in tickets()) {
        let text = ticket.to_string();
        prop_assert!(text.len() <= MAX_TICKET_CHARS);
        prop_assert!(same(&ticket, &text.parse().unwrap()));
        prop_assert!(same(&ticket, &text.to_uppercase().parse().unwrap()));
    }

    #[test]
    fn no_string_makes_it_panic(s in "\\PC{0,200}", tail in "[a-z2-7]{0,200}") {
        let _ = s.parse::<Ticket>();
        let _ = format!("tidecast1{tail}").parse::<Ticket>();
    }

    #[test]
    fn one_changed_character_is_noticed(at in 9usize..150, to in "[a-z2-7]") {
        let text = sample().to_string();
        let at = at.min(text.len() - 1);
        let mut damaged = text.clone();
        damaged.replace_range(at..=at, &to);
        prop_assert!(damaged == text || damaged.parse::<Ticket>().is_err());
    }
}

#[test]
fn a_ticket_broken_over_lines_is_read() {
    let text = sample().to_string();
    let broken = format!("  {}\r\n\t{}\n", &text[..40], &text[40..]);
    assert!(same(&sample(), &broken.parse().unwrap()));
}

#[test]
fn each_kind_of_damage_has_its_name() {
    let text = sample().to_string();
    let parse = |s: &str| s.parse::<Ticket>().unwrap_err();
    assert_eq!(parse(""), TicketError::Prefix("tidecast1"));
    assert_eq!(parse("magnet:?xt=urn"), TicketError::Prefix("tidecast1"));
    assert_eq!(parse(&text[..text.len() - 8]), TicketError::Checksum);
    assert_eq!(parse("tidecast1"), TicketError::Checksum);
    let odd = format!("{}!{}", &text[..20], &text[21..]);
    assert_eq!(parse(&odd), TicketError::Character(21));
    assert!(matches!(parse(&format!("tidecast1{}", "a".repeat(1 << 20))), TicketError::TooLong(_)));
}

#[test]
fn a_right_checksum_over_nonsense_is_still_refused() {
    let seal = |body: &[u8]| {
        let sum = ring::digest::digest(&ring::digest::SHA256, body);
        let all = [body, &sum.as_ref()[..4]].concat();
        format!("tidecast1{}", data_encoding::BASE32_NOPAD.encode(&all)).parse::<Ticket>()
    };
    let mut open = vec![1, 4];
    open.extend([9; 32]);
    let with = |tail: &[u8]| seal(&[&open[..], tail].concat());
    assert!(with(&[0, 0]).is_ok());
    assert_eq!(seal(&[3, 0, 0]).unwrap_err(), TicketError::Version(3));
    let content = |r: Result<Ticket, TicketError>| matches!(r.unwrap_err(), TicketError::Content(_));
    assert!(content(seal(&[])));
    assert!(content(seal(&[1, 0x80])));
    assert!(content(with(&[])));
    assert!(content(with(&[200, b'x'])), "name cut short");
    assert!(content(with(&[1, 0xff, 0])), "name not UTF-8");
    assert!(content(with(&[2, b'a', 0x1b, 0])), "an escape sequence in the name");
    assert!(content(with(&[0, 255])), "addresses missing");
    assert!(content(with(&[0, 1, 5, 0, 0, 0, 0, 0, 0])), "address family");
    assert!(content(with(&[0, 0, 0])), "bytes left over");
    let terms = |flags: u8, terms: &[u8]| {
        let private = if flags & 2 != 0 { &[7; 56][..] } else { &[] };
        seal(&[&[2, flags][..], &[9; 32], private, terms, &[0, 0]].concat())
    };
    let (until, none) = ([0, 0, 0, 0, 9, 9, 9, 9], [0; 8]);
    assert!(terms(6, &[until, none].concat()[..12]).is_ok());
    assert!(content(terms(6, &[0; 12])), "terms that are none");
    assert!(content(terms(4, &[until, none].concat()[..12])), "terms of an open swarm");
    assert!(content(terms(6, &[&none[..], &[0xff; 4]].concat())), "more uses than can be counted");
    assert!(content(terms(6, &until)), "terms cut short");
}

#[test]
fn a_ticket_without_terms_is_one_that_every_version_reads() {
    let version = |ticket: &Ticket| {
        let text = ticket.to_string();
        data_encoding::BASE32_NOPAD_NOCASE.decode(&text.as_bytes()[9..]).unwrap()[0]
    };
    assert_eq!(version(&sample()), 1);
    assert_eq!(version(&Ticket { terms: Terms { expires: None, uses: Some(1) }, ..sample() }), 2);
    assert_eq!(version(&Ticket { terms: Some(9).into(), ..sample() }), 2);
}

#[test]
fn what_does_not_fit_is_left_out_and_the_secret_is_never_shown() {
    let mut ticket = sample();
    ticket.name = Some("é".repeat(MAX_NAME));
    ticket.addrs = vec!["10.0.0.1:1".parse().unwrap(); MAX_ADDRS + 5];
    let back: Ticket = ticket.to_string().parse().unwrap();
    assert_eq!(back.addrs.len(), MAX_ADDRS);
    assert_eq!(back.name.unwrap().len(), MAX_NAME - 1);
    let shown = format!("{:?}", sample());
    assert!(shown.contains("hidden") && !shown.contains("4, 4"), "{shown}");
}

#[test]
fn node_ids_are_written_and_read() {
    let id = NodeId([0xa5; 32]);
    assert_eq!(id.to_string().len(), 52);
    assert_eq!(id.to_string().parse::<NodeId>().unwrap(), id);
    assert_eq!(id.to_string().to_uppercase().parse::<NodeId>().unwrap(), id);
    assert_eq!("a5".repeat(32).parse::<NodeId>().unwrap(), id);
    for bad in ["", "a5", &"zz".repeat(32), &"é".repeat(26)] {
        assert!(bad.parse::<NodeId>().is_err(), "{bad}");
    }
}
