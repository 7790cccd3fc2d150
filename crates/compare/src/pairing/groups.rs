//! One tensor against several: `qkv` against `q`, `k`, `v`; `gate_up` against `gate` and `up`; all experts in one against one each.
//!
//! By names within a layer, in either direction, and only when the sizes add up. How they are packed is the layout's business.

use super::rules::{Board, CANDIDATE, REFERENCE};
use crate::settings::Rule;
use std::collections::{BTreeMap, HashMap};
use twinscope_names::{families::FUSED, name::Name};
use twinscope_tensor::Shape;

const ALONG_ONE_AXIS: f64 = 0.9;
/// The elements add up, but not along one axis of equal shapes.
const IN_TOTAL: f64 = 0.8;

/// One whole against its parts.
struct Group {
    side: usize,
    whole: usize,
    parts: Vec<usize>,
    score: f64,
}

pub(super) fn pair(board: &mut Board<'_, '_>) {
    for find in [fused, stacked, all_layers] {
        for group in find(board) {
            let whole = [group.whole];
            let (reference, candidate) = if group.side == REFERENCE {
                (&whole[..], &group.parts[..])
            } else {
                (&group.parts[..], &whole[..])
            };
            board.take(reference, candidate, Rule::Normalized, group.score);
        }
    }
    for (side, wholes, parts) in gates_and_ups(board) {
        let (reference, candidate) = if side == REFERENCE {
            (&wholes[..], &parts[..])
        } else {
            (&parts[..], &wholes[..])
        };
        board.take(reference, candidate, Rule::Normalized, IN_TOTAL);
    }
}

type Keys = HashMap<(Option<i128>, String), Vec<usize>>;

fn fused(board: &Board<'_, '_>) -> Vec<Group> {
    let keys: [Keys; 2] = [REFERENCE, CANDIDATE].map(|side| {
        let mut keys = Keys::new();
        for unit in board
            .free_units(side)
            .into_iter()
            .filter(|unit| board.name(side, *unit).stage.is_some())
        {
            keys.entry((
                board.layer(side, unit),
                of_experts(board.name(side, unit)).key(),
            ))
            .or_default()
            .push(unit);
        }
        keys
    });
    let mut groups: Vec<Group> = Vec::new();
    for side in [REFERENCE, CANDIDATE] {
        for whole in board.free_units(side) {
            groups.extend(
                FUSED
                    .iter()
                    .find_map(|(stage, parts)| split(board, &keys, side, whole, stage, parts)),
            );
        }
    }
    groups
}

/// The parts of a fused tensor on the other side, when all of them are there, once, and this side has none of its own.
fn split(
    board: &Board<'_, '_>,
    keys: &[Keys; 2],
    side: usize,
    whole: usize,
    stage: &str,
    parts: &[&str],
) -> Option<Group> {
    let name = of_experts(board.name(side, whole));
    let layer = board.layer(side, whole);
    let other = CANDIDATE - side;
    let has = |side: usize, stage: &str| {
        keys[side]
            .get(&(layer, name.key_as(stage)))
            .map_or(&[][..], Vec::as_slice)
    };
    let unclear = name.stage != Some(stage) || has(side, stage).len() != 1;
    let needless = parts
        .iter()
        .any(|part| *part != stage && !has(side, part).is_empty())
        || !parts.contains(&stage) && !has(other, stage).is_empty();
    if unclear || needless {
        return None;
    }
    let one = |part: &&str| {
        if let [unit] = has(other, part) {
            Some(*unit)
        } else {
            None
        }
    };
    let parts: Vec<usize> = parts.iter().map(one).collect::<Option<_>>()?;
    let score = adds_up(board, side, whole, &parts)?;
    Some(Group {
        side,
        whole,
        parts,
        score,
    })
}

/// Of each layer and name without its one number, who has which number.
type Numbered = HashMap<(Option<i128>, String), BTreeMap<u64, Vec<usize>>>;

/// `experts` against `experts.0`, `experts.1`, ...: one number more in the name, counting from zero without a gap. The whole may be fused
/// besides (`experts.gate_up` against `experts.0.gate`, `experts.0.up`, ...): it then holds each number's pieces after one another.
fn stacked(board: &Board<'_, '_>) -> Vec<Group> {
    let mut groups = Vec::new();
    for side in [REFERENCE, CANDIDATE] {
        let other = CANDIDATE - side;
        let mut parts = Numbered::new();
        for unit in board.free_units(other) {
            let mut name = board.name(other, unit).clone();
            if let [number] = name.numbers()[..] {
                name.rest.retain(|word| word.parse() != Ok(number));
                let key = (board.layer(other, unit), with_param(&name).key());
                parts
                    .entry(key)
                    .or_default()
                    .entry(number)
                    .or_default()
                    .push(unit);
            }
        }
        if parts.is_empty() {
            continue;
        }
        let mut wholes = Keys::new();
        for unit in board
            .free_units(side)
            .into_iter()
            .filter(|unit| board.name(side, *unit).numbers().is_empty())
        {
            wholes
                .entry((
                    board.layer(side, unit),
                    with_param(board.name(side, unit)).key(),
                ))
                .or_default()
                .push(unit);
        }
        for whole in wholes.into_values().filter_map(|units| {
            if let [unit] = units[..] {
                Some(unit)
            } else {
                None
            }
        }) {
            let found = all_numbers(board, side, whole, &parts)
                .and_then(|units| Some((adds_up(board, side, whole, &units)?, units)));
            groups.extend(found.map(|(score, parts)| Group {
                side,
                whole,
                parts,
                score,
            }));
        }
    }
    groups.sort_by_key(|group| (group.side, group.whole));
    groups
}

/// `layers` against `layers.0`, `layers.1`, ...: one tensor with an axis for the layers, as scanned JAX models are kept. Layers count from zero
/// without a gap.
fn all_layers(board: &Board<'_, '_>) -> Vec<Group> {
    let mut groups = Vec::new();
    for side in [REFERENCE, CANDIDATE] {
        let other = CANDIDATE - side;
        let mut wholes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for unit in board
            .free_units(side)
            .into_iter()
            .filter(|unit| board.name(side, *unit).all_layers)
        {
            let name = Name {
                all_layers: false,
                ..board.name(side, unit).clone()
            };
            wholes.entry(name.key()).or_default().push(unit);
        }
        if wholes.is_empty() {
            continue;
        }
        let mut parts: HashMap<String, BTreeMap<u64, Vec<usize>>> = HashMap::new();
        for unit in board.free_units(other) {
            let name = board.name(other, unit);
            if let Some(layer) = name.layer {
                parts
                    .entry(name.key())
                    .or_default()
                    .entry(layer)
                    .or_default()
                    .push(unit);
            }
        }
        for (key, whole) in wholes {
            let (&[whole], Some(layers)) = (whole.as_slice(), parts.get(&key)) else {
                continue;
            };
            let clear = layers.len() > 1
                && layers.keys().copied().eq(0..layers.len() as u64)
                && layers.values().all(|units| units.len() == 1);
            let units: Vec<usize> = layers.values().flatten().copied().collect();
            let score = adds_up(board, side, whole, &units).filter(|_| clear);
            groups.extend(score.map(|score| Group {
                side,
                whole,
                parts: units,
                score,
            }));
        }
    }
    groups.sort_by_key(|group| (group.side, group.whole));
    groups
}

/// Gates and ups stacked in one tensor each (`ffn_gate_exps`, `ffn_up_exps`) against experts that have both in one (Megatron's `linear_fc1`):
/// neither is a part of the other, both together are all of them.
fn gates_and_ups(board: &Board<'_, '_>) -> Vec<(usize, [usize; 2], Vec<usize>)> {
    let mut groups = Vec::new();
    for side in [REFERENCE, CANDIDATE] {
        let other = CANDIDATE - side;
        let mut parts: BTreeMap<(Option<i128>, String), BTreeMap<u64, Vec<usize>>> =
            BTreeMap::new();
        for unit in board.free_units(other) {
            let mut name = board.name(other, unit).clone();
            if let ([number], Some("mlp_up" | "mlp_gate_up")) = (&name.numbers()[..], name.stage) {
                let number = *number;
                name.rest.retain(|word| word.parse() != Ok(number));
                let key = (
                    board.layer(other, unit),
                    with_param(&name).key_as("mlp_gate_up"),
                );
                parts
                    .entry(key)
                    .or_default()
                    .entry(number)
                    .or_default()
                    .push(unit);
            }
        }
        if parts.is_empty() {
            continue;
        }
        let mut wholes: Keys = Keys::new();
        for unit in board.free_units(side) {
            let name = with_param(board.name(side, unit));
            if name.numbers().is_empty() && matches!(name.stage, Some("mlp_gate" | "mlp_up")) {
                wholes
                    .entry((board.layer(side, unit), name.key_as("mlp_gate_up")))
                    .or_default()
                    .push(unit);
            }
        }
        for (key, numbered) in parts {
            let Some(&[one, two]) = wholes.get(&key).map(Vec::as_slice) else {
                continue;
            };
            let is_gate = |unit: usize| board.name(side, unit).stage == Some("mlp_gate");
            let clear = numbered.len() > 1
                && numbered.keys().copied().eq(0..numbered.len() as u64)
                && numbered.values().all(|units| units.len() == 1);
            if !clear || is_gate(one) == is_gate(two) {
                continue;
            }
            let (wholes, units) = (
                if is_gate(one) { [one, two] } else { [two, one] },
                numbered.into_values().flatten().collect::<Vec<_>>(),
            );
            let total = |side: usize, units: &[usize]| {
                units.iter().try_fold(0u64, |sum, unit| {
                    sum.checked_add(board.elements(side, *unit)?)
                })
            };
            if total(side, &wholes).is_some_and(|all| all > 0 && Some(all) == total(other, &units))
            {
                groups.push((side, wholes, units));
            }
        }
    }
    groups
}

/// What stacks of experts are called where they are no modules: `experts.down_proj` is its weight.
fn with_param(name: &Name) -> Name {
    let mut name = name.clone();
    if name.stage.is_some() {
        name.param = name.param.or(Some("weight"));
    }
    name
}

fn of_experts(name: &Name) -> Name {
    if name.rest.iter().any(|word| word == "experts") {
        with_param(name)
    } else {
        name.clone()
    }
}

/// The numbered tensors that this whole holds, number by number.
fn all_numbers(
    board: &Board<'_, '_>,
    side: usize,
    whole: usize,
    parts: &Numbered,
) -> Option<Vec<usize>> {
    let (name, layer) = (
        with_param(board.name(side, whole)),
        board.layer(side, whole),
    );
    let fused = FUSED
        .iter()
        .find(|(stage, _)| name.stage == Some(stage))
        .map(|(_, pieces)| *pieces);
    let plain = vec![name.key()];
    // Gate and up of an expert in one, which Megatron calls `fc1` like an up alone: the sizes tell.
    let both = ["mlp_gate_up", "mlp_up"]
        .into_iter()
        .filter(|stage| name.stage != Some(stage));
    let fused_too = both
        .filter(|_| matches!(name.stage, Some("mlp_gate_up" | "mlp_up")))
        .map(|stage| vec![name.key_as(stage)]);
    let pieces = fused.map(|pieces| pieces.iter().map(|piece| name.key_as(piece)).collect());
    let ways = std::iter::once(plain).chain(pieces).chain(fused_too);
    let numbered = |keys: Vec<String>| -> Option<Vec<usize>> {
        let pieces: Vec<&BTreeMap<u64, Vec<usize>>> = keys
            .into_iter()
            .map(|key| parts.get(&(layer, key)))
            .collect::<Option<_>>()?;
        let count = pieces.first()?.len();
        let clear = |piece: &&BTreeMap<u64, Vec<usize>>| {
            piece.keys().copied().eq(0..count as u64)
                && piece.values().all(|units| units.len() == 1)
        };
        if count < 2 || !pieces.iter().all(clear) {
            return None;
        }
        Some(
            (0..count as u64)
                .flat_map(|number| {
                    pieces
                        .iter()
                        .flat_map(move |piece| piece[&number].iter().copied())
                })
                .collect(),
        )
    };
    ways.filter_map(numbered)
        .find(|units| adds_up(board, side, whole, units).is_some())
}

/// How well the parts' sizes make the whole's; `None` when they do not.
fn adds_up(board: &Board<'_, '_>, side: usize, whole: usize, parts: &[usize]) -> Option<f64> {
    let other = CANDIDATE - side;
    let total = parts.iter().try_fold(0u64, |sum, part| {
        sum.checked_add(board.elements(other, *part)?)
    })?;
    if board.elements(side, whole)? != total || total == 0 {
        return adds_up_with_copies(board, side, whole, parts).then_some(IN_TOTAL);
    }
    let shapes: Option<Vec<&Shape>> = parts
        .iter()
        .map(|part| Some(&board.single(other, *part)?.shape))
        .collect();
    let exact = board
        .single(side, whole)
        .zip(shapes)
        .is_some_and(|(whole, parts)| along_one_axis(&whole.shape, &parts));
    Some(if exact { ALONG_ONE_AXIS } else { IN_TOTAL })
}

/// Whether the sizes add up when ranks that are more than there are key and value heads hold copies of them, on either side.
fn adds_up_with_copies(board: &Board<'_, '_>, side: usize, whole: usize, parts: &[usize]) -> bool {
    let other = CANDIDATE - side;
    let [queries, keys, values] = parts else {
        return false;
    };
    if board.name(side, whole).stage != Some("attn_qkv") {
        return false;
    }
    let elements = |unit: &usize| board.elements(other, *unit).map(u128::from);
    let (Some(all), Some(queries), Some(keys), Some(values)) = (
        board.elements(side, whole).map(u128::from),
        elements(queries),
        elements(keys),
        elements(values),
    ) else {
        return false;
    };
    let copies = |side: usize, unit: usize| {
        let ranks = board.unit(side, unit).items.len();
        (1..=ranks as u128).filter(move |copies| (ranks as u128).is_multiple_of(*copies))
    };
    let shared = keys + values;
    all > 0
        && copies(other, parts[1]).any(|theirs| {
            copies(side, whole).any(|ours| all * theirs == queries * theirs + shared * ours)
        })
}

/// Whether the parts one after another have the whole's dimensions, as they are or transposed.
fn along_one_axis(whole: &Shape, parts: &[&Shape]) -> bool {
    let fits = |parts: &[Vec<u64>]| {
        let dims = whole.dims();
        parts.iter().all(|part| part.len() == dims.len())
            && (0..dims.len()).any(|axis| {
                let others = parts
                    .iter()
                    .all(|part| (0..dims.len()).all(|at| at == axis || part[at] == dims[at]));
                others
                    && parts
                        .iter()
                        .map(|part| u128::from(part[axis]))
                        .sum::<u128>()
                        == u128::from(dims[axis])
            })
    };
    let plain: Vec<Vec<u64>> = parts.iter().map(|part| part.dims().to_vec()).collect();
    let turned: Vec<Vec<u64>> = parts
        .iter()
        .map(|part| part.dims().iter().rev().copied().collect())
        .collect();
    fits(&plain) || fits(&turned)
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::*, settings::Rule};

    fn normalized(reference: &[(&str, &[u64])], candidate: &[(&str, &[u64])]) -> Vec<String> {
        result(
            &settings(&[Rule::Normalized]),
            &Source::shaped(reference),
            &Source::shaped(candidate),
        )
        .0
    }

    const SPLIT: &[(&str, &[u64])] = &[
        ("model.layers.0.self_attn.v_proj.weight", &[2, 8]),
        ("model.layers.0.self_attn.q_proj.weight", &[8, 8]),
        ("model.layers.0.self_attn.k_proj.weight", &[2, 8]),
        ("model.layers.0.mlp.up_proj.weight", &[16, 8]),
        ("model.layers.0.mlp.gate_proj.weight", &[16, 8]),
        ("model.layers.0.mlp.down_proj.weight", &[8, 16]),
    ];

    #[test]
    fn vllm_fused_against_split_in_both_directions() {
        let fused: &[(&str, &[u64])] = &[
            ("model.layers.0.self_attn.qkv_proj.weight", &[12, 8]),
            ("model.layers.0.mlp.gate_up_proj.weight", &[32, 8]),
            ("model.layers.0.mlp.down_proj.weight", &[8, 16]),
        ];
        let (qkv, mlp) = ("model.layers.0.self_attn.", "model.layers.0.mlp.");
        let q = format!("{qkv}q_proj.weight+{qkv}k_proj.weight+{qkv}v_proj.weight");
        let gate = format!("{mlp}gate_proj.weight+{mlp}up_proj.weight");
        let down = format!("{mlp}down_proj.weight={mlp}down_proj.weight");
        assert_eq!(
            normalized(SPLIT, fused),
            [
                format!("{q}={qkv}qkv_proj.weight"),
                format!("{gate}={mlp}gate_up_proj.weight"),
                down.clone()
            ]
        );
        assert_eq!(
            normalized(fused, SPLIT),
            [
                format!("{qkv}qkv_proj.weight={q}"),
                format!("{mlp}gate_up_proj.weight={gate}"),
                down
            ]
        );
    }

    #[test]
    fn megatrons_fc1_is_gate_and_up_only_when_the_sizes_say_so() {
        let swiglu = normalized(
            SPLIT,
            &[("decoder.layers.0.mlp.linear_fc1.weight", &[32, 8])],
        );
        assert_eq!(
            swiglu,
            [
                "model.layers.0.mlp.gate_proj.weight+model.layers.0.mlp.up_proj.weight=decoder.layers.0.mlp.linear_fc1.weight"
            ]
        );
        let gelu = normalized(
            &SPLIT[3..4],
            &[("decoder.layers.0.mlp.linear_fc1.weight", &[16, 8])],
        );
        assert_eq!(
            gelu,
            ["model.layers.0.mlp.up_proj.weight=decoder.layers.0.mlp.linear_fc1.weight"]
        );
    }

    #[test]
    fn gpt2_fuses_along_the_other_axis_and_dumps_split_heads() {
        let parts: &[(&str, &[u64])] = &[
            ("h.0.attn.q.bias", &[8]),
            ("h.0.attn.k.bias", &[8]),
            ("h.0.attn.v.bias", &[8]),
        ];
        assert_eq!(
            normalized(parts, &[("transformer.h.0.attn.c_attn.bias", &[24])]).len(),
            1
        );
        let heads: &[(&str, &[u64])] = &[
            ("0_query", &[1, 4, 5, 2]),
            ("0_key", &[1, 2, 5, 2]),
            ("0_value", &[1, 2, 5, 2]),
        ];
        assert_eq!(
            normalized(heads, &[("0_qkv", &[5, 16])]),
            ["0_query+0_key+0_value=0_qkv"]
        );
    }

    #[test]
    fn stacks_of_experts_that_are_no_modules_are_fused_too() {
        let stacks: &[(&str, &[u64])] = &[
            ("blk.0.ffn_gate_exps.weight", &[4, 24, 16]),
            ("blk.0.ffn_up_exps.weight", &[4, 24, 16]),
        ];
        let fused: &[(&str, &[u64])] = &[("model.layers.0.mlp.experts.gate_up_proj", &[4, 48, 16])];
        assert_eq!(
            normalized(stacks, fused),
            [
                "blk.0.ffn_gate_exps.weight+blk.0.ffn_up_exps.weight=model.layers.0.mlp.experts.gate_up_proj"
            ]
        );
    }

    #[test]
    fn sizes_that_do_not_add_up_are_no_group() {
        assert!(normalized(&SPLIT[..3], &[("blk.0.attn_qkv.weight", &[13, 8])]).is_empty());
        assert!(
            normalized(&SPLIT[..2], &[("blk.0.attn_qkv.weight", &[10, 8])]).is_empty(),
            "a part is missing"
        );
    }

    #[test]
    fn stacked_experts_are_paired_with_every_expert() {
        let split: &[(&str, &[u64])] = &[
            ("model.layers.0.mlp.experts.1.gate_proj.weight", &[4, 2]),
            ("model.layers.0.mlp.experts.0.gate_proj.weight", &[4, 2]),
        ];
        let pairs = normalized(split, &[("blk.0.ffn_gate_exps.weight", &[2, 4, 2])]);
        assert_eq!(
            pairs,
            [
                "model.layers.0.mlp.experts.0.gate_proj.weight+model.layers.0.mlp.experts.1.gate_proj.weight=blk.0.ffn_gate_exps.weight"
            ]
        );
    }

    #[test]
    fn stacks_of_experts_may_have_no_weight_in_their_name_and_be_fused() {
        let part = |expert: u32, part: &str| {
            format!("model.layers.0.mlp.experts.{expert}.{part}_proj.weight")
        };
        let names: Vec<String> = (0..3)
            .flat_map(|expert| ["up", "gate", "down"].map(|name| part(expert, name)))
            .collect();
        let split: Vec<(&str, &[u64])> = names
            .iter()
            .map(|name| {
                (
                    name.as_str(),
                    if name.contains("down") {
                        &[2u64, 4][..]
                    } else {
                        &[4, 2]
                    },
                )
            })
            .collect();
        let gates: Vec<String> = (0..3)
            .flat_map(|expert| [part(expert, "gate"), part(expert, "up")])
            .collect();
        let downs: Vec<String> = (0..3).map(|expert| part(expert, "down")).collect();
        for [fused, down] in [["gate_up_proj", "down_proj"], ["w13_weight", "w2_weight"]]
            .map(|names| names.map(|name| format!("model.layers.0.mlp.experts.{name}")))
        {
            let whole: &[(&str, &[u64])] = &[(&fused, &[3, 8, 2]), (&down, &[3, 2, 4])];
            let expected = [
                format!("{fused}={}", gates.join("+")),
                format!("{down}={}", downs.join("+")),
            ];
            assert_eq!(normalized(whole, &split), expected);
            assert_eq!(normalized(&split, whole).len(), 2);
        }
    }

    #[test]
    fn all_layers_in_one_are_paired_with_every_layer() {
        let split: &[(&str, &[u64])] = &[
            ("model.layers.1.mlp.gate_proj.weight", &[4, 2]),
            ("model.layers.0.mlp.gate_proj.weight", &[4, 2]),
            ("model.layers.0.input_layernorm.weight", &[2]),
            ("model.layers.1.input_layernorm.weight", &[2]),
            ("model.norm.weight", &[2]),
        ];
        let scanned: &[(&str, &[u64])] = &[
            ("params/decoder/layers/mlp/wi_0/kernel", &[2, 2, 4]),
            (
                "params/decoder/layers/pre_self_attention_layer_norm/scale",
                &[2, 2],
            ),
            ("params/decoder/decoder_norm/scale", &[2]),
        ];
        let pairs = normalized(scanned, split);
        assert_eq!(
            pairs[0],
            "params/decoder/layers/mlp/wi_0/kernel=model.layers.0.mlp.gate_proj.weight+model.layers.1.mlp.gate_proj.weight"
        );
        assert!(
            normalized(scanned, &split[1..])
                .iter()
                .all(|pair| !pair.contains("wi_0")),
            "a layer is missing"
        );
    }

    #[test]
    fn experts_with_gate_and_up_in_one_are_stacked_whatever_they_are_called() {
        let numbered: Vec<String> = (0..3)
            .map(|expert| format!("decoder.layers.0.mlp.experts.linear_fc1.weight{expert}"))
            .collect();
        let parts: Vec<(&str, &[u64])> = numbered
            .iter()
            .map(|name| (name.as_str(), &[8u64, 2][..]))
            .collect();
        let whole: &[(&str, &[u64])] = &[("model.layers.0.mlp.experts.w13_weight", &[3, 8, 2])];
        assert_eq!(
            normalized(whole, &parts),
            [format!("{}={}", whole[0].0, numbered.join("+"))]
        );
        assert_eq!(normalized(&parts, whole).len(), 1);
    }

    #[test]
    fn stacks_of_gates_and_of_ups_are_paired_with_experts_that_have_both() {
        let numbered: Vec<String> = (0..3)
            .map(|expert| format!("decoder.layers.0.mlp.experts.linear_fc1.weight{expert}"))
            .collect();
        let parts: Vec<(&str, &[u64])> = numbered
            .iter()
            .map(|name| (name.as_str(), &[8u64, 2][..]))
            .collect();
        let stacks: &[(&str, &[u64])] = &[
            ("blk.0.ffn_up_exps.weight", &[3, 4, 2]),
            ("blk.0.ffn_gate_exps.weight", &[3, 4, 2]),
        ];
        let together = format!("{}+{}={}", stacks[1].0, stacks[0].0, numbered.join("+"));
        assert_eq!(normalized(stacks, &parts), [together]);
        assert_eq!(normalized(&parts, stacks).len(), 1);
        assert!(normalized(&stacks[..1], &parts).is_empty(), "half of it");
        assert!(
            normalized(stacks, &parts[1..]).is_empty(),
            "an expert is missing"
        );
    }

    #[test]
    fn ranks_that_are_more_than_key_heads_hold_copies_of_them() {
        let whole: &[(&str, &[u64])] = &[
            ("layers.0.self_attn.q_proj.weight", &[32, 8]),
            ("layers.0.self_attn.k_proj.weight", &[8, 8]),
            ("layers.0.self_attn.v_proj.weight", &[8, 8]),
        ];
        // Two key heads of four rows over four ranks: eight rows of queries, four of keys, four of values each.
        let names: Vec<String> = (0..4)
            .map(|rank| format!("rank{rank}/layers.0.self_attn.qkv_proj.weight"))
            .collect();
        let shards = |rows: u64| {
            names.iter().fold(Source::new(), |s, name| {
                s.with(name, twinscope_tensor::DType::F32, &[rows, 8], vec![])
            })
        };
        let pairs = |rows: u64| {
            result(
                &settings(&[Rule::Normalized]),
                &Source::shaped(whole),
                &shards(rows),
            )
            .0
        };
        assert_eq!(pairs(16).len(), 1);
        assert!(
            pairs(15).is_empty() && pairs(20).is_empty(),
            "no number of copies gives that"
        );
        let parts: Vec<(String, u64)> = [("q", 8), ("k", 4), ("v", 4)]
            .into_iter()
            .flat_map(|(part, rows)| {
                (0..4).map(move |rank| {
                    (
                        format!("rank{rank}/layers.0.self_attn.{part}_proj.weight"),
                        rows,
                    )
                })
            })
            .collect();
        let parts: Vec<(&str, Vec<u64>)> = parts
            .iter()
            .map(|(name, rows)| (name.as_str(), vec![*rows, 8]))
            .collect();
        let parts: Vec<(&str, &[u64])> = parts
            .iter()
            .map(|(name, dims)| (*name, dims.as_slice()))
            .collect();
        assert_eq!(
            normalized(&[("layers.0.self_attn.qkv_proj.weight", &[48, 8])], &parts).len(),
            1
        );
    }

    #[test]
    fn ranks_cut_along_another_axis_are_compared_as_wholes() {
        let reference = [
            ("rank0/x.weight", &[4u64, 8][..]),
            ("rank1/x.weight", &[4, 8]),
        ];
        let candidate = [
            ("rank0/x.weight", &[8u64, 4][..]),
            ("rank1/x.weight", &[8, 4]),
        ];
        assert_eq!(
            normalized(&reference, &candidate),
            ["rank0/x.weight+rank1/x.weight=rank0/x.weight+rank1/x.weight"]
        );
        let whole = [
            ("rank0/x.weight", &[1u64, 4, 8][..]),
            ("rank1/x.weight", &[1, 4, 8]),
        ];
        assert_eq!(
            normalized(&reference, &whole).len(),
            2,
            "a dimension of one is no other cut"
        );
    }

    #[test]
    fn shards_of_the_ranks_are_one_tensor() {
        let shards = [
            ("rank1/x.weight", &[4u64, 8][..]),
            ("rank0/x.weight", &[4, 8]),
            ("rank0/y", &[2]),
            ("rank1/y", &[2]),
        ];
        assert_eq!(
            normalized(&[("x.weight", &[8, 8]), ("y", &[2])], &shards),
            [
                "x.weight=rank0/x.weight+rank1/x.weight",
                "y=rank0/y+rank1/y"
            ]
        );
        let other: Vec<String> = (0..4)
            .flat_map(|rank| [format!("x.weight_tp{rank}"), format!("y_tp{rank}")])
            .collect();
        let other: Vec<(&str, &[u64])> = other
            .iter()
            .map(|name| (name.as_str(), &[2u64, 8][..]))
            .collect();
        assert_eq!(
            normalized(&shards, &other)[0],
            "rank0/x.weight+rank1/x.weight=x.weight_tp0+x.weight_tp1+x.weight_tp2+x.weight_tp3"
        );
        let same = [
            ("mp_rank_00/x.weight", &[4u64, 8][..]),
            ("mp_rank_01/x.weight", &[4, 8]),
        ];
        assert_eq!(
            normalized(&shards, &same),
            [
                "rank0/x.weight=mp_rank_00/x.weight",
                "rank1/x.weight=mp_rank_01/x.weight"
            ]
        );
    }

    #[test]
    fn ranks_run_at_the_same_time() {
        // A fault of the last rank comes before what all ranks make of it together.
        let run = [
            ("rank0/0_query", &[4u64][..]),
            ("rank0/0_post_attn", &[4]),
            ("rank1/0_query", &[4]),
            ("rank1/0_post_attn", &[4]),
            ("rank1/0_extra", &[4]),
        ];
        let (pairs, _) = result(
            &settings(&[Rule::Exact]),
            &Source::shaped(&run),
            &Source::shaped(&run),
        );
        let names: Vec<&str> = pairs
            .iter()
            .map(|pair| pair.split('=').next().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "rank0/0_query",
                "rank1/0_query",
                "rank0/0_post_attn",
                "rank1/0_post_attn",
                "rank1/0_extra"
            ]
        );
    }

    #[test]
    fn pipeline_ranks_and_process_numbers_go_when_names_stay_different() {
        let run = |layer: u32, tp: u32| {
            format!(
                "TP{tp}_PP{layer}_Rank{}_pid{}/layers.{layer}.w",
                layer * 2 + tp,
                100 + layer * 2 + tp
            )
        };
        let shards = [run(0, 0), run(0, 1), run(1, 0), run(1, 1)];
        let (pairs, _) = paired_with(
            &settings(&[Rule::Exact]),
            &names(&["layers.0.w", "layers.1.w"]),
            &shards,
        );
        assert_eq!(
            pairs,
            [
                format!("layers.0.w={}+{}", shards[0], shards[1]),
                format!("layers.1.w={}+{}", shards[2], shards[3])
            ]
        );
    }

    #[test]
    fn every_rule_sees_through_ranks() {
        let rank = |name: &str| -> Vec<String> {
            (0..2).map(|rank| format!("{name}.rank{rank}")).collect()
        };
        for (rule, whole, sharded) in [
            (Rule::LayerStage, "3_query", "3_query"),
            (Rule::Exact, "x", "x"),
            (Rule::Fuzzy, "outer_thing", "outer_things"),
        ] {
            let (pairs, _) = paired_with(&settings(&[rule]), &names(&[whole]), &rank(sharded));
            assert_eq!(
                pairs,
                [format!("{whole}={sharded}.rank0+{sharded}.rank1")],
                "{rule:?}"
            );
        }
    }

    #[test]
    fn ranks_may_be_recorded_instead_of_named() {
        let run = Source::shaped(&[("x", &[4])]).meta(serde_json::json!({"rank": 1}));
        let run = run
            .with("x#2", twinscope_tensor::DType::F32, &[4], Vec::new())
            .meta(serde_json::json!({"rank": 0}));
        assert_eq!(
            result(
                &settings(&[Rule::Exact]),
                &Source::shaped(&[("x", &[8])]),
                &run
            )
            .0,
            ["x=x#2+x"]
        );
    }

    #[test]
    fn fused_shards_are_paired_rank_by_rank() {
        let names: Vec<(String, u64)> = (0..2)
            .flat_map(|rank| {
                ["q_proj", "k_proj", "v_proj"]
                    .map(|part| (format!("rank{rank}/layers.0.self_attn.{part}.weight"), 4))
            })
            .collect();
        let reference = names.iter().fold(Source::new(), |source, (name, rows)| {
            source.with(name, twinscope_tensor::DType::F32, &[*rows, 8], Vec::new())
        });
        let candidate = Source::shaped(&[
            ("blk.0.attn_qkv.weight_tp0", &[12, 8]),
            ("blk.0.attn_qkv.weight_tp1", &[12, 8]),
        ]);
        let (pairs, _) = result(&settings(&[Rule::Normalized]), &reference, &candidate);
        assert_eq!(pairs.len(), 2);
        assert_eq!(pairs[1].matches("rank1").count(), 3);
        assert!(pairs[1].ends_with("=blk.0.attn_qkv.weight_tp1"));
    }
}
