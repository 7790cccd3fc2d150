//! sha256 of a tensor's row-major little-endian bytes: equal content, equal hash, however it is stored.

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use twinscope_tensor::{Packing, ReadError, TensorSource, View};

pub(crate) type Hash = [u8; 32];

/// Bytes hashed at a time; what a gathered tensor costs in memory for each thread.
const CHUNK: usize = 1 << 18;

/// An expanded view claims more than its file holds. This much more, with the storage counted sixteen times, is still
/// hashed, in total; beyond it the answer would cost more than the file justifies.
const EXCESS: u64 = 64 << 20;
const TIMES: u64 = 16;

/// Sources that claim no more than this are read without counting: it takes no second.
const FREE: u64 = 512 << 20;

/// What became of one tensor.
#[derive(Debug)]
pub(crate) enum Hashed {
    Is(Hash),
    /// Must not be brought into being, and why.
    TooLarge,
    Failed(String),
}

/// Hashes these tensors in parallel; the answers are in their order.
pub(crate) fn all(source: &dyn TensorSource, tensors: &[usize]) -> Vec<Hashed> {
    let listing = source.listing();
    let paid = paid_for(source, tensors, |index| {
        listing.tensors[index].bytes.unwrap_or(0)
    });
    let mut hashes: Vec<Option<Hashed>> = tensors
        .par_iter()
        .zip(&paid)
        .map(|(index, paid)| {
            if *paid {
                now(source, *index, &mut 0)
            } else {
                Some(Hashed::TooLarge)
            }
        })
        .collect();
    // Those that exceed their storage share one allowance, given in listing order so that the answer is always the same.
    let mut allowance = EXCESS;
    hashes
        .iter_mut()
        .zip(tensors)
        .map(|(hash, index)| {
            hash.take()
                .or_else(|| now(source, *index, &mut allowance))
                .unwrap_or(Hashed::TooLarge)
        })
        .collect()
}

/// Which of these tensors their source pays for: many views of one storage add up, however modest each is. The first
/// ones of the list are read as long as all together stay below [`TIMES`] what is really there.
///
/// `cost` is what reading the tensor at an index takes, in bytes.
pub(crate) fn paid_for(
    source: &dyn TensorSource,
    tensors: &[usize],
    cost: impl Fn(usize) -> u64,
) -> Vec<bool> {
    let costs: Vec<u64> = tensors.iter().map(|index| cost(*index)).collect();
    if costs.iter().copied().fold(0, u64::saturating_add) <= FREE {
        return vec![true; tensors.len()];
    }
    let mut places = Vec::new();
    // What must be unpacked is bounded by the reader; what is at hand counts once, however many tensors share it.
    let mut held = 0u64;
    for (index, cost) in tensors.iter().zip(&costs) {
        match source.place(*index) {
            Some(place) => places.push((place.start, place.end)),
            None => held = held.saturating_add(*cost),
        }
    }
    places.sort_unstable();
    let mut end = 0;
    for (start, stop) in places {
        held = held.saturating_add(stop.saturating_sub(start.max(end)) as u64);
        end = end.max(stop);
    }
    let mut left = held.saturating_mul(TIMES).saturating_add(FREE);
    let pay = |cost: u64| left.checked_sub(cost).map(|rest| left = rest).is_some();
    costs.into_iter().map(pay).collect()
}

/// `None` when the tensor claims more than `allowance` beyond what it holds.
fn now(source: &dyn TensorSource, index: usize, allowance: &mut u64) -> Option<Hashed> {
    let view = match source.view(index) {
        Ok(view) => view,
        Err(error) => return Some(Hashed::Failed(error.to_string())),
    };
    let excess = excess(&view);
    if excess > *allowance {
        return None;
    }
    *allowance -= excess;
    Some(match sha256(&view) {
        Ok(Some(hash)) => Hashed::Is(hash),
        Ok(None) => Hashed::TooLarge,
        Err(error) => Hashed::Failed(error.to_string()),
    })
}

/// How many bytes a view claims beyond [`TIMES`] what it holds.
pub(crate) fn excess(view: &View) -> u64 {
    view.byte_len()
        .unwrap_or(u64::MAX)
        .saturating_sub(view.stored_len().saturating_mul(TIMES))
}

/// Whether reading every element costs more than the file justifies.
pub(crate) fn is_unreasonable(view: &View) -> bool {
    excess(view) > EXCESS
}

/// `None` for a part of a packed tensor, which has no bytes of its own.
fn sha256(view: &View) -> Result<Option<Hash>, ReadError> {
    let mut hash = Sha256::new();
    if let Some(all) = view.contiguous() {
        hash.update(all);
    } else if let Packing::Bytes(size) = view.dtype().packing() {
        let (mut scratch, mut at) = (Vec::new(), 0);
        // Elements without bytes (zero-width strings) add nothing, however many there are.
        while size > 0 && at < view.len() {
            let count = (view.len() - at).min((CHUNK / size).max(1) as u64);
            hash.update(view.chunk(at, count as usize, &mut scratch));
            at += count;
        }
    } else {
        return Ok(None);
    }
    // Only now is it known that everything read was really there.
    view.check()?;
    Ok(Some(hash.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{Bytes, DType, Shape};

    #[test]
    fn a_transpose_and_its_copy_hash_alike() {
        let bytes = Bytes::from((0..12u8).collect::<Vec<_>>());
        let transposed =
            View::strided(DType::U8, Shape::from([4, 3]), vec![1, 4], 0, bytes).unwrap();
        let copied: Vec<u8> = (0..4)
            .flat_map(|row| (0..3).map(move |col| col * 4 + row))
            .collect();
        let copy = View::new(DType::U8, Shape::from([4, 3]), copied.into()).unwrap();
        assert_eq!(sha256(&transposed).unwrap(), sha256(&copy).unwrap());
    }

    #[test]
    fn a_view_that_claims_terabytes_is_not_read() {
        let shape = Shape::from([1_000_000, 1_000_000]);
        let view =
            View::strided(DType::F32, shape, vec![0, 0], 0, Bytes::from(vec![0; 4])).unwrap();
        assert!(is_unreasonable(&view));
        let view = View::strided(
            DType::F32,
            Shape::from([1000, 1000]),
            vec![0, 0],
            0,
            Bytes::from(vec![0; 4]),
        )
        .unwrap();
        assert!(!is_unreasonable(&view));
    }

    /// Views of one storage, or of many.
    struct Many(twinscope_tensor::Listing, Vec<View>);

    impl Many {
        fn of(views: Vec<View>) -> Self {
            let info = |view: &View| twinscope_tensor::TensorInfo {
                name: String::new(),
                dtype: view.dtype(),
                shape: view.shape().clone(),
                bytes: view.byte_len(),
                meta: None,
            };
            Self(
                twinscope_tensor::Listing {
                    tensors: views.iter().map(info).collect(),
                    ..Default::default()
                },
                views,
            )
        }
    }

    impl TensorSource for Many {
        fn listing(&self) -> &twinscope_tensor::Listing {
            &self.0
        }
        fn view(&self, index: usize) -> Result<View, ReadError> {
            Ok(self.1[index].clone())
        }
        fn place(&self, index: usize) -> Option<std::ops::Range<usize>> {
            Some(self.1[index].place())
        }
    }

    #[test]
    fn a_thousand_views_of_one_storage_are_paid_for_once() {
        let storage = Bytes::from(vec![0u8; 1 << 20]);
        let view = |_| View::new(DType::U8, Shape::from([1 << 20]), storage.clone()).unwrap();
        let (few, many) = (
            Many::of((0..10).map(view).collect()),
            Many::of((0..1000).map(view).collect()),
        );
        let count = |source: &Many| {
            let all: Vec<usize> = (0..source.1.len()).collect();
            paid_for(source, &all, |index| source.0.tensors[index].bytes.unwrap())
                .into_iter()
                .filter(|paid| *paid)
                .count()
        };
        assert_eq!(count(&few), 10);
        assert_eq!(
            count(&many),
            512 + 16,
            "what is free, and sixteen times what is there"
        );
    }

    #[test]
    fn zero_width_elements_cost_nothing_however_many() {
        let view = View::strided(
            DType::Str(0),
            Shape::from([1 << 40]),
            vec![0],
            0,
            Bytes::from(vec![]),
        )
        .unwrap();
        assert_eq!(sha256(&view).unwrap(), Some(Sha256::digest([]).into()));
    }
}
