//! Assemblies against an oracle that builds everything: every operation, and any chain of them.

use proptest::prelude::*;
use twinscope_tensor::{Assembly, Bytes, DType, Operand, Quant, Shape, View};

/// A tensor that is really built.
#[derive(Clone, Debug)]
struct Built {
    dims: Vec<u64>,
    values: Vec<i64>,
}

impl Built {
    fn make(dims: Vec<u64>, value: impl Fn(&[u64]) -> i64) -> Self {
        let shape = Shape::from(dims.clone());
        let values = (0..shape.elements().unwrap())
            .map(|flat| value(&shape.unravel(flat)))
            .collect();
        Self { dims, values }
    }

    fn at(&self, index: &[u64]) -> i64 {
        self.values[index
            .iter()
            .zip(&self.dims)
            .fold(0, |at, (i, dim)| at * dim + i) as usize]
    }

    fn reorder(&self, axis: usize, order: &[u64]) -> Self {
        let mut dims = self.dims.clone();
        dims[axis] = order.len() as u64;
        Self::make(dims, |index| {
            let mut index = index.to_vec();
            index[axis] = order[index[axis] as usize];
            self.at(&index)
        })
    }

    fn permute(&self, order: &[usize]) -> Self {
        Self::make(order.iter().map(|old| self.dims[*old]).collect(), |index| {
            let mut back = vec![0; index.len()];
            order.iter().zip(index).for_each(|(old, i)| back[*old] = *i);
            self.at(&back)
        })
    }

    fn concat(parts: &[Built], axis: usize) -> Self {
        let mut dims = parts[0].dims.clone();
        dims[axis] = parts.iter().map(|part| part.dims[axis]).sum();
        Self::make(dims, |index| {
            let mut index = index.to_vec();
            for part in parts {
                if index[axis] < part.dims[axis] {
                    return part.at(&index);
                }
                index[axis] -= part.dims[axis];
            }
            unreachable!("an index lies in a part")
        })
    }

    fn shaped(&self, dims: Vec<u64>) -> Self {
        Self {
            dims,
            values: self.values.clone(),
        }
    }
}

fn view(dtype: DType, built: &Built) -> View {
    let bytes: Vec<u8> = built
        .values
        .iter()
        .flat_map(|value| match dtype {
            DType::I64 => value.to_le_bytes().to_vec(),
            DType::I16 => (*value as i16).to_le_bytes().to_vec(),
            DType::Bf16 => ((*value as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
            DType::C64 => [
                (*value as f32).to_le_bytes(),
                (-*value as f32).to_le_bytes(),
            ]
            .concat(),
            _ => (*value as f32).to_le_bytes().to_vec(),
        })
        .collect();
    View::new(dtype, built.dims.clone().into(), Bytes::from(bytes)).unwrap()
}

/// Random numbers in a fixed order.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }

    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n)
            .rev()
            .for_each(|i| order.swap(i, self.below(i as u64 + 1) as usize));
        order
    }
}

/// Values that bf16 holds exactly.
fn fresh(dims: Vec<u64>, dice: &mut Dice) -> Built {
    let salt = dice.below(97);
    Built::make(dims, |index| {
        (index.iter().fold(salt, |at, i| at * 31 + i * 7 + 3) % 251) as i64 - 125
    })
}

fn step(assembly: Assembly, built: Built, dtype: DType, dice: &mut Dice) -> (Assembly, Built) {
    let rank = built.dims.len();
    let axis = dice.below(rank as u64) as usize;
    match dice.below(9) {
        0 if rank > 0 => {
            let (mut dims, before) = (built.dims.clone(), dice.below(2) == 0);
            dims[axis] = dice.below(4);
            let other = fresh(dims, dice);
            let mut parts = vec![(assembly, built), (view(dtype, &other).into(), other)];
            if before {
                parts.reverse();
            }
            let (assemblies, builts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            (
                Assembly::concat(assemblies, axis).unwrap(),
                Built::concat(&builts, axis),
            )
        }
        1 => {
            let other = fresh(built.dims.clone(), dice);
            let values = built
                .values
                .iter()
                .zip(&other.values)
                .map(|(a, b)| a + b)
                .collect();
            let sum = Assembly::sum(vec![assembly, view(dtype, &other).into()]).unwrap();
            (
                sum,
                Built {
                    dims: built.dims,
                    values,
                },
            )
        }
        2 if rank > 0 && built.dims[axis] > 0 => {
            let order: Vec<u64> = match dice.below(2) {
                0 => dice
                    .order(built.dims[axis] as usize)
                    .into_iter()
                    .map(|i| i as u64)
                    .collect(),
                _ => (0..dice.below(5))
                    .map(|_| dice.below(built.dims[axis]))
                    .collect(),
            };
            (
                assembly.reorder(axis, order.clone()).unwrap(),
                built.reorder(axis, &order),
            )
        }
        3 if rank > 0 => {
            let start = dice.below(built.dims[axis] + 1);
            let len = dice.below(built.dims[axis] - start + 1);
            let order: Vec<u64> = (start..start + len).collect();
            (
                assembly.cut(axis, start, len).unwrap(),
                built.reorder(axis, &order),
            )
        }
        4 => {
            let order = dice.order(rank);
            (assembly.permute(&order).unwrap(), built.permute(&order))
        }
        5 if rank > 0 && rank < 6 => {
            let divisors: Vec<u64> = (1..=built.dims[axis])
                .filter(|d| built.dims[axis].is_multiple_of(*d))
                .collect();
            if divisors.is_empty() {
                return (assembly, built);
            }
            let first = divisors[dice.below(divisors.len() as u64) as usize];
            let sizes = [first, built.dims[axis] / first];
            let mut dims = built.dims.clone();
            dims.splice(axis..=axis, sizes);
            (assembly.split(axis, &sizes).unwrap(), built.shaped(dims))
        }
        6 if rank > 0 => {
            let count = 1 + dice.below((rank - axis) as u64) as usize;
            let mut dims = built.dims.clone();
            let whole = dims[axis..axis + count].iter().product();
            dims.splice(axis..axis + count, [whole]);
            (assembly.merge(axis, count).unwrap(), built.shaped(dims))
        }
        7 => match built.dims.iter().position(|dim| *dim == 1) {
            Some(axis) => {
                let mut dims = built.dims.clone();
                dims.remove(axis);
                (assembly.squeeze(axis).unwrap(), built.shaped(dims))
            }
            None => (assembly, built),
        },
        8 if rank < 6 => {
            let axis = dice.below(rank as u64 + 1) as usize;
            let mut dims = built.dims.clone();
            dims.insert(axis, 1);
            (assembly.unsqueeze(axis).unwrap(), built.shaped(dims))
        }
        _ => (assembly, built),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_chain_of_steps_reads_as_if_it_were_built(
        dims in prop::collection::vec(0u64..5, 0..4), which in 0usize..5, steps in 0usize..8, seed in any::<u64>(), chunk in 1usize..40,
    ) {
        let dtype = [DType::F32, DType::Bf16, DType::I16, DType::I64, DType::C64][which];
        let mut dice = Dice(seed);
        let mut built = fresh(dims, &mut dice);
        let mut assembly = Assembly::from(view(dtype, &built));
        for _ in 0..steps {
            if built.values.len() > 2000 {
                break;
            }
            (assembly, built) = step(assembly, built, dtype, &mut dice);
        }
        prop_assert_eq!(assembly.shape().dims(), &built.dims[..]);
        prop_assert_eq!(Operand::len(&assembly), built.values.len() as u64);
        let (mut all, mut ints) = (Vec::new(), Vec::new());
        let (mut scratch, mut out, mut whole) = (Vec::new(), vec![7.0], vec![7]);
        for start in (0..built.values.len()).step_by(chunk) {
            let count = chunk.min(built.values.len() - start);
            prop_assert!(assembly.f64_values(start as u64, count, &mut scratch, &mut out));
            all.extend_from_slice(&out);
            if assembly.int_values(start as u64, count, &mut scratch, &mut whole) {
                ints.extend(whole.iter().map(|value| *value as i64));
            }
        }
        let expected: Vec<f64> = built.values.iter().flat_map(|value| match dtype {
            DType::C64 => vec![*value as f64, -*value as f64],
            _ => vec![*value as f64],
        }).collect();
        prop_assert_eq!(all, expected);
        if matches!(dtype, DType::I16 | DType::I64) {
            prop_assert_eq!(ints, built.values);
        } else {
            prop_assert!(ints.is_empty());
        }
    }

    #[test]
    fn one_tensor_stays_a_view_through_everything_strides_can_say(
        dims in prop::collection::vec(1u64..5, 1..5), seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let built = fresh(dims.clone(), &mut dice);
        let assembly = Assembly::from(view(DType::F32, &built));
        prop_assert!(assembly.clone().permute(&dice.order(dims.len())).unwrap().view().is_some());
        prop_assert!(assembly.clone().cut(0, 0, 1).unwrap().squeeze(0).unwrap().view().is_some());
        prop_assert!(assembly.clone().split(0, &[1, dims[0]]).unwrap().unsqueeze(1).unwrap().view().is_some());
        prop_assert!(assembly.clone().merge(0, dims.len()).unwrap().view().is_some());
        prop_assert!(assembly.clone().reorder(0, (0..dims[0]).rev().collect::<Vec<_>>()).unwrap().view().is_some());
        let merged = assembly.permute(&dice.order(dims.len())).unwrap().flatten().unwrap();
        prop_assert!(merged.split(0, &dims).unwrap().shape().dims() == &dims[..]);
    }
}

#[test]
fn a_cut_inside_one_part_is_that_part() {
    let part = |salt| Assembly::from(view(DType::F32, &fresh(vec![4, 3], &mut Dice(salt))));
    let whole = Assembly::concat(vec![part(1), part(2), part(3)], 0).unwrap();
    assert!(whole.view().is_none());
    assert!(whole.cut(0, 5, 2).unwrap().view().is_some());
}

#[test]
fn sums_of_large_integers_are_exact() {
    let part = |value: i64| {
        Assembly::from(
            View::new(
                DType::I64,
                Shape::from([1]),
                Bytes::from(value.to_le_bytes().to_vec()),
            )
            .unwrap(),
        )
    };
    let sum = Assembly::sum(vec![part(i64::MAX), part(i64::MAX), part(-1)]).unwrap();
    let mut out = Vec::new();
    assert!(sum.int_values(0, 1, &mut Vec::new(), &mut out));
    assert_eq!(out, [2 * i128::from(i64::MAX) - 1]);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let part = |dims: Vec<u64>, dtype| Assembly::from(view(dtype, &fresh(dims, &mut Dice(1))));
    assert!(
        Assembly::concat(
            vec![part(vec![2, 3], DType::F32), part(vec![2, 4], DType::F32)],
            0
        )
        .is_none()
    );
    assert!(
        Assembly::concat(
            vec![part(vec![2], DType::F32), part(vec![2], DType::C64)],
            0
        )
        .is_none()
    );
    assert!(
        Assembly::concat(vec![part(vec![], DType::F32), part(vec![], DType::F32)], 0).is_none()
    );
    assert!(Assembly::sum(vec![part(vec![2], DType::F32), part(vec![3], DType::F32)]).is_none());
    assert!(part(vec![2], DType::F32).reorder(0, vec![2]).is_none());
    assert!(part(vec![2], DType::F32).cut(0, 1, 2).is_none());
    assert!(part(vec![2, 2], DType::F32).permute(&[0, 0]).is_none());
    assert!(part(vec![6], DType::F32).split(0, &[2, 2]).is_none());
    assert!(part(vec![6], DType::F32).squeeze(0).is_none());
    assert!(part(vec![6], DType::F32).merge(0, 2).is_none());
}

#[test]
fn mixed_parts_have_the_coarsest_dtype() {
    let part = |dtype| Assembly::from(view(dtype, &fresh(vec![2], &mut Dice(1))));
    assert_eq!(
        Assembly::concat(vec![part(DType::F32), part(DType::Bf16)], 0)
            .unwrap()
            .dtype(),
        DType::Bf16
    );
    let mixed = Assembly::concat(vec![part(DType::I64), part(DType::F32)], 0).unwrap();
    assert_eq!(mixed.dtype(), DType::F32);
    assert!(!mixed.int_values(0, 4, &mut Vec::new(), &mut Vec::new()));
}

#[test]
fn scales_of_channels_follow_their_channel() {
    let view = View::new(
        DType::QI8,
        Shape::from([2, 3, 2]),
        Bytes::from((1..13).collect::<Vec<u8>>()),
    )
    .unwrap();
    let quant = Quant::Channel {
        axis: 1,
        scales: vec![1.0, 10.0, 100.0],
        zero_points: vec![0.0; 3],
    };
    let plain = Assembly::from(view.quantized(quant));
    let read = |assembly: &Assembly| {
        let mut out = Vec::new();
        assert!(assembly.f64_values(0, 12, &mut Vec::new(), &mut out));
        out
    };
    let expected = read(&plain);
    for same in [
        plain.clone().split(1, &[1, 3]).unwrap(),
        plain.clone().merge(1, 2).unwrap(),
        plain.clone().merge(0, 2).unwrap(),
        plain
            .clone()
            .split(0, &[2, 1])
            .unwrap()
            .merge(1, 2)
            .unwrap(),
        plain.clone().unsqueeze(0).unwrap().squeeze(0).unwrap(),
    ] {
        assert_eq!(read(&same), expected, "{same:?}");
    }
}
