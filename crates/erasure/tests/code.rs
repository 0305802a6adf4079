//! The codec against vectors that never change and against an oracle written from the definition (rule R48).

mod oracle;

use erasure::{Code, CodeError};
use proptest::prelude::*;

fn data(k: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..k).map(|_| (0..bytes).map(|_| next()).collect()).collect()
}

/// The subsets of `of` with `size` elements.
fn subsets(of: usize, size: usize) -> Vec<Vec<usize>> {
    let of_bits = |bits: u32| (0..of).filter(|i| bits >> i & 1 == 1).collect::<Vec<_>>();
    (0..1_u32 << of).map(of_bits).filter(|subset| subset.len() == size).collect()
}

#[test]
fn parity_is_these_bytes_for_ever() {
    let code = Code::new(4, 2).expect("a code");
    let unit =
        |place: usize| (0..4).map(|i| vec![u8::from(i == place), 0x80 * u8::from(i == place)]).collect::<Vec<_>>();
    // The rows of the matrix, and what 0x80 becomes by them.
    let expected = [[[27, 1], [28, 166]], [[28, 166], [27, 1]], [[18, 245], [20, 210]], [[20, 210], [18, 245]]];
    for (place, parity) in expected.iter().enumerate() {
        assert_eq!(code.encode(&unit(place)).expect("parity"), parity.map(|bytes| bytes.to_vec()), "data {place}");
    }
    let text = [b"any four of", b"the six may", b"be read and", b"none is old"].map(|text| text.to_vec());
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let parity: Vec<String> = code.encode(&text).expect("parity").iter().map(hex).collect();
    assert_eq!(parity, ["2a944ee0f0a3ae35bce903", "69baa3921881ff9666cf5e"]);
}

#[test]
fn any_four_of_six_give_the_other_two_as_the_oracle_says() {
    let (k, m, bytes) = (4, 2, 64);
    let code = Code::new(k, m).expect("a code");
    let data = data(k, bytes, 7);
    let parity = code.encode(&data).expect("parity");
    assert_eq!(parity, oracle::encode(&data, m));
    let all: Vec<Vec<u8>> = data.iter().chain(&parity).cloned().collect();
    for kept in subsets(k + m, k) {
        let lost: Vec<usize> = (0..k + m).filter(|place| !kept.contains(place)).collect();
        let pieces = (0..k + m).map(|place| kept.contains(&place).then(|| all[place].clone())).collect();
        let decoded = code.decode(pieces, &lost).expect("decodes");
        assert_eq!(decoded, lost.iter().map(|place| all[*place].clone()).collect::<Vec<_>>(), "{kept:?}");
        let given: Vec<_> = kept.iter().map(|place| (*place, all[*place].clone())).collect();
        assert_eq!(oracle::decode(k, &given), data, "{kept:?}");
    }
}

#[test]
fn a_wrong_byte_anywhere_shows_in_what_another_choice_of_pieces_gives() {
    let code = Code::new(4, 2).expect("a code");
    let data = data(4, 3, 1);
    let mut all: Vec<Vec<u8>> = data.iter().cloned().chain(code.encode(&data).expect("parity")).collect();
    for place in 1..6 {
        all[place][1] ^= 1;
        let from = |kept: [usize; 4]| {
            let pieces = (0..6).map(|place| kept.contains(&place).then(|| all[place].clone())).collect();
            code.decode(pieces, &[0]).expect("decodes").remove(0)
        };
        assert!(from([1, 2, 3, 4]) != data[0] || from([2, 3, 4, 5]) != data[0], "{place}");
        all[place][1] ^= 1;
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    assert_eq!(Code::new(0, 2).err(), Some(CodeError::NoSuchCode(0, 2)));
    assert_eq!(Code::new(4, 0).err(), Some(CodeError::NoSuchCode(4, 0)));
    assert_eq!(Code::new(200, 57).err(), Some(CodeError::NoSuchCode(200, 57)));
    let code = Code::new(2, 1).expect("a code");
    assert_eq!((code.k(), code.m(), format!("{code:?}")), (2, 1, "code 2+1".to_owned()));
    assert_eq!(code.encode(&[vec![1], vec![1, 2]]), Err(CodeError::Pieces));
    assert_eq!(code.encode(&[vec![1]]), Err(CodeError::Pieces));
    assert_eq!(code.decode(vec![None, None, Some(vec![1])], &[0]), Err(CodeError::TooFew(1)));
    assert_eq!(
        code.decode(vec![Some(vec![1]), None, Some(vec![1])], &[0]),
        Err(CodeError::Pieces),
        "it is not missing"
    );
    let all = vec![Some(vec![1]), Some(vec![1]), Some(vec![0])];
    assert_eq!(code.decode(all, &[]), Err(CodeError::Pieces), "which of them would be used");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_code_agrees_with_the_oracle(k in 1_usize..9, m in 1_usize..4, bytes in 1_usize..40, seed: u64, from in 0_usize..40) {
        let code = Code::new(k, m).expect("a code");
        let data = data(k, bytes, seed);
        let parity = code.encode(&data).expect("parity");
        prop_assert_eq!(&parity, &oracle::encode(&data, m));
        let all: Vec<Vec<u8>> = data.iter().chain(&parity).cloned().collect();
        let choices = subsets(k + m, k);
        let kept = &choices[seed as usize % choices.len()];
        // A range of bytes decodes alone.
        let from = from % bytes;
        let piece = |place: usize| kept.contains(&place).then(|| all[place][from..].to_vec());
        let lost: Vec<usize> = (0..k + m).filter(|place| !kept.contains(place)).collect();
        let decoded = code.decode((0..k + m).map(piece).collect(), &lost).expect("decodes");
        for (place, piece) in lost.iter().zip(decoded) {
            prop_assert_eq!(&piece, &all[*place][from..]);
        }
    }
}
