//! The search: what the user said, what the dims declare, what the shapes allow, and of that what the values confirm.

use super::{
    Aligned, Convention, CutReason, Evidence, Hints, Incomparable, LayoutError, Order, Parts, Step,
    Which,
    permute::{self, Way},
    ranks::{self, Whole},
    sample::{self, MOST_PLANS},
    steps,
};
use twinscope_tensor::{Shape, View};

/// Most ways from one shape to another that split or merge, alone and for every way to put parts together.
const WAYS: usize = 256;
const WAYS_OF_PARTS: usize = 12;
/// The same for parts that are only put side by side, where permuting dimensions is enough: every order of five.
const TURNS_OF_PARTS: usize = 120;
/// More parts than this are put together only as declared, or along an axis.
const MOST_RANKS: usize = 64;

/// Both sides as operands of one shape, with the steps that make them so. Several views on a side are the parts of one tensor.
///
/// Equal shapes are taken as they are. Reads at most a few thousand elements of each side, whatever their size.
pub fn align(
    reference: &[View],
    candidate: &[View],
    hints: &Hints,
) -> Result<Aligned, LayoutError> {
    if let Some(user) = &hints.user {
        return steps::aligned(user.clone(), reference, candidate, Evidence::User);
    }
    let declared = hints.reference.dims.is_some() || hints.candidate.dims.is_some();
    if let ([r], [c]) = (reference, candidate)
        && r.shape() == c.shape()
        && !(hints.reference.dims.is_some() && hints.candidate.dims.is_some())
    {
        let found = hints
            .convention
            .map(|convention| by_convention(convention, r, c))
            .transpose()?;
        let (steps, by) = found
            .flatten()
            .map_or((Vec::new(), Evidence::Shape), |steps| {
                (steps, Evidence::Declared)
            });
        return steps::aligned(steps, reference, candidate, by);
    }
    let incomparable = || Incomparable {
        reference: shapes(reference),
        candidate: shapes(candidate),
    };
    if reference.is_empty() || candidate.is_empty() {
        return Err(incomparable().into());
    }
    if declared && let Some(found) = by_dims(reference, candidate, hints)? {
        return Ok(found);
    }
    // Pieces beside shards of what they make are as many by chance.
    let of_one_kind = hints.reference.parts == hints.candidate.parts;
    if let Some(steps) =
        part_by_part(reference, candidate).filter(|_| of_one_kind || reference.len() == 1)
    {
        return steps::aligned(steps, reference, candidate, Evidence::Shape);
    }
    if hints.only_equal {
        return Err(incomparable().into());
    }
    let wholes = |views: &[View], side, kind| {
        let dims: Vec<&[u64]> = views.iter().map(|view| view.shape().dims()).collect();
        let kind = if views.len() > MOST_RANKS {
            Parts::Pieces
        } else {
            kind
        };
        ranks::wholes(&dims, side, kind)
    };
    let mut left = wholes(reference, Which::Reference, hints.reference.parts);
    let mut right = wholes(candidate, Which::Candidate, hints.candidate.parts);
    if let ([r], Parts::Ranks) = (reference, hints.candidate.parts) {
        let dims: Vec<&[u64]> = candidate.iter().map(|view| view.shape().dims()).collect();
        right.extend(ranks::zigzag_of_batches(&dims, r.shape().dims()));
    }
    if let Some(Convention::Interleaved(side)) = hints.convention {
        let whole = if side == Which::Reference {
            &mut left
        } else {
            &mut right
        };
        whole.extend(ranks::interleaved(whole, side));
    }
    search(&left, &right, reference, candidate)?.ok_or_else(|| incomparable().into())
}

/// The steps that a convention of the names asks for, when the values confirm them. Else the shapes, which are equal, are taken as they are,
/// and what was not rearranged though it should be is a cause.
fn by_convention(
    convention: Convention,
    reference: &View,
    candidate: &View,
) -> Result<Option<Vec<Step>>, LayoutError> {
    let dims = reference.shape().dims();
    if convention == Convention::AllTurned {
        return Ok((dims.len() == 2).then(|| vec![Step::Permute { order: vec![1, 0] }]));
    }
    let mut plans = vec![Vec::new()];
    match (convention, dims) {
        (Convention::Turned, [rows, columns]) if rows == columns && *rows > 1 => {
            plans.push(vec![Step::Permute { order: vec![1, 0] }]);
        }
        // Kernels of convolutions: height, width, in, out on one side, out, in, height, width on the other.
        (Convention::Turned, [_, _, _, _]) => {
            let orders = [vec![3, 2, 0, 1], vec![2, 3, 1, 0]].into_iter();
            let fits = |order: &Vec<usize>| {
                order
                    .iter()
                    .zip(dims)
                    .all(|(from, dim)| dims[*from] == *dim)
                    && dims.iter().any(|dim| *dim > 1)
            };
            plans.extend(
                orders
                    .filter(fits)
                    .map(|order| vec![Step::Permute { order }]),
            );
        }
        (Convention::Turned | Convention::AllTurned, _) => {}
        (Convention::Interleaved(which), dims) => {
            for (axis, dim) in dims.iter().enumerate() {
                let sizes = ranks::fused_sizes(*dim)
                    .into_iter()
                    .filter(|sizes| sizes.len() == 3);
                plans.extend(sizes.flat_map(|sizes| {
                    let packings = ranks::groupings(&sizes).into_iter();
                    packings.map(move |(groups, _)| {
                        let sizes = sizes.clone();
                        let order = match which {
                            Which::Reference => Order::Pack { groups, sizes },
                            Which::Candidate => Order::Unpack { groups, sizes },
                        };
                        vec![Step::Reorder {
                            side: Which::Candidate,
                            axis,
                            order,
                        }]
                    })
                }));
            }
        }
    }
    plans.truncate(MOST_PLANS - 1);
    let plans: Vec<Way> = plans
        .into_iter()
        .enumerate()
        .map(|(nth, steps)| Way {
            cost: nth as u32,
            steps,
        })
        .collect();
    let found = sample::choose(
        &plans,
        std::slice::from_ref(reference),
        std::slice::from_ref(candidate),
    )?;
    Ok(found
        .filter(|choice| choice.agrees && choice.plan > 0)
        .map(|choice| plans[choice.plan].steps.clone()))
}

fn shapes(views: &[View]) -> Vec<Shape> {
    views.iter().map(|view| view.shape().clone()).collect()
}

/// As many parts of the same shapes on both sides: nothing to find out, any axis will do.
fn part_by_part(reference: &[View], candidate: &[View]) -> Option<Vec<Step>> {
    let parts = reference.len();
    if parts != candidate.len()
        || !reference
            .iter()
            .zip(candidate)
            .all(|(r, c)| r.shape() == c.shape())
    {
        return None;
    }
    if parts == 1 {
        return Some(Vec::new());
    }
    let rank = reference[0].shape().rank();
    (0..rank.max(1)).find_map(|axis| {
        let steps = [Which::Reference, Which::Candidate]
            .map(|side| Step::Concat { side, axis, parts })
            .to_vec();
        steps::run(&steps, reference, candidate)
            .is_ok()
            .then_some(steps)
    })
}

/// What the dims strings say. What they leave open is searched; `None` when they do not fit the tensors.
fn by_dims(
    reference: &[View],
    candidate: &[View],
    hints: &Hints,
) -> Result<Option<Aligned>, LayoutError> {
    let sides = [
        (reference, &hints.reference, Which::Reference),
        (candidate, &hints.candidate, Which::Candidate),
    ];
    let [left, right] = sides.map(|(views, hints, side)| match &hints.dims {
        Some(dims) => dims
            .assemble(side, views.len(), &hints.ranks)
            .and_then(|steps| assembled(steps, views))
            .into_iter()
            .collect(),
        None => {
            let dims: Vec<&[u64]> = views.iter().map(|view| view.shape().dims()).collect();
            ranks::wholes(&dims, side, hints.parts)
        }
    });
    if let (Some(r), Some(c), [left], [right]) = (
        &hints.reference.dims,
        &hints.candidate.dims,
        left.as_slice(),
        right.as_slice(),
    ) && let Some(rearranged) = r.line_up(&left.dims, c, &right.dims)
    {
        let steps = [left.steps.clone(), right.steps.clone(), rearranged].concat();
        if let Ok(found) = steps::aligned(steps, reference, candidate, Evidence::Declared) {
            return Ok(Some(found));
        }
    }
    // One declared side tells only how its parts go together.
    if reference.len() == 1 && candidate.len() == 1 {
        return Ok(None);
    }
    let found = search(&left, &right, reference, candidate)?;
    Ok(found.map(|mut found| {
        found.layout.by = Evidence::Declared;
        found
    }))
}

/// The shape that assembling leaves, by doing it.
fn assembled(steps: Vec<Step>, views: &[View]) -> Option<Whole> {
    let dims = steps::assembled_dims(&steps, views)?;
    Some(Whole {
        steps,
        dims,
        cost: 0,
        joined: None,
        replicated: false,
    })
}

/// The plan that the values confirm, or the simplest that the shapes allow.
fn search(
    left: &[Whole],
    right: &[Whole],
    reference: &[View],
    candidate: &[View],
) -> Result<Option<Aligned>, LayoutError> {
    let take =
        |plan: &Way, by| steps::aligned(plan.steps.clone(), reference, candidate, by).map(Some);
    let plans = whole_plans(left, right, false);
    let first = sample::choose(&plans, reference, candidate)?;
    if let Some(choice) = first
        && choice.beyond_doubt()
    {
        return take(&plans[choice.plan], choice.by);
    }
    let copies = whole_plans(left, right, true);
    // Ranks that have copies of some of what they hold beside one that half agrees. Cutting is no way to agree more: it leaves out what does
    // not.
    if let Some(whole) = first
        && whole.agrees
    {
        return match sample::choose(&copies, reference, candidate)? {
            Some(choice) if choice.holds && choice.beats(whole) => {
                take(&copies[choice.plan], choice.by)
            }
            _ => take(&plans[whole.plan], whole.by),
        };
    }
    // Copies of which one is broken are not cut off either.
    if let Some(choice) = sample::choose(&copies, reference, candidate)?
        && choice.holds
        && choice.beyond_doubt()
    {
        return take(&copies[choice.plan], choice.by);
    }
    // What leaves something out, as padding or as copies of what other ranks have: the values choose between the two. Where everything fits
    // without, what does not agree is wrong and not left over: eight shards of which seven are garbage are no slice of the first.
    let fits = plans
        .iter()
        .any(|plan| !plan.steps.contains(&Step::Flatten));
    let copies = copies.into_iter().map(|way| ranks::CutWay {
        way,
        by_shape: false,
    });
    let cut = if fits {
        Vec::new()
    } else {
        cut_plans(left, right)
    };
    let mut cuts: Vec<ranks::CutWay> = copies.chain(cut).collect();
    cuts.sort_by_key(|cut| cut.way.cost);
    cuts.truncate(MOST_PLANS);
    let (cuts, by_shape): (Vec<Way>, Vec<bool>) =
        cuts.into_iter().map(|cut| (cut.way, cut.by_shape)).unzip();
    if let Some(choice) = sample::choose(&cuts, reference, candidate)?
        && choice.agrees
    {
        return take(&cuts[choice.plan], choice.by);
    }
    if let Some(choice) = first {
        return take(&plans[choice.plan], choice.by);
    }
    match by_shape.iter().position(|believable| *believable) {
        Some(at) => {
            let mut plan = cuts[at].clone();
            if let Some(Step::Cut {
                start: 0,
                why: why @ CutReason::Found,
                ..
            }) = plan
                .steps
                .iter_mut()
                .find(|step| matches!(step, Step::Cut { .. }))
            {
                // No values speak for it.
                *why = CutReason::Padding;
            }
            take(&plan, Evidence::Shape)
        }
        None => Ok(None),
    }
}

fn elements(dims: &[u64]) -> Option<u64> {
    Shape::from(dims.to_vec()).elements()
}

/// Plans that use every element, or with `replicated` those that use one of every copy, the cheapest first.
fn whole_plans(left: &[Whole], right: &[Whole], replicated: bool) -> Vec<Way> {
    let mut plans = Vec::new();
    let alone = left.len() == 1 && right.len() == 1;
    for r in left {
        for c in right {
            if (r.replicated || c.replicated) != replicated {
                continue;
            }
            if elements(&r.dims) != elements(&c.dims) || elements(&r.dims).is_none() {
                continue;
            }
            let base = |middle: &[Step], way: &Way, price: u32| {
                let steps = [&r.steps, &c.steps, middle, &way.steps].concat();
                Way {
                    steps,
                    cost: r.cost + c.cost + way.cost + price,
                }
            };
            let most = match alone {
                true if permute::same_dims(&c.dims, &r.dims) => MOST_PLANS,
                true => WAYS,
                false
                    if r.steps.len().max(c.steps.len()) == 1
                        && permute::same_dims(&c.dims, &r.dims) =>
                {
                    TURNS_OF_PARTS
                }
                false => WAYS_OF_PARTS,
            };
            let mut ways = permute::ways(&c.dims, &r.dims, most);
            // Taken apart and put together again, a grid is its ranks in another order: a cause, if it makes the values agree. So is a zigzag.
            if r.is_ordered() || c.is_ordered() {
                ways.retain(|way| !regroups(&way.steps));
            }
            plans.extend(ways.iter().map(|way| base(&[], way, 0)));
            plans.extend(packed(r, c, &ways));
            if !permute::nests(&c.dims, &r.dims) {
                plans.push(base(
                    &[],
                    &Way {
                        steps: vec![Step::Flatten],
                        cost: permute::FLATTEN,
                    },
                    0,
                ));
            }
        }
    }
    sorted(plans)
}

fn regroups(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Split { .. }))
        && steps.iter().any(|step| matches!(step, Step::Merge { .. }))
}

/// Pieces of one side interleaved in the other's one tensor.
fn packed(r: &Whole, c: &Whole, ways: &[Way]) -> Vec<Way> {
    let mut plans = Vec::new();
    for way in ways.iter().take(3) {
        let cost = r.cost + c.cost + way.cost;
        if let Some((axis, sizes)) = &r.joined {
            for (groups, price) in ranks::groupings(sizes) {
                let order = Order::Unpack {
                    groups,
                    sizes: sizes.clone(),
                };
                let reorder = Step::Reorder {
                    side: Which::Candidate,
                    axis: *axis,
                    order,
                };
                let steps = [
                    r.steps.clone(),
                    c.steps.clone(),
                    way.steps.clone(),
                    vec![reorder],
                ]
                .concat();
                plans.push(Way {
                    steps,
                    cost: cost + price,
                });
            }
        }
        if let Some((axis, sizes)) = &c.joined {
            for (groups, price) in ranks::groupings(sizes) {
                let order = Order::Pack {
                    groups,
                    sizes: sizes.clone(),
                };
                let reorder = Step::Reorder {
                    side: Which::Candidate,
                    axis: *axis,
                    order,
                };
                let steps = [
                    r.steps.clone(),
                    c.steps.clone(),
                    vec![reorder],
                    way.steps.clone(),
                ]
                .concat();
                plans.push(Way {
                    steps,
                    cost: cost + price,
                });
            }
        }
    }
    plans
}

fn cut_plans(left: &[Whole], right: &[Whole]) -> Vec<ranks::CutWay> {
    let mut plans = Vec::new();
    for r in left {
        for c in right {
            if r.replicated || c.replicated {
                continue;
            }
            for mut cut in ranks::cuts(&r.dims, &c.dims) {
                not_padding(&mut cut.way.steps, r, c);
                cut.way.steps = [r.steps.clone(), c.steps.clone(), cut.way.steps].concat();
                cut.way.cost += r.cost + c.cost;
                plans.push(cut);
            }
        }
    }
    plans.sort_by_key(|cut| cut.way.cost);
    plans.truncate(MOST_PLANS);
    plans
}

/// What is left out of a whole beside shards that are put together, and is as large as so many more of them, is no padding: it is what ranks
/// that are not there hold.
fn not_padding(steps: &mut [Step], r: &Whole, c: &Whole) {
    let Some(Step::Cut {
        side,
        axis,
        len,
        why: why @ CutReason::Padding,
        ..
    }) = steps.first_mut()
    else {
        return;
    };
    let (whole, parts) = if *side == Which::Reference {
        (r, c)
    } else {
        (c, r)
    };
    if let ([Step::Concat { parts, .. }], Some(dim)) =
        (parts.steps.as_slice(), whole.dims.get(*axis))
    {
        let shard = *len / *parts as u64;
        if shard > 0 && dim.saturating_sub(*len).is_multiple_of(shard) {
            *why = CutReason::Found;
        }
    }
}

fn sorted(mut plans: Vec<Way>) -> Vec<Way> {
    plans.sort_by_key(|plan| plan.cost);
    plans.truncate(MOST_PLANS);
    plans
}
