//! NumPy's slice syntax: `name[0, :, 5:9]`, negative indices and steps, `...`.
//!
//! [`parse`] reads the text and fits it to a shape in one go, so what it returns always lies inside: an index that does
//! not is an error with the dimension's size, a range is clipped to its dimension exactly as Python's `slice.indices`
//! does. Dimensions the text does not mention stay whole.

use crate::Shape;

/// What is kept of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One index; the dimension disappears.
    Index(u64),
    /// `len` indices from `start`, `step` apart (which may be negative). Already checked to lie inside.
    Range { start: u64, step: i64, len: u64 },
}

/// Why a slice makes no sense, or not for this shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    #[error("`{part}` is not an index, a range like `5:9` or `...`")]
    NotASlice { part: String },
    #[error("`{part}`: a step of 0 goes nowhere")]
    ZeroStep { part: String },
    #[error("`...` may stand only once")]
    TwoEllipses,
    #[error("`{part}` adds a dimension; only indices, ranges and `...` are supported")]
    NewAxis { part: String },
    #[error("{given} indices for {rank} dimensions; the shape is {shape}")]
    TooMany {
        given: usize,
        rank: usize,
        shape: Shape,
    },
    #[error(
        "index {index} is out of range for dimension {axis}, which has {size}; the shape is {shape}"
    )]
    OutOfRange {
        index: i64,
        axis: usize,
        size: u64,
        shape: Shape,
    },
}

/// One item between commas, before it meets a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Index(i64),
    Range {
        start: Option<i64>,
        stop: Option<i64>,
        step: i64,
    },
    Ellipsis,
}

/// Reads `[0, :, 5:9]` (the brackets may be left out) and fits it to `shape`: one cut for each dimension.
pub fn parse(text: &str, shape: &Shape) -> Result<Vec<Cut>, SliceError> {
    fit(&items(text)?, shape)
}

fn items(text: &str) -> Result<Vec<Item>, SliceError> {
    let text = text.trim();
    let inside = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text)
        .trim();
    // Python allows one comma after the last item.
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    if inside.trim().is_empty() {
        return Ok(Vec::new());
    }
    inside.split(',').map(|part| item(part.trim())).collect()
}

fn item(part: &str) -> Result<Item, SliceError> {
    let wrong = || SliceError::NotASlice {
        part: part.to_owned(),
    };
    match part {
        "..." | "Ellipsis" => return Ok(Item::Ellipsis),
        "None" | "newaxis" | "np.newaxis" => {
            return Err(SliceError::NewAxis {
                part: part.to_owned(),
            });
        }
        _ => {}
    }
    let bounds: Vec<&str> = part.split(':').map(str::trim).collect();
    let bound = |text: &str| match text {
        "" | "None" => Ok(None),
        digits => integer(digits).map(Some).ok_or_else(wrong),
    };
    match bounds[..] {
        [index] => integer(index).map(Item::Index).ok_or_else(wrong),
        [start, stop] => Ok(Item::Range {
            start: bound(start)?,
            stop: bound(stop)?,
            step: 1,
        }),
        [start, stop, step] => match bound(step)?.unwrap_or(1) {
            0 => Err(SliceError::ZeroStep {
                part: part.to_owned(),
            }),
            step => Ok(Item::Range {
                start: bound(start)?,
                stop: bound(stop)?,
                step,
            }),
        },
        _ => Err(wrong()),
    }
}

/// Python integers have no bound; beyond 64 bits they are clipped, which no dimension can tell apart.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    }))
}

fn fit(items: &[Item], shape: &Shape) -> Result<Vec<Cut>, SliceError> {
    let rank = shape.rank();
    let dots = items.iter().filter(|item| **item == Item::Ellipsis).count();
    let given = items.len() - dots;
    if dots > 1 {
        return Err(SliceError::TwoEllipses);
    }
    if given > rank {
        return Err(SliceError::TooMany {
            given,
            rank,
            shape: shape.clone(),
        });
    }
    let whole = |axis: usize| Cut::Range {
        start: 0,
        step: 1,
        len: shape.dims()[axis],
    };
    let mut cuts = Vec::with_capacity(rank);
    for item in items {
        let axis = cuts.len();
        match item {
            Item::Ellipsis => cuts.extend((axis..axis + rank - given).map(whole)),
            Item::Index(index) => cuts.push(Cut::Index(inside(*index, axis, shape)?)),
            Item::Range { start, stop, step } => {
                cuts.push(range(*start, *stop, *step, shape.dims()[axis]));
            }
        }
    }
    cuts.extend((cuts.len()..rank).map(whole));
    Ok(cuts)
}

fn inside(index: i64, axis: usize, shape: &Shape) -> Result<u64, SliceError> {
    let size = shape.dims()[axis];
    let from_start = if index < 0 {
        i128::from(index) + i128::from(size)
    } else {
        i128::from(index)
    };
    u64::try_from(from_start)
        .ok()
        .filter(|found| *found < size)
        .ok_or_else(|| SliceError::OutOfRange {
            index,
            axis,
            size,
            shape: shape.clone(),
        })
}

/// Python's `slice(start, stop, step).indices(size)`.
fn range(start: Option<i64>, stop: Option<i64>, step: i64, size: u64) -> Cut {
    let size = i128::from(size);
    let wide = i128::from(step);
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let clip = |bound: i64| {
        (if bound < 0 {
            i128::from(bound) + size
        } else {
            i128::from(bound)
        })
        .clamp(low, high)
    };
    let (first, end) = if step > 0 { (low, high) } else { (high, low) };
    let (start, stop) = (start.map_or(first, clip), stop.map_or(end, clip));
    let span = if step > 0 { stop - start } else { start - stop };
    let len = if span <= 0 {
        0
    } else {
        (span - 1) / wide.abs() + 1
    };
    // A step that is never taken is 1: it may be larger than any stride can be multiplied with.
    let step = if len <= 1 { 1 } else { step };
    Cut::Range {
        start: if len == 0 { 0 } else { start as u64 },
        step,
        len: len as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cuts(text: &str, dims: &[u64]) -> Result<Vec<Cut>, SliceError> {
        parse(text, &Shape::from(dims.to_vec()))
    }

    fn whole(len: u64) -> Cut {
        Cut::Range {
            start: 0,
            step: 1,
            len,
        }
    }

    #[test]
    fn dimensions_that_are_not_mentioned_stay_whole() {
        assert_eq!(cuts("[0]", &[2, 3]), Ok(vec![Cut::Index(0), whole(3)]));
        assert_eq!(cuts("[]", &[2, 3]), Ok(vec![whole(2), whole(3)]));
        assert_eq!(
            cuts("..., -1", &[2, 3, 4]),
            Ok(vec![whole(2), whole(3), Cut::Index(3)])
        );
        assert_eq!(
            cuts("[0, ..., 1:3,]", &[2, 3, 4]),
            Ok(vec![
                Cut::Index(0),
                whole(3),
                Cut::Range {
                    start: 1,
                    step: 1,
                    len: 2
                }
            ])
        );
        // An ellipsis may stand for no dimension at all.
        assert_eq!(
            cuts("[1, ..., 2]", &[2, 3]),
            Ok(vec![Cut::Index(1), Cut::Index(2)])
        );
        assert_eq!(cuts("[...]", &[]), Ok(vec![]));
    }

    #[test]
    fn an_index_outside_names_the_dimension_and_its_size() {
        let error = cuts("[0, 76]", &[8, 76]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "index 76 is out of range for dimension 1, which has 76; the shape is [8, 76]"
        );
        assert!(matches!(
            cuts("[-9]", &[8]),
            Err(SliceError::OutOfRange {
                index: -9,
                axis: 0,
                size: 8,
                ..
            })
        ));
        assert!(matches!(
            cuts("[0]", &[0]),
            Err(SliceError::OutOfRange { .. })
        ));
        assert!(matches!(
            cuts("[0, 0]", &[8]),
            Err(SliceError::TooMany {
                given: 2,
                rank: 1,
                ..
            })
        ));
    }

    #[test]
    fn what_is_not_a_slice_is_refused_in_words() {
        assert!(matches!(
            cuts("[a]", &[8]),
            Err(SliceError::NotASlice { .. })
        ));
        assert!(matches!(
            cuts("[1:2:3:4]", &[8]),
            Err(SliceError::NotASlice { .. })
        ));
        assert!(matches!(
            cuts("[0,,1]", &[8, 8]),
            Err(SliceError::NotASlice { .. })
        ));
        assert!(matches!(
            cuts("[--1]", &[8]),
            Err(SliceError::NotASlice { .. })
        ));
        assert!(matches!(
            cuts("[::0]", &[8]),
            Err(SliceError::ZeroStep { .. })
        ));
        assert!(matches!(
            cuts("[None, 0]", &[8]),
            Err(SliceError::NewAxis { .. })
        ));
        assert!(matches!(
            cuts("[..., ...]", &[8]),
            Err(SliceError::TwoEllipses)
        ));
    }

    #[test]
    fn ranges_are_clipped_as_cpython_does() {
        // (text, size, list(range(size))[text]), as CPython 3 prints them.
        let cases: [(&str, u64, &[u64]); 12] = [
            ("2:5", 8, &[2, 3, 4]),
            ("-3:", 8, &[5, 6, 7]),
            (":-6", 8, &[0, 1]),
            ("::-1", 3, &[2, 1, 0]),
            ("5:1:-2", 8, &[5, 3]),
            ("-100:100:3", 8, &[0, 3, 6]),
            ("100:-100:-3", 8, &[7, 4, 1]),
            (":0:-1", 4, &[3, 2, 1]),
            ("-1:-1", 4, &[]),
            ("6:2", 8, &[]),
            ("::", 0, &[]),
            (
                "99999999999999999999:-99999999999999999999:-99999999999999999999",
                5,
                &[4],
            ),
        ];
        for (text, size, expected) in cases {
            assert_eq!(
                picked(cuts(text, &[size]).unwrap()[0]),
                expected,
                "{text} of {size}"
            );
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let size = i64::MAX as u64;
        assert_eq!(cuts("[-1]", &[size]), Ok(vec![Cut::Index(size - 1)]));
        let least = i64::MIN;
        assert_eq!(
            cuts(&format!("[{least}:{least}:{least}]"), &[u64::MAX]),
            Ok(vec![Cut::Range {
                start: 0,
                step: 1,
                len: 0
            }])
        );
        assert_eq!(
            cuts("[::-1]", &[u64::MAX]),
            Ok(vec![Cut::Range {
                start: u64::MAX - 1,
                step: -1,
                len: u64::MAX
            }])
        );
    }

    fn picked(cut: Cut) -> Vec<u64> {
        match cut {
            Cut::Index(index) => vec![index],
            Cut::Range { start, step, len } => (0..len as i64)
                .map(|i| (start as i64 + i * step) as u64)
                .collect(),
        }
    }

    /// Python's definition, step by step: normalise each bound, then walk until the stop is met.
    fn python(start: Option<i64>, stop: Option<i64>, step: i64, size: i64) -> Vec<u64> {
        let normal = |bound: i64| {
            let bound = if bound < 0 { bound + size } else { bound };
            if step > 0 {
                bound.max(0).min(size)
            } else {
                bound.max(-1).min(size - 1)
            }
        };
        let mut at = start.map_or(if step > 0 { 0 } else { size - 1 }, normal);
        let stop = stop.map_or(if step > 0 { size } else { -1 }, normal);
        let mut found = Vec::new();
        while if step > 0 { at < stop } else { at > stop } {
            found.push(at as u64);
            at += step;
        }
        found
    }

    proptest! {
        #[test]
        fn ranges_pick_what_python_picks(
            start in proptest::option::of(-12i64..12),
            stop in proptest::option::of(-12i64..12),
            step in (-5i64..=5).prop_filter("a step goes somewhere", |step| *step != 0),
            size in 0i64..9,
        ) {
            let text = |bound: Option<i64>| bound.map_or(String::new(), |b| b.to_string());
            let text = format!("{}:{}:{step}", text(start), text(stop));
            let cut = cuts(&text, &[size as u64]).unwrap()[0];
            prop_assert_eq!(picked(cut), python(start, stop, step, size));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9:., \\[\\]Na]{0,24}", dims in proptest::collection::vec(0u64..4, 0..4)) {
            let _ = cuts(&text, &dims);
        }

        #[test]
        fn what_parses_lies_inside(text in "-?[0-9]{0,2}:?-?[0-9]{0,2}(:-?[1-9])?", size in 0u64..30) {
            if let Ok(cuts) = cuts(&text, &[size]) {
                prop_assert!(picked(cuts[0]).iter().all(|index| *index < size));
            }
        }
    }
}
