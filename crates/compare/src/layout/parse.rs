//! `permute(0,2,1) squeeze(0)`: the steps a user writes.
//!
//! `squeeze(A)`, `unsqueeze(A)`, `permute(A,..)`, `swap(A,B,RANK)`, `split(A,SIZE,..)`, `merge(A,COUNT)`, `concat(A)`, `sum()`,
//! `keep(PART,..)`, `divide(A,SIZE,..)`, `cut(A,START,LEN)`, `zigzag(A,RANKS)`, `unpack(A,GROUPS,SIZE,..)`, `pack(A,GROUPS,SIZE,..)`,
//! `flatten`. Steps are the candidate's; `reference.` before `concat`, `sum`, `keep`, `divide`, `cut`, `zigzag`, `unpack` or `pack` makes it
//! the reference's.

use super::{CutReason, KeepReason, Order, Step, Which};

/// More steps than this are a mistake.
const MOST_STEPS: usize = 64;

/// What is wrong with the text of a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
    #[error("`{word}` is not a step: there are {known}")]
    Unknown { word: String, known: &'static str },
    #[error("`{word}` is not a whole number, in `{step}`")]
    Number { step: String, word: String },
    #[error("`{step}` takes {takes}")]
    Arguments { step: String, takes: &'static str },
    #[error("`{step}` is a step of the candidate only")]
    Side { step: String },
    #[error("`{text}` has no closing parenthesis")]
    Open { text: String },
    #[error("{count} steps, {limit} are the most")]
    TooMany { count: usize, limit: usize },
    #[error("no step is given")]
    Empty,
}

const KNOWN: &str = "squeeze, unsqueeze, permute, swap, split, merge, concat, sum, keep, divide, cut, zigzag, unpack, pack and flatten";

/// The steps of a text, in order, separated by spaces or commas.
pub fn parse_steps(text: &str) -> Result<Vec<Step>, StepsError> {
    let (mut rest, mut steps) = (text, Vec::new());
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == ';');
        if rest.is_empty() {
            break;
        }
        let name_end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end);
        let after = after.trim_start();
        let (arguments, after) = match after.strip_prefix('(') {
            Some(inside) => inside.split_once(')').ok_or_else(|| StepsError::Open {
                text: rest.to_owned(),
            })?,
            None if name.is_empty() => {
                return Err(StepsError::Unknown {
                    word: rest.to_owned(),
                    known: KNOWN,
                });
            }
            None => ("", after),
        };
        steps.push(step(name, arguments)?);
        rest = after;
    }
    match steps.len() {
        0 => Err(StepsError::Empty),
        count if count > MOST_STEPS => Err(StepsError::TooMany {
            count,
            limit: MOST_STEPS,
        }),
        _ => Ok(steps),
    }
}

fn step(name: &str, arguments: &str) -> Result<Step, StepsError> {
    let shown = || format!("{name}({arguments})");
    let numbers: Vec<u64> = arguments
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse().map_err(|_| StepsError::Number {
                step: shown(),
                word: word.to_owned(),
            })
        })
        .collect::<Result<_, _>>()?;
    let places: Vec<usize> = numbers
        .iter()
        .map(|number| usize::try_from(*number).unwrap_or(usize::MAX))
        .collect();
    let takes = |takes| StepsError::Arguments {
        step: shown(),
        takes,
    };
    let (side, word) = match name.split_once('.') {
        Some(("reference", word)) => (Which::Reference, word),
        Some(("candidate", word)) => (Which::Candidate, word),
        _ => (Which::Candidate, name),
    };
    let step = match (word, numbers.as_slice()) {
        ("squeeze" | "drop", [_]) => Step::Squeeze { axis: places[0] },
        ("unsqueeze" | "add", [_]) => Step::Unsqueeze { axis: places[0] },
        ("squeeze" | "drop" | "unsqueeze" | "add", _) => return Err(takes("one axis")),
        ("permute", [_, ..]) if is_order(&places) => Step::Permute { order: places },
        ("permute", _) => return Err(takes("every axis once")),
        ("swap" | "transpose", [a, b, rank]) if *rank <= 64 && a.max(b) < rank => {
            let mut order: Vec<usize> = (0..*rank as usize).collect();
            order.swap(places[0], places[1]);
            Step::Permute { order }
        }
        ("swap" | "transpose", _) => {
            return Err(takes(
                "two axes and the number of dimensions, as in swap(0,1,3)",
            ));
        }
        ("split", [_, sizes @ ..]) if !sizes.is_empty() => Step::Split {
            axis: places[0],
            sizes: sizes.to_vec(),
        },
        ("split", _) => return Err(takes("an axis and the sizes it is split into")),
        ("merge", [_, _]) => Step::Merge {
            axis: places[0],
            count: places[1],
        },
        ("merge", _) => return Err(takes("the first axis and how many")),
        ("concat", [_]) => Step::Concat {
            side,
            axis: places[0],
            parts: 0,
        },
        ("concat", [_, _]) => Step::Concat {
            side,
            axis: places[0],
            parts: places[1],
        },
        ("concat", _) => return Err(takes("an axis, and how many parts if not all")),
        ("sum", [] | [_]) => Step::Sum {
            side,
            parts: places.first().copied().unwrap_or(0),
        },
        ("sum", _) => return Err(takes("nothing, or how many parts")),
        ("keep", [_, ..]) => Step::Keep {
            side,
            parts: places,
            of: Vec::new(),
            why: KeepReason::User,
            differ: Vec::new(),
        },
        ("keep", _) => return Err(takes("the numbers of the parts")),
        ("divide", [_, sizes @ ..]) if !sizes.is_empty() => Step::Divide {
            side,
            axis: places[0],
            sizes: sizes.to_vec(),
        },
        ("divide", _) => {
            return Err(takes(
                "an axis and the sizes that each part is divided into",
            ));
        }
        ("cut", [_, start, len]) => Step::Cut {
            side,
            axis: places[0],
            start: *start,
            len: *len,
            why: CutReason::User,
        },
        ("cut", _) => return Err(takes("an axis, a start and a length")),
        ("zigzag", [_, ranks]) => Step::Reorder {
            side,
            axis: places[0],
            order: Order::Zigzag { ranks: *ranks },
        },
        ("zigzag", _) => return Err(takes("an axis and the number of ranks")),
        ("unpack" | "pack", [_, groups, sizes @ ..]) if !sizes.is_empty() => {
            let (groups, sizes) = (*groups, sizes.to_vec());
            let order = if word == "pack" {
                Order::Pack { groups, sizes }
            } else {
                Order::Unpack { groups, sizes }
            };
            Step::Reorder {
                side,
                axis: places[0],
                order,
            }
        }
        ("unpack" | "pack", _) => {
            return Err(takes(
                "an axis, the number of groups and the sizes of the pieces",
            ));
        }
        ("flatten", []) => Step::Flatten,
        ("flatten", _) => return Err(takes("nothing")),
        _ => {
            return Err(StepsError::Unknown {
                word: name.to_owned(),
                known: KNOWN,
            });
        }
    };
    if side == Which::Reference && step.side() == Which::Candidate {
        return Err(StepsError::Side { step: shown() });
    }
    Ok(step)
}

/// Whether every axis is there once.
fn is_order(places: &[usize]) -> bool {
    (0..places.len()).all(|axis| places.contains(&axis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_in_order() {
        assert_eq!(
            parse_steps("permute(0,2,1) squeeze( 0 ), reference.cut(1,0,76); sum flatten").unwrap(),
            [
                Step::Permute {
                    order: vec![0, 2, 1]
                },
                Step::Squeeze { axis: 0 },
                Step::Cut {
                    side: Which::Reference,
                    axis: 1,
                    start: 0,
                    len: 76,
                    why: CutReason::User
                },
                Step::Sum {
                    side: Which::Candidate,
                    parts: 0
                },
                Step::Flatten,
            ]
        );
        assert_eq!(
            parse_steps("swap(0,1,3)").unwrap(),
            [Step::Permute {
                order: vec![1, 0, 2]
            }]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| parse_steps(text).unwrap_err().to_string();
        assert_eq!(
            said("permut(0,1)").split(':').next(),
            Some("`permut` is not a step")
        );
        assert_eq!(
            said("squeeze(x)"),
            "`x` is not a whole number, in `squeeze(x)`"
        );
        assert_eq!(
            said("squeeze(-1)"),
            "`-1` is not a whole number, in `squeeze(-1)`"
        );
        assert_eq!(said("squeeze()"), "`squeeze()` takes one axis");
        assert_eq!(
            said("permute(0,0,1)"),
            "`permute(0,0,1)` takes every axis once"
        );
        assert_eq!(said("squeeze(0"), "`squeeze(0` has no closing parenthesis");
        assert_eq!(
            said("reference.squeeze(0)"),
            "`reference.squeeze(0)` is a step of the candidate only"
        );
        assert_eq!(said("  "), "no step is given");
        assert!(said("(0)").contains("is not a step"));
        assert!(said(&"sum ".repeat(65)).starts_with("65 steps"));
    }
}
