//! Views against the definition: element `i` lies at `offset + Σ i_k · stride_k`.

use proptest::prelude::*;
use twinscope_tensor::{Bytes, DType, Shape, View, slice::Cut};

/// A storage, and a shape with strides and an offset that stay inside it: transposed, reversed, expanded, overlapping.
fn strided() -> impl Strategy<Value = (Vec<u64>, Vec<i64>, u64, Vec<u16>)> {
    prop::collection::vec((0u64..5, -6i64..7), 0..5).prop_map(|dims| {
        let (mut low, mut high) = (0i64, 0i64);
        for (dim, stride) in &dims {
            let reach = stride * (*dim as i64 - 1).max(0);
            low += reach.min(0);
            high += reach.max(0);
        }
        let len = (high - low + 1) as usize;
        let (shape, strides) = dims.into_iter().unzip();
        (
            shape,
            strides,
            (-low) as u64,
            (0..len as u16).map(|i| i.wrapping_mul(40_503)).collect(),
        )
    })
}

fn storage(values: &[u16]) -> Bytes {
    Bytes::from(
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
}

fn oracle(shape: &[u64], strides: &[i64], offset: u64, values: &[u16]) -> Vec<u16> {
    let all = Shape::from(shape.to_vec());
    let count = all.elements().unwrap();
    (0..count)
        .map(|flat| {
            let index = all.unravel(flat);
            let at = offset as i64
                + index
                    .iter()
                    .zip(strides)
                    .map(|(i, s)| *i as i64 * s)
                    .sum::<i64>();
            values[at as usize]
        })
        .collect()
}

fn read(view: &View, step: usize) -> Vec<u16> {
    let (mut out, mut scratch, mut at) = (Vec::new(), Vec::new(), 0);
    while at < view.len() {
        let count = step.min((view.len() - at) as usize);
        out.extend_from_slice(view.chunk(at, count, &mut scratch));
        at += count as u64;
    }
    out.chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

proptest! {
    #[test]
    fn every_strided_view_reads_as_defined((shape, strides, offset, values) in strided(), step in 1usize..9) {
        let view = View::strided(DType::U16, shape.clone().into(), strides.clone(), offset, storage(&values)).unwrap();
        prop_assert_eq!(read(&view, step), oracle(&shape, &strides, offset, &values));
    }

    #[test]
    fn one_element_is_the_same_as_its_chunk((shape, strides, offset, values) in strided()) {
        let view = View::strided(DType::U16, shape.clone().into(), strides, offset, storage(&values)).unwrap();
        let (all, mut scratch) = (read(&view, 7), Vec::new());
        for flat in 0..view.len() {
            let (bytes, _) = view.element(&view.shape().unravel(flat), &mut scratch);
            prop_assert_eq!(u16::from_le_bytes([bytes[0], bytes[1]]), all[flat as usize]);
        }
    }

    #[test]
    fn permuting_moves_every_index((shape, strides, offset, values) in strided(), seed in any::<u64>()) {
        let view = View::strided(DType::U16, shape.clone().into(), strides, offset, storage(&values)).unwrap();
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|axis| seed.rotate_left(*axis as u32 * 7).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let moved = view.permute(&order);
        let (old, new) = (read(&view, 64), read(&moved, 64));
        for flat in 0..moved.len() {
            let index = moved.shape().unravel(flat);
            let mut back = vec![0; index.len()];
            order.iter().zip(&index).for_each(|(axis, i)| back[*axis] = *i);
            let at = back.iter().zip(&shape).fold(0, |at, (i, dim)| at * dim + i);
            prop_assert_eq!(new[flat as usize], old[at as usize]);
        }
    }

    #[test]
    fn a_view_that_leaves_its_storage_is_refused((shape, strides, offset, values) in strided(), extra in 1u64..100) {
        prop_assume!(!shape.contains(&0));
        let bytes = storage(&values);
        let last = View::strided(DType::U16, shape.clone().into(), strides.clone(), offset + extra, bytes.clone());
        prop_assert!(last.is_err());
        let short = bytes.slice(0..bytes.len() as u64 - 1).unwrap();
        prop_assert!(View::strided(DType::U16, shape.into(), strides, offset, short).is_err());
    }
}

#[test]
fn big_endian_conjugate_and_negative_bits_are_resolved_on_reading() {
    let one_plus_two_i: Vec<u8> = [1f32, 2f32]
        .iter()
        .flat_map(|part| part.to_be_bytes())
        .collect();
    let view = View::new(DType::C64, Shape::scalar(), one_plus_two_i.into())
        .unwrap()
        .big_endian(true)
        .lazy_bits(true, false);
    let mut scratch = Vec::new();
    let read: Vec<f32> = view
        .chunk(0, 1, &mut scratch)
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(read, [1.0, -2.0]);
    let negated = View::new(DType::I16, [2].into(), vec![1, 0, 0, 0x80].into())
        .unwrap()
        .lazy_bits(false, true);
    assert_eq!(
        negated.chunk(0, 2, &mut Vec::new()),
        [0xff, 0xff, 0x00, 0x80]
    );
}

#[test]
fn a_trillion_expanded_elements_are_listed_and_any_part_is_read() {
    let view = View::strided(
        DType::F32,
        [1_000_000, 1_000_000].into(),
        vec![0, 0],
        0,
        vec![0, 0, 128, 63].into(),
    )
    .unwrap();
    assert_eq!(view.len(), 1_000_000_000_000);
    let mut scratch = Vec::new();
    assert_eq!(
        view.chunk(999_999_999_998, 2, &mut scratch),
        [0, 0, 128, 63, 0, 0, 128, 63]
    );
}

#[test]
fn numbers_that_overflow_are_refused_not_wrapped() {
    let huge = i64::MAX;
    let dims = [u64::MAX, u64::MAX, 2];
    assert!(
        View::strided(
            DType::F32,
            dims.into(),
            vec![huge, huge, huge],
            u64::MAX,
            vec![0; 4].into()
        )
        .is_err()
    );
    assert!(
        View::strided(
            DType::F32,
            [2].into(),
            vec![huge],
            u64::MAX,
            vec![0; 4].into()
        )
        .is_err()
    );
    assert!(View::strided(DType::F32, [2].into(), vec![i64::MIN], 0, vec![0; 4].into()).is_err());
    assert!(View::new(DType::F64, [1 << 62].into(), vec![0; 4].into()).is_err());
}

#[test]
fn strides_of_single_and_empty_dimensions_do_not_matter() {
    let view = View::strided(
        DType::U8,
        [1, 3].into(),
        vec![i64::MAX, 1],
        0,
        vec![1, 2, 3].into(),
    )
    .unwrap();
    assert_eq!(view.contiguous(), Some(&[1u8, 2, 3][..]));
    let empty = View::strided(DType::U8, [0, 3].into(), vec![999, 999], 6, vec![].into()).unwrap();
    assert_eq!(empty.contiguous(), Some(&[][..]));
}

#[test]
fn slices_of_packed_elements_are_read_one_at_a_time() {
    // 0..16 as nibbles, low first.
    let bytes: Vec<u8> = (0..8u8).map(|i| (2 * i) | ((2 * i + 1) << 4)).collect();
    let view = View::new(DType::OnnxU4, [4, 4].into(), bytes.into()).unwrap();
    let column = view.slice(&[
        Cut::Range {
            start: 3,
            step: -1,
            len: 4,
        },
        Cut::Index(1),
    ]);
    let mut scratch = Vec::new();
    let read: Vec<u8> = (0..4)
        .map(|i| column.element(&[i], &mut scratch).0[0])
        .collect();
    assert_eq!(read, [13, 9, 5, 1]);
    assert!(
        column.contiguous().is_none(),
        "a column of nibbles has no bytes of its own"
    );
}
