//! Exact bytes of a description, and a malformed description for every error.

use super::*;

fn info() -> QpInfo {
    QpInfo {
        queue_pair: 7,
        rkey: 0x1122_3344,
        qkey: 0x5566_7788,
        mtu_bytes: 1400,
        chunk_packets: 16,
        split: ImmediateSplit::DEFAULT,
        generations: 4,
        stripe_packets: 64,
        max_message_bytes: 1 << 30,
        first_psn: 0xff_fffe,
        credit_bytes: 212_992,
        channels: vec!["192.0.2.1:4791".parse().unwrap(), "[2001:db8::2]:4792".parse().unwrap()],
        code: None,
        seal: Seal::Crc32c,
        nonce: None,
        reports: None,
    }
}

const REPORTS: ReportsInfo = ReportsInfo {
    bytes_max: 16_384,
    delay_ns_min: 20_000,
    delay_ns_max: 100_000,
    gap_delay_ns_min: 10_000,
    per_rtt: 8,
    on_mark: true,
};

const CODE: CodeInfo = CodeInfo { kind: 2, data_chunks: 32, parity_chunks: 8, interleave: 3 };

#[rustfmt::skip]
const BYTES: [u8; 126] = [
    b'L', b'C', b'Q', b'P', 0, 3, 0, 118,
    0, 1, 0, 4, 0, 0, 0, 7,
    0, 2, 0, 4, 0x11, 0x22, 0x33, 0x44,
    0, 3, 0, 4, 0x55, 0x66, 0x77, 0x88,
    0, 4, 0, 4, 0, 0, 0x05, 0x78,
    0, 5, 0, 4, 0, 0, 0, 16,
    0, 6, 0, 3, 10, 18, 4,
    0, 7, 0, 1, 4,
    0, 8, 0, 4, 0, 0, 0, 64,
    0, 9, 0, 8, 0, 0, 0, 0, 0x40, 0, 0, 0,
    0, 10, 0, 4, 0, 0xff, 0xff, 0xfe,
    0, 11, 0, 4, 0, 0x03, 0x40, 0,
    0, 12, 0, 26, 4, 0x12, 0xb7, 192, 0, 2, 1,
                  6, 0x12, 0xb8, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
];

/// The encoded fields without header, for tests that edit them and call [`parse_fields`].
fn fields() -> Vec<u8> {
    BYTES[HEADER_BYTES..].to_vec()
}

fn parse_fields(fields: &[u8]) -> Result<QpInfo, InfoError> {
    let mut bytes = BYTES[..HEADER_BYTES].to_vec();
    bytes.extend(fields);
    set_length(&mut bytes, HEADER_BYTES - 2, HEADER_BYTES);
    QpInfo::parse(&bytes)
}

/// Parses the description with `value` in field `field`.
fn parse_with(field: InfoField, value: &[u8]) -> Result<QpInfo, InfoError> {
    let mut out = Vec::new();
    let mut rest = &BYTES[HEADER_BYTES..];
    while !rest.is_empty() {
        let (tag, old) = take_field(&mut rest).unwrap();
        let value = if tag == field.tag() { value } else { old };
        out.extend(tag.to_be_bytes());
        out.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        out.extend(value);
    }
    parse_fields(&out)
}

#[test]
fn bytes() {
    assert_eq!(info().emit(), BYTES);
    assert_eq!(QpInfo::parse(&BYTES), Ok(info()));
}

#[test]
fn the_longest_description_is_as_long_as_reckoned() {
    let address = "[2001:db8::2]:4792".parse().unwrap();
    let channels = vec![address; CHANNELS_MAX];
    let code = Some(CODE);
    let (nonce, reports) = (Some([0xA5; NONCE_BYTES]), Some(REPORTS));
    let info = QpInfo { channels, code, seal: Seal::Aead, nonce, reports, ..info() };
    assert_eq!(info.emit().len(), EMITTED_BYTES_MAX);
    assert_eq!(QpInfo::parse(&info.emit()), Ok(info));
}

#[test]
fn a_nonce_is_there_if_packets_are_encrypted_and_no_reader_skips_it() {
    let nonce = *b"0123456789abcdef";
    let sealed = QpInfo { seal: Seal::Aead, nonce: Some(nonce), ..info() };
    let bytes = sealed.emit();
    assert!(bytes.windows(20).any(|field| field == [&[0, 15, 0, 16], &nonce[..]].concat()));
    assert_eq!(QpInfo::parse(&bytes), Ok(sealed));
    assert_eq!(InfoField::Nonce.tag() & SKIPPABLE, 0);
}

#[test]
fn addresses_and_credit_may_change_on_the_way_without_another_agreement_and_nothing_else_may() {
    let moved = vec!["[::1]:1".parse().unwrap(); 2];
    let agreed = info().agreed_bytes();
    assert_eq!(QpInfo { channels: moved, credit_bytes: 1, ..info() }.agreed_bytes(), agreed);
    for other in [
        QpInfo { queue_pair: 8, ..info() },
        QpInfo { rkey: 0, ..info() },
        QpInfo { first_psn: 1, ..info() },
        QpInfo { channels: info().channels[..1].to_vec(), ..info() },
        QpInfo { reports: Some(REPORTS), ..info() },
    ] {
        assert_ne!(other.agreed_bytes(), agreed);
    }
}

#[test]
fn fields_may_come_in_any_order_with_skippable_ones_between() {
    let mut shuffled = vec![0xff, 0xff, 0, 2, 1, 2];
    shuffled.extend(&fields()[8..]);
    shuffled.extend([0x80, 0, 0, 0]);
    shuffled.extend(&fields()[..8]);
    assert_eq!(parse_fields(&shuffled), Ok(info()));
}

#[test]
fn every_truncation_is_rejected() {
    for cut in 0..BYTES.len() {
        assert!(QpInfo::parse(&BYTES[..cut]).is_err(), "{cut} bytes");
        if cut >= HEADER_BYTES {
            assert!(parse_fields(&BYTES[HEADER_BYTES..cut]).is_err(), "{cut} bytes");
        }
    }
}

#[test]
fn the_header_is_checked() {
    let header = |at: usize, value: u8| {
        let mut bytes = BYTES;
        bytes[at] = value;
        QpInfo::parse(&bytes).unwrap_err()
    };
    assert_eq!(header(0, b'l'), InfoError::Magic { found: *b"lCQP" });
    assert_eq!(header(5, 1), InfoError::Version { found: 1 });
    assert_eq!(header(7, 117), InfoError::Bytes { announced: 117, found: 118 });
    assert_eq!(QpInfo::parse(b"LCQP"), Err(InfoError::TooShort { needed: 8, found: 4 }));
    assert_eq!(QpInfo::parse(&[0; 1025]), Err(InfoError::TooLong { found: 1025 }));
}

#[test]
fn each_field_must_come_exactly_once() {
    assert_eq!(
        parse_fields(&fields()[8..]),
        Err(InfoError::Missing { field: InfoField::QueuePair })
    );
    let mut twice = fields();
    twice.extend(&fields()[8..16]);
    assert_eq!(parse_fields(&twice), Err(InfoError::Duplicate { field: InfoField::Rkey }));
    let mut unknown = fields();
    unknown.extend([0x7f, 0, 0, 0]);
    assert_eq!(parse_fields(&unknown), Err(InfoError::UnknownField { tag: 0x7f00 }));
}

#[test]
fn values_out_of_range_name_the_field() {
    let field = InfoField::QueuePair;
    assert_eq!(
        parse_with(field, &[0, 1, 0xff, 0xff]),
        Err(InfoError::Range { field, found: 0x1_ffff, min: 1, max: 0x1_fffe })
    );
    let zero_is_wrong: [(_, &[u8]); 6] = [
        (InfoField::QueuePair, &[0; 4]),
        (InfoField::Mtu, &[0; 4]),
        (InfoField::Chunk, &[0; 4]),
        (InfoField::Generations, &[0; 1]),
        (InfoField::Stripe, &[0; 4]),
        (InfoField::MaxMessage, &[0; 8]),
    ];
    for (field, value) in zero_is_wrong {
        let error = parse_with(field, value).unwrap_err();
        assert!(error.to_string().contains(field.name()), "{error}");
        assert!(matches!(error, InfoError::Range { found: 0, .. }), "{error}");
    }
    let too_large: [(_, &[u8]); 3] = [
        (InfoField::Mtu, &[0, 1, 0, 0]),
        (InfoField::Generations, &[9]),
        (InfoField::FirstPsn, &[1, 0, 0, 0]),
    ];
    for (field, value) in too_large {
        assert!(matches!(parse_with(field, value), Err(InfoError::Range { .. })), "{field}");
    }
    assert_eq!(
        parse_with(InfoField::Split, &[10, 18, 3]),
        Err(InfoError::Split(crate::SplitError::UserBits(3)))
    );
}

#[test]
fn values_of_the_wrong_size_name_the_field() {
    use InfoField::{Code, Nonce, Reports};
    let is_optional = |field: &InfoField| matches!(field, Code | InfoField::Seal | Nonce | Reports);
    for field in InfoField::ALL.into_iter().filter(|field| !is_optional(field)) {
        let error = parse_with(field, &[4; 2]).unwrap_err();
        assert_eq!(error, InfoError::Length { field, found: 2 });
    }
}

#[test]
fn a_code_is_told_only_if_there_is_one() {
    let info = QpInfo { code: Some(CODE), ..info() };
    let bytes = info.emit();
    assert_eq!(bytes[BYTES.len()..], [0, 13, 0, 7, 2, 32, 8, 0, 0, 0, 3]);
    assert_eq!(QpInfo::parse(&bytes), Ok(info));
    let field = InfoField::Code;
    let cut = [fields(), vec![0, 13, 0, 2, 2, 32]].concat();
    assert_eq!(parse_fields(&cut), Err(InfoError::Length { field, found: 2 }));
    let none = [fields(), vec![0, 13, 0, 7, 2, 32, 8, 0, 0, 0, 0]].concat();
    let error = InfoError::Range { field, found: 0, min: 1, max: u32::MAX.into() };
    assert_eq!(parse_fields(&none), Err(error));
}

/// An older peer refuses the description: it cannot read such packets.
#[test]
fn a_seal_is_told_only_if_it_is_not_the_default_and_in_a_field_that_must_be_known() {
    let info = QpInfo { seal: Seal::Icrc, ..info() };
    let bytes = info.emit();
    assert_eq!(bytes[BYTES.len()..], [0, 14, 0, 1, 1]);
    assert_eq!(InfoField::Seal.tag() & SKIPPABLE, 0);
    assert_eq!(QpInfo::parse(&bytes), Ok(info));
    let unknown = [fields(), vec![0, 14, 0, 1, 3]].concat();
    let error = InfoError::Range { field: InfoField::Seal, found: 3, min: 0, max: 2 };
    assert_eq!(parse_fields(&unknown), Err(error));
}

#[test]
fn reports_are_told_only_if_they_are_not_the_default_and_in_a_field_that_may_be_skipped() {
    let info = QpInfo { reports: Some(REPORTS), ..info() };
    let bytes = info.emit();
    #[rustfmt::skip]
    assert_eq!(bytes[BYTES.len()..], [
        0x80, 1, 0, 21, 0, 0, 0x40, 0, 0, 0, 0x4e, 0x20, 0, 1, 0x86, 0xa0, 0, 0, 0x27, 0x10,
        0, 0, 0, 8, 1,
    ]);
    assert_ne!(InfoField::Reports.tag() & SKIPPABLE, 0);
    assert_eq!(QpInfo::parse(&bytes), Ok(info));
    let field = InfoField::Reports;
    let cut = [fields(), vec![0x80, 1, 0, 2, 2, 32]].concat();
    assert_eq!(parse_fields(&cut), Err(InfoError::Length { field, found: 2 }));
}

#[test]
fn channels_are_checked() {
    let field = InfoField::Channels;
    assert_eq!(
        parse_with(field, &[5, 0, 0, 1, 2, 3, 4]),
        Err(InfoError::AddressFamily { found: 5 })
    );
    assert_eq!(
        parse_with(field, &[6, 0, 0, 1, 2, 3, 4]),
        Err(InfoError::Length { field, found: 7 })
    );
    for count in [0, 17] {
        let value = [4, 0x12, 0xb7, 192, 0, 2, 1].repeat(count);
        let error = InfoError::Range { field, found: count as u64, min: 1, max: 16 };
        assert_eq!(parse_with(field, &value), Err(error));
    }
}

#[test]
#[should_panic(expected = "1 to 16 channels, not 0")]
fn a_description_without_channels_cannot_be_written() {
    let _ = QpInfo { channels: vec![], ..info() }.emit();
}
