//! Layouts by value: whatever was done to a tensor is found and undone, and what cannot be is said.

use super::{
    Convention, Evidence, Hints, LayoutError, Parts, SideHints, Step, Which, align, apply,
    parse_steps,
};
use proptest::prelude::*;
use std::{slice::from_ref, sync::Arc};
use twinscope_tensor::{Bytes, DType, Operand, Shape, Shrunk, Storage, View};

/// A tensor of f32, built.
#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    dims: Vec<u64>,
    values: Vec<f32>,
}

fn hash(at: u64) -> u64 {
    let mut bits = at
        .wrapping_add(0x9E37_79B9_7F4A_7C15)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

/// Bell-shaped, as activations are.
fn normal(at: u64) -> f32 {
    (0..4)
        .map(|i| (hash(at * 4 + i) >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .sum()
}

impl Tensor {
    fn random(dims: &[u64], salt: u64) -> Self {
        let count = dims.iter().product::<u64>();
        Self {
            dims: dims.to_vec(),
            values: (0..count).map(|at| normal(at + salt * 1_000_003)).collect(),
        }
    }

    fn make(dims: &[u64], value: impl Fn(&[u64]) -> f32) -> Self {
        let shape = Shape::from(dims.to_vec());
        Self {
            dims: dims.to_vec(),
            values: (0..shape.elements().unwrap())
                .map(|flat| value(&shape.unravel(flat)))
                .collect(),
        }
    }

    fn at(&self, index: &[u64]) -> f32 {
        self.values[index
            .iter()
            .zip(&self.dims)
            .fold(0, |at, (i, dim)| at * dim + i) as usize]
    }

    fn permute(&self, order: &[usize]) -> Self {
        let dims: Vec<u64> = order.iter().map(|old| self.dims[*old]).collect();
        Self::make(&dims, |index| {
            let mut back = vec![0; index.len()];
            order.iter().zip(index).for_each(|(old, i)| back[*old] = *i);
            self.at(&back)
        })
    }

    fn shaped(&self, dims: &[u64]) -> Self {
        assert_eq!(dims.iter().product::<u64>(), self.values.len() as u64);
        Self {
            dims: dims.to_vec(),
            values: self.values.clone(),
        }
    }

    fn take(&self, axis: usize, indices: &[u64]) -> Self {
        let mut dims = self.dims.clone();
        dims[axis] = indices.len() as u64;
        Self::make(&dims, |index| {
            let mut index = index.to_vec();
            index[axis] = indices[index[axis] as usize];
            self.at(&index)
        })
    }

    fn shards(&self, axis: usize, count: u64) -> Vec<Self> {
        let size = self.dims[axis] / count;
        (0..count)
            .map(|rank| self.take(axis, &(rank * size..(rank + 1) * size).collect::<Vec<_>>()))
            .collect()
    }

    fn map(&self, change: impl Fn(usize, f32) -> f32) -> Self {
        Self {
            dims: self.dims.clone(),
            values: self
                .values
                .iter()
                .enumerate()
                .map(|(at, value)| change(at, *value))
                .collect(),
        }
    }

    /// bf16, as a candidate often is.
    fn view16(&self) -> View {
        let bytes: Vec<u8> = self
            .values
            .iter()
            .flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes())
            .collect();
        View::new(DType::Bf16, self.dims.clone().into(), bytes.into()).unwrap()
    }

    fn view(&self) -> View {
        let bytes: Vec<u8> = self
            .values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        View::new(DType::F32, self.dims.clone().into(), bytes.into()).unwrap()
    }
}

fn views(tensors: &[Tensor]) -> Vec<View> {
    tensors.iter().map(Tensor::view).collect()
}

fn read(operand: &dyn Operand) -> Tensor {
    let mut out = Vec::new();
    assert!(operand.f64_values(0, operand.len() as usize, &mut Vec::new(), &mut out));
    Tensor {
        dims: operand.shape().dims().to_vec(),
        values: out.into_iter().map(|value| value as f32).collect(),
    }
}

/// The layout that is found turns the candidate into the reference, exactly, and so does repeating its steps from JSON.
#[track_caller]
fn found(reference: &[Tensor], candidate: &[Tensor], hints: &Hints) -> super::Layout {
    let (r, c) = (views(reference), views(candidate));
    let aligned = align(&r, &c, hints).unwrap();
    assert_eq!(
        read(&*aligned.reference),
        read(&*aligned.candidate),
        "{}",
        aligned.layout.text
    );
    let json = serde_json::to_string(&aligned.layout.steps).unwrap();
    let steps: Vec<Step> = serde_json::from_str(&json).unwrap();
    let again = apply(&steps, &r, &c).unwrap();
    assert_eq!(read(&*again.candidate), read(&*aligned.candidate));
    assert_eq!(again.layout.text, aligned.layout.text);
    aligned.layout
}

/// As [`align`], then every copy looked at.
fn settled(reference: &[Tensor], candidate: &[Tensor]) -> super::Aligned {
    let (r, c) = (views(reference), views(candidate));
    let aligned = align(&r, &c, &parts(Parts::Ranks)).unwrap();
    super::settle(aligned, &r, &c, &|| true).unwrap().unwrap()
}

#[test]
fn shared_heads_of_which_a_rank_is_missing_are_not_broken_copies() {
    // Four ranks share two heads; the last one was not recorded.
    let whole = Tensor::random(&[16, 10], 1);
    let heads = whole.shards(0, 2);
    let three = [heads[0].clone(), heads[0].clone(), heads[1].clone()];
    let (r, c) = (views(from_ref(&whole)), views(&three));
    let aligned = align(&r, &c, &parts(Parts::Ranks)).unwrap();
    assert!(super::settle(aligned, &r, &c, &|| true).is_err());
}

#[test]
fn one_ranks_share_of_what_is_fused_is_its_share_of_each_piece() {
    let pieces = [
        Tensor::random(&[16, 6], 1),
        Tensor::random(&[4, 6], 2),
        Tensor::random(&[4, 6], 3),
    ];
    let join = |parts: &[Tensor]| {
        let rows: u64 = parts.iter().map(|part| part.dims[0]).sum();
        Tensor {
            dims: vec![rows, 6],
            values: parts.iter().flat_map(|part| part.values.clone()).collect(),
        }
    };
    let whole = join(&pieces);
    for rank in 0..2 {
        let share = join(
            &pieces
                .each_ref()
                .map(|piece| piece.shards(0, 2)[rank].clone()),
        );
        let layout = found(from_ref(&whole), from_ref(&share), &Hints::default());
        assert_eq!(layout.by, Evidence::Values, "{}", layout.text);
    }
}

#[test]
fn a_copy_that_differs_takes_the_place_of_the_one_that_agrees() {
    let whole = Tensor::random(&[6, 10], 1);
    let broken = whole.map(|at, value| if at == 33 { value + 1.0 } else { value });
    let worse = whole.map(|at, value| if at == 33 { value + 5.0 } else { value });
    let copies = [whole.clone(), broken.clone(), worse.clone(), whole.clone()];
    let text =
        |aligned: &super::Aligned| aligned.layout.text.rsplit(": ").next().unwrap().to_owned();
    let found = settled(from_ref(&whole), &copies);
    assert_eq!(read(&*found.candidate), worse);
    assert_eq!(
        text(&found),
        "take part 2, the furthest off of copies that differ (parts 1, 2 are not like the other 2)"
    );
    let found = settled(&copies, from_ref(&whole));
    assert_eq!(read(&*found.reference), worse);
    assert_eq!(
        text(&found),
        "take part 2 of the reference, the furthest off of copies that differ (parts 1, 2 are not like the other 2)"
    );
    // The first is alone, and so the odd one.
    let found = settled(from_ref(&whole), &[broken, whole.clone(), whole.clone()]);
    assert_eq!(
        text(&found),
        "take part 0, the furthest off of copies that differ (part 0 is not like the other 2)"
    );
    let same = settled(from_ref(&whole), &[whole.clone(), whole.clone()]);
    assert_eq!(text(&same), "take part 0, the others hold the same");
}

#[test]
fn shards_of_which_one_is_missing_are_no_copies() {
    let whole = Tensor::random(&[16, 6], 1);
    let mut shards = whole.shards(0, 4);
    shards.remove(2);
    let (r, c) = (views(from_ref(&whole)), views(&shards));
    let settled = align(&r, &c, &parts(Parts::Ranks))
        .and_then(|aligned| super::settle(aligned, &r, &c, &|| true));
    assert_eq!(
        settled.unwrap_err().to_string(),
        "[16, 6] and 3 x [4, 6] cannot be lined up"
    );
}

#[test]
fn of_fewer_heads_than_ranks_every_rank_is_looked_at() {
    let heads = Tensor::random(&[2, 2, 5, 4], 1);
    let shards = heads.shards(1, 2);
    let mut ranks = [
        shards[0].clone(),
        shards[0].clone(),
        shards[1].clone(),
        shards[1].clone(),
    ];
    assert_eq!(read(&*settled(from_ref(&heads), &ranks).candidate), heads);
    ranks[3] = ranks[3].map(|at, value| if at == 7 { -value } else { value });
    let found = settled(from_ref(&heads), &ranks);
    assert_ne!(read(&*found.candidate), heads);
    assert!(
        found.layout.text.contains("take parts 0, 3, the furthest off of copies that differ (part 3 is not like the other 3)"),
        "{}",
        found.layout.text
    );
}

#[test]
fn a_rank_that_holds_the_head_of_another_is_no_copy() {
    let heads = Tensor::random(&[2, 2, 5, 4], 1);
    let shards = heads.shards(1, 2);
    let ranks = [
        shards[0].clone(),
        shards[1].clone(),
        shards[1].clone(),
        shards[1].clone(),
    ];
    let found = settled(from_ref(&heads), &ranks);
    assert_ne!(read(&*found.candidate), heads, "{}", found.layout.text);
}

#[test]
fn ranks_beside_more_ranks_that_hold_copies_are_all_put_together() {
    // The first rank agrees with the first rank, whatever the others hold.
    let heads = Tensor::random(&[2, 5, 4], 1);
    let shards = heads.shards(0, 2);
    for copies in [2, 4] {
        let ranks: Vec<Tensor> = shards
            .iter()
            .flat_map(|shard| std::iter::repeat_n(shard.clone(), copies))
            .collect();
        for (reference, candidate) in [(&shards, &ranks), (&ranks, &shards)] {
            let found = settled(reference, candidate);
            assert_eq!(
                (read(&*found.reference), read(&*found.candidate)),
                (heads.clone(), heads.clone()),
                "{}",
                found.layout.text
            );
        }
    }
}

/// The ranks of fused queries, keys and values, with fewer key heads than ranks: rank by rank its queries, its key head, its value head.
fn replicated(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    heads: u64,
    ranks: u64,
) -> Vec<Tensor> {
    let (q, k, v) = (
        queries.shards(0, ranks),
        keys.shards(0, heads),
        values.shards(0, heads),
    );
    let rank = |rank: u64| {
        let head = (rank * heads / ranks) as usize;
        stacked(&[q[rank as usize].clone(), k[head].clone(), v[head].clone()])
    };
    (0..ranks).map(rank).collect()
}

/// One after another along the first dimension.
fn stacked(parts: &[Tensor]) -> Tensor {
    let rows = parts.iter().map(|part| part.dims[0]).sum();
    let dims = std::iter::once(rows)
        .chain(parts[0].dims[1..].iter().copied())
        .collect();
    Tensor {
        dims,
        values: parts.iter().flat_map(|part| part.values.clone()).collect(),
    }
}

#[test]
fn fused_shards_with_fewer_key_heads_than_ranks_are_put_together() {
    let kinds = |reference, candidate| Hints {
        reference: SideHints {
            parts: reference,
            ..SideHints::default()
        },
        candidate: SideHints {
            parts: candidate,
            ..SideHints::default()
        },
        ..Hints::default()
    };
    for (query_heads, key_heads, ranks) in [
        (8, 2, 4),
        (8, 1, 4),
        (8, 2, 8),
        (8, 4, 8),
        (12, 2, 4),
        (32, 2, 8),
        (8, 1, 2),
    ] {
        for tail in [&[6u64][..], &[]] {
            let shape = |heads: u64| [&[4 * heads], tail].concat();
            let (q, k, v) = (
                Tensor::random(&shape(query_heads), 1),
                Tensor::random(&shape(key_heads), 2),
                Tensor::random(&shape(key_heads), 3),
            );
            let shards = replicated(&q, &k, &v, key_heads, ranks);
            let (pieces, whole) = (
                [q.clone(), k.clone(), v.clone()],
                stacked(&[q.clone(), k.clone(), v.clone()]),
            );
            assert_eq!(
                found(&pieces, &shards, &kinds(Parts::Pieces, Parts::Ranks)).by,
                Evidence::Values
            );
            assert_eq!(
                found(
                    from_ref(&whole),
                    &shards,
                    &kinds(Parts::Unknown, Parts::Ranks)
                )
                .by,
                Evidence::Values
            );
            assert_eq!(
                found(&shards, &pieces, &kinds(Parts::Ranks, Parts::Pieces)).by,
                Evidence::Values
            );
            // Not fused: each of the three has its ranks.
            let head = |part: &Tensor, rank: u64| {
                part.shards(0, key_heads)[(rank * key_heads / ranks) as usize].clone()
            };
            let copies =
                |part: &Tensor| (0..ranks).map(|rank| head(part, rank)).collect::<Vec<_>>();
            let apart: Vec<Tensor> = q
                .shards(0, ranks)
                .into_iter()
                .chain(copies(&k))
                .chain(copies(&v))
                .collect();
            let kind = Parts::RanksOfPieces(ranks as usize);
            assert_eq!(
                found(from_ref(&whole), &apart, &kinds(Parts::Unknown, kind)).by,
                Evidence::Values
            );
        }
    }
}

#[test]
fn a_wrong_copy_of_a_value_head_in_one_rank_is_compared() {
    let (q, k, v) = (
        Tensor::random(&[32, 6], 1),
        Tensor::random(&[8, 6], 2),
        Tensor::random(&[8, 6], 3),
    );
    let mut shards = replicated(&q, &k, &v, 2, 4);
    let whole = stacked(&[q, k, v]);
    assert_eq!(read(&*settled(from_ref(&whole), &shards).candidate), whole);
    let last = shards[3].values.len() - 1;
    shards[3] = shards[3].map(|at, value| if at == last { value + 1.0 } else { value });
    let found = settled(from_ref(&whole), &shards);
    assert_ne!(read(&*found.candidate), whole);
    assert!(
        found
            .layout
            .text
            .contains("the furthest off of copies that differ"),
        "{}",
        found.layout.text
    );
    // The values of the other head.
    shards[3] = stacked(&[
        shards[3].take(0, &(0..12).collect::<Vec<_>>()),
        shards[0].take(0, &(12..16).collect::<Vec<_>>()),
    ]);
    assert_ne!(read(&*settled(from_ref(&whole), &shards).candidate), whole);
}

#[test]
fn a_convention_of_the_names_is_followed_where_the_values_confirm_it() {
    let with = |convention| Hints {
        convention: Some(convention),
        ..Hints::default()
    };
    let square = Tensor::random(&[12, 12], 1);
    let layout = found(
        from_ref(&square),
        from_ref(&square.permute(&[1, 0])),
        &with(Convention::Turned),
    );
    assert_eq!(
        (layout.text.as_str(), layout.by),
        (
            "[12, 12] -> [12, 12]: swap dims 0 and 1",
            Evidence::Declared
        )
    );
    assert!(
        found(
            from_ref(&square),
            from_ref(&square),
            &with(Convention::Turned)
        )
        .steps
        .is_empty()
    );
    // Among others that are all turned, one that is not is wrong.
    let forgotten = align(
        &views(from_ref(&square)),
        &views(from_ref(&square)),
        &with(Convention::AllTurned),
    )
    .unwrap();
    assert_eq!(read(&*forgotten.candidate), square.permute(&[1, 0]));
    // Kernels of convolutions whose dimensions are all equal, either side's.
    let kernel = Tensor::random(&[3, 3, 3, 3], 1);
    for order in [[2, 3, 1, 0], [3, 2, 0, 1]] {
        let layout = found(
            from_ref(&kernel),
            from_ref(&kernel.permute(&order)),
            &with(Convention::Turned),
        );
        assert_eq!(layout.by, Evidence::Declared, "{}", layout.text);
    }
    let pieces = [
        Tensor::random(&[32, 6], 1),
        Tensor::random(&[8, 6], 2),
        Tensor::random(&[8, 6], 3),
    ];
    let (plain, interleaved) = (stacked(&pieces), packed(&pieces, 2));
    for (reference, candidate, which) in [
        (&plain, &interleaved, Which::Candidate),
        (&interleaved, &plain, Which::Reference),
    ] {
        let layout = found(
            from_ref(reference),
            from_ref(candidate),
            &with(Convention::Interleaved(which)),
        );
        assert_eq!(layout.by, Evidence::Declared, "{}", layout.text);
    }
    // In ranks, each with its groups.
    let pieces = [
        Tensor::random(&[32, 6], 1),
        Tensor::random(&[16, 6], 2),
        Tensor::random(&[16, 6], 3),
    ];
    let (whole, shards) = (stacked(&pieces), packed(&pieces, 8).shards(0, 2));
    for (reference, candidate, which) in [
        (from_ref(&whole), &shards[..], Which::Candidate),
        (&shards, from_ref(&whole), Which::Reference),
    ] {
        let layout = found(reference, candidate, &with(Convention::Interleaved(which)));
        assert_eq!(layout.by, Evidence::Values, "{}", layout.text);
    }
    // Strangers are compared as they are, and so is everything that no name speaks for.
    let other = Tensor::random(&[48, 6], 9);
    let aligned = align(
        &[plain.view()],
        &[other.view()],
        &with(Convention::Interleaved(Which::Candidate)),
    )
    .unwrap();
    assert!(aligned.layout.steps.is_empty());
    assert!(
        align(&[plain.view()], &[interleaved.view()], &Hints::default())
            .unwrap()
            .layout
            .steps
            .is_empty()
    );
}

#[test]
fn a_rank_that_is_wrong_is_not_cut_off() {
    let heads = Tensor::random(&[8, 12, 8], 1);
    let mut ranks = heads.shards(0, 2);
    ranks[1] = ranks[1].map(|_, value| value * 1.3);
    let found = settled(from_ref(&heads), &ranks);
    assert_eq!(
        found.layout.text,
        "2 x [4, 12, 8] -> [8, 12, 8]: concatenate 2 parts along dim 0"
    );
}

#[test]
fn shards_that_fit_are_all_compared_however_few_of_them_are_right() {
    let whole = Tensor::random(&[24, 10], 1);
    for right in [0, 3] {
        let shards = whole.shards(0, 8);
        let garbage = |nth: u64| {
            if nth == right {
                shards[nth as usize].clone()
            } else {
                Tensor::random(&[3, 10], 50 + nth)
            }
        };
        let first = vec![shards[right as usize].clone(); 8];
        for ranks in [(0..8).map(garbage).collect::<Vec<_>>(), first] {
            for (reference, candidate) in [
                (from_ref(&whole), &ranks[..]),
                (&ranks[..], from_ref(&whole)),
            ] {
                let found = settled(reference, candidate);
                assert_eq!(
                    found.reference.shape().dims(),
                    [24, 10],
                    "{}",
                    found.layout.text
                );
                assert_ne!(read(&*found.reference), read(&*found.candidate));
            }
        }
    }
    // A copy that is off as a whole is not cut off beside one that agrees.
    let copies = [whole.map(|_, value| value * 1.5), whole.clone()];
    assert_ne!(read(&*settled(from_ref(&whole), &copies).candidate), whole);
}

#[test]
fn shards_in_the_wrong_order_are_not_put_in_order() {
    let whole = Tensor::random(&[24, 16], 1);
    for (axis, order) in [
        (0, vec![0, 2, 1]),
        (0, vec![1, 0]),
        (0, vec![1, 2, 3, 0]),
        (1, vec![0, 2, 1, 3]),
        (1, vec![1, 2, 3, 4, 5, 6, 7, 0]),
    ] {
        let shards = whole.shards(axis, order.len() as u64);
        let ranks: Vec<Tensor> = order
            .iter()
            .map(|nth: &usize| shards[*nth].clone())
            .collect();
        let found = settled(from_ref(&whole), &ranks);
        let steps = [Step::Concat {
            side: Which::Candidate,
            axis,
            parts: order.len(),
        }];
        assert_eq!(found.layout.steps, steps, "{}", found.layout.text);
    }
}

#[test]
fn ranks_that_are_no_copies_and_do_not_add_up_are_sums_gone_wrong() {
    let sum = Tensor::random(&[20, 30], 1);
    let ranks = [Tensor::random(&[20, 30], 2), Tensor::random(&[20, 30], 3)];
    let found = settled(from_ref(&sum), &ranks);
    assert_eq!(
        (found.layout.by, found.layout.steps),
        (
            Evidence::Shape,
            vec![Step::Sum {
                side: Which::Candidate,
                parts: 2
            }]
        )
    );
}

#[test]
fn parts_of_equal_dims_may_be_in_any_order() {
    let whole = Tensor::random(&[6, 6, 6, 6], 1);
    let layout = found(
        from_ref(&whole.permute(&[3, 2, 0, 1])),
        &whole.shards(1, 2),
        &parts(Parts::Ranks),
    );
    assert_eq!(layout.by, Evidence::Values, "{}", layout.text);
}

#[test]
fn a_broken_copy_of_a_head_is_not_cut_off_as_the_end_of_a_zigzag() {
    let (queries, keys, values) = (
        Tensor::random(&[16, 10], 1),
        Tensor::random(&[4, 10], 2),
        Tensor::random(&[4, 10], 3),
    );
    let mut ranks = replicated(&queries, &keys, &values, 1, 2);
    let fused = stacked(&[queries, keys, values]);
    assert_eq!(read(&*settled(from_ref(&fused), &ranks).candidate), fused);
    let last = ranks[0].values.len() - 20;
    ranks[0] = ranks[0].map(|at, value| if at >= last { -value } else { value });
    let found = settled(from_ref(&fused), &ranks);
    assert_ne!(read(&*found.candidate), fused, "{}", found.layout.text);
}

#[test]
fn shards_that_are_there_several_times_are_read_once_whichever_rank_counts_first() {
    let whole = Tensor::random(&[12, 8], 1);
    let shards = whole.shards(1, 2);
    for order in [[0, 1, 0, 1], [0, 0, 1, 1]] {
        let ranks: Vec<Tensor> = order
            .iter()
            .map(|nth: &usize| shards[*nth].clone())
            .collect();
        assert_eq!(
            found(from_ref(&whole), &ranks, &parts(Parts::Ranks)).by,
            Evidence::Values
        );
        // Each of them is looked at.
        let mut broken = ranks.clone();
        broken[2] = broken[2].map(|at, value| if at == 5 { value + 1.0 } else { value });
        assert_ne!(read(&*settled(from_ref(&whole), &broken).candidate), whole);
    }
}

#[test]
fn partial_sums_of_shards_are_added_and_put_together() {
    let whole = Tensor::random(&[8, 6], 1).map(|_, value| (value * 64.0).round());
    let one = Tensor::random(&[8, 6], 2).map(|_, value| (value * 64.0).round());
    let other = whole.map(|at, value| value - one.values[at]);
    let (ones, others) = (one.shards(0, 2), other.shards(0, 2));
    for ranks in [
        [
            ones[0].clone(),
            ones[1].clone(),
            others[0].clone(),
            others[1].clone(),
        ],
        [
            ones[0].clone(),
            others[0].clone(),
            ones[1].clone(),
            others[1].clone(),
        ],
    ] {
        assert_eq!(
            found(from_ref(&whole), &ranks, &parts(Parts::Ranks)).by,
            Evidence::Values
        );
    }
}

#[test]
fn ones_add_up_to_twos_and_losses_to_a_loss() {
    let sum = |parts| {
        vec![Step::Sum {
            side: Which::Candidate,
            parts,
        }]
    };
    let ones = Tensor::make(&[4, 5], |_| 1.0);
    let found = settled(
        from_ref(&ones.map(|_, _| 2.0)),
        &[ones.clone(), ones.clone()],
    );
    assert_eq!(
        (found.layout.by, found.layout.steps),
        (Evidence::Values, sum(2))
    );
    let losses: Vec<Tensor> = [0.5, 1.5, 3.0]
        .iter()
        .map(|loss| Tensor {
            dims: vec![],
            values: vec![*loss],
        })
        .collect();
    let found = settled(
        &[Tensor {
            dims: vec![],
            values: vec![5.0],
        }],
        &losses,
    );
    assert_eq!(found.layout.steps, sum(3));
    // Ones beside ones are copies.
    let found = settled(from_ref(&ones), &[ones.clone(), ones.clone()]);
    assert!(
        found.layout.text.ends_with("the others hold the same"),
        "{}",
        found.layout.text
    );
}

#[test]
fn few_values_of_strangers_are_no_evidence() {
    for (salt, (from, to)) in [(&[2, 3, 4], &[4, 3, 2]), (&[4, 3, 2], &[2, 3, 4])]
        .into_iter()
        .cycle()
        .take(40)
        .enumerate()
    {
        let (one, other) = (
            Tensor::random(from, salt as u64),
            Tensor::random(to, 100 + salt as u64),
        );
        let layout = align(&[one.view()], &[other.view()], &Hints::default())
            .unwrap()
            .layout;
        assert_eq!(layout.by, Evidence::Shape, "{}", layout.text);
    }
}

#[test]
fn pieces_are_not_the_ranks_of_what_they_make() {
    let (gate, up) = (Tensor::random(&[8, 6], 1), Tensor::random(&[8, 6], 2));
    let (gates, ups) = (gate.shards(0, 2), up.shards(0, 2));
    let rank = |nth: usize| {
        let rows: Vec<f32> = [&gates[nth], &ups[nth]]
            .iter()
            .flat_map(|part| part.values.clone())
            .collect();
        Tensor {
            dims: vec![8, 6],
            values: rows,
        }
    };
    let kinds = |reference, candidate| Hints {
        reference: SideHints {
            parts: reference,
            ..SideHints::default()
        },
        candidate: SideHints {
            parts: candidate,
            ..SideHints::default()
        },
        ..Hints::default()
    };
    let (pieces, ranks) = ([gate, up], [rank(0), rank(1)]);
    assert_eq!(
        found(&pieces, &ranks, &kinds(Parts::Pieces, Parts::Ranks)).by,
        Evidence::Values
    );
    assert_eq!(
        found(&ranks, &pieces, &kinds(Parts::Ranks, Parts::Pieces)).by,
        Evidence::Values
    );
}

#[test]
fn padding_on_the_left_and_the_slice_of_another_rank_are_found_by_their_values() {
    let long = Tensor::random(&[2, 16, 6], 3);
    for (range, text) in [
        (3..16, "cut padding, keep 3 to 16 of dim 1"),
        (4..8, "take 4 to 8 of dim 1"),
        (15..16, "take 15 to 16 of dim 1"),
    ] {
        let short = long.take(1, &range.collect::<Vec<u64>>());
        let layout = one(&short, &long);
        assert!(
            layout.text.contains(text) && layout.by == Evidence::Values,
            "{}",
            layout.text
        );
        assert_eq!(one(&long, &short).by, Evidence::Values);
    }
}

#[test]
fn ways_to_write_one_plan_do_not_make_it_a_guess() {
    let experts: Vec<Tensor> = (0..6).map(|salt| Tensor::random(&[16, 8], salt)).collect();
    let stacked = Tensor {
        dims: vec![6, 16, 8],
        values: experts
            .iter()
            .flat_map(|expert| expert.values.clone())
            .collect(),
    };
    assert_eq!(
        found(from_ref(&stacked), &experts, &parts(Parts::Pieces)).by,
        Evidence::Values
    );
}

#[track_caller]
fn one(reference: &Tensor, candidate: &Tensor) -> super::Layout {
    found(from_ref(reference), from_ref(candidate), &Hints::default())
}

fn parts(parts: Parts) -> Hints {
    let side = SideHints {
        parts,
        ..SideHints::default()
    };
    Hints {
        reference: side.clone(),
        candidate: side,
        ..Hints::default()
    }
}

#[test]
fn the_old_apps_cases_come_out_right_by_value() {
    // (sequence, head, channel) against (batch, head, sequence, channel): a reshape of the memory would fit too, and be wrong.
    let all = Tensor::random(&[76, 64, 64], 1);
    let layout = one(&all, &all.permute(&[1, 0, 2]).shaped(&[1, 64, 76, 64]));
    assert_eq!(
        layout.text,
        "[1, 64, 76, 64] -> [76, 64, 64]: drop dim 0, swap dims 0 and 1"
    );
    assert_eq!(layout.by, Evidence::Values);
    let layout = one(&all, &all.permute(&[2, 0, 1]).shaped(&[1, 64, 76, 64]));
    assert_eq!(
        layout.text,
        "[1, 64, 76, 64] -> [76, 64, 64]: drop dim 0, permute dims to (1, 2, 0)"
    );

    let heads = Tensor::random(&[76, 8, 64], 2);
    let layout = one(&heads, &heads.permute(&[1, 0, 2]).shaped(&[1, 8, 76, 64]));
    assert_eq!(
        layout.text,
        "[1, 8, 76, 64] -> [76, 8, 64]: drop dim 0, swap dims 0 and 1"
    );
    assert_eq!(layout.by, Evidence::Values);
    // Memory in the order of the reference, whatever the shape says.
    let layout = one(&heads, &heads.shaped(&[1, 8, 76, 64]));
    assert_eq!(
        (layout.steps.last(), layout.by),
        (Some(&Step::Flatten), Evidence::Values)
    );

    let hidden = Tensor::random(&[76, 2880], 3);
    let layout = one(&hidden, &hidden.shaped(&[1, 76, 2880]));
    assert_eq!(
        (layout.text.as_str(), layout.by),
        ("[1, 76, 2880] -> [76, 2880]: drop dim 0", Evidence::Values)
    );
    assert_eq!(
        one(&hidden.shaped(&[1, 76, 2880]), &hidden).text,
        "[76, 2880] -> [1, 76, 2880]: add dim 0"
    );

    let ranks = Tensor::random(&[8, 64, 76, 64], 4);
    let layout = one(&ranks, &ranks.take(0, &[0]));
    assert_eq!(
        layout.text,
        "[1, 64, 76, 64] -> [1, 64, 76, 64]: take rank zero's slice, 0 to 1 of dim 0 of the reference"
    );
    assert_eq!(layout.by, Evidence::Values);
    one(&ranks.take(0, &[0]), &ranks);

    let small = Tensor::random(&[8, 10], 5);
    assert_eq!(one(&small, &small.shaped(&[1, 8, 10])).by, Evidence::Values);
}

#[test]
fn a_number_is_a_tensor_of_one() {
    let int = |dims: Vec<u64>| {
        View::new(
            DType::I64,
            dims.into(),
            Bytes::from(128i64.to_le_bytes().to_vec()),
        )
        .unwrap()
    };
    let aligned = align(&[int(vec![])], &[int(vec![1, 1, 1, 1])], &Hints::default()).unwrap();
    assert_eq!(
        aligned.layout.text,
        "[1, 1, 1, 1] -> []: drop dim 3, drop dim 2, drop dim 1, drop dim 0"
    );
    assert_eq!(aligned.layout.by, Evidence::Shape);
    assert!(aligned.candidate.view().is_some());
    let mut out = Vec::new();
    assert!(
        aligned
            .candidate
            .int_values(0, 1, &mut Vec::new(), &mut out)
    );
    assert_eq!(out, [128]);
    align(&[int(vec![1, 1, 1, 1])], &[int(vec![])], &Hints::default()).unwrap();
}

#[test]
fn numbers_are_parts_of_a_row() {
    let row = Tensor::random(&[3], 1);
    let numbers: Vec<Tensor> = row
        .values
        .iter()
        .map(|value| Tensor {
            dims: vec![],
            values: vec![*value],
        })
        .collect();
    assert_eq!(
        found(from_ref(&row), &numbers, &Hints::default()).text,
        "3 x [] -> [3]: concatenate 3 parts along dim 0"
    );
    found(&numbers, from_ref(&row), &Hints::default());
    found(&numbers, &numbers, &Hints::default());
}

#[test]
fn a_layout_beyond_the_search_is_not_claimed_by_value() {
    let all = Tensor::random(&[2; 8], 1);
    let candidate = all
        .permute(&[7, 5, 4, 2, 0, 1, 3, 6])
        .shaped(&[2, 2, 1, 2, 2, 2, 2, 2, 2]);
    let aligned = align(&[all.view()], &[candidate.view()], &Hints::default()).unwrap();
    let right = read(&*aligned.candidate) == all;
    assert!(
        right || aligned.layout.by == Evidence::Shape,
        "{}",
        aligned.layout.text
    );
}

#[test]
fn equal_shapes_are_taken_as_they_are_whatever_the_values_say() {
    let square = Tensor::random(&[64, 64], 1);
    let aligned = align(
        &[square.view()],
        &[square.permute(&[1, 0]).view()],
        &Hints::default(),
    )
    .unwrap();
    assert!(aligned.layout.steps.is_empty());
    assert_eq!(
        (aligned.layout.text.as_str(), aligned.layout.by),
        ("[64, 64]", Evidence::Shape)
    );
    assert!(aligned.reference.view().is_some() && aligned.candidate.view().is_some());
}

#[test]
fn square_dims_are_told_apart_by_value() {
    let all = Tensor::random(&[64, 64, 76], 1);
    for order in [[0, 1, 2], [1, 0, 2]] {
        let candidate = all.permute(&order);
        let layout = one(&all, &candidate.shaped(&[1, 64, 64, 76]));
        assert_eq!(layout.by, Evidence::Values);
    }
    one(&all, &all.permute(&[0, 2, 1]));
    one(&all, &all.permute(&[2, 0, 1]));
    one(&all, &all.permute(&[2, 1, 0]));
    let cube = Tensor::random(&[6, 6, 6], 2);
    for order in [[0, 2, 1], [1, 2, 0], [2, 1, 0], [2, 0, 1]] {
        one(&cube, &cube.permute(&order).shaped(&[6, 1, 6, 6]));
    }
}

#[test]
fn heads_are_split_merged_and_moved() {
    let all = Tensor::random(&[2, 8, 12, 16], 1); // b h s d
    one(&all, &all.permute(&[0, 2, 1, 3]).shaped(&[2, 12, 128]));
    one(&all, &all.permute(&[2, 0, 1, 3]).shaped(&[12, 2, 128]));
    one(&all, &all.permute(&[0, 2, 1, 3]).shaped(&[24, 128]));
    one(&all.permute(&[0, 2, 1, 3]).shaped(&[2, 12, 128]), &all);
    one(&all.permute(&[0, 2, 1, 3]).shaped(&[24, 128]), &all);
    one(&all.shaped(&[16, 12, 16]), &all);
    one(
        &all.permute(&[0, 2, 1, 3]).shaped(&[24, 128]),
        &all.shaped(&[16, 12, 16]),
    );
    one(
        &all.permute(&[0, 2, 1, 3]).shaped(&[2, 12, 128]),
        &all.permute(&[0, 2, 1, 3]).shaped(&[24, 8, 16]),
    );
    let layout = one(&all, &all.permute(&[0, 2, 1, 3]).shaped(&[1, 24, 128]));
    assert!(layout.by == Evidence::Values, "{layout:?}");
}

#[test]
fn noise_a_broken_head_and_sparse_values_do_not_hide_the_layout() {
    let all = Tensor::random(&[76, 8, 64], 1);
    let swap = |tensor: &Tensor| tensor.permute(&[1, 0, 2]).shaped(&[1, 8, 76, 64]);
    let picked = |candidate: &Tensor, reference: &Tensor| {
        let aligned = align(
            &[reference.view()],
            &[candidate.view16()],
            &Hints::default(),
        )
        .unwrap();
        (
            aligned.layout.steps.contains(&Step::Permute {
                order: vec![1, 0, 2],
            }),
            aligned.layout.by,
        )
    };
    let right = (true, Evidence::Values);
    assert_eq!(
        picked(
            &swap(&all.map(|at, value| value * (1.0 + 0.05 * normal(at as u64 + 77)))),
            &all
        ),
        right
    );
    // Five heads of eight are garbage.
    assert_eq!(
        picked(
            &swap(&all.map(|at, value| if at / 64 % 8 < 5 {
                normal(at as u64 + 9_999_999)
            } else {
                value
            })),
            &all
        ),
        right
    );
    // A scale, a sign or a bias in between.
    assert_eq!(picked(&swap(&all.map(|_, value| value * 8.0)), &all), right);
    assert_eq!(picked(&swap(&all.map(|_, value| -value)), &all), right);
    assert_eq!(picked(&swap(&all.map(|_, value| value + 5.0)), &all), right);
    let sparse = all.map(|at, value| if at % 131 == 7 { value } else { 0.0 });
    assert_eq!(picked(&swap(&sparse), &sparse), right);
    let nans = all.map(|at, value| if at % 2 == 0 { f32::NAN } else { value });
    assert_eq!(picked(&swap(&nans), &nans), right);
    let mask = all.map(|_, value| if value > 0.5 { 1.0 } else { 0.0 });
    assert_eq!(picked(&swap(&mask), &mask), right);
}

#[test]
fn values_that_tell_nothing_leave_the_choice_to_the_shapes() {
    let zeros = Tensor::make(&[76, 64, 64], |_| 0.0);
    let layout = one(&zeros, &zeros.shaped(&[1, 64, 76, 64]));
    assert_eq!(
        (layout.text.as_str(), layout.by),
        (
            "[1, 64, 76, 64] -> [76, 64, 64]: drop dim 0, swap dims 0 and 1",
            Evidence::Shape
        )
    );
    let (a, b) = (
        Tensor::random(&[76, 64, 64], 1),
        Tensor::random(&[1, 64, 76, 64], 2),
    );
    let aligned = align(&[a.view()], &[b.view()], &Hints::default()).unwrap();
    assert_eq!(
        (aligned.layout.text.as_str(), aligned.layout.by),
        (layout.text.as_str(), Evidence::Shape)
    );
    // One way only, and the values disagree.
    let other = Tensor::random(&[1, 76, 8], 3);
    let aligned = align(
        &[Tensor::random(&[76, 8], 4).view()],
        &[other.view()],
        &Hints::default(),
    )
    .unwrap();
    assert_eq!(aligned.layout.by, Evidence::Shape);
}

#[test]
fn what_does_not_fit_is_incomparable_with_its_shapes() {
    let said = |a: &[u64], b: &[u64]| match align(
        &[Tensor::random(a, 1).view()],
        &[Tensor::random(b, 2).view()],
        &Hints::default(),
    ) {
        Err(LayoutError::Incomparable(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(said(&[3, 4], &[5]), "[3, 4] and [5] cannot be lined up");
    assert_eq!(said(&[3, 4], &[1]), "[3, 4] and [1] cannot be lined up");
    assert_eq!(said(&[], &[7]), "[] and [7] cannot be lined up");
    assert_eq!(said(&[8, 10], &[10]), "[8, 10] and [10] cannot be lined up");
    assert_eq!(
        said(&[3, 4], &[3, 5]),
        "[3, 4] and [3, 5] cannot be lined up"
    );
    assert!(matches!(
        align(&[], &[Tensor::random(&[2], 1).view()], &Hints::default()),
        Err(LayoutError::Incomparable(_))
    ));
    let strict = Hints {
        only_equal: true,
        ..Hints::default()
    };
    let flat = Tensor::random(&[12], 1);
    assert!(align(&[flat.view()], &[flat.shaped(&[3, 4]).view()], &strict).is_err());
}

#[test]
fn empty_tensors_line_up_by_shape() {
    let empty = |dims: &[u64]| Tensor::random(dims, 1);
    assert_eq!(one(&empty(&[0, 3]), &empty(&[1, 0, 3])).by, Evidence::Shape);
    one(&empty(&[0, 3]), &empty(&[3, 0]));
    one(&empty(&[0]), &empty(&[0]));
    one(&empty(&[0, 3]), &empty(&[0, 4]));
}

#[test]
fn padding_is_cut() {
    let vocab = Tensor::random(&[500, 24], 1);
    let padded = Tensor::make(&[512, 24], |index| {
        if index[0] < 500 { vocab.at(index) } else { 0.0 }
    });
    let layout = one(&vocab, &padded);
    assert_eq!(
        layout.text,
        "[512, 24] -> [500, 24]: cut padding, keep 0 to 500 of dim 0"
    );
    assert_eq!(layout.by, Evidence::Values);
    one(&padded, &vocab);
    // Padded and sharded, padded and moved, padded in two dimensions.
    found(from_ref(&vocab), &padded.shards(0, 4), &parts(Parts::Ranks));
    one(&vocab, &padded.permute(&[1, 0]).shaped(&[1, 24, 512]));
    let batch = Tensor::random(&[4, 40, 24], 2);
    one(
        &batch.take(0, &[0]).take(1, &(0..33).collect::<Vec<_>>()),
        &batch,
    );
    // By shape alone only what is commonly padded.
    let strangers = align(
        &[vocab.view()],
        &[Tensor::random(&[512, 24], 9).view()],
        &Hints::default(),
    )
    .unwrap();
    assert_eq!(strangers.layout.by, Evidence::Shape);
}

#[test]
fn shards_of_every_kind_make_the_whole() {
    for ranks in [1, 2, 4, 8] {
        let weight = Tensor::random(&[64, 48], ranks);
        for axis in 0..2 {
            let layout = found(
                from_ref(&weight),
                &weight.shards(axis, ranks),
                &parts(Parts::Ranks),
            );
            assert_eq!(
                layout.by,
                if ranks == 1 {
                    Evidence::Shape
                } else {
                    Evidence::Values
                },
                "{layout:?}"
            );
            found(
                &weight.shards(axis, ranks),
                from_ref(&weight),
                &Hints::default(),
            );
        }
        // (b, s, heads * d) against shards by head of (b, heads, s, d)
        let heads = Tensor::random(&[2, 8, 10, 6], ranks);
        found(
            &[heads.permute(&[0, 2, 1, 3]).shaped(&[2, 10, 48])],
            &heads.shards(1, ranks),
            &parts(Parts::Ranks),
        );
        found(
            &heads.shards(1, ranks),
            &[heads.permute(&[0, 2, 1, 3]).shaped(&[2, 10, 48])],
            &parts(Parts::Ranks),
        );
        // The same shards on both sides need no search.
        assert_eq!(
            found(
                &weight.shards(1, ranks),
                &weight.shards(1, ranks),
                &parts(Parts::Ranks)
            )
            .by,
            Evidence::Shape
        );
        // TP against another TP.
        found(
            &weight.shards(1, ranks),
            &weight.shards(1, 16 / ranks),
            &parts(Parts::Ranks),
        );
    }
}

#[test]
fn uneven_shards_lie_along_the_axis_that_differs() {
    let all = Tensor::random(&[10, 6], 1);
    let pieces = [
        all.take(0, &[0, 1, 2, 3]),
        all.take(0, &[4, 5, 6, 7]),
        all.take(0, &[8, 9]),
    ];
    assert_eq!(
        found(&[all], &pieces, &parts(Parts::Ranks)).text,
        "[4, 6] + [4, 6] + [2, 6] -> [10, 6]: concatenate 3 parts along dim 0"
    );
}

#[test]
fn partial_sums_are_added_and_copies_read_once() {
    for ranks in [2u64, 4, 8] {
        // Multiples of 1/64, so that f32 sums are exact in any order.
        let partial: Vec<Tensor> = (0..ranks)
            .map(|rank| {
                Tensor::random(&[16, 24], rank).map(|_, value| (value * 64.0).round() / 64.0)
            })
            .collect();
        let whole = partial[0].map(|at, _| partial.iter().map(|part| part.values[at]).sum());
        let layout = found(from_ref(&whole), &partial, &parts(Parts::Ranks));
        assert_eq!(
            (layout.text, layout.by),
            (
                format!("{ranks} x [16, 24] -> [16, 24]: add up {ranks} parts"),
                Evidence::Values
            )
        );
        let layout = found(
            from_ref(&whole),
            &vec![whole.clone(); ranks as usize],
            &parts(Parts::Ranks),
        );
        assert_eq!(
            layout.text,
            format!("{ranks} x [16, 24] -> [16, 24]: take part 0, the others hold the same")
        );
    }
}

#[test]
fn partial_sums_of_what_is_mostly_zero_are_no_slice_of_the_last_rank() {
    // The last rank has all that is there and what the others must not add.
    let few = |seed: u64| {
        let random = Tensor::random(&[60, 48], seed);
        random.map(|at, value| {
            if (at as u64 * 7919 + seed * 104_729).is_multiple_of(53) {
                (value * 64.0).round() / 64.0
            } else {
                value * 0.0
            }
        })
    };
    let whole = few(1);
    let others = [few(2), few(3), few(4)];
    let last =
        whole.map(|at, value| value - others.iter().map(|part| part.values[at]).sum::<f32>());
    let ranks = [&others[..], &[last]].concat();
    let layout = found(from_ref(&whole), &ranks, &parts(Parts::Ranks));
    assert_eq!(layout.text, "4 x [60, 48] -> [60, 48]: add up 4 parts");
}

#[test]
fn a_matrix_that_is_nearly_its_own_transpose_is_turned_the_right_way() {
    let random = Tensor::random(&[24, 24], 3);
    let near = random
        .map(|at, value| random.values[at % 24 * 24 + at / 24] + value + 1e-3 * random.values[at]);
    let turned = near.permute(&[1, 0]).shaped(&[1, 24, 24]);
    assert_eq!(
        found(from_ref(&near), from_ref(&turned), &parts(Parts::Unknown)).text,
        "[1, 24, 24] -> [24, 24]: drop dim 0, swap dims 0 and 1"
    );
    let split = near.permute(&[1, 0]).shaped(&[24, 8, 3]);
    assert_eq!(
        found(from_ref(&near), from_ref(&split), &parts(Parts::Unknown)).text,
        "[24, 8, 3] -> [24, 24]: permute dims to (1, 2, 0), merge dims 0 to 1"
    );
    let plain = near.shaped(&[1, 24, 24]);
    assert_eq!(
        found(from_ref(&near), from_ref(&plain), &parts(Parts::Unknown)).text,
        "[1, 24, 24] -> [24, 24]: drop dim 0"
    );
}

#[test]
fn fewer_key_heads_than_ranks_are_read_once_each() {
    let keys = Tensor::random(&[2, 10, 16], 1); // two heads, eight ranks
    let ranks: Vec<Tensor> = (0..8).map(|rank| keys.take(0, &[rank / 4])).collect();
    let layout = found(from_ref(&keys), &ranks, &parts(Parts::Ranks));
    assert_eq!(
        layout.text,
        "8 x [1, 10, 16] -> [2, 10, 16]: take parts 0, 4, the others hold the same, concatenate 2 parts along dim 0"
    );
    found(
        &[keys.permute(&[1, 0, 2]).shaped(&[10, 32])],
        &ranks,
        &parts(Parts::Ranks),
    );
}

#[test]
fn zigzag_sequences_are_put_in_order() {
    for ranks in [2u64, 4] {
        let all = Tensor::random(&[3, 16, 10], ranks);
        let size = 16 / (2 * ranks);
        let chunk = |nth: u64| nth * size..(nth + 1) * size;
        let rank = |rank: u64| {
            all.take(
                1,
                &chunk(rank)
                    .chain(chunk(2 * ranks - 1 - rank))
                    .collect::<Vec<_>>(),
            )
        };
        let layout = found(
            from_ref(&all),
            &(0..ranks).map(rank).collect::<Vec<_>>(),
            &parts(Parts::Ranks),
        );
        assert!(
            layout
                .text
                .ends_with(&format!("undo the zigzag of {ranks} ranks in dim 1")),
            "{}",
            layout.text
        );
        // The batch and the sequence as one dimension, in every rank.
        let flat = |nth: u64| rank(nth).shaped(&[3 * 16 / ranks, 10]);
        found(
            from_ref(&all),
            &(0..ranks).map(flat).collect::<Vec<_>>(),
            &parts(Parts::Ranks),
        );
    }
}

#[test]
fn grids_of_two_axes_are_found() {
    let all = Tensor::random(&[8, 12], 1);
    let parts_of: Vec<Tensor> = all
        .shards(0, 2)
        .iter()
        .flat_map(|half| half.shards(1, 2))
        .collect();
    found(from_ref(&all), &parts_of, &parts(Parts::Ranks));
    let other: Vec<Tensor> = all
        .shards(1, 2)
        .iter()
        .flat_map(|half| half.shards(0, 2))
        .collect();
    found(&[all], &other, &parts(Parts::Ranks));
}

/// Rows of q, k and v in groups that hold a share of each.
fn packed(pieces: &[Tensor], groups: u64) -> Tensor {
    let rows = |at: u64| {
        let share = |piece: &Tensor| piece.dims[0] / groups;
        pieces
            .iter()
            .flat_map(move |piece| {
                (at * share(piece)..(at + 1) * share(piece)).map(move |row| piece.take(0, &[row]))
            })
            .collect::<Vec<_>>()
    };
    let all: Vec<Tensor> = (0..groups).flat_map(rows).collect();
    Tensor {
        dims: vec![all.len() as u64, all[0].dims[1]],
        values: all.into_iter().flat_map(|row| row.values).collect(),
    }
}

#[test]
fn fused_weights_are_unpacked_in_any_packing() {
    let qkv = |queries: u64| {
        [
            Tensor::random(&[32 * queries, 12], 1),
            Tensor::random(&[32, 12], 2),
            Tensor::random(&[32, 12], 3),
        ]
    };
    for queries in [1, 2, 4] {
        for groups in [1, 4, 8] {
            let pieces = qkv(queries);
            let fused = packed(&pieces, groups);
            let layout = found(&pieces, from_ref(&fused), &parts(Parts::Pieces));
            assert_eq!(layout.by, Evidence::Values);
            found(&[fused], &pieces, &parts(Parts::Pieces));
        }
    }
    let gate_up = [Tensor::random(&[40, 12], 1), Tensor::random(&[40, 12], 2)];
    for groups in [1, 2, 40] {
        found(&gate_up, &[packed(&gate_up, groups)], &Hints::default());
    }
    // Every rank holds its own q, k and v, one after another.
    let pieces = qkv(4);
    let whole = packed(&pieces, 1);
    let ranks: Vec<Tensor> = packed(&pieces, 4).shards(0, 4);
    let kinds = |reference, candidate| {
        let side = |parts| SideHints {
            parts,
            ..SideHints::default()
        };
        Hints {
            reference: side(reference),
            candidate: side(candidate),
            ..Hints::default()
        }
    };
    found(&[whole], &ranks, &kinds(Parts::Unknown, Parts::Ranks));
    found(&pieces, &ranks, &kinds(Parts::Pieces, Parts::Ranks));
}

#[test]
fn fused_activations_are_cut_into_heads() {
    // (s, h, d) each, against (s, 3 * h * d) and (s, h, 3, d)
    let pieces = [
        Tensor::random(&[10, 4, 8], 1),
        Tensor::random(&[10, 4, 8], 2),
        Tensor::random(&[10, 4, 8], 3),
    ];
    let stacked = Tensor::make(&[10, 3, 4, 8], |i| {
        pieces[i[1] as usize].at(&[i[0], i[2], i[3]])
    });
    found(&pieces, &[stacked.shaped(&[10, 96])], &parts(Parts::Pieces));
    found(&pieces, from_ref(&stacked), &parts(Parts::Pieces));
    found(
        &pieces,
        &[stacked.permute(&[0, 2, 1, 3])],
        &parts(Parts::Pieces),
    );
    found(
        &pieces,
        &[stacked.permute(&[0, 2, 1, 3]).shaped(&[10, 96])],
        &parts(Parts::Pieces),
    );
    found(
        &[stacked.shaped(&[1, 10, 96])],
        &pieces,
        &parts(Parts::Pieces),
    );
}

#[test]
fn declared_dims_are_followed() {
    let all = Tensor::random(&[2, 8, 6, 4], 1); // b s h d
    let tp = all.shards(2, 2);
    let zigzag =
        |tensor: &Tensor| vec![tensor.take(1, &[0, 1, 6, 7]), tensor.take(1, &[2, 3, 4, 5])];
    let ranks: Vec<Tensor> = (0..2)
        .flat_map(|cp| tp.iter().map(move |part| zigzag(part)[cp].clone()))
        .collect();
    let mut hints = Hints::default();
    hints.candidate.dims = Some("b s[cp:zigzag] h[tp] d".parse().unwrap());
    hints.candidate.ranks = vec![("cp".into(), 2), ("tp".into(), 2)];
    assert_eq!(found(from_ref(&all), &ranks, &hints).by, Evidence::Declared);
    hints.reference.dims = Some("h b s d".parse().unwrap());
    let layout = found(&[all.permute(&[2, 0, 1, 3])], &ranks, &hints);
    assert_eq!(layout.by, Evidence::Declared);
    // Equal shapes with other names in them: the names were meant.
    let square = Tensor::random(&[5, 5], 2);
    let names = Hints {
        reference: SideHints {
            dims: Some("s h".parse().unwrap()),
            ..SideHints::default()
        },
        candidate: SideHints {
            dims: Some("h s".parse().unwrap()),
            ..SideHints::default()
        },
        ..Hints::default()
    };
    assert_eq!(
        found(from_ref(&square), &[square.permute(&[1, 0])], &names).by,
        Evidence::Declared
    );
    // A declaration that does not fit is no reason to give up.
    let wrong = Hints {
        candidate: SideHints {
            dims: Some("a b c".parse().unwrap()),
            ..SideHints::default()
        },
        ..Hints::default()
    };
    assert_eq!(
        found(from_ref(&square), &[square.shaped(&[1, 5, 5, 1])], &wrong).by,
        Evidence::Values
    );
}

#[test]
fn the_users_steps_are_taken_as_they_are() {
    let all = Tensor::random(&[6, 6, 4], 1);
    let hints = |text: &str| Hints {
        user: Some(parse_steps(text).unwrap()),
        ..Hints::default()
    };
    let layout = found(
        from_ref(&all),
        &[all.permute(&[1, 0, 2]).shaped(&[1, 6, 6, 4])],
        &hints("squeeze(0) permute(1,0,2)"),
    );
    assert_eq!((layout.by, layout.steps.len()), (Evidence::User, 2));
    // Even where shapes are equal.
    found(
        from_ref(&all),
        &[all.permute(&[1, 0, 2])],
        &hints("permute(1,0,2)"),
    );
    found(from_ref(&all), &all.shards(1, 3), &hints("concat(1)"));
    let wrong = align(&[all.view()], &[all.view()], &hints("squeeze(0)")).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "step 1, drop dim 0, does not fit [6, 6, 4]"
    );
    let unequal = align(&[all.view()], &[all.view()], &hints("merge(0,2)")).unwrap_err();
    assert_eq!(
        unequal.to_string(),
        "the steps leave [6, 6, 4] and [36, 4], which are not one shape"
    );
}

#[test]
fn complex_and_integer_tensors_are_lined_up_too() {
    let all = Tensor::random(&[5, 6, 12], 1);
    let complex = |tensor: &Tensor| {
        let dims: Vec<u64> = [
            &tensor.dims[..tensor.dims.len() - 1],
            &[tensor.dims[tensor.dims.len() - 1] / 2],
        ]
        .concat();
        let bytes: Vec<u8> = tensor
            .values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        View::new(DType::C64, dims.into(), bytes.into()).unwrap()
    };
    let moved = complex(&all.permute(&[1, 0, 2]).shaped(&[1, 6, 5, 12]));
    let aligned = align(&[complex(&all)], &[moved], &Hints::default()).unwrap();
    assert_eq!(aligned.layout.by, Evidence::Values);
    assert_eq!(
        read(&*aligned.reference).values,
        read(&*aligned.candidate).values
    );
    let ids = Tensor::make(&[9, 9], |i| ((i[0] * 31 + i[1] * i[1] * 7) % 50) as f32);
    let bytes: Vec<u8> = ids
        .permute(&[1, 0])
        .values
        .iter()
        .flat_map(|value| (*value as i64).to_le_bytes())
        .collect();
    let ints = View::new(DType::I64, Shape::from([1, 9, 9]), bytes.into()).unwrap();
    let aligned = align(&[ids.view()], &[ints], &Hints::default()).unwrap();
    assert_eq!(
        (read(&*aligned.candidate), aligned.layout.by),
        (ids, Evidence::Values)
    );
}

#[test]
fn words_have_no_values_to_decide_by() {
    let text = |dims: [u64; 3]| {
        View::new(
            DType::Bytes(2),
            dims.into(),
            Bytes::from(vec![b'a'; 2 * 12]),
        )
        .unwrap()
    };
    let aligned = align(&[text([2, 3, 2])], &[text([3, 2, 2])], &Hints::default()).unwrap();
    assert_eq!(aligned.layout.by, Evidence::Shape);
}

/// Bytes whose file was cut short.
struct Gone(Vec<u8>);

impl Storage for Gone {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn check(&self) -> Result<(), Shrunk> {
        Err(Shrunk {
            file: "gone.bin".into(),
        })
    }
}

#[test]
fn a_failed_read_is_not_a_layout() {
    let gone = View::new(
        DType::U8,
        Shape::from([2, 3, 4]),
        Bytes::new(Arc::new(Gone(vec![0; 24]))),
    )
    .unwrap();
    let whole = View::new(DType::U8, Shape::from([4, 2, 3]), Bytes::from(vec![0; 24])).unwrap();
    assert!(matches!(
        align(&[whole], &[gone], &Hints::default()),
        Err(LayoutError::Read(_))
    ));
}

#[test]
fn huge_expanded_tensors_cost_no_more_than_small_ones() {
    let huge = |dims: Vec<u64>, strides: Vec<i64>| {
        View::strided(
            DType::F32,
            dims.into(),
            strides,
            0,
            Bytes::from(vec![0; 4096]),
        )
        .unwrap()
    };
    let (a, b) = (
        huge(vec![1 << 20, 1 << 18, 1], vec![0, 0, 1]),
        huge(vec![1 << 18, 1 << 20], vec![0, 0]),
    );
    assert_eq!(
        align(from_ref(&a), from_ref(&b), &Hints::default())
            .unwrap()
            .layout
            .by,
        Evidence::Shape
    );
    let pieces = Hints {
        candidate: SideHints {
            parts: Parts::Pieces,
            ..SideHints::default()
        },
        ..Hints::default()
    };
    assert!(align(&[a], &[b.clone(), b], &pieces).is_err());
}

/// A shape and what was done to it.
fn rearranged() -> impl Strategy<Value = (Tensor, Tensor)> {
    let dims = prop::collection::vec(prop::sample::select(vec![1u64, 2, 3, 4, 5, 6, 8]), 1..5);
    (dims, any::<u64>(), 0u8..4).prop_map(|(dims, seed, kind)| {
        let reference = Tensor::random(&dims, seed % 1000);
        let mut order: Vec<usize> = (0..dims.len()).collect();
        order.sort_by_key(|axis| hash(seed ^ *axis as u64));
        let mut candidate = reference.permute(&order);
        let at = (hash(seed) % dims.len() as u64) as usize;
        match kind {
            // Ones come and go.
            0 => {
                let mut dims = candidate.dims.clone();
                dims.insert(at, 1);
                candidate = candidate.shaped(&dims);
            }
            1 => {
                let dims: Vec<u64> = candidate
                    .dims
                    .iter()
                    .copied()
                    .filter(|dim| *dim != 1)
                    .collect();
                candidate = candidate.shaped(&dims);
            }
            // Neighbours that are neighbours in the reference too become one.
            2 if at + 1 < dims.len() && order[at] + 1 == order[at + 1] => {
                let mut dims = candidate.dims.clone();
                let whole = dims[at] * dims[at + 1];
                dims.splice(at..at + 2, [whole]);
                candidate = candidate.shaped(&dims);
            }
            _ => {}
        }
        (reference, candidate)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_was_rearranged_is_put_back((reference, candidate) in rearranged()) {
        let aligned = align(&[reference.view()], &[candidate.view()], &Hints::default()).unwrap();
        // Equal shapes are never rearranged.
        if reference.dims == candidate.dims {
            prop_assert!(aligned.layout.steps.is_empty());
        } else {
            prop_assert_eq!(read(&*aligned.candidate), reference, "{}", aligned.layout.text);
        }
    }

    #[test]
    fn whatever_was_merged_and_moved_is_taken_apart(
        fine in prop::collection::vec(2u64..7, 3..6), seed in any::<u64>(), first in 0usize..5, second in 0usize..5,
    ) {
        let merged = |tensor: &Tensor, at: usize| {
            let (mut dims, at) = (tensor.dims.clone(), at % (fine.len() - 1));
            let whole = dims[at] * dims[at + 1];
            dims.splice(at..at + 2, [whole]);
            tensor.shaped(&dims)
        };
        let mut order: Vec<usize> = (0..fine.len()).collect();
        order.sort_by_key(|axis| hash(seed ^ *axis as u64));
        // The same two the other way round inside one dimension is no matter of shapes.
        let (f, s) = (first % (fine.len() - 1), second % (fine.len() - 1));
        prop_assume!((order[s], order[s + 1]) != (f + 1, f));
        let all = Tensor::random(&fine, seed % 1000);
        let (reference, candidate) = (merged(&all, first), merged(&all.permute(&order), second));
        prop_assume!(reference.dims != candidate.dims);
        let aligned = align(&[reference.view()], &[candidate.view()], &Hints::default()).unwrap();
        prop_assert_eq!(read(&*aligned.candidate), read(&*aligned.reference), "{}", aligned.layout.text);
    }

    #[test]
    fn whatever_was_sharded_is_put_together(
        dims in prop::collection::vec(2u64..7, 1..4), which in 0usize..3, log in 1u32..4, seed in 0u64..1000, swapped in any::<bool>(),
    ) {
        let (axis, ranks) = (which % dims.len(), 1 << log);
        let mut dims = dims;
        dims[axis] *= ranks;
        let whole = Tensor::random(&dims, seed);
        let shards = whole.shards(axis, ranks);
        let (r, c) = if swapped { (views(&shards), vec![whole.view()]) } else { (vec![whole.view()], views(&shards)) };
        let aligned = align(&r, &c, &parts(Parts::Ranks)).unwrap();
        prop_assert_eq!(read(&*aligned.candidate), read(&*aligned.reference), "{}", aligned.layout.text);
        prop_assert_eq!(aligned.layout.by, Evidence::Values);
    }

    #[test]
    fn any_two_shapes_end_without_a_panic(
        a in prop::collection::vec(0u64..9, 0..6), b in prop::collection::vec(0u64..9, 0..6), copies in 1usize..5,
    ) {
        let candidate = vec![Tensor::random(&b, 2).view(); copies];
        if let Ok(aligned) = align(&[Tensor::random(&a, 1).view()], &candidate, &Hints::default()) {
            prop_assert_eq!(aligned.reference.shape(), aligned.candidate.shape());
        }
    }
}
