//! A few elements that stand for all, always the same ones.

/// A number that looks random, the same for the same seed.
pub fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// At most `most` of `count` indices, ascending, one from each stretch of equal length.
pub fn spread(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let picks = count.min(most.max(1));
    (0..picks).map(move |pick| {
        let (start, end) = (pick * count / picks, (pick + 1) * count / picks);
        start + (splitmix(pick as u64) % (end - start).max(1) as u64) as usize
    })
}

/// Places of a sketch.
const PLACES: usize = 96;

/// The same places for every tensor of so many elements.
pub fn scattered(elements: usize) -> impl Iterator<Item = usize> {
    let step = |nth: usize| {
        (nth as u64 + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            >> 11
    };
    (0..PLACES.min(elements)).map(move |nth| {
        if elements <= PLACES {
            nth
        } else {
            (step(nth) % elements as u64) as usize
        }
    })
}

/// Flat indices that stand for all, evenly and without a period.
pub fn sample(count: usize) -> Vec<usize> {
    const MOST: usize = 96;
    if count <= MOST {
        return (0..count).collect();
    }
    (0..MOST).map(|i| (i * 2_654_435_761) % count).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn a_sample_is_ascending_within_bounds_and_takes_all_when_it_can() {
        assert_eq!(spread(5, 100).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(spread(0, 100).count(), 0);
        let some: Vec<usize> = spread(1_000_003, 1000).collect();
        assert_eq!(some.len(), 1000);
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]) && some[999] < 1_000_003);
        // Not one column of a matrix of 1000 columns.
        assert!(
            some.iter()
                .map(|flat| flat % 1000)
                .collect::<std::collections::HashSet<_>>()
                .len()
                > 300
        );
    }
}
