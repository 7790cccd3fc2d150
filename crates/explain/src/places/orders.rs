//! Orders of an axis that have a name, as functions of the candidate's index: `candidate[i] = reference[order(i)]`.

use super::near::divisors;
use twinscope_report::facts::Pattern;

/// An order that a few numbers describe.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// Blocks of `block` in reverse, within every `period`.
    Reverse { period: usize, block: usize },
    /// Within every `period`, things of `block` elements seen as `[rows, columns]` in the reference are `[columns, rows]` in the candidate.
    Grouped {
        rows: usize,
        columns: usize,
        block: usize,
    },
    /// The halves of every `period` swapped.
    Halves { period: usize },
    /// Rank `r` of `n` holds chunks `r` and `2n - 1 - r`; `made` when the candidate is in that order, else the reference is.
    Zigzag {
        length: usize,
        ranks: usize,
        made: bool,
    },
    /// `[groups, q + 1 + 1, block]` against the pieces one after another; `made` when the candidate's are in groups.
    Packed {
        groups: usize,
        q: usize,
        block: usize,
        made: bool,
    },
}

impl Order {
    pub(super) fn source(&self, i: usize) -> usize {
        match *self {
            Order::Reverse { period, block } => {
                let (start, at) = (i / period * period, i % period);
                start + (period / block - 1 - at / block) * block + at % block
            }
            Order::Grouped {
                rows,
                columns,
                block,
            } => {
                let period = rows * columns * block;
                let (start, at) = (i / period * period, i % period);
                let (thing, within) = (at / block, at % block);
                // Thing (column, row) of the candidate is (row, column) of the reference.
                start + (thing % rows * columns + thing / rows) * block + within
            }
            Order::Halves { period } => i / period * period + (i % period + period / 2) % period,
            Order::Zigzag {
                length,
                ranks,
                made,
            } => {
                let chunk = length / (2 * ranks);
                let (nth, within) = (i / chunk, i % chunk);
                let in_order = |nth: usize| {
                    if nth.is_multiple_of(2) {
                        nth / 2
                    } else {
                        2 * ranks - 1 - nth / 2
                    }
                };
                let from = if made {
                    in_order(nth)
                } else if nth < ranks {
                    2 * nth
                } else {
                    2 * (2 * ranks - 1 - nth) + 1
                };
                from * chunk + within
            }
            Order::Packed {
                groups,
                q,
                block,
                made,
            } => {
                let (thing, within) = (i / block, i % block);
                let from = if made {
                    let (group, nth) = (thing / (q + 2), thing % (q + 2));
                    if nth < q {
                        group * q + nth
                    } else {
                        groups * q + (nth - q) * groups + group
                    }
                } else if thing < groups * q {
                    thing / q * (q + 2) + thing % q
                } else {
                    let rest = thing - groups * q;
                    rest % groups * (q + 2) + q + rest / groups
                };
                from * block + within
            }
        }
    }

    /// The word of the report; rope pairs channels, never heads or tokens.
    pub(super) fn pattern(&self, channels: bool) -> Pattern {
        match *self {
            Order::Grouped { .. } if !channels => Pattern::GroupMajor,
            Order::Reverse { period, block } if period / block == 2 => Pattern::BlockSwap,
            Order::Reverse { .. } => Pattern::Reverse,
            Order::Grouped {
                rows: 2, block: 1, ..
            } => Pattern::HalfToInterleaved,
            Order::Grouped {
                columns: 2,
                block: 1,
                ..
            } => Pattern::InterleavedToHalf,
            Order::Grouped { .. } | Order::Packed { .. } => Pattern::GroupMajor,
            Order::Halves { .. } => Pattern::BlockSwap,
            Order::Zigzag { .. } => Pattern::Zigzag,
        }
    }

    /// What it does to an axis of this length, in words after "candidate = reference".
    pub(super) fn text(&self, axis: &str, length: usize, channels: bool) -> String {
        let each = |period: usize| {
            if period == length {
                axis.to_owned()
            } else {
                format!("each {period} of {axis}")
            }
        };
        match *self {
            Order::Reverse { period, block: 1 } => format!("with {} reversed", each(period)),
            Order::Reverse { period, block } => {
                format!(
                    "with the {} blocks of {block} of {} in reverse order",
                    period / block,
                    each(period)
                )
            }
            Order::Grouped {
                rows: 2,
                columns,
                block: 1,
            } if channels => {
                format!(
                    "with the halves of {} interleaved (rope layout: half to interleaved)",
                    each(2 * columns)
                )
            }
            Order::Grouped {
                rows,
                columns: 2,
                block: 1,
            } if channels => {
                format!(
                    "with {} de-interleaved into halves (rope layout: interleaved to half)",
                    each(2 * rows)
                )
            }
            Order::Grouped {
                rows,
                columns,
                block,
            } => {
                let things = if block == 1 {
                    String::new()
                } else {
                    format!(" of {block}")
                };
                format!(
                    "with {} regrouped: {rows} x {columns}{things} became {columns} x {rows}{things}",
                    each(rows * columns * block)
                )
            }
            Order::Halves { period } => format!("with the halves of {} swapped", each(period)),
            Order::Zigzag {
                ranks, made: true, ..
            } => format!("with {axis} in the zigzag order of {ranks} ranks"),
            Order::Zigzag {
                ranks, made: false, ..
            } => format!("with {axis} taken out of the zigzag order of {ranks} ranks"),
            Order::Packed {
                groups,
                q,
                block,
                made,
            } => {
                let (from, to) = if made {
                    ("one after another", "in groups")
                } else {
                    ("in groups", "one after another")
                };
                format!(
                    "with q, k and v of {axis} {to} instead of {from} ({groups} groups of {q} q heads, one k and one v, {block} wide)"
                )
            }
        }
    }
}

/// Every named order of an axis of this length, the likely ones first.
pub(super) fn named(length: usize) -> impl Iterator<Item = Order> {
    let periods: Vec<usize> = divisors(length)
        .into_iter()
        .rev()
        .filter(|period| *period > 1)
        .collect();
    let even: Vec<usize> = periods
        .iter()
        .copied()
        .filter(|period| period.is_multiple_of(2) && *period > 2)
        .collect();
    let rope = even.into_iter().flat_map(|period| {
        [
            Order::Grouped {
                rows: 2,
                columns: period / 2,
                block: 1,
            },
            Order::Grouped {
                rows: period / 2,
                columns: 2,
                block: 1,
            },
        ]
    });
    let halves = periods
        .clone()
        .into_iter()
        .filter(|period| period.is_multiple_of(2))
        .map(|period| Order::Halves { period });
    let reverse = periods.clone().into_iter().flat_map(|period| {
        divisors(period)
            .into_iter()
            .filter(move |block| *block < period)
            .map(move |block| Order::Reverse { period, block })
    });
    let zigzag = (2..=length / 2)
        .filter(move |ranks| length.is_multiple_of(2 * ranks) && *ranks <= 64)
        .flat_map(move |ranks| {
            [true, false].map(|made| Order::Zigzag {
                length,
                ranks,
                made,
            })
        });
    let grouped = periods.into_iter().flat_map(|period| {
        divisors(period).into_iter().flat_map(move |block| {
            let things = period / block;
            divisors(things)
                .into_iter()
                .filter(move |rows| *rows > 1 && *rows < things)
                .map(move |rows| Order::Grouped {
                    rows,
                    columns: things / rows,
                    block,
                })
        })
    });
    let packed = divisors(length)
        .into_iter()
        .filter(|groups| *groups > 1)
        .flat_map(move |groups| {
            divisors(length / groups)
                .into_iter()
                .filter(|per| *per >= 3)
                .flat_map(move |per| {
                    let block = length / groups / per;
                    [true, false].map(|made| Order::Packed {
                        groups,
                        q: per - 2,
                        block,
                        made,
                    })
                })
        });
    halves
        .chain(rope)
        .chain(reverse)
        .chain(zigzag)
        .chain(grouped)
        .chain(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_order_is_a_bijection() {
        for length in [2, 3, 4, 12, 30, 48, 64, 97] {
            for order in named(length) {
                let mut seen: Vec<usize> = (0..length).map(|i| order.source(i)).collect();
                seen.sort_unstable();
                assert_eq!(
                    seen,
                    (0..length).collect::<Vec<_>>(),
                    "{order:?} of {length}"
                );
            }
        }
    }

    #[test]
    fn the_orders_are_what_their_names_say() {
        let of =
            |order: Order, length: usize| (0..length).map(|i| order.source(i)).collect::<Vec<_>>();
        assert_eq!(
            of(
                Order::Grouped {
                    rows: 2,
                    columns: 3,
                    block: 1
                },
                6
            ),
            [0, 3, 1, 4, 2, 5]
        );
        assert_eq!(
            of(
                Order::Grouped {
                    rows: 3,
                    columns: 2,
                    block: 1
                },
                6
            ),
            [0, 2, 4, 1, 3, 5]
        );
        assert_eq!(
            of(
                Order::Zigzag {
                    length: 8,
                    ranks: 2,
                    made: true
                },
                8
            ),
            [0, 1, 6, 7, 2, 3, 4, 5]
        );
        assert_eq!(
            of(
                Order::Packed {
                    groups: 2,
                    q: 2,
                    block: 1,
                    made: true
                },
                8
            ),
            [0, 1, 4, 6, 2, 3, 5, 7]
        );
    }
}
